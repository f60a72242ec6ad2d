"""What an entry of an old queue becomes: a job of a batch, or an assembly; and through which states it reaches the
state of the entry.

    queue       what it becomes                              Pending      Consumed      Failed                 Held
    ingest      a job of the batch that it names             Pending      Estimating    Estimating -> Failed   Held
    inventory   a job whose object is stored already         Recording    Recording     Recording -> Failed    Recording -> Failed
    access      an assembly                                  ----------------- Processing -> Failed -----------------

Completed and Deleted entries stay so. Entries that were consumed when the queue was abandoned start again. Where a
machine has no hold, held entries become Failed, so that nothing starts that an operator had stopped; an operator
resumes them. No assembly can be packed: the old system stored elsewhere what was requested.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import msgspec

from waybill.apps.ingest.access.orders import ASK_AGAIN
from waybill.apps.ingest.merritt.queue_entries import LegacyQueue, LegacyQueueEntry, LegacyStatus

_ALL_STATES = ("Pending", "Estimating", "Provisioning", "Downloading", "Processing", "Recording", "Notify", "Completed")
_STATES_TO_RECORDING = _ALL_STATES[: _ALL_STATES.index("Recording") + 1]
_INGEST_STATES = {
    LegacyStatus.Pending: ("Pending",),
    LegacyStatus.Consumed: ("Pending", "Estimating"),
    LegacyStatus.Failed: ("Pending", "Estimating", "Failed"),
    LegacyStatus.Held: ("Pending", "Held"),
    LegacyStatus.Deleted: ("Pending", "Held", "Deleted"),
    LegacyStatus.Completed: _ALL_STATES,
}
_INVENTORY_STATES = {
    LegacyStatus.Pending: _STATES_TO_RECORDING,
    LegacyStatus.Consumed: _STATES_TO_RECORDING,
    LegacyStatus.Failed: (*_STATES_TO_RECORDING, "Failed"),
    LegacyStatus.Held: (*_STATES_TO_RECORDING, "Failed"),
    LegacyStatus.Deleted: (*_STATES_TO_RECORDING, "Failed", "Deleted"),
    LegacyStatus.Completed: _ALL_STATES,
}
_ACCESS_STATES = {
    LegacyStatus.Pending: ("Pending", "Processing", "Failed"),
    LegacyStatus.Consumed: ("Pending", "Processing", "Failed"),
    LegacyStatus.Failed: ("Pending", "Processing", "Failed"),
    LegacyStatus.Held: ("Pending", "Processing", "Failed"),
    LegacyStatus.Deleted: ("Pending", "Processing", "Failed", "Deleted"),
    LegacyStatus.Completed: ("Pending", "Processing", "Completed"),
}
_DEFAULT_PRIORITY = 5
_JOB_KEYS = {"jobID", "objectID", "localID", "queuePriority"}
_CITATION_KEYS = {"creator": "erc_who", "title": "erc_what", "date": "erc_when"}


class ImportPlan(msgspec.Struct, frozen=True):
    """The record to create. Its documents have Merritt's names and keys."""

    idempotency_key: str  # derived from the entry
    kind: str  # "job" | "access"
    state_path: tuple[str, ...]  # from the initial state to the current one
    priority: int
    batch: str = ""  # uuid; entries with the same uuid are jobs of one batch
    submission: dict[str, Any] = {}
    configuration: dict[str, Any] = {}
    identifiers: dict[str, Any] = {}
    metadata: dict[str, str] = {}
    inventory: dict[str, str] = {}
    token: dict[str, Any] = {}
    is_large: bool = False  # of an assembly: for the large queue
    message: str = ""  # why it is failed or held
    remarks: list[str] = []

    @property
    def state(self) -> str:
        return self.state_path[-1]

    @property
    def last_done(self) -> str:
        """The last state whose work is done; empty if there is none."""
        done = [before for before, after in pairwise(self.state_path) if after not in ("Failed", "Deleted", "Held")]
        return done[-1] if done else ""


