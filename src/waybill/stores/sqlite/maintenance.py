"""Maintenance of the file's own tables: `maintain_indexes` repairs what normal operation may leave behind, `check` and
`repair` are for what must never happen.

Each rule of `check` is one query over the whole file, slow at a million records, and one or more statements that repair
everything that violates it.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce

from waybill.record import Finding, Ref
from waybill.sql_statements import load_statements
from waybill.stores.sqlite import locks
from waybill.stores.sqlite.database import SqliteDatabase
from waybill.stores.sqlite.rows import SQL

# how waybill.record.locks writes a lock, read in SQL
LOCK_EXPRESSIONS = {
    "$locks_of_r": "case when json_valid(r.locks) then r.locks else '[]' end",
    "$name": (
        "case when j.value glob 'shared ?*/*' then substr(j.value, 8) "
        "when j.value glob 'at most [1-9]* of ?*/*' then substr(j.value, instr(j.value, ' of ') + 4) else j.value end"
    ),
    "$sort": (
        "case when j.value glob 'shared ?*/*' then 'shared' "
        "when j.value glob 'at most [1-9]* of ?*/*' then 'counted' else 'exclusive' end"
    ),
}
STATEMENTS = {
    name: reduce(lambda text, each: text.replace(*each), LOCK_EXPRESSIONS.items(), text)
    for name, text in load_statements(__package__, "maintenance.sql").items()
}
LIMIT_KEPT = 30 * 86_400.0  # seconds for which the limit of a counted lock is remembered that nobody uses
STATE_COUNT_RULE = "state counts are right"
LIVE_CLAIM_RULE = "claims belong to live sessions"
LOCK_OWNER_RULE = "locks have owners"
ORPHAN_RULE = "rows without a record"
CLOCK_RULE = "clock"
MISSING_LOCK_RULE = "claimed records own their locks"
MIXED_LOCK_RULE = "locks are owned in one sort"
LOCK_WAITER_RULE = "lock waiters wait for an owned lock"
HOLD_RULE = "holds block only while they are set"
READABLE_RULE = "stored data can be read"
REPAIRS = {
    STATE_COUNT_RULE: ("repair_counts_clear", "repair_counts"),
    LIVE_CLAIM_RULE: ("repair_claims",),
    LOCK_OWNER_RULE: ("repair_locks",),
    MISSING_LOCK_RULE: ("repair_missing_locks",),
    LOCK_WAITER_RULE: ("repair_lock_waiters",),
    HOLD_RULE: ("repair_hold_waiters",),
    "counter": ("repair_counter",),
    CLOCK_RULE: ("repair_clock", "repair_waits"),
    ORPHAN_RULE: (
        "repair_orphan_documents",
        "repair_orphan_history",
        "repair_orphan_locks",
        "repair_orphan_action_requests",
    ),
}


def maintain_indexes(database: SqliteDatabase, limit: int, now: float) -> int:
    """Unblock records whose reason is gone: the waiters of each lock that can own it, and all records blocked by a hold
    that is no longer set; forget limits that nobody uses. Returns how many were unblocked.
    """
    with database.translate_errors():
        awaited = database.execute(SQL["list_awaited_locks"]).fetchall()
        stale = database.execute(SQL["list_stale_hold_blocks"]).fetchall()
    unblocked = 0
    for (blocked_by,) in [*awaited, *stale]:
        if unblocked >= limit:
            break
        with database.write() as execute:
            if blocked_by.startswith("lock "):
                unblocked += locks.unblock_next_waiters(execute, [blocked_by[5:]])
            elif blocked_by.startswith("hold ") and not execute(SQL["has_hold"], (blocked_by[5:],)).fetchall():
                execute(SQL["unblock_records"], (blocked_by, limit - unblocked))
                unblocked += database.db.changes()
    with database.write() as execute:
        execute(SQL["remove_unused_lock_limits"], (now - LIMIT_KEPT,))
    return unblocked


def check(database: SqliteDatabase, now: float) -> Iterator[Finding]:
    """One rule after the other; others may write between two of them."""
    with database.translate_errors():
        damage = [text for (text,) in database.execute("pragma integrity_check(10)").fetchall() if text != "ok"]
        orphans = database.execute("pragma foreign_key_check").fetchall()
        counts = database.execute(STATEMENTS["find_counts"]).fetchall()
        claims = database.execute(STATEMENTS["find_claims"]).fetchall()
        owned_locks = database.execute(STATEMENTS["find_locks"]).fetchall()
        mixed_locks = database.execute(STATEMENTS["find_mixed_locks"]).fetchall()
        missing_locks = database.execute(STATEMENTS["find_missing_locks"]).fetchall()
        lock_waiters = database.execute(STATEMENTS["find_lock_waiters"]).fetchall()
        hold_waiters = database.execute(STATEMENTS["find_hold_waiters"]).fetchall()
        lists = database.execute(STATEMENTS["find_name_lists"]).fetchall()
        bodies = database.execute(STATEMENTS["find_document_bodies"]).fetchall()
        counter = database.execute(STATEMENTS["find_counter"]).fetchall()
        clock = database.execute(STATEMENTS["find_clock"], (now,)).fetchall()
    for text in damage:
        remedy = "Stop everything that uses the file and restore a backup, or recover what can be read with the sqlite3 shell's .recover."
        yield Finding("file", database.location, text, remedy, repairable=False)
    for kind, id, name in lists:
        by_hand = f"update record set {name} = '[\"NAME\"]' where kind = '{kind}' and id = '{id}'"
        remedy = f"Restore a backup, or write the list by hand: {by_hand}."
        yield Finding(
            READABLE_RULE,
            f"{kind} {id}",
            f"Its list of {name} is no list of names.",
            remedy,
            repairable=False,
            ref=Ref(kind, id),
        )
    for kind, id, name in bodies:
        remedy = "Restore a backup, or have whoever writes this document write it again."
        yield Finding(
            READABLE_RULE,
            f"{kind} {id} {name}",
            f"Its document {name} is no JSON.",
            remedy,
            repairable=False,
            ref=Ref(kind, id),
        )
    for table in sorted({row[0] for row in orphans if row[0] != "record"}):
        yield Finding(ORPHAN_RULE, table, "It has rows of a record that is gone.", "Remove them.")
    for kind, parent_kind, parent_id, state, counted, true in counts:
        where = f"{kind} in {state}" + (f" of {parent_kind} {parent_id}" if parent_id else "")
        yield Finding(STATE_COUNT_RULE, where, f"{counted} are counted and there are {true}.", "Count again.")
    for kind, id, session in claims:
        yield Finding(
            LIVE_CLAIM_RULE,
            f"{kind} {id}",
            f"It is claimed by {session}, which has ended.",
            "Release it.",
            ref=Ref(kind, id),
        )
    for name, kind, id in owned_locks:
        yield Finding(
            LOCK_OWNER_RULE,
            name,
            f"It is owned by {kind} {id}, which does not ask for it.",
            "Drop it.",
            ref=Ref(kind, id),
        )
    for name, count, first, last in mixed_locks:
        sorts = first if first == last else f"{first} and {last}"
        problem = f"It has {count} owners ({sorts}); an exclusive lock has one, and a lock has one sort."
        remedy = "Stop the workers and find out who works on what; then move one of the records on by hand."
        yield Finding(MIXED_LOCK_RULE, name, problem, remedy, repairable=False)
    for kind, id, name in missing_locks:
        problem = f"It is claimed and does not own the lock {name}, which it asks for."
        yield Finding(
            MISSING_LOCK_RULE, f"{kind} {id}", problem, "Release it: the next claim takes the lock.", ref=Ref(kind, id)
        )
    for kind, id, name in lock_waiters:
        problem = f"It is blocked by the lock {name}, which no record owns or is about to take."
        yield Finding(LOCK_WAITER_RULE, f"{kind} {id}", problem, "Unblock it.", ref=Ref(kind, id))
    for kind, id, name in hold_waiters:
        yield Finding(
            HOLD_RULE,
            f"{kind} {id}",
            f"It is blocked by the hold {name}, which is not set.",
            "Unblock it.",
            ref=Ref(kind, id),
        )
    for counted, true in counter:
        yield Finding(
            "counter", "seq", f"{counted} is counted as the last record and {true} exists.", "Count on from there."
        )
    for (ahead,) in clock:
        problem = f"The newest write was made {ahead:.0f} s in the future, so no worker can start."
        yield Finding(
            CLOCK_RULE,
            "newest",
            problem,
            "If the clock here is right: continue from now, and recheck the records that wait by the other.",
        )


def repair(database: SqliteDatabase, finding: Finding, now: float) -> bool:
    """Repair everything that violates the finding's rule, if anything still does."""
    if finding.rule not in REPAIRS or finding.rule not in {found.rule for found in check(database, now)}:
        return False
    before = database.db.total_changes()
    with database.write() as execute:
        for name in REPAIRS[finding.rule]:
            execute(STATEMENTS[name], (now,) if finding.rule == CLOCK_RULE else None)
    return database.db.total_changes() > before
