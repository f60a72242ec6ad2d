"""claim and take: records given to a session.

claim: one in ten by age, the others by urgency -> claim_records() -> what was handed out, and how far its turns have
come. take: the same for one record; when it is not given, it is read again to tell why.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from waybill.record import Ask, Claimed, Conflict, Record, Ref, Role
from waybill.stores.postgres.connection import Connection, Row
from waybill.stores.postgres.rows import WIDTH, record_with_documents
from waybill.stores.postgres.wire import Rows, boolean, row, text

BY_AGE = 10  # one in so many is the oldest, so that no stream of urgent work shuts out the rest
ROUNDS = 6  # how often a claim looks: again, when it let go of waiters or when others had locked all that there is
PAUSE = 0.01  # seconds before it looks again at what was locked: as long as a commit takes


class Claims:
    def __init__(
        self, connection: Connection, statement: str, get: Callable[[str, str], Record], now: Callable[[], float]
    ) -> None:
        self._connection = connection
        self._statement = statement
        self._get = get
        self._now = now
        self._handed = 0
        self.turns: dict[str, int] = {}  # the highest handed out, kind by kind

    def claim(self, roles: Sequence[Role], session: str, limit: int) -> list[Claimed]:
        served = {(role.kind, role.state): role.holds for role in roles}
        rows = Rows(
            "role_row", [row(text(kind), text(state), boolean(holds)) for (kind, state), holds in served.items()]
        )
        claimed: list[Claimed] = []
        for _ in range(ROUNDS):
            wanted = limit - len(claimed)
            aged = (self._handed + wanted) // BY_AGE - self._handed // BY_AGE
            more, again = self._hand_out(rows, session, wanted, aged, None)
            claimed += more
            if again is None or len(claimed) >= limit or (again == "locked" and claimed):
                break
            if again == "locked":
                time.sleep(PAUSE)
        return claimed

    def take(self, ref: Ref, session: str) -> Claimed:
        for _ in range(ROUNDS):
            claimed, _ = self._hand_out(Rows("role_row", []), session, 1, 0, ref)
            if claimed:
                return claimed[0]
            record = self._get(*ref)
            if reason := self._reason(record):
                raise Conflict(f"{ref} {reason}.")
        raise Conflict(f"{ref} keeps moving; try again.")

    def _hand_out(
        self, roles: Rows, session: str, wanted: int, aged: int, only: Ref | None
    ) -> tuple[list[Claimed], str | None]:
        kind, id = only if only is not None else (None, None)
        again = None
        claimed = []
        for answer in self._connection.run(self._statement, [roles, session, wanted, aged, kind, id]):
            if answer[0] is not None:
                again = answer[0]
            else:
                claimed.append(_claimed(answer))
        self._handed += len(claimed)
        for each in claimed:
            turn = each.record.turn or 0
            if turn > self.turns.get(each.record.kind, 0):
                self.turns[each.record.kind] = turn
        return claimed, again

    def _reason(self, record: Record) -> str | None:
        """Why it cannot be claimed now; None: by now it perhaps can."""
        if record.session is not None:
            return f"is held by {record.session}"
        if record.parked == "wait":
            seconds = record.wake_at - self._now()
            return f"waits for another {seconds:.0f} s" if seconds > 0 else None
        if record.parked == "children":
            return "waits for its children"
        if record.parked is not None:
            return f"is stopped by {record.parked}"
        return f"can only be worked on at {record.host}, where its files are" if record.host else None


def _claimed(answer: Row) -> Claimed:
    record = record_with_documents(answer[2:])
    action, who, why, args = answer[4 + WIDTH :]
    return Claimed(record, answer[1], Ask(record.ref, action, who, why, args) if action is not None else None)


def higher(noted: Mapping[str, int], written: Mapping[str, int]) -> dict[str, int]:
    """Those that have moved since they were written."""
    return {kind: turn for kind, turn in noted.items() if turn > written.get(kind, 0)}
