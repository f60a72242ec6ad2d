"""Steps that do what no step should: each mistake must end as a failed record with a sentence, and the worker must
go on.

    chore   Trying -> Finished, or Failed with the reason; tried again by people, and then well done
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from waybill.machine import RESUME, STAY, Backoff, Document, Machine, action, end, rest, work
from waybill.record import MAX_DOCUMENT, Record, Store
from waybill.sim.scenario import Scenario
from waybill.sim.world import current
from waybill.step import Context, Done, New, Outcome, Wait

MISTAKES: dict[str, Callable[[Record, Context], Any]] = {
    "answers nothing": lambda chore, ctx: None,
    "answers a word": lambda chore, ctx: "done",
    "goes nowhere": lambda chore, ctx: Done(to="Nowhere"),
    "writes what is no JSON": lambda chore, ctx: Done({"note": object()}),
    "writes half a character": lambda chore, ctx: Done({"note": "\ud800"}),
    "writes what is not declared": lambda chore, ctx: Done({"diary": 1}),
    "writes what is another's": lambda chore, ctx: Done({"chore": {}}),
    "writes too much": lambda chore, ctx: Done({"note": "x" * MAX_DOCUMENT}),
    "waits for a word": lambda chore, ctx: Wait("soon"),  # type: ignore[arg-type]
    "waits with no JSON": lambda chore, ctx: Wait(1.0, docs={"note": object()}),
    "says a number": lambda chore, ctx: Done(message=5),  # type: ignore[arg-type]
    "says half a character": lambda chore, ctx: Done(message="\ud800"),
    "is urgent in words": lambda chore, ctx: Done(priority="very"),  # type: ignore[arg-type]
    "saves what is no JSON": lambda chore, ctx: ctx.save({"note": object()}),
    "saves what is not declared": lambda chore, ctx: ctx.save({"diary": 1}),
    "saves too much": lambda chore, ctx: ctx.save({"note": "x" * MAX_DOCUMENT}),
    "asks for unknown keys": lambda chore, ctx: ctx.save(keys=("none/such",)),
    "spawns what is no kind": lambda chore, ctx: ctx.spawn([New("nothing")]),
    "spawns what is no JSON": lambda chore, ctx: ctx.spawn([New("chore", {"chore": object()})]),
    "ends with what is no kind": lambda chore, ctx: Done(spawn=(New("nothing"),)),
    "ends with what is no JSON": lambda chore, ctx: Done(spawn=(New("chore", {"chore": object()}),)),
    "ends with a wrong state": lambda chore, ctx: Done(spawn=(New("chore", state="Nowhere"),)),
    "ends with a taken id": lambda chore, ctx: Done(spawn=(New("chore", {"chore": {"mistake": ""}}, id=chore.id),)),
    "raises half a character": lambda chore, ctx: _raise(ValueError("\ud800")),
    "raises a null": lambda chore, ctx: _raise(OSError("a\0b")),
    "raises without a word": lambda chore, ctx: _raise(RuntimeError()),
    "raises a long story": lambda chore, ctx: _raise(ValueError("x" * 10_000)),
    "leaves the program": lambda chore, ctx: _raise(SystemExit(1)),
}

HARMLESS = ("", "says half a character")  # a message is mended; that is no reason to fail


def _raise(error: BaseException) -> None:
    raise error


CHORE = Machine(
    name="chore",
    plural="chores",
    prefix="chr",
    doc="Something to do.",
    states=(
        work("Trying", "Finished", "Does it, or not.", tries=2, backoff=Backoff(1.0, 2.0, 4.0)),
        rest("Failed", "A mistake.", settled=True),
        end("Finished", "Done."),
    ),
    actions=(
        action("resume", "Failed", RESUME, "Try again."),
        action("annotate", "Trying", STAY, "Say something.", claimed="wait", writes=lambda r, args: {"saying": {}}),
    ),
    documents=(
        Document("chore", "service", "Which mistake to make."),
        Document("note", "step", "A note.", v=None),
        Document("saying", "service", "What was said."),
    ),
)


@CHORE.step("Trying")
def attempt(chore: Record, ctx: Context) -> Outcome:
    current().point("trying")
    mistake = MISTAKES.get(chore.docs["chore"]["mistake"])
    if mistake is None or chore.retries:
        return Done()
    outcome: Outcome = mistake(chore, ctx)
    return outcome


class Mistakes(Scenario):
    name = "mistakes"
    doc = "Steps that do what no step should: each ends as a failed record with a sentence, and the worker goes on."

    sound = False

    def machines(self) -> tuple[Machine, ...]:
        return (CHORE,)

    def submissions(self) -> Iterator[New]:
        names = self.rng.sample(sorted(MISTAKES), self.rng.choice((1, 2, 4)))
        for n, mistake in enumerate([*names, ""]):
            yield New("chore", {"chore": {"mistake": mistake}}, request=f"chore-{n}")

    def finished(self, store: Store) -> Iterator[str]:
        after: int | None = None
        while True:
            page = store.find("chore", after=after, docs=True)
            for chore in page.records:
                mistake = chore.docs["chore"]["mistake"]
                if chore.state == "Finished" and mistake not in HARMLESS and not chore.retries:
                    yield f"{chore.ref} {mistake}, and is finished"
                if chore.state == "Failed" and not chore.message:
                    yield f"{chore.ref} failed and does not say why"
            if page.after is None:
                return
            after = page.after
