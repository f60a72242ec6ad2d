"""Requests to whoever holds a record: one node each in /waybill/asks, until a change answers it.

A request is left only while the record's lock is there, checked in the same transaction; so whoever releases the record
and looks afterwards sees every request that was left with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from waybill.record import Ask, Conflict, NotFound, Ref
from waybill.stores.zookeeper import places, wire
from waybill.stores.zookeeper.layout import layout_of
from waybill.stores.zookeeper.link import Link
from waybill.stores.zookeeper.seen import session_name
from waybill.stores.zookeeper.wire import NODE_EXISTS, Failure, data


class Asks:
    def __init__(self, link: Link) -> None:
        self._link = link

    def leave(self, ask: Ask) -> bool:
        home = layout_of(ask.ref.kind).home(ask.ref.id)
        body = msgspec.json.encode((ask.action, ask.who, ask.why, ask.args.decode()))
        ops = [
            wire.check(home, "home"),
            wire.check(f"{home}/lock", "lock"),
            wire.create(places.ask(ask.ref), body, "ask"),
        ]
        outcome = self._link.write(ops)
        if not isinstance(outcome, Failure):
            return True
        if ops[outcome.place].means == "home":
            raise NotFound(f"There is no {ask.ref}.")
        if ops[outcome.place].means == "ask" and outcome.code == NODE_EXISTS:
            raise Conflict(f"{ask.ref} was asked something already and has not answered yet.")
        return False

    def all(self) -> list[Ref]:
        return [places.ref_of(name) for name in sorted(self._link.names(places.ASKS))]

    def of(self, refs: Iterable[Ref]) -> list[Ask]:
        """What is asked of these."""
        wanted = set(refs)
        return self._read([ref for ref in self.all() if ref in wanted])

    def unheld(self, limit: int) -> list[Ask]:
        """What is asked of records that nobody holds any more."""
        asked, free = self.all(), []
        for start in range(0, len(asked), 1000):
            part = asked[start : start + 1000]
            homes = [layout_of(ref.kind).home(ref.id) for ref in part]
            found = self._link.read([ask for home in homes for ask in (data(home), data(f"{home}/lock"))])
            free += [
                ref
                for ref, home, lock in zip(part, found[::2], found[1::2], strict=True)
                if home is not None and lock is None
            ]
            if len(free) >= limit:
                break
        return self._read(free[:limit])

    def held_by(self, session: str) -> tuple[Ask, ...]:
        asked = self.all()
        if not asked:
            return ()
        locks = self._link.nodes([f"{layout_of(ref.kind).home(ref.id)}/lock" for ref in asked])
        mine = [
            ref
            for ref, lock in zip(asked, locks, strict=True)
            if lock is not None and session_name(lock.owner) == session
        ]
        return tuple(self._read(mine))

    def _read(self, refs: Sequence[Ref]) -> list[Ask]:
        if not refs:
            return []
        asks = []
        for ref, node in zip(refs, self._link.nodes([places.ask(ref) for ref in refs]), strict=True):
            if node is not None:
                action, who, why, args = msgspec.json.decode(node.data, type=tuple[str, str, str, str])
                asks.append(Ask(ref, action, who, why, args.encode()))
        return asks
