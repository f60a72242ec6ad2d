"""A duty is upkeep that nobody asked for: a record of the built-in machine `duty`, so that any worker serves it and
none runs it twice.

    Watching: a round -> Wait(every) -> a round -> ...        `waybill act duty NAME run` asks for a round now

A round looks for what is wrong and mends it: `check` names findings, `mend` mends one, and `waybill doctor` calls the
same two by hand. A round is bounded; what it did not get to, the next one does. A duty of each host (working folders)
has one record per host, bound to it.

Two kinds of upkeep are no duties, because the duty's own record might be what needs them: ending sessions that died and
waking waits that are due. Every worker does those itself, with its heartbeat.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

from waybill.engine import Engine
from waybill.machine import STAY, Backoff, Document, Machine, action, end, work
from waybill.record import Exists, Finding, Record, Ref, Store, Unknown
from waybill.rules import Machines, calls
from waybill.step import Context, New, Outcome, Wait
from waybill.worker.context import ByMessage

if TYPE_CHECKING:
    from waybill.objects import Objects

ROUND = 1000  # findings mended in one round


@dataclass
class Hand:
    """What a duty works with."""

    store: Store
    machines: Machines
    host: str
    root: Path
    objects: Objects | None = None
    open_store: Callable[[], Store] | None = None  # a connection of its own, for a look that takes long
    retention: Mapping[str, float] = field(default_factory=dict)  # "kind.State" -> seconds, over what the table says
    memory: dict[str, Any] = field(default_factory=dict)  # kept from round to round; small
    stop: Callable[[], bool] = lambda: False
    who: str = "duty"
    outfit: Callable[[str], Any] = lambda kind: None  # what the application of a kind works with
    thorough: bool = False  # look at everything, also at what a round of this hour has seen

    @property
    def engine(self) -> Engine:
        return Engine(self.store, self.machines)


class Duty(Protocol):
    """`check` is read-only and may be long; `mend` is safe to repeat and does nothing when the finding no longer
    holds.
    """

    @property
    def name(self) -> str: ...

    @property
    def doc(self) -> str: ...

    @property
    def every(self) -> float: ...

    @property
    def per_host(self) -> bool: ...

    @property
    def routine(self) -> bool:
        """Whether what it finds is work that is due, and nothing wrong: `waybill doctor` leaves it to the duty."""

    def check(self, hand: Hand) -> Iterator[Finding]: ...

    def mend(self, hand: Hand, finding: Finding) -> bool: ...


def a_round(duty: Duty, hand: Hand) -> int:
    """Mend what is found, at most a portion; how many."""
    mended = 0
    for finding in islice(duty.check(hand), ROUND):
        if hand.stop():
            break
        if finding.mendable:
            mended += duty.mend(hand, finding)
    return mended


def kept_of(record: Record) -> dict[str, Any]:
    """What the duty of this record keeps from round to round."""
    return dict(record.docs["memory"].get("kept", {})) if "memory" in record.docs else {}


DUTY = Machine(
    name=calls.DUTY,
    plural="duties",
    doc="Upkeep that no user asked for, done in rounds.",
    made_by="every process that starts",
    states=(
        work("Watching", "Ended", "Does a round, then waits for the next.", fails=None, backoff=Backoff(5, 2, 600)),
        end("Ended", "Given up: this release has no such duty.", keep=0),
    ),
    actions=(action("run", "Watching", STAY, "Do a round now.", claimed="wait"),),
    documents=(Document("memory", "step", "What the duty keeps from round to round, and what its last round did."),),
)


@dataclass(frozen=True)
class Post:
    """The duties of a process, and what their rounds need from it."""

    duties: Mapping[str, Duty]
    machines: Machines
    host: str
    root: Path
    objects: Objects | None = None
    open_store: Callable[[], Store] | None = None
    retention: Mapping[str, float] = field(default_factory=dict)
    outfit: Callable[[str], Any] = lambda kind: None

    def step(self, record: Record, ctx: Context) -> Outcome:
        """One round. Safe to repeat: each mending is, and the memory is written with the commit that ends the round."""
        duty = self.duties.get(calls.name_of(record))
        if duty is None:
            return Wait(3600, "this release has no such duty")
        memory = kept_of(record)
        hand = Hand(
            cast(Store, ByMessage(ctx)),
            self.machines,
            self.host,
            self.root,
            self.objects,
            self.open_store,
            self.retention,
            memory,
            lambda: ctx.stop,
            f"duty {duty.name}",
            self.outfit,
        )
        mended = a_round(duty, hand)
        return Wait(duty.every, docs={"memory": {"kept": hand.memory, "mended": mended, "at": ctx.now()}})

    def ensure(self, engine: Engine) -> None:
        """Make the records that are not there yet. Safe to repeat and to race: an id exists once."""
        for duty in self.duties.values():
            name = f"{duty.name}@{self.host}" if duty.per_host else duty.name
            new = New(calls.DUTY, id=name, host=self.host if duty.per_host else "")
            try:
                engine.submit(new, who="setup", why=duty.doc)
            except Exists:
                continue
            except Unknown:
                with suppress(Exists):  # it was written after all
                    engine.submit(new, who="setup", why=duty.doc)

    def take_up(self) -> None:
        """Let the machine's one work state run these duties."""
        self.machines[DUTY.name].steps["Watching"] = self.step


def ref_of(finding: Finding) -> Ref:
    if finding.ref is None:
        raise ValueError(f"the finding {finding.rule} names no record")
    return finding.ref
