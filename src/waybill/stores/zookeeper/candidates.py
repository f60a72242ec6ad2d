"""Candidates of a claim: a record that was looked at, what was decided about it, and what is written to park it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from waybill.stores.zookeeper import notes, places, wire
from waybill.stores.zookeeper.layout import Entry
from waybill.stores.zookeeper.names import key_path
from waybill.stores.zookeeper.plan import Plan
from waybill.stores.zookeeper.queues import Queue
from waybill.stores.zookeeper.seen import Seen, caught_up
from waybill.stores.zookeeper.side import Side
from waybill.stores.zookeeper.side import encode as encode_side
from waybill.stores.zookeeper.wire import Op


@dataclass(slots=True)
class Candidate:
    seen: Seen
    queue: Queue | None = None
    entry: Entry | None = None
    mark: str | None = None
    keys: list[str] = field(default_factory=list)  # to be taken
    drops: list[str] = field(default_factory=list)  # held in a state out of which another service led it
    parks_on: str | None = None
    side: Side | None = None  # as it will be, if the claim writes it


def parking_ops(candidates: Sequence[Candidate], session: str, folders: set[str]) -> list[Op]:
    """Park them, if the reason still holds in that transaction."""
    ops: dict[Op, None] = {wire.check(places.session(session), "session"): None}
    for each in candidates:
        seen, reason = each.seen, each.parks_on
        assert seen.side is not None
        assert reason is not None
        ref, home = seen.ref, seen.layout.home(seen.ref.id)
        spot = places.waiting_name(seen.priority, seen.turn, seen.seq, ref) if reason.startswith("key ") else ""
        parked = replace(caught_up(seen) if seen.foreign else seen.side, parked=reason, wake_at=0.0, spot=spot)
        plan = Plan(folders)
        notes.park(plan, ref, seen.side, parked)
        if reason.startswith("key "):
            # still taken; else it would wait for a free key for ever
            ops[wire.check(key_path(reason[4:]), "key")] = None
        ops[wire.check(f"{home}/status", "status", seen.version)] = None
        ops.update(dict.fromkeys(plan.ops))
        ops[wire.put(seen.layout.side(ref.id), encode_side(parked), "side", seen.side_version)] = None
    return list(ops)
