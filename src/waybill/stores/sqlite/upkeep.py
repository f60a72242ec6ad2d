"""Upkeep of a file's own indexes: sweep mends what may happen in a normal life, check and mend are for what must never happen.

Each rule of `check` is one query over the whole file, slow at a million records, and one statement that mends all that violates it.
"""

from __future__ import annotations

from collections.abc import Iterator

from waybill.record import Finding, Ref
from waybill.statements import load
from waybill.stores.sqlite.database import Database
from waybill.stores.sqlite.rows import SQL

UPKEEP = load(__package__, "upkeep.sql")
ORPHANS = "rows without a record"
CLOCK = "clock"
MENDING = {
    "tally": ("mend_tally_clear", "mend_tally"),
    "held by the living": ("mend_held",),
    "keys": ("mend_keys",),
    "counter": ("mend_counter",),
    CLOCK: ("mend_clock", "mend_waits"),
    ORPHANS: ("mend_document", "mend_history", "mend_key", "mend_ask"),
}


def sweep(database: Database, limit: int) -> int:
    """Unpark those whose reason is gone: the first waiter of each key that is free, and what a mark stopped that is off."""
    with database.sentences():
        waited = database.execute(SQL["waited_keys"]).fetchall()
        stale = database.execute(SQL["stale_marks"]).fetchall()
    mended = 0
    for (reason,) in [*waited, *stale]:
        if mended >= limit:
            break
        with database.write() as execute:
            if reason.startswith("key ") and not execute(SQL["holder"], (reason[4:],)).fetchall():
                execute(SQL["pass_turn"], (reason,))
                mended += database.db.changes()
            elif reason.startswith("mark ") and not execute(SQL["is_marked"], (reason[5:],)).fetchall():
                execute(SQL["unpark"], (reason, limit - mended))
                mended += database.db.changes()
    return mended


def check(database: Database, now: float) -> Iterator[Finding]:
    """One rule after the other; between two of them others may write."""
    with database.sentences():
        damage = [text for (text,) in database.execute("pragma integrity_check(10)").fetchall() if text != "ok"]
        orphans = database.execute("pragma foreign_key_check").fetchall()
        tally = database.execute(UPKEEP["find_tally"]).fetchall()
        held = database.execute(UPKEEP["find_held"]).fetchall()
        keys = database.execute(UPKEEP["find_keys"]).fetchall()
        counter = database.execute(UPKEEP["find_counter"]).fetchall()
        clock = database.execute(UPKEEP["find_clock"], (now,)).fetchall()
    for text in damage:
        remedy = "Stop everything that uses the file and restore a backup, or recover what can be read with the sqlite3 shell's .recover."
        yield Finding("file", database.place, text, remedy, mendable=False)
    for table in sorted({row[0] for row in orphans if row[0] != "record"}):
        yield Finding(ORPHANS, table, "It has rows of a record that is gone.", "Remove them.")
    for kind, parent_kind, parent_id, state, counted, true in tally:
        where = f"{kind} in {state}" + (f" of {parent_kind} {parent_id}" if parent_id else "")
        yield Finding("tally", where, f"{counted} are counted and there are {true}.", "Count again.")
    for kind, id, session in held:
        yield Finding("held by the living", f"{kind} {id}", f"It is held by {session}, which has ended.", "Free it.", ref=Ref(kind, id))
    for name, kind, id in keys:
        yield Finding("keys", name, f"It is held by {kind} {id}, which does not ask for it.", "Let go of it.", ref=Ref(kind, id))
    for counted, true in counter:
        yield Finding("counter", "seq", f"{counted} is counted as the last record and {true} exists.", "Count on from there.")
    for (ahead,) in clock:
        problem = f"The newest write was made {ahead:.0f} s in the future, so no worker can start."
        yield Finding(CLOCK, "newest", problem, "If the clock here is right: go on from now, and look again at what waits by the other.")


def mend(database: Database, finding: Finding, now: float) -> bool:
    """Mend all that violates the finding's rule, if anything still does."""
    if finding.rule not in MENDING or finding.rule not in {found.rule for found in check(database, now)}:
        return False
    before = database.db.total_changes()
    with database.write() as execute:
        for name in MENDING[finding.rule]:
            execute(UPKEEP[name], (now,) if finding.rule == CLOCK else None)
    return database.db.total_changes() > before
