"""Locks on objects: listed, set by operators, and released.

    set_operator_lock -> Asking -> (the present owner releases the lock) -> Set -> release_operator_lock -> Released

An operator lock is a record that owns a lock, as a job does while it writes: so it waits until the lock is free, survives
restarts, and on ZooKeeper is a lock for other services too. The locks of jobs end with their states. A lock that another
service left behind when it died can be removed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from waybill.apps.ingest.identifiers.noid import find_ark_fault
from waybill.apps.ingest.machine.operator_lock import FAMILIES, KIND, OPERATOR_LOCK
from waybill.apps.ingest.submission import MAX_LOCAL_ID_LENGTH
from waybill.engine import Engine
from waybill.errors import InputError, NotFound
from waybill.files import names
from waybill.record import Record, RecordNotFound, Ref
from waybill.step import New


def list_active_locks(engine: Engine, *, after: str = "", limit: int = 100) -> Iterator[dict[str, Any]]:
    """The locks in force, each with its owner: a job, an operator lock, or (None) another service."""
    for name, owners, *_ in engine.store.list_locks(after=after, limit=limit):
        owner = owners[0] if owners else None  # all locks of Merritt are exclusive
        family, _, lock_target = name.partition("/")
        record = _find_record(engine, owner)
        yield {
            "lock": name,
            "family": family,
            "name": lock_target,
            "owner": {"kind": owner.kind, "id": owner.id} if owner is not None else None,
            "state": record.state if record is not None else None,
            "why": _reason_of(record),
        }


def set_operator_lock(engine: Engine, lock_name: str, *, who: str, why: str = "") -> Record:
    """Ask for a lock. It is in force once its record is `Set`, which is when the present owner has released it."""
    _check_lock_name(lock_name)
    return engine.submit(
        New(KIND, {"operator_lock": {"lock": lock_name, "why": why}}, locks=(lock_name,), owner=who), who=who, why=why
    )


def release_operator_lock(engine: Engine, lock_name: str, *, who: str, why: str = "") -> int:
    """Release the operator locks of this name, also those that still wait for it, or remove one that another service left
    behind; returns how many.
    """
    _check_lock_name(lock_name)
    released = 0
    for state in reversed(OPERATOR_LOCK.unfinished):
        for record in engine.store.each(KIND, state=state, documents=True):
            if record.documents.get("operator_lock", {}).get("lock") == lock_name:
                engine.act(record.ref, "release", who=who, why=why)
                released += 1
    if not released and not engine.store.remove_foreign_lock(lock_name):
        raise NotFound(f"Nothing locks {names.quote_text(lock_name)}.")
    return max(released, 1)


def _check_lock_name(lock_name: str) -> None:
    family, _, name = lock_name.partition("/")
    if family not in FAMILIES or not name or len(name) > MAX_LOCAL_ID_LENGTH + 256 or not name.isprintable():
        raise InputError(
            f"{names.quote_text(lock_name)} is not a lock: write storage/ARK, inventory/ARK or localid/LOCALID_OWNER."
        )
    # A lock that is listed may be another service's: then its name is as Merritt writes it, ark_99999_fk4.
    if family != "localid" and not name.startswith("ark_") and (fault := find_ark_fault(name)):
        raise InputError(fault)


def _find_record(engine: Engine, ref: Ref | None) -> Record | None:
    try:
        return engine.store.get(*ref) if ref is not None else None
    except RecordNotFound:
        return None


def _reason_of(record: Record | None) -> str:
    if record is None:
        return "another service owns it"
    document = record.documents.get("operator_lock") if record.kind == KIND else None
    return f"{record.owner}: {document.get('why', '')}" if isinstance(document, dict) else f"{record.ref} is running"
