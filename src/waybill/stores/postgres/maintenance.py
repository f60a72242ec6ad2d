"""Maintenance of the store's own tables: `maintain_indexes` repairs what races and crashes may leave behind, `check` finds
what must never happen, `repair` corrects it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from waybill.record import MAX_PAGE, Finding, Ref, is_json
from waybill.sql_statements import load_statements
from waybill.stores.postgres.connection import PostgresConnection

LIMIT_KEPT = 30 * 86_400.0  # seconds for which the limit of a counted lock is remembered that nobody uses
FOLD_LIMIT = 50_000  # count deltas folded in one call
DOCUMENTS_PAGE = 100  # read together by check: each may be half a megabyte


class PostgresCheckRule(NamedTuple):
    """A rule of `check`: how its violations are found, described and repaired."""

    statement: str  # of maintenance.sql: find_..., repair_...
    problem: str  # with the columns of the row that was found
    remedy: str
    ref: Callable[[Sequence[Any]], Ref] = lambda row: Ref(row[0], row[1])
    where: Callable[[Sequence[Any]], str] = lambda row: f"{row[0]} {row[1]}"


CHECK_RULES = {
    "state counts are right": PostgresCheckRule(
        "counts",
        "the stored count of {0} in {3} is {4}, the actual count {5}",
        "count again",
        lambda row: Ref(row[1], row[2]),
        lambda row: f"{row[0]} in {row[3]}" + (f" of {row[1]} {row[2]}" if row[2] else ""),
    ),
    "locks have owners": PostgresCheckRule(
        "locks",
        "owned by {1} {2}, which is gone or does not ask for it",
        "drop it",
        lambda row: Ref(row[1], row[2]),
        lambda row: str(row[0]),
    ),
    "shared locks have a gate": PostgresCheckRule(
        "gates",
        "shared or counted, and its gate and its owners do not agree",
        "drop it",
        lambda row: Ref("lock", row[0]),
        lambda row: str(row[0]),
    ),
    "claims belong to live sessions": PostgresCheckRule(
        "claims", "claimed by the session {2}, which has ended", "release it"
    ),
    "claimed records own their locks": PostgresCheckRule(
        "missing_locks", "claimed without the lock {2}, which it asks for", "release it: the next claim takes the lock"
    ),
    "documents have records": PostgresCheckRule(
        "orphan_documents", "it is gone, and its documents are not", "remove them"
    ),
    "history has records": PostgresCheckRule("orphan_history", "it is gone, and its history is not", "remove it"),
    "action requests have records": PostgresCheckRule(
        "orphan_action_requests", "it is gone, and an action request ({2}) waits for it", "remove the request"
    ),
    "lock waiters wait for an owned lock": PostgresCheckRule(
        "lock_waiters", "blocked by the lock {2}, which no record owns or is about to take", "unblock it"
    ),
    "holds block only while they are set": PostgresCheckRule(
        "hold_waiters", "blocked by the hold {2}, which is not set", "unblock it"
    ),
    "joins wait for open children": PostgresCheckRule(
        "joins", "blocked until its children have settled, and they have", "wake it"
    ),
}
OLD_SNAPSHOT_RULE = "no transaction is old"
READABLE_RULE = "stored data can be read"


class PostgresMaintenance:
    """maintain_indexes, check and repair over one connection."""

    def __init__(self, connection: PostgresConnection, statements: dict[str, str], old_snapshot: float) -> None:
        self._connection = connection
        self._statements = statements
        self._checks = load_statements("waybill.stores.postgres", "maintenance.sql")
        self._old_snapshot = old_snapshot

    def maintain_indexes(self, limit: int) -> int:
        """Unblock the waiters of each lock that can own it and all records whose hold is no longer set, fold the count
        deltas into the counts, and forget limits that nobody uses. Returns how many records were unblocked.
        """
        run, statements = self._connection.run, self._statements
        awaited = run(statements["list_block_reasons"], {"from": "lock ", "to": "lock!", "limit": limit}, writes=False)
        names = [blocked_by[5:] for (blocked_by,) in awaited]
        unblocked = int(run(statements["unblock_lock_waiters"], [names])[0][0]) if names else 0
        holds = {name for name, _, _ in run(statements["list_holds"], writes=False)}
        for (blocked_by,) in run(
            statements["list_block_reasons"], {"from": "hold ", "to": "hold!", "limit": limit}, writes=False
        ):
            if blocked_by[5:] not in holds and unblocked < limit:
                unblocked += self.unblock(blocked_by, limit - unblocked)
        run(statements["fold_count_deltas"], [FOLD_LIMIT])
        run(statements["remove_empty_counts"])
        run(statements["remove_unused_lock_limits"], [LIMIT_KEPT])
        return unblocked

    def unblock(self, blocked_by: str, limit: int | None = None) -> int:
        """Unblock the records that are blocked for this reason, page by page. Returns how many."""
        unblocked = 0
        while limit is None or unblocked < limit:
            page = MAX_PAGE if limit is None else min(MAX_PAGE, limit - unblocked)
            count = len(self._connection.run(self._statements["unblock_records"], [blocked_by, page, blocked_by]))
            unblocked += count
            if count == 0:
                break
        return unblocked

    def check(self) -> Iterator[Finding]:
        for name, rule in CHECK_RULES.items():
            for row in self._connection.run_scan(self._checks[f"find_{rule.statement}"], {"limit": MAX_PAGE}):
                yield Finding(name, rule.where(row), rule.problem.format(*row), rule.remedy, ref=rule.ref(row))
        yield from self._check_documents()
        for pid, user, program, seconds in self._connection.run_scan(
            self._checks["find_old_snapshots"], {"seconds": self._old_snapshot}
        ):
            yield Finding(
                OLD_SNAPSHOT_RULE,
                f"process {pid} of the database",
                f"a transaction of {user or 'somebody'} ({program or 'no name'}) has been open for {seconds:.0f} s; "
                "claims get slower and slower",
                f"end it: select pg_terminate_backend({pid})",
                repairable=False,
            )

    def _check_documents(self) -> Iterator[Finding]:
        """Page by page, so that the documents are neither all in memory nor read under one long snapshot."""
        last = {"kind": "", "id": "", "name": ""}
        while rows := self._connection.run(
            self._checks["list_documents"], {**last, "limit": DOCUMENTS_PAGE}, writes=False
        ):
            for kind, id, name, body in rows:
                if not is_json(body):
                    remedy = "restore a backup, or have whoever writes this document write it again"
                    where = f"{kind} {id} {name}"
                    yield Finding(
                        READABLE_RULE,
                        where,
                        f"its document {name} is no JSON",
                        remedy,
                        repairable=False,
                        ref=Ref(kind, id),
                    )
            last = dict(zip(last, rows[-1], strict=False))

    def repair(self, finding: Finding) -> bool:
        rule = CHECK_RULES.get(finding.rule)
        if rule is None or finding.ref is None:
            return False
        args = {"kind": finding.ref.kind, "id": finding.ref.id, "name": finding.where}
        if rule.statement == "counts":
            kind, _, state = finding.where.removesuffix(f" of {finding.ref}").partition(" in ")
            args = {"kind": kind, "state": state, "parent_kind": finding.ref.kind, "parent_id": finding.ref.id}
        repaired = self._connection.run(self._checks[f"repair_{rule.statement}"], args)
        if repaired and rule.statement == "locks":
            # in statements of their own, which see that the lock is dropped
            self._connection.run(self._statements["remove_empty_gates"], [[finding.where]])
            self._connection.run(self._statements["unblock_lock_waiters"], [[finding.where]])
        return bool(repaired)
