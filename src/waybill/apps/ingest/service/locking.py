"""Locking: objects that an operator, a job or another service keeps to itself; seen, set and freed.

    lock -> Asking -> (whoever holds the key lets go) -> Set -> unlock -> Released

A lock is a record that holds a key, as a job does while it writes: so it waits for its turn, survives everything, and
on ZooKeeper is a lock for other services too. The locks of jobs end with their steps. One that another service left
behind when it died can be freed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from waybill.apps.ingest import names
from waybill.apps.ingest.locks import FAMILIES, KIND
from waybill.apps.ingest.noid import fault_of_ark
from waybill.apps.ingest.service.refusals import Missing, Unfit
from waybill.apps.ingest.submission import LONGEST_LOCAL_ID
from waybill.engine import Engine
from waybill.record import NotFound, Record, Ref
from waybill.step import New


def locks(engine: Engine, *, after: str = "", limit: int = 100) -> Iterator[dict[str, Any]]:
    """The keys in force, each with its holder: a job at work, an operator's lock, or (None) another service."""
    for name, holder in engine.store.held_keys(after=after, limit=limit):
        family, _, of = name.partition("/")
        record = _record(engine, holder)
        yield {
            "key": name,
            "family": family,
            "name": of,
            "holder": {"kind": holder.kind, "id": holder.id} if holder is not None else None,
            "state": record.state if record is not None else None,
            "why": _why(record),
        }


def lock(engine: Engine, key: str, *, who: str, why: str = "") -> Record:
    """Ask for a lock; it is in force once its record is `Set`, which is when whoever holds the key now has let go of
    it.
    """
    _check_key(key)
    return engine.submit(New(KIND, {"lock": {"key": key, "why": why}}, keys=(key,), owner=who), who=who, why=why)


def unlock(engine: Engine, key: str, *, who: str, why: str = "") -> int:
    """End the operators' locks on this key, those that still wait for it too, or free one that another service left
    behind; how many.
    """
    _check_key(key)
    ended = 0
    for state in ("Set", "Asking"):
        for record in _locks_in(engine, state):
            if record.docs.get("lock", {}).get("key") == key:
                engine.act(record.ref, "release", who=who, why=why)
                ended += 1
    if not ended and not engine.store.free_key(key):
        raise Missing(f"Nothing locks {names.shown(key)}.")
    return max(ended, 1)


def _locks_in(engine: Engine, state: str) -> Iterator[Record]:
    after: int | None = None
    while True:
        page = engine.store.find(KIND, state=state, after=after, limit=200, docs=True)
        yield from page.records
        if page.after is None:
            return
        after = page.after


def _check_key(key: str) -> None:
    family, _, name = key.partition("/")
    if family not in FAMILIES or not name or len(name) > LONGEST_LOCAL_ID + 256 or not name.isprintable():
        raise Unfit(f"{names.shown(key)} is not a key: write storage/ARK, inventory/ARK or localid/LOCALID_OWNER.")
    # A lock that is listed may be another service's: then its name is as Merritt writes it, ark_99999_fk4.
    if family != "localid" and not name.startswith("ark_") and (fault := fault_of_ark(name)):
        raise Unfit(fault)


def _record(engine: Engine, ref: Ref | None) -> Record | None:
    try:
        return engine.store.get(*ref) if ref is not None else None
    except NotFound:
        return None


def _why(record: Record | None) -> str:
    if record is None:
        return "another service holds it"
    said = record.docs.get("lock") if record.kind == KIND else None
    return f"{record.owner}: {said.get('why', '')}" if isinstance(said, dict) else f"{record.ref} is at work"
