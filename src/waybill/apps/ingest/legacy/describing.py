"""Describing: what becomes of an entry of an old queue: a job of a batch, or an assembly; and by which states it
gets where the entry was.

    queue       what it becomes                              Pending      Consumed      Failed                 Held
    ingest      a job of the batch that it names             Pending      Estimating    Estimating -> Failed   Held
    inventory   a job whose object is stored already         Recording    Recording     Recording -> Failed    Recording -> Failed
    access      an assembly                                  ----------------- Processing -> Failed -----------------

Completed and Deleted are what they say. What had been consumed when the queue was given up is begun again. Where a
machine has no hold, what was held fails, so that nothing starts that somebody had stopped; a person resumes it. No
assembly can be packed: what was wanted, the old system kept elsewhere.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import msgspec

from waybill.apps.ingest.access.order import ASK_AGAIN
from waybill.apps.ingest.legacy.entries import Entry, Queue, Status

_WHOLE = ("Pending", "Estimating", "Provisioning", "Downloading", "Processing", "Recording", "Notify", "Completed")
_STORED = _WHOLE[: _WHOLE.index("Recording") + 1]
_INGEST = {
    Status.Pending: ("Pending",),
    Status.Consumed: ("Pending", "Estimating"),
    Status.Failed: ("Pending", "Estimating", "Failed"),
    Status.Held: ("Pending", "Held"),
    Status.Deleted: ("Pending", "Held", "Deleted"),
    Status.Completed: _WHOLE,
}
_INVENTORY = {
    Status.Pending: _STORED,
    Status.Consumed: _STORED,
    Status.Failed: (*_STORED, "Failed"),
    Status.Held: (*_STORED, "Failed"),
    Status.Deleted: (*_STORED, "Failed", "Deleted"),
    Status.Completed: _WHOLE,
}
_ACCESS = {
    Status.Pending: ("Pending", "Processing", "Failed"),
    Status.Consumed: ("Pending", "Processing", "Failed"),
    Status.Failed: ("Pending", "Processing", "Failed"),
    Status.Held: ("Pending", "Processing", "Failed"),
    Status.Deleted: ("Pending", "Processing", "Failed", "Deleted"),
    Status.Completed: ("Pending", "Processing", "Completed"),
}
_USUAL_PRIORITY = 5
_OF_THE_JOB = {"jobID", "objectID", "localID", "queuePriority"}
_CITATION = {"creator": "erc_who", "title": "erc_what", "date": "erc_when"}


class Described(msgspec.Struct, frozen=True):
    """What is to be created. The documents have the names and keys of Merritt's own."""

    request: str  # the same for the same entry
    kind: str  # "job" | "access"
    path: tuple[str, ...]  # states, from the first to where it is now
    priority: int
    batch: str = ""  # uuid of the batch; all entries with the same are jobs of one batch
    submission: dict[str, Any] = {}
    configuration: dict[str, Any] = {}
    identifiers: dict[str, Any] = {}
    metadata: dict[str, str] = {}
    inventory: dict[str, str] = {}
    token: dict[str, Any] = {}
    large: bool = False  # of an assembly: for the large queue
    message: str = ""  # why it is failed or held
    remarks: list[str] = []

    @property
    def state(self) -> str:
        return self.path[-1]

    @property
    def last_done(self) -> str:
        """The last state whose work was done; empty if none was."""
        done = [before for before, after in pairwise(self.path) if after not in ("Failed", "Deleted", "Held")]
        return done[-1] if done else ""


def describe(entry: Entry) -> Described:
    if entry.queue in (Queue.ACCESS_SMALL, Queue.ACCESS_LARGE):
        return _assembly(entry)
    return _job(entry)


def _job(entry: Entry) -> Described:
    said = _plain(entry.said)
    stored = entry.queue is Queue.INVENTORY
    batch = _text(said.get("batchID")) or f"legacy-{entry.name}"
    remarks = [] if said.get("batchID") else ["It names no batch, and becomes a batch of its own."]
    if stored and entry.status is Status.Held:
        remarks.append("It was held, and there is no hold before Recording: resume it.")
    url = _text(said.get("manifestURL"))
    if stored and not url:
        remarks.append("It names no manifest to be recorded.")
    if not stored and not said.get("payload_url") and entry.status not in (Status.Completed, Status.Deleted):
        remarks.append("It names no payload_url, and will fail: submit it again from its files.")
    configuration = {"update": False, **said, "batchID": batch}
    return Described(
        request=_request(entry),
        kind="job",
        path=(_INVENTORY if stored else _INGEST)[entry.status],
        priority=_priority(entry),
        batch=batch,
        submission={**{key: value for key, value in configuration.items() if key not in _OF_THE_JOB}, "migrated": True},
        configuration=configuration,
        identifiers={"primary_id": _text(said.get("objectID")), "local_id": _list(said.get("localID"))},
        metadata={key: _text(said.get(name)) for name, key in _CITATION.items()},
        inventory={"manifest_url": url, "mode": "add"} if stored else {},
        message=_reason(entry),
        remarks=remarks,
    )


def _assembly(entry: Entry) -> Described:
    lost = _ACCESS[entry.status][-1] == "Failed"
    return Described(
        request=_request(entry),
        kind="access",
        path=_ACCESS[entry.status],
        priority=_priority(entry),
        token=dict(entry.said),
        large=entry.queue is Queue.ACCESS_LARGE,
        message=f"{_reason(entry)} {ASK_AGAIN}".lstrip() if lost else "",
        remarks=[ASK_AGAIN] if lost else [],
    )


def _reason(entry: Entry) -> str:
    """Why it is failed or held: the old queue kept nothing but that it was."""
    where = f"the old queue, entry {entry.queue}/{entry.name}"
    return {Status.Failed: f"It had failed in {where}.", Status.Held: f"It was held in {where}."}.get(entry.status, "")


def _request(entry: Entry) -> str:
    return f"legacy{entry.queue}/{entry.name}"


def _plain(said: dict[str, Any]) -> dict[str, Any]:
    """`update` is true or false in JSON, and a text everywhere else."""
    return {**said, "update": _text(said.get("update")).lower() == "true"} if "update" in said else said


def _priority(entry: Entry) -> int:
    said = _text(entry.said.get("queuePriority") or entry.said.get("priority"))
    if entry.priority is not None:
        return entry.priority
    return min(99, int(said)) if said.isascii() and said.isdecimal() and len(said) < 10 else _USUAL_PRIORITY


def _text(value: object) -> str:
    return value if isinstance(value, str) else "" if value is None else str(value)


def _list(value: object) -> list[str]:
    parts = value if isinstance(value, list) else _text(value).split(";")
    return list(dict.fromkeys(text for part in parts if (text := _text(part).strip())))
