"""Upkeep of the store's own tables: sweep mends what races and crashes may leave, check finds what must never be,
mend puts it right.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from waybill.record import MAX_PAGE, Finding, Ref, is_json
from waybill.statements import load
from waybill.stores.postgres.connection import Connection

FOLDED = 50_000  # counts folded in one sweep
DOCUMENTS = 100  # read together by check: each may have half a megabyte


class Rule(NamedTuple):
    statement: str  # of check.sql: find_..., mend_...
    problem: str  # with the columns of the row that was found
    remedy: str
    ref: Callable[[Sequence[Any]], Ref] = lambda row: Ref(row[0], row[1])
    where: Callable[[Sequence[Any]], str] = lambda row: f"{row[0]} {row[1]}"


RULES = {
    "the tally is right": Rule(
        "tally",
        "{0} in {3} are told as {4} and counted as {5}",
        "count them again",
        lambda row: Ref(row[1], row[2]),
        lambda row: f"{row[0]} in {row[3]}" + (f" of {row[1]} {row[2]}" if row[2] else ""),
    ),
    "keys have holders": Rule(
        "keys",
        "held by {1} {2}, which is gone or does not ask for it",
        "let go of it",
        lambda row: Ref(row[1], row[2]),
        lambda row: str(row[0]),
    ),
    "held by the living": Rule("holders", "held by the session {2}, which has ended", "free it"),
    "what is worked on has its keys": Rule(
        "unlocked", "worked on without the key {2}, which it asks for", "free it: it asks again"
    ),
    "documents have records": Rule("documents", "it is gone, and its documents are not", "remove them"),
    "history has records": Rule("history", "it is gone, and its history is not", "remove it"),
    "requests have records": Rule("asks", "it is gone, and a request to {2} waits for it", "remove the request"),
    "waiters wait for what is held": Rule(
        "waiters", "parked on the key {2}, which nobody holds and nobody is about to take", "let it try again"
    ),
    "marks stop while they are in force": Rule("stopped", "parked on the mark {2}, which is off", "let it go on"),
    "joins wait for open children": Rule(
        "joins", "parked until its children have settled, and they have", "let it look again"
    ),
}
OLD_SNAPSHOT = "no snapshot is old"
READABLE = "what is written can be read"


class Upkeep:
    def __init__(self, connection: Connection, statements: dict[str, str], old_snapshot: float) -> None:
        self._connection = connection
        self._statements = statements
        self._checks = load("waybill.stores.postgres", "check.sql")
        self._old_snapshot = old_snapshot

    def sweep(self, limit: int) -> int:
        """Let waiters of free keys try, and records go on whose mark is off; fold the counts."""
        run, said = self._connection.run, self._statements
        waited = run(said["waited_for"], {"from": "key ", "to": "key!", "limit": limit}, writes=False)
        free = run(said["free_keys"], [[reason[4:] for (reason,) in waited]], writes=False)
        mended = int(run(said["pass_keys"], [[name for (name,) in free]])[0][0]) if free else 0
        marks = {name for name, _, _ in run(said["marks"], writes=False)}
        for (reason,) in run(said["waited_for"], {"from": "mark ", "to": "mark!", "limit": limit}, writes=False):
            if reason[5:] not in marks and mended < limit:
                mended += self.unpark(reason, limit - mended)
        run(said["fold"], [FOLDED])
        run(said["drop_empty_tallies"])
        return mended

    def unpark(self, reason: str, limit: int | None = None) -> int:
        """Let go of what is parked for this reason, in portions."""
        unparked = 0
        while limit is None or unparked < limit:
            portion = MAX_PAGE if limit is None else min(MAX_PAGE, limit - unparked)
            done = len(self._connection.run(self._statements["unpark"], [reason, portion, reason]))
            unparked += done
            if done == 0:
                break
        return unparked

    def check(self) -> Iterator[Finding]:
        for name, rule in RULES.items():
            for row in self._connection.slowly(self._checks[f"find_{rule.statement}"], {"limit": MAX_PAGE}):
                yield Finding(name, rule.where(row), rule.problem.format(*row), rule.remedy, ref=rule.ref(row))
        yield from self._unreadable()
        for pid, user, program, seconds in self._connection.slowly(
            self._checks["find_snapshots"], {"seconds": self._old_snapshot}
        ):
            yield Finding(
                OLD_SNAPSHOT,
                f"process {pid} of the database",
                f"a transaction of {user or 'somebody'} ({program or 'no name'}) is open for {seconds:.0f} s; claims get slower and slower",
                f"end it: select pg_terminate_backend({pid})",
                mendable=False,
            )

    def _unreadable(self) -> Iterator[Finding]:
        """Page by page, so that neither they are all in memory nor a snapshot is kept while they are looked through."""
        last = {"kind": "", "id": "", "name": ""}
        while rows := self._connection.run(self._checks["documents_after"], {**last, "limit": DOCUMENTS}, writes=False):
            for kind, id, name, body in rows:
                if not is_json(body):
                    remedy = "restore a backup, or have whoever writes this document write it again"
                    where = f"{kind} {id} {name}"
                    yield Finding(
                        READABLE, where, f"its document {name} is no JSON", remedy, mendable=False, ref=Ref(kind, id)
                    )
            last = dict(zip(last, rows[-1], strict=False))

    def mend(self, finding: Finding) -> bool:
        rule = RULES.get(finding.rule)
        if rule is None or finding.ref is None:
            return False
        args = {"kind": finding.ref.kind, "id": finding.ref.id, "name": finding.where}
        if rule.statement == "tally":
            kind, _, state = finding.where.removesuffix(f" of {finding.ref}").partition(" in ")
            args = {"kind": kind, "state": state, "parent_kind": finding.ref.kind, "parent_id": finding.ref.id}
        return bool(self._connection.run(self._checks[f"mend_{rule.statement}"], args))
