"""Holds on collections, and paused queues.

    hold       a collection, by its mnemonic or a profile's name: deposits that would start stay in Held until they are released
    pause      a queue (all deposits, small or large assemblies): no new work is started in it

On ZooKeeper other services see and set the same holds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import msgspec

from waybill.apps.ingest.machine.batch import BATCH
from waybill.apps.ingest.machine.holds import COLLECTION_HOLD_PREFIX, PAUSE_HOLD
from waybill.apps.ingest.machine.job import JOB
from waybill.apps.ingest.profile import Name
from waybill.engine import ActionResult, Engine
from waybill.errors import InputError, NotFound
from waybill.files import names
from waybill.record import Record, RecordNotFound, Ref
from waybill.rules import ActionRefused

PausableQueue = Literal["ingest", "small", "large"]
QUEUE_HOLDS: dict[PausableQueue, str] = {
    "ingest": PAUSE_HOLD,
    "small": "queue/accessSmall",
    "large": "queue/accessLarge",
}
MAX_REFUSALS = 100  # that are listed one by one

_HOLDABLE_KINDS = ("batch", "job")  # batches first: a released batch creates its jobs, which must find no hold


class ActiveHold(msgspec.Struct, frozen=True):
    """A hold on a collection, or a paused queue."""

    scope: Literal["collection", "queue", "other"]
    name: str
    about: str  # who set it, and why
    hold_name: str


class BulkActionResult(msgspec.Struct):
    """The result of an action on many records."""

    done: int = 0
    pending: int = 0  # a worker has claimed the record, and applies the action
    refusal_count: int = 0
    refusals: list[dict[str, str]] = []

    def add_answer(self, ref: Ref, answer: ActionResult | ActionRefused) -> None:
        if isinstance(answer, ActionRefused):
            self.refusal_count += 1
            if len(self.refusals) < MAX_REFUSALS:
                self.refusals.append({"kind": ref.kind, "id": ref.id, "why": str(answer)})
        elif answer.pending:
            self.pending += 1
        else:
            self.done += 1


# --- holds and pauses


def list_active_holds(engine: Engine) -> list[ActiveHold]:
    """All holds in force: of collections, then of queues, then of other applications."""
    queues = {hold_name: name for name, hold_name in QUEUE_HOLDS.items()}
    found: list[ActiveHold] = []
    for hold_name, about in sorted(engine.store.list_holds().items()):
        if hold_name.startswith(COLLECTION_HOLD_PREFIX):
            found.append(ActiveHold("collection", hold_name.removeprefix(COLLECTION_HOLD_PREFIX), about, hold_name))
        elif hold_name in queues:
            found.append(ActiveHold("queue", queues[hold_name], about, hold_name))
        else:
            found.append(ActiveHold("other", hold_name, about, hold_name))
    return sorted(found, key=lambda each: (each.scope, each.name))


def hold_collection(engine: Engine, collection: str, *, who: str, why: str = "") -> bool:
    """Put a collection on hold; returns whether a collection or profile of this name exists here.

    Deposits of other services may name others.
    """
    _check_name(collection)
    engine.set_hold(f"{COLLECTION_HOLD_PREFIX}{collection}", who=who, why=why)
    return any(_exists(engine, kind, collection) for kind in ("collection", "profile"))


def release_collection(
    engine: Engine, collection: str, *, who: str, why: str = "", release_records: bool = True
) -> BulkActionResult:
    """Clear the hold on a collection and, with `release_records`, release all records that it holds.

    Raises NotFound if there is no such hold and nothing to release.
    """
    _check_name(collection)
    hold_name, result = f"{COLLECTION_HOLD_PREFIX}{collection}", BulkActionResult()
    was_held = hold_name in engine.store.list_holds()
    if was_held:
        engine.clear_hold(hold_name)
    if release_records:
        for kind in _HOLDABLE_KINDS:
            for ref, answer in engine.act_all(
                kind, "release", state=BATCH.held, where=_is_held_by(engine, hold_name), who=who, why=why
            ):
                result.add_answer(ref, answer)
    if not was_held and not result.done and not result.refusal_count:
        raise NotFound(f"{names.quote_text(collection)} is not on hold, and nothing is held for it.")
    return result


def release_batch(engine: Engine, batch: Record, *, who: str, why: str = "") -> BulkActionResult:
    """Release a held batch, and all held jobs of it."""
    result = BulkActionResult()
    if batch.state == BATCH.held:
        result.add_answer(batch.ref, _try_action(lambda: engine.act(batch.ref, "release", who=who, why=why)))
    for ref, answer in engine.act_all(
        "job", "release", parent=batch.ref, where=lambda job: job.state == JOB.held, who=who, why=why
    ):
        result.add_answer(ref, answer)
    return result


def pause_queue(engine: Engine, queue: PausableQueue, *, who: str, why: str = "") -> None:
    engine.set_hold(QUEUE_HOLDS[queue], who=who, why=why)


def unpause_queue(engine: Engine, queue: PausableQueue, *, who: str, why: str = "") -> None:
    if QUEUE_HOLDS[queue] not in engine.store.list_holds():
        raise NotFound(f"The queue {queue} is not paused.")
    engine.clear_hold(QUEUE_HOLDS[queue])


def _is_held_by(engine: Engine, hold_name: str) -> Callable[[Record], bool]:
    hold_names = {kind: engine.machines[kind].hold_names for kind in _HOLDABLE_KINDS}

    def is_held(record: Record) -> bool:
        names_of = hold_names[record.kind]
        return names_of is not None and hold_name in set(names_of(record))

    return is_held


def _check_name(name: str) -> None:
    try:
        msgspec.convert(name, Name)
    except msgspec.ValidationError:
        raise InputError(f"{names.quote_text(name)} is not the name of a collection or a profile.") from None


def _exists(engine: Engine, kind: str, id: str) -> bool:
    try:
        engine.store.get(kind, id)
    except RecordNotFound:
        return False
    return True


def _try_action(act: Callable[[], ActionResult]) -> ActionResult | ActionRefused:
    try:
        return act()
    except ActionRefused as refusal:
        return refusal
