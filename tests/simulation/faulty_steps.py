"""Steps that do what no step should: each must end as a failed record with a sentence, and the worker must go on.

chore   Trying -> Finished, or Failed with the reason; resumed by the operator, it is done correctly
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from waybill.machine import RESUME, STAY, Backoff, Document, Machine, action, end, rest, work
from waybill.record import MAX_DOCUMENT, Record, Store
from waybill.sim.scenario import Scenario
from waybill.sim.world import get_current_world
from waybill.step import Done, New, Outcome, StepContext, Wait

STEP_FAULTS: dict[str, Callable[[Record, StepContext], Any]] = {
    "answers nothing": lambda chore, ctx: None,
    "answers a word": lambda chore, ctx: "done",
    "goes nowhere": lambda chore, ctx: Done(to="Nowhere"),
    "writes what is no JSON": lambda chore, ctx: Done({"note": object()}),
    "writes half a character": lambda chore, ctx: Done({"note": "\ud800"}),
    "writes what is not declared": lambda chore, ctx: Done({"diary": 1}),
    "writes what is another's": lambda chore, ctx: Done({"chore": {}}),
    "writes too much": lambda chore, ctx: Done({"note": "x" * MAX_DOCUMENT}),
    "waits for a word": lambda chore, ctx: Wait("soon"),  # type: ignore[arg-type]
    "waits with no JSON": lambda chore, ctx: Wait(1.0, documents={"note": object()}),
    "says a number": lambda chore, ctx: Done(message=5),  # type: ignore[arg-type]
    "says half a character": lambda chore, ctx: Done(message="\ud800"),
    "is urgent in words": lambda chore, ctx: Done(priority="very"),  # type: ignore[arg-type]
    "saves what is no JSON": lambda chore, ctx: ctx.save({"note": object()}),
    "saves what is not declared": lambda chore, ctx: ctx.save({"diary": 1}),
    "saves too much": lambda chore, ctx: ctx.save({"note": "x" * MAX_DOCUMENT}),
    "asks for unknown locks": lambda chore, ctx: ctx.save(locks=("none/such",)),
    "spawns what is no kind": lambda chore, ctx: ctx.spawn([New("nothing")]),
    "spawns what is no JSON": lambda chore, ctx: ctx.spawn([New("chore", {"chore": object()})]),
    "ends with what is no kind": lambda chore, ctx: Done(spawn=(New("nothing"),)),
    "ends with what is no JSON": lambda chore, ctx: Done(spawn=(New("chore", {"chore": object()}),)),
    "ends with a wrong state": lambda chore, ctx: Done(spawn=(New("chore", state="Nowhere"),)),
    "ends with a taken id": lambda chore, ctx: Done(spawn=(New("chore", {"chore": {"fault": ""}}, id=chore.id),)),
    "raises half a character": lambda chore, ctx: _raise_error(ValueError("\ud800")),
    "raises a null": lambda chore, ctx: _raise_error(OSError("a\0b")),
    "raises without a word": lambda chore, ctx: _raise_error(RuntimeError()),
    "raises a long story": lambda chore, ctx: _raise_error(ValueError("x" * 10_000)),
    "leaves the program": lambda chore, ctx: _raise_error(SystemExit(1)),
}

HARMLESS_FAULTS = ("", "says half a character")  # a message is corrected; that is no reason to fail


def _raise_error(error: BaseException) -> None:
    raise error


CHORE = Machine(
    name="chore",
    plural="chores",
    prefix="chr",
    description="Something to do.",
    steps=__name__,
    states=(
        work("Trying", to="Finished", description="Does it, or not.", max_tries=2, backoff=Backoff(1.0, 2.0, 4.0)),
        rest("Failed", description="The step was wrong.", settled=True),
        end("Finished", description="Done."),
    ),
    actions=(
        action("resume", "Failed", RESUME, "Try again."),
        action(
            "annotate", "Trying", STAY, "Say something.", when_claimed="wait", writes=lambda r, args: {"saying": {}}
        ),
    ),
    documents=(
        Document("chore", None, "service", "What the step does wrong."),
        Document("note", None, "step", "A note.", v=None),
        Document("saying", None, "service", "What was said."),
    ),
)


def trying(chore: Record, ctx: StepContext) -> Outcome:
    get_current_world().reach_point("trying")
    fault = STEP_FAULTS.get(chore.documents["chore"]["fault"])
    if fault is None or chore.resume_count:
        return Done()
    outcome: Outcome = fault(chore, ctx)
    return outcome


class FaultyStepsScenario(Scenario):
    name = "faulty-steps"
    description = "Steps that do what no step should: each fails its record with a sentence, and the worker goes on."

    is_retry_free = False

    def build_machines(self) -> tuple[Machine, ...]:
        return (CHORE,)

    def build_submissions(self) -> Iterator[New]:
        names = self.rng.sample(sorted(STEP_FAULTS), self.rng.choice((1, 2, 4)))
        for n, fault in enumerate([*names, ""]):
            yield New("chore", {"chore": {"fault": fault}}, idempotency_key=f"chore-{n}")

    def find_problems(self, store: Store) -> Iterator[str]:
        for chore in store.each("chore", documents=True):
            fault = chore.documents["chore"]["fault"]
            if chore.state == "Finished" and fault not in HARMLESS_FAULTS and not chore.resume_count:
                yield f"{chore.ref} {fault}, and is finished"
            if chore.state == "Failed" and not chore.message:
                yield f"{chore.ref} failed and does not say why"
