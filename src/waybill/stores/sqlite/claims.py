"""claim and take, each one transaction: one limited scan for each role and host, merged; what may not be handed out
is parked.

Both a claim and a park take a record out of the index of what can be claimed, so the next scan simply goes on behind
them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from waybill.record import Ask, Claimed, Conflict, NotFound, Record, Ref, Role, SessionLost
from waybill.stores.sqlite import keys
from waybill.stores.sqlite.database import Database, Execute
from waybill.stores.sqlite.reading import load
from waybill.stores.sqlite.rows import SQL, record_of

CLAIM, PARK, URGENT, OLDEST = SQL["claim"], SQL["park"], SQL["urgent"], SQL["oldest"]
replace = msgspec.structs.replace
LOOKED = 1_000  # records at most that one call parks
BY_AGE = 10  # every tenth is handed out by age, so that no stream of urgent work shuts out the rest

Found = tuple[Record, bool]  # and whether its role holds


class Desk:
    """Hands out records, and counts them: whose turn by age it is goes on from call to call."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.handed = 0

    def claim(self, roles: Sequence[Role], session: str, limit: int, now: float) -> list[Claimed]:
        with self.database.write() as execute:
            portion = Portion(execute, session)
            hosts = dict.fromkeys(("", portion.host))
            aged = (self.handed + max(limit, 0)) // BY_AGE - self.handed // BY_AGE
            portion.fill(aged, lambda n: _scan(execute, OLDEST, roles, hosts, n, _age))
            portion.fill(limit, lambda n: _scan(execute, URGENT, roles, hosts, n, _urgency))
            claimed = portion.finish(now)
        self.handed += len(claimed)
        return claimed[aged:] + claimed[:aged]  # most urgent first

    def take(self, ref: Ref, session: str, now: float) -> Claimed:
        with self.database.write() as execute:
            portion = Portion(execute, session)
            rows = execute(SQL["get"], ref).fetchall()
            if not rows:
                raise NotFound(f"There is no {ref}.")
            record = record_of(rows[0])
            waits = record.wake_at - now if record.parked == "wait" else 0.0
            if record.session is not None:
                raise Conflict(f"{ref} is held by {record.session}.")
            if record.host not in ("", portion.host):
                raise Conflict(f"{ref} can only be worked on at {record.host}, where its files are.")
            if waits > 0:
                raise Conflict(f"{ref} waits for another {waits:.0f} s.")
            if record.parked == "children":
                raise Conflict(f"{ref} waits for its children.")
            reason = portion.hand_out(record, False)
            if reason is not None:
                raise Conflict(f"{ref} is stopped by {reason}.")
            (claimed,) = portion.finish(now)
        return claimed


def _scan(
    execute: Execute, sql: str, roles: Sequence[Role], hosts: Iterable[str], n: int, order: Callable[[Found], Any]
) -> list[Found]:
    """The first `n` of all roles, each looked at by its own short scan of the index."""
    found: list[Found] = []
    for role in roles:
        for host in hosts:
            found += [(record_of(row), role.holds) for row in execute(sql, (role.kind, role.state, host, n))]
    found.sort(key=order)
    return found[:n]


def _age(found: Found) -> int:
    return found[0].seq


def _urgency(found: Found) -> tuple[int, int, int]:
    record = found[0]
    return (record.priority, record.turn or 0, record.seq)


class Portion:
    """What one call hands out, within its transaction."""

    def __init__(self, execute: Execute, session: str) -> None:
        self.execute = execute
        self.session = session
        rows = execute(SQL["session_host"], (session,)).fetchall()
        if not rows:
            raise SessionLost()
        self.host: str = rows[0][0]
        self.marks = {name for name, _, _ in execute(SQL["marks"])}
        self.parked = 0
        self.claimed: list[Claimed] = []

    def fill(self, limit: int, scan: Callable[[int], list[Found]]) -> None:
        """Hand out until there are `limit`, there is nothing left, or too much had to be parked for one call."""
        while len(self.claimed) < limit and self.parked < LOOKED:
            found = scan(limit - len(self.claimed))
            if not found:
                return
            for record, holds in found:
                reason = self.hand_out(record, holds)
                if reason is not None:
                    self.park(record, reason)

    def hand_out(self, record: Record, holds: bool) -> str | None:
        """Claim it, or answer the reason to park it."""
        execute, seq, wanted = self.execute, record.seq, record.keys
        mark = next((gate for gate in record.gates if gate in self.marks), None) if record.gates else None
        if mark is not None and not holds:
            return f"mark {mark}"
        if wanted and mark is None:
            taken = keys.taken(execute, wanted, seq)
            if taken is not None:
                return f"key {taken}"
            keys.take(execute, wanted, seq)
        execute(CLAIM, (self.session, seq))
        mine = replace(record, session=self.session, version=record.version + 1, parked=None, wake_at=0.0)
        self.claimed.append(Claimed(mine, mark))
        if mark is not None:
            keys.pass_turn(execute, wanted)  # it only moves to rest; the next one may have the keys that it asked for
        return None

    def park(self, record: Record, reason: str) -> None:
        self.parked += 1
        self.execute(PARK, (record.seq, reason))
        keys.pass_turn(self.execute, record.keys)

    def finish(self, now: float) -> list[Claimed]:
        """Load what belongs to the records, and note how far the turns have come; nothing is written where nothing
        was handed out.
        """
        if not self.claimed:
            return []
        execute = self.execute
        loaded = load(execute, [each.record for each in self.claimed])
        asks = {}
        if execute(SQL["any_asks"]).fetchall():
            asks = {Ref(*row[:2]): Ask(Ref(*row[:2]), *row[2:]) for row in execute(SQL["asked_of"], (self.session,))}
        turns: dict[str, int] = {}
        for record in loaded:
            turns[record.kind] = max(turns.get(record.kind, 0), record.turn or 0)
        for kind, turn in turns.items():
            execute(SQL["turn_has_come"], (kind, turn))
        execute(SQL["wrote"], (now,))
        return [
            Claimed(record, each.mark, asks.get(record.ref)) for record, each in zip(loaded, self.claimed, strict=True)
        ]
