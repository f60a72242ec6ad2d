"""The messages of records that a hold sent to rest, by the holds that are in force now.

A record keeps the message with which it went on hold. It names the hold that stopped it first, and so does the record's
`hold_names`. That hold may be cleared, and another one in force: the machine says from the record's documents which
holds concern it. A record that another service put on hold has neither message nor hold name.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence

from msgspec.structs import replace

from waybill.machine import Machine
from waybill.record import Record, RecordNotFound, Store
from waybill.rules import Machines

log = logging.getLogger("waybill")
MAX_DOCUMENT_READS = 200  # records of one list whose documents are read for this; further ones get no message


def is_on_hold(m: Machine, r: Record) -> bool:
    return any(s.on_hold == r.state for s in m.states)


def compose_record_message(m: Machine, r: Record, holds: Collection[str]) -> str:
    """Return the record's message; of a record that a hold sent to rest, the holds that are in force now.

    The record must have its documents.
    """
    if not _was_held(m, r):
        return r.message
    assert m.hold_names is not None
    try:
        in_force = [name for name in m.hold_names(r) if name in holds]
    # a machine's own function: what it cannot read must not hide the record, and others with it
    except Exception as error:
        log.info("which holds concern %s", r.ref, exc_info=error)
        return r.message
    if in_force:
        return f"held by {' and '.join(in_force)}"
    return f"{r.message}, which is over: release it" if r.message else ""


def refresh_messages(records: Sequence[Record], machines: Machines, store: Store, *, documents: bool) -> list[Record]:
    """Return the records of a list with their messages of now. `documents`: they have their documents."""
    if not any(_was_held(machines[r.kind], r) for r in records):
        return list(records)
    holds, read_count, refreshed = store.list_holds(), 0, []
    for r in records:
        m = machines[r.kind]
        if not _was_held(m, r) or (not documents and any(name in holds for name in r.hold_names)):
            refreshed.append(r)  # its message is true; further holds may concern it
            continue
        try:
            current = r if documents else store.get(r.kind, r.id) if read_count < MAX_DOCUMENT_READS else None
        except RecordNotFound:
            current = None  # removed meanwhile
        read_count += 1
        # A record that has changed its state meanwhile is listed as it was, without a message rather than a wrong one.
        unmoved = current if current is not None and current.state == r.state else None
        refreshed.append(replace(r, message=compose_record_message(m, unmoved, holds) if unmoved is not None else ""))
    return refreshed


def _was_held(m: Machine, r: Record) -> bool:
    """Return whether a hold sent the record to rest, and not an operator's action, which leaves a message."""
    return m.hold_names is not None and is_on_hold(m, r) and (bool(r.hold_names) or not r.message)
