"""Holding: collections on hold and queues paused: marks that stop deposits on purpose, seen and set in one place.

    hold       a collection, by its mnemonic or a profile's name: what would begin rests in Held until it is released
    pause      a queue (all deposits, small or large assemblies): nothing new is begun in it

On ZooKeeper other services see and set the same ones.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import msgspec

from waybill.apps.ingest import names
from waybill.apps.ingest.profile import Name
from waybill.apps.ingest.service.refusals import Missing, Unfit
from waybill.engine import Acted, Engine
from waybill.record import NotFound, Record, Ref
from waybill.rules import Refused

Queue = Literal["ingest", "small", "large"]
QUEUES: dict[Queue, str] = {"ingest": "queue/ingest", "small": "queue/accessSmall", "large": "queue/accessLarge"}
COLLECTIONS = "collections/"
MOST_REFUSALS = 100  # that are told one by one

_HELD = ("batch", "job")  # batches first: one that is released makes its jobs, which then find the hold gone


class Mark(msgspec.Struct, frozen=True):
    """A hold or a pause in force."""

    sort: Literal["collection", "queue", "other"]
    name: str
    about: str  # who set it, and why
    mark: str


class Bulk(msgspec.Struct):
    """What came of an action on many records."""

    done: int = 0
    pending: int = 0  # a worker holds the record, and applies it
    refused: int = 0
    refusals: list[dict[str, str]] = []

    def take(self, ref: Ref, answer: Acted | Refused) -> None:
        if isinstance(answer, Refused):
            self.refused += 1
            if len(self.refusals) < MOST_REFUSALS:
                self.refusals.append({"kind": ref.kind, "id": ref.id, "why": str(answer)})
        elif answer.pending:
            self.pending += 1
        else:
            self.done += 1


# --- holds and pauses


def marks(engine: Engine) -> list[Mark]:
    """All in force: collections, then queues, then what other applications set."""
    queues = {mark: name for name, mark in QUEUES.items()}
    found: list[Mark] = []
    for mark, about in sorted(engine.store.marks().items()):
        if mark.startswith(COLLECTIONS):
            found.append(Mark("collection", mark.removeprefix(COLLECTIONS), about, mark))
        elif mark in queues:
            found.append(Mark("queue", queues[mark], about, mark))
        else:
            found.append(Mark("other", mark, about, mark))
    return sorted(found, key=lambda each: (each.sort, each.name))


def hold(engine: Engine, collection: str, *, who: str, why: str = "") -> bool:
    """Put a collection on hold; whether it, or a profile of this name, is known here.

    Other services' deposits may name another.
    """
    _check_name(collection)
    engine.hold(f"{COLLECTIONS}{collection}", who=who, why=why)
    return any(_exists(engine, kind, collection) for kind in ("collection", "profile"))


def release(engine: Engine, collection: str, *, who: str, why: str = "", also_held: bool = True) -> Bulk:
    """End the hold of a collection and, with `also_held`, release all that rests for it.

    Missing if nothing of the kind is there.
    """
    _check_name(collection)
    mark, bulk = f"{COLLECTIONS}{collection}", Bulk()
    was_held = mark in engine.store.marks()
    if was_held:
        engine.release(mark, who=who, why=why)
    if also_held:
        for kind in _HELD:
            for ref, answer in engine.act_all(
                kind, "release", state="Held", where=_gated_by(engine, mark), who=who, why=why
            ):
                bulk.take(ref, answer)
    if not was_held and not bulk.done and not bulk.refused:
        raise Missing(f"{names.shown(collection)} is not on hold, and nothing rests for it.")
    return bulk


def release_batch(engine: Engine, batch: Record, *, who: str, why: str = "") -> Bulk:
    """Release a batch that is held, and all jobs of it that are."""
    bulk = Bulk()
    if batch.state == "Held":
        bulk.take(batch.ref, _tried(lambda: engine.act(batch.ref, "release", who=who, why=why)))
    for ref, answer in engine.act_all(
        "job", "release", parent=batch.ref, where=lambda job: job.state == "Held", who=who, why=why
    ):
        bulk.take(ref, answer)
    return bulk


def pause(engine: Engine, queue: Queue, *, who: str, why: str = "") -> None:
    engine.hold(QUEUES[queue], who=who, why=why)


def unpause(engine: Engine, queue: Queue, *, who: str, why: str = "") -> None:
    if QUEUES[queue] not in engine.store.marks():
        raise Missing(f"The queue {queue} is not paused.")
    engine.release(QUEUES[queue], who=who, why=why)


def _gated_by(engine: Engine, mark: str) -> Callable[[Record], bool]:
    gates = {kind: engine.machines[kind].gates for kind in _HELD}

    def belongs(record: Record) -> bool:
        of = gates[record.kind]
        return of is not None and mark in set(of(record))

    return belongs


def _check_name(name: str) -> None:
    try:
        msgspec.convert(name, Name)
    except msgspec.ValidationError:
        raise Unfit(f"{names.shown(name)} is not the name of a collection or a profile.") from None


def _exists(engine: Engine, kind: str, id: str) -> bool:
    try:
        engine.store.get(kind, id)
    except NotFound:
        return False
    return True


def _tried(act: Callable[[], Acted]) -> Acted | Refused:
    try:
        return act()
    except Refused as refusal:
        return refusal