def plan_import(entry: LegacyQueueEntry) -> ImportPlan:
    if entry.queue in (LegacyQueue.ACCESS_SMALL, LegacyQueue.ACCESS_LARGE):
        return _plan_assembly(entry)
    return _plan_job(entry)


def _plan_job(entry: LegacyQueueEntry) -> ImportPlan:
    payload = _normalize_update(entry.payload)
    is_stored = entry.queue is LegacyQueue.INVENTORY
    batch = _to_text(payload.get("batchID")) or f"legacy-{entry.name}"
    remarks = [] if payload.get("batchID") else ["It names no batch and becomes its own batch."]
    if is_stored and entry.status is LegacyStatus.Held:
        remarks.append("It was held, and jobs cannot be held before Recording: resume it.")
    url = _to_text(payload.get("manifestURL"))
    if is_stored and not url:
        remarks.append("It names no manifest to record.")
    if (
        not is_stored
        and not payload.get("payload_url")
        and entry.status not in (LegacyStatus.Completed, LegacyStatus.Deleted)
    ):
        remarks.append("It names no payload_url and will fail: submit it again from its files.")
    configuration = {"update": False, **payload, "batchID": batch}
    return ImportPlan(
        idempotency_key=_idempotency_key_of(entry),
        kind="job",
        state_path=(_INVENTORY_STATES if is_stored else _INGEST_STATES)[entry.status],
        priority=_priority_of(entry),
        batch=batch,
        submission={**{key: value for key, value in configuration.items() if key not in _JOB_KEYS}, "migrated": True},
        configuration=configuration,
        identifiers={"primary_id": _to_text(payload.get("objectID")), "local_id": _to_list(payload.get("localID"))},
        metadata={key: _to_text(payload.get(name)) for name, key in _CITATION_KEYS.items()},
        inventory={"manifest_url": url, "mode": "add"} if is_stored else {},
        message=_reason_of(entry),
        remarks=remarks,
    )


def _plan_assembly(entry: LegacyQueueEntry) -> ImportPlan:
    is_failed = _ACCESS_STATES[entry.status][-1] == "Failed"
    return ImportPlan(
        idempotency_key=_idempotency_key_of(entry),
        kind="access",
        state_path=_ACCESS_STATES[entry.status],
        priority=_priority_of(entry),
        token=dict(entry.payload),
        is_large=entry.queue is LegacyQueue.ACCESS_LARGE,
        message=f"{_reason_of(entry)} {ASK_AGAIN}".lstrip() if is_failed else "",
        remarks=[ASK_AGAIN] if is_failed else [],
    )


def _reason_of(entry: LegacyQueueEntry) -> str:
    """Return why it is failed or held; the old queue recorded no reason."""
    where = f"the old queue, entry {entry.queue}/{entry.name}"
    return {LegacyStatus.Failed: f"It had failed in {where}.", LegacyStatus.Held: f"It was held in {where}."}.get(
        entry.status, ""
    )


def _idempotency_key_of(entry: LegacyQueueEntry) -> str:
    return f"legacy{entry.queue}/{entry.name}"


def _normalize_update(payload: dict[str, Any]) -> dict[str, Any]:
    """`update` is a boolean in JSON, and a text in the other formats."""
    return {**payload, "update": _to_text(payload.get("update")).lower() == "true"} if "update" in payload else payload


def _priority_of(entry: LegacyQueueEntry) -> int:
    text = _to_text(entry.payload.get("queuePriority") or entry.payload.get("priority"))
    if entry.priority is not None:
        return entry.priority
    return min(99, int(text)) if text.isascii() and text.isdecimal() and len(text) < 10 else _DEFAULT_PRIORITY


def _to_text(value: object) -> str:
    return value if isinstance(value, str) else "" if value is None else str(value)


def _to_list(value: object) -> list[str]:
    parts = value if isinstance(value, list) else _to_text(value).split(";")
    return list(dict.fromkeys(text for part in parts if (text := _to_text(part).strip())))
