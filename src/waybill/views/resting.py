"""Resting: why records lie where marks have sent them, by the marks that are in force now.

A record keeps the message with which it came to rest, which names the mark that it met first. That mark may be gone,
and another one in force: its machine says which ones count for it, from its documents.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence

from msgspec.structs import replace

from waybill.machine import Machine
from waybill.record import NotFound, Record, Store
from waybill.rules import HELD_BY, Machines

log = logging.getLogger("waybill")
MOST = 200  # records of one list whose documents are read for this; of further ones nothing is said


def rests(m: Machine, r: Record) -> bool:
    return any(s.holds == r.state for s in m.states)


def message(m: Machine, r: Record, marks: Collection[str]) -> str:
    """What was said of a record last; of one that rests under marks, those that are in force now.

    It has its documents.
    """
    if not _is_of_marks(m, r):
        return r.message
    assert m.gates is not None
    try:
        held = [mark for mark in m.gates(r) if mark in marks]
    # a table's own function: what it cannot read must not hide the record, and others with it
    except Exception as error:
        log.info("which marks concern %s", r.ref, exc_info=error)
        return r.message
    if held:
        return HELD_BY + " and ".join(held)
    return f"{r.message}, which is over: release it" if r.message else ""


def current(records: Sequence[Record], machines: Machines, store: Store, *, docs: bool) -> list[Record]:
    """Records of a list with what is to be said of them now. `docs`: they have their documents."""
    if not any(_is_of_marks(machines[r.kind], r) for r in records):
        return list(records)
    marks, looked, told = store.marks(), 0, []
    for r in records:
        m = machines[r.kind]
        if not _is_of_marks(m, r) or (not docs and r.message.removeprefix(HELD_BY) in marks):
            told.append(r)  # what it says is so; there may be more
            continue
        try:
            known = r if docs else store.get(r.kind, r.id) if looked < MOST else None
        except NotFound:
            known = None  # removed meanwhile
        looked += 1
        # One that has moved on meanwhile is in the list as it was: then nothing is said, rather than what is not so.
        told.append(
            replace(r, message=message(m, known, marks) if known is not None and known.state == r.state else "")
        )
    return told


def _is_of_marks(m: Machine, r: Record) -> bool:
    return m.gates is not None and rests(m, r) and (r.message.startswith(HELD_BY) or not r.message)
