"""Upkeep of a file's own indexes: sweep mends what may happen in a normal life, check and mend are for what must
never happen.

Each rule of `check` is one query over the whole file, slow at a million records, and one statement that mends all that
violates it.
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
UNLOCKED = "what is worked on has its keys"
WAITERS = "waiters wait for what is held"
STOPPED = "marks stop while they are in force"
DAMAGED = "what is written can be read"
MENDING = {
    "tally": ("mend_tally_clear", "mend_tally"),
    "held by the living": ("mend_held",),
    "keys": ("mend_keys",),
    UNLOCKED: ("mend_unlocked",),
    WAITERS: ("mend_waiters",),
    STOPPED: ("mend_stopped",),
    "counter": ("mend_counter",),
    CLOCK: ("mend_clock", "mend_waits"),
    ORPHANS: ("mend_document", "mend_history", "mend_key", "mend_ask"),
}


def sweep(database: Database, limit: int) -> int:
    """Unpark those whose reason is gone: the first waiter of each key that is free, and what a mark stopped that is
    off.
    """
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
        unlocked = database.execute(UPKEEP["find_unlocked"]).fetchall()
        waiters = database.execute(UPKEEP["find_waiters"]).fetchall()
        stopped = database.execute(UPKEEP["find_stopped"]).fetchall()
        lists = database.execute(UPKEEP["find_lists"]).fetchall()
        bodies = database.execute(UPKEEP["find_bodies"]).fetchall()
        counter = database.execute(UPKEEP["find_counter"]).fetchall()
        clock = database.execute(UPKEEP["find_clock"], (now,)).fetchall()
    for text in damage:
        remedy = "Stop everything that uses the file and restore a backup, or recover what can be read with the sqlite3 shell's .recover."
        yield Finding("file", database.place, text, remedy, mendable=False)
    for kind, id, name in lists:
        by_hand = f"update record set {name} = '[\"NAME\"]' where kind = '{kind}' and id = '{id}'"
        remedy = f"Restore a backup, or write the list by hand: {by_hand}."
        yield Finding(
            DAMAGED,
            f"{kind} {id}",
            f"Its list of {name} is no list of names.",
            remedy,
            mendable=False,
            ref=Ref(kind, id),
        )
    for kind, id, name in bodies:
        remedy = "Restore a backup, or have whoever writes this document write it again."
        yield Finding(
            DAMAGED,
            f"{kind} {id} {name}",
            f"Its document {name} is no JSON.",
            remedy,
            mendable=False,
            ref=Ref(kind, id),
        )
    for table in sorted({row[0] for row in orphans if row[0] != "record"}):
        yield Finding(ORPHANS, table, "It has rows of a record that is gone.", "Remove them.")
    for kind, parent_kind, parent_id, state, counted, true in tally:
        where = f"{kind} in {state}" + (f" of {parent_kind} {parent_id}" if parent_id else "")
        yield Finding("tally", where, f"{counted} are counted and there are {true}.", "Count again.")
    for kind, id, session in held:
        yield Finding(
            "held by the living",
            f"{kind} {id}",
            f"It is held by {session}, which has ended.",
            "Free it.",
            ref=Ref(kind, id),
        )
    for name, kind, id in keys:
        yield Finding(
            "keys", name, f"It is held by {kind} {id}, which does not ask for it.", "Let go of it.", ref=Ref(kind, id)
        )
    for kind, id, name in unlocked:
        problem = f"It is worked on and does not hold {name}, which it asks for."
        yield Finding(UNLOCKED, f"{kind} {id}", problem, "Free it: it asks again.", ref=Ref(kind, id))
    for kind, id, name in waiters:
        problem = f"It waits for the key {name}, which nobody holds and nobody is about to take."
        yield Finding(WAITERS, f"{kind} {id}", problem, "Let it try again.", ref=Ref(kind, id))
    for kind, id, name in stopped:
        yield Finding(
            STOPPED,
            f"{kind} {id}",
            f"It is stopped by the mark {name}, which is off.",
            "Let it go on.",
            ref=Ref(kind, id),
        )
    for counted, true in counter:
        yield Finding(
            "counter", "seq", f"{counted} is counted as the last record and {true} exists.", "Count on from there."
        )
    for (ahead,) in clock:
        problem = f"The newest write was made {ahead:.0f} s in the future, so no worker can start."
        yield Finding(
            CLOCK,
            "newest",
            problem,
            "If the clock here is right: go on from now, and look again at what waits by the other.",
        )


def mend(database: Database, finding: Finding, now: float) -> bool:
    """Mend all that violates the finding's rule, if anything still does."""
    if finding.rule not in MENDING or finding.rule not in {found.rule for found in check(database, now)}:
        return False
    before = database.db.total_changes()
    with database.write() as execute:
        for name in MENDING[finding.rule]:
            execute(UPKEEP[name], (now,) if finding.rule == CLOCK else None)
    return database.db.total_changes() > before
