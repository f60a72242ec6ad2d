"""claim and claim_one: records are claimed for a session by the function claim_records().

claim: one record in ten by age, the others by urgency; the highest queue positions of what was claimed are noted, for new
children. claim_one: the same for one record; when it is not claimed, it is read again to say why.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from waybill.record import ActionRequest, ClaimedRecord, Conflict, Record, Ref, WorkQueue
from waybill.stores.postgres.binary_rows import CompositeArray, encode_boolean, encode_integer, encode_row, encode_text
from waybill.stores.postgres.connection import PostgresConnection, Row
from waybill.stores.postgres.rows import COLUMN_COUNT, full_record_of
from waybill.stores.turns import application_of, assign_turns

OLDEST_EVERY = 10  # one claim in so many is by age, so that a stream of urgent work does not starve the rest
MAX_ROUNDS = (
    6  # calls of claim_records() for one claim: again when waiters were unblocked, or others had locked all candidates
)
LOCKED_PAUSE = 0.01  # seconds before locked candidates are tried again: as long as a commit takes


class PostgresClaims:
    """claim and claim_one over one connection."""

    def __init__(
        self,
        connection: PostgresConnection,
        statement: str,
        get: Callable[[str, str], Record],
        now: Callable[[], float],
    ) -> None:
        self._connection = connection
        self._statement = statement
        self._get = get
        self._now = now
        self._claim_count = 0
        self.queue_positions: dict[str, int] = {}  # the highest that was claimed, by kind

    def claim(self, queues: Sequence[WorkQueue], session: str, limit: int) -> list[ClaimedRecord]:
        distinct = {(queue.kind, queue.state): queue.claims_on_hold for queue in queues}
        kind_turns, application_turns = assign_turns((kind for kind, _ in distinct), self._claim_count)
        rows = CompositeArray(
            "queue_row",
            [
                encode_row(
                    encode_text(kind),
                    encode_text(state),
                    encode_boolean(claims_on_hold),
                    encode_integer(kind_turns[kind]),
                    encode_text(application_of(kind)),
                    encode_integer(application_turns[application_of(kind)]),
                )
                for (kind, state), claims_on_hold in distinct.items()
            ],
        )
        claimed: list[ClaimedRecord] = []
        for _ in range(MAX_ROUNDS):
            wanted = limit - len(claimed)
            oldest = (self._claim_count + wanted) // OLDEST_EVERY - self._claim_count // OLDEST_EVERY
            more, retry_reason = self._claim_records(rows, session, wanted, oldest, None)
            claimed += more
            if retry_reason is None or len(claimed) >= limit or (retry_reason == "locked" and claimed):
                break
            if retry_reason == "locked":
                time.sleep(LOCKED_PAUSE)
        return claimed

    def claim_one(self, ref: Ref, session: str) -> ClaimedRecord:
        for _ in range(MAX_ROUNDS):
            claimed, _retry_reason = self._claim_records(CompositeArray("queue_row", []), session, 1, 0, ref)
            if claimed:
                return claimed[0]
            record = self._get(*ref)
            if reason := self._explain_refusal(record):
                raise Conflict(f"{ref} {reason}.")
        raise Conflict(f"{ref} keeps changing; try again.")

    def _claim_records(
        self, queues: CompositeArray, session: str, wanted: int, oldest: int, only: Ref | None
    ) -> tuple[list[ClaimedRecord], str | None]:
        kind, id = only if only is not None else (None, None)
        retry_reason = None
        claimed = []
        for answer in self._connection.run(self._statement, [queues, session, wanted, oldest, kind, id]):
            if answer[0] is not None:
                retry_reason = answer[0]
            else:
                claimed.append(_claimed_of(answer))
        self._claim_count += len(claimed)
        for each in claimed:
            queue_position = each.record.queue_position or 0
            if queue_position > self.queue_positions.get(each.record.kind, 0):
                self.queue_positions[each.record.kind] = queue_position
        return claimed, retry_reason

    def _explain_refusal(self, record: Record) -> str | None:
        """Why the record cannot be claimed now; None if by now it may be possible."""
        if record.session is not None:
            return f"is claimed by {record.session}"
        if record.blocked_by == "wait":
            seconds = record.wake_at - self._now()
            return f"waits for another {seconds:.0f} s" if seconds > 0 else None
        if record.blocked_by == "children":
            return "waits for its children"
        if record.blocked_by is not None:
            return f"is blocked by {record.blocked_by}"
        return f"can only be worked on at {record.host}, where its files are" if record.host else None


def _claimed_of(answer: Row) -> ClaimedRecord:
    record = full_record_of(answer[2:])
    action, who, why, args = answer[4 + COLUMN_COUNT :]
    return ClaimedRecord(
        record, answer[1], ActionRequest(record.ref, action, who, why, args) if action is not None else None
    )


def select_higher(current: Mapping[str, int], written: Mapping[str, int]) -> dict[str, int]:
    """The queue positions that are higher than those last written."""
    return {kind: position for kind, position in current.items() if position > written.get(kind, 0)}
