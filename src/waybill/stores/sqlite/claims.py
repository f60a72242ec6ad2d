"""claim and claim_one, each one transaction: one limited scan for each queue and host, merged so that kinds take turns; a
record that may not be claimed is blocked.

Both claiming and blocking remove a record from the index of claimable records, so the next scan starts after them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec

from waybill.record import (
    ActionRequest,
    ClaimedRecord,
    Conflict,
    Record,
    RecordNotFound,
    Ref,
    SessionLost,
    WorkQueue,
    lock_names_of,
)
from waybill.stores.sqlite import locks
from waybill.stores.sqlite.database import Execute, SqliteDatabase
from waybill.stores.sqlite.queries import load_documents
from waybill.stores.sqlite.rows import SQL, record_of
from waybill.stores.turns import take_turns

CLAIM, BLOCK, URGENT, OLDEST = SQL["claim_record"], SQL["block_record"], SQL["find_most_urgent"], SQL["find_oldest"]
replace = msgspec.structs.replace
MAX_BLOCKED = 1_000  # records at most that one call blocks
OLDEST_EVERY = 10  # every tenth claim is by age, so that a stream of urgent work does not starve the rest

SqliteCandidate = tuple[Record, bool]  # and whether its queue claims records that are on hold


class SqliteClaims:
    """Claims records, and counts them over all calls to know when the next claim is by age."""

    def __init__(self, database: SqliteDatabase) -> None:
        self.database = database
        self.claim_count = 0

    def claim(self, queues: Sequence[WorkQueue], session: str, limit: int, now: float) -> list[ClaimedRecord]:
        with self.database.write() as execute:
            call = SqliteClaimCall(execute, session)
            hosts = dict.fromkeys(("", call.host))
            oldest = (self.claim_count + max(limit, 0)) // OLDEST_EVERY - self.claim_count // OLDEST_EVERY
            call.fill(oldest, lambda n: sorted(_scan(execute, OLDEST, queues, hosts, n), key=_age_of)[:n])
            call.fill(
                limit,
                lambda n: take_turns(
                    _scan(execute, URGENT, queues, hosts, n), lambda candidate: candidate[0], self.claim_count
                )[:n],
            )
            claimed = call.finish(now)
        self.claim_count += len(claimed)
        return claimed[oldest:] + claimed[:oldest]  # most urgent first

    def claim_one(self, ref: Ref, session: str, now: float) -> ClaimedRecord:
        with self.database.write() as execute:
            call = SqliteClaimCall(execute, session)
            rows = execute(SQL["get"], ref).fetchall()
            if not rows:
                raise RecordNotFound(f"There is no {ref}.")
            record = record_of(rows[0])
            seconds = record.wake_at - now if record.blocked_by == "wait" else 0.0
            if record.session is not None:
                raise Conflict(f"{ref} is claimed by {record.session}.")
            if record.host not in ("", call.host):
                raise Conflict(f"{ref} can only be worked on at {record.host}, where its files are.")
            if seconds > 0:
                raise Conflict(f"{ref} waits for another {seconds:.0f} s.")
            if record.blocked_by == "children":
                raise Conflict(f"{ref} waits for its children.")
            blocked_by = call.try_claim(record, claims_on_hold=False)
            if blocked_by is not None:
                raise Conflict(f"{ref} is blocked by {blocked_by}.")
            (claimed,) = call.finish(now)
        return claimed


def _scan(
    execute: Execute, sql: str, queues: Sequence[WorkQueue], hosts: Iterable[str], n: int
) -> Iterator[SqliteCandidate]:
    """The first `n` of each queue and host, each read by its own short scan of the index."""
    for queue in queues:
        for host in hosts:
            for row in execute(sql, (queue.kind, queue.state, host, n)):
                yield record_of(row), queue.claims_on_hold


def _age_of(candidate: SqliteCandidate) -> int:
    return candidate[0].seq


class SqliteClaimCall:
    """One call of claim or claim_one, within its transaction."""

    def __init__(self, execute: Execute, session: str) -> None:
        self.execute = execute
        self.session = session
        rows = execute(SQL["get_session_host"], (session,)).fetchall()
        if not rows:
            raise SessionLost()
        self.host: str = rows[0][0]
        self.holds = {name for name, _, _ in execute(SQL["list_holds"])}
        self.blocked_count = 0
        self.claims: list[ClaimedRecord] = []

    def fill(self, limit: int, scan: Callable[[int], list[SqliteCandidate]]) -> None:
        """Claim until there are `limit` records, none is left, or one call has blocked as many as it may."""
        while len(self.claims) < limit and self.blocked_count < MAX_BLOCKED:
            candidates = scan(limit - len(self.claims))
            if not candidates:
                return
            for record, claims_on_hold in candidates:
                blocked_by = self.try_claim(record, claims_on_hold)
                if blocked_by is not None:
                    self.block(record, blocked_by)

    def try_claim(self, record: Record, claims_on_hold: bool) -> str | None:
        """Claim the record, or return what it is blocked by."""
        execute, wanted = self.execute, record.locks
        hold = next((name for name in record.hold_names if name in self.holds), None) if record.hold_names else None
        if hold is not None and not claims_on_hold:
            return f"hold {hold}"
        if wanted and hold is None:
            unavailable = locks.find_unavailable_lock(execute, wanted, record.seq, record.priority)
            if unavailable is not None:
                return f"lock {unavailable}"
            locks.take_locks(execute, wanted, record.seq)
        execute(CLAIM, (self.session, record.seq))
        claimed = replace(record, session=self.session, version=record.version + 1, blocked_by=None, wake_at=0.0)
        self.claims.append(ClaimedRecord(claimed, hold))
        if hold is not None:  # it only moves to the hold state; the next waiter may take the locks it asked for
            locks.unblock_next_waiters(execute, lock_names_of(wanted))
        return None

    def block(self, record: Record, blocked_by: str) -> None:
        self.blocked_count += 1
        self.execute(BLOCK, (record.seq, blocked_by))
        locks.unblock_next_waiters(self.execute, lock_names_of(record.locks))

    def finish(self, now: float) -> list[ClaimedRecord]:
        """Load the documents and action requests of the claimed records, and store the highest queue positions.

        Nothing is written when nothing was claimed.
        """
        if not self.claims:
            return []
        execute = self.execute
        loaded = load_documents(execute, [claim.record for claim in self.claims])
        requests = {}
        if execute(SQL["has_action_requests"]).fetchall():
            requests = {
                Ref(*row[:2]): ActionRequest(Ref(*row[:2]), *row[2:])
                for row in execute(SQL["list_session_requests"], (self.session,))
            }
        positions: dict[str, int] = {}
        for record in loaded:
            positions[record.kind] = max(positions.get(record.kind, 0), record.queue_position or 0)
        for kind, position in positions.items():
            execute(SQL["raise_queue_position"], (kind, position))
        execute(SQL["note_write_time"], (now,))
        return [
            ClaimedRecord(record, claim.hold, requests.get(record.ref))
            for record, claim in zip(loaded, self.claims, strict=True)
        ]
