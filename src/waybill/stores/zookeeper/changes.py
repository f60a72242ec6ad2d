"""Changes as operations: what creating, moving and removing a record writes, all of it in the group's one transaction.

    create   home, status, documents, entry, side node, notes; the ids and seq are those that numbers.py foretold
    move     [free: the lock is made and taken away] status at its version, entry, documents, keys, notes, side node, [released: no lock]
    remove   all of it

Each answers what the record is afterwards, or the refusal.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from msgspec.structs import replace

from waybill.record import Change, ClaimLost, Conflict, Line, Record, Ref, StoreError, Taken
from waybill.stores.zookeeper import batches, notes, places, wire
from waybill.stores.zookeeper.layout import BUCKETS, Layout, layout_of
from waybill.stores.zookeeper.names import checksum, key_path, quote
from waybill.stores.zookeeper.plan import Plan, chain, parent_of
from waybill.stores.zookeeper.seen import Seen, caught_up
from waybill.stores.zookeeper.side import LINES, Side
from waybill.stores.zookeeper.side import encode as encode_side
from waybill.stores.zookeeper.status import Status
from waybill.stores.zookeeper.status import encode as encode_status


@dataclass(slots=True)
class Result:
    """What a change makes of its record, once the transaction is written."""

    record: Record | None
    seen: Seen | None = None  # its nodes afterwards, as far as a holder needs them
    dropped: list[str] = field(default_factory=list)  # keys that are free now
    passed: list[str] = field(default_factory=list)  # keys that it asked for and no longer stands first in line for
    closed: Ref | None = None  # the parent that waits for it no longer
    released: bool = False
    claimable: bool = False


def create(plan: Plan, change: Change, ref: Ref, seq: int, turn: int, now: float) -> Result | StoreError:
    after = change.after
    assert after is not None
    layout = layout_of(ref.kind)
    if refusal := _unfit(layout, after):
        return refusal
    parked = after.parked if after.parked in ("wait", "children") else None
    status = encode_status(after.state, after.last_done, after.retries, after.message, now, layout.brief)
    side = Side(
        seq=seq,
        turn=turn,
        seen=checksum(status),
        state=after.state,
        owner=after.owner,
        priority=after.priority,
        tries=after.tries,
        keys=after.keys,
        gates=after.gates,
        parked=parked,
        wake_at=now + change.delay if parked == "wait" else 0.0,
        open=after.open,
        host=after.host,
        request=after.request,
        created=now,
        updated=now,
        fill=tuple(name for name in layout.fillers if change.docs.get(name) is None),
        parent=None if after.parent is None or layout.parent else (after.parent.kind, after.parent.id),
        last_done=after.last_done,
        retries=after.retries if layout.brief else 0,
    )
    if change.event:
        side.lines = [Line(seq, now, change.who, change.event, None, after.state, change.why)]
    home = layout.home(ref.id)
    if not layout.prefix:
        plan.folder(*chain(layout.homes))
    plan.ops.append(wire.create(home, b"", "minted" if after.id.endswith("*") else "named"))
    if layout.native and after.parent is not None:
        plan.ops += (
            wire.create(f"{home}/bid", after.parent.id.encode(), "new"),
            wire.create(f"{home}/priority", b"%d" % after.priority, "new"),
        )
    plan.ops.append(wire.create(f"{home}/status", status, "new"))
    plan.ops += [wire.create(f"{home}/{name}", layout.fillers[name], "new") for name in side.fill]
    aside = layout.side(ref.id)
    place = len(plan.ops)
    docs = {name: body for name, body in change.docs.items() if body is not None}
    if refusal := notes.document(plan, layout, ref, frozenset(), side, docs):
        return refusal
    plan.ops.insert(place, wire.create(aside, encode_side(side), "new"))
    if uuid := notes.batch_uuid(docs.get("submission")) if ref.kind == "batch" else None:
        plan.ops.append(wire.create(f"/batch-uuids/{uuid}", ref.id.encode(), "uuid"))
    if ref.kind == "batch" and after.state != "Pending":
        plan.ops += [wire.create(path, b"", "new") for path in batches.states(f"{home}/states", after.state)]
    if after.request is not None:
        path = places.request(ref.kind, after.request)
        plan.folder(*chain(parent_of(path)))
        plan.ops.append(wire.create(path, ref.id.encode(), "request"))
    plan.entries(
        layout, ref.id, None, f"{layout.folder(after.state)}/{layout.entry(after.priority, turn, seq, ref.id)}"
    )
    if layout.parent and after.parent is not None:
        plan.buckets(after.parent, ref.id, None, layout.bucket(after.state))
    notes.park(plan, ref, None, side)
    notes.own(plan, ref, None, side)
    notes.descend(plan, layout, ref, None, side)
    open = layout.bucket(after.state) == "batch-processing" if layout.settled else after.open
    record = replace(
        after,
        id=ref.id,
        seq=seq,
        version=seq,
        turn=turn,
        parked=parked,
        wake_at=side.wake_at,
        created=now,
        updated=now,
        nudges=0,
        open=open,
        docs=after.docs.with_changes(docs),
    )
    return Result(record, claimable=parked is None)


def move(
    plan: Plan, change: Change, seen: Seen, now: float, marks: Collection[str], nudged: bool = False
) -> Result | StoreError:
    """`nudged`: the same group calls this record, which must then not be parked."""
    before, after = change.before, change.after
    assert before is not None
    assert after is not None
    layout, ref, home = seen.layout, seen.ref, seen.layout.home(seen.ref.id)
    if refusal := _unfit(layout, after):
        return refusal
    old = seen.side or caught_up(seen)
    session = after.session
    if session is not None and change.goes_on and any(gate in marks for gate in after.gates):
        session = None
    new_keys = [key for key in after.keys if key not in old.holds] if session is not None else []
    mine = str(ref).encode()
    for key in new_keys:
        holder = plan.real.get(key_path(key)) if plan.real is not None else None
        if holder is not None and holder.data != mine:
            if change.saves:
                return Taken(f"{ref} cannot take the key {key}: another record holds it.", key=key)
            session, new_keys = None, []
            break
    parked = after.parked if after.parked in ("wait", "children") and after.session is None else None
    if parked is not None and (seen.nudges != before.nudges or nudged):
        parked = None
    dropped = [key for key in old.holds if key not in after.keys]
    asked = [key for key in old.keys if key not in old.holds]

    free = before.session is None
    if free:
        plan.ops += wire.absent(f"{home}/lock", "free")
    status = encode_status(after.state, after.last_done, after.retries, after.message, now, layout.brief)
    plan.ops.append(wire.put(f"{home}/status", status, "status", seen.version))
    if parked is not None or (not free and session is None):
        plan.ops.append(wire.check(home, "quiet", seen.nudges))
    version = before.version + 1
    lines = seen.lines()
    if change.event:
        lines = [*lines, Line(version, now, change.who, change.event, seen.state, after.state, change.why)]
    side = Side(
        seq=old.seq,
        turn=old.turn if layout.native or after.turn is None else after.turn,
        lift=seen.lift,
        at=seen.version + 1,
        seen=checksum(status),
        state=after.state,
        session=session,
        parent=old.parent,
        owner=after.owner,
        priority=after.priority,
        last_done=after.last_done,
        retries=after.retries if layout.brief else 0,
        tries=after.tries,
        keys=after.keys,
        holds=(*(k for k in old.holds if k in after.keys), *new_keys),
        gates=after.gates,
        parked=parked,
        wake_at=now + change.delay if parked == "wait" else 0.0,
        open=after.open,
        host=after.host,
        request=old.request,
        created=old.created,
        updated=now,
        docs=old.docs,
        far=old.far,
        fill=old.fill,
        lines=lines[-LINES:],
        unfitted=seen.unfitted and not (change.event or after.keys or after.gates),
    )
    nodes = seen.nodes
    if change.docs:
        if refusal := notes.document(plan, layout, ref, nodes, side, change.docs):
            return refusal
        nodes = nodes.union(
            n for n, body in change.docs.items() if n in layout.documents and (body is not None or n in layout.fillers)
        )
        nodes = nodes.difference(n for n, body in change.docs.items() if body is None and n not in layout.fillers)
        if (
            ref.kind == "batch"
            and "submission" in change.docs
            and (refusal := batches.rename(plan, seen, change.docs["submission"]))
        ):
            return refusal
    if layout.native and (after.priority != seen.priority or seen.misnumbered):
        plan.ops.append(wire.put(f"{home}/priority", b"%d" % after.priority, "priority"))
    old_entry = f"{layout.folder(seen.state)}/{seen.entry_name}"
    new_name = layout.entry(after.priority, side.turn, side.seq, ref.id)
    plan.entries(layout, ref.id, old_entry, f"{layout.folder(after.state)}/{new_name}")
    if layout.parent and seen.parent is not None:
        plan.buckets(seen.parent, ref.id, layout.bucket(seen.state), layout.bucket(after.state))
    elif ref.kind == "batch" and after.state != seen.state:
        batches.pend(plan, seen, after.state)
    _let_go(plan, ref, dropped, side.holds)
    have = {key_path(key) for key in old.holds}
    new_nodes = [path for path in dict.fromkeys(map(key_path, new_keys)) if path not in have]
    for path in new_nodes:
        if plan.real is None or plan.real.get(path) is None:
            plan.ops.append(wire.create(path, mine, "key"))
    plan.touched += new_nodes
    notes.park(plan, ref, seen.side, side)
    notes.own(plan, ref, seen.side, side)
    notes.descend(plan, layout, ref, seen.side, side)
    if change.answers:
        plan.drop(places.ask(ref), "note")
    aside = layout.side(ref.id)
    written = encode_side(side)
    plan.ops.append(
        wire.put(aside, written, "side", seen.side_version)
        if seen.side is not None
        else wire.create(aside, written, "side")
    )
    if before.session is not None and session is None:
        plan.ops.append(wire.delete(f"{home}/lock", "lock"))
    open = layout.bucket(after.state) == "batch-processing" if layout.settled else after.open
    record = replace(
        after,
        session=session,
        version=version,
        parked=parked,
        wake_at=side.wake_at,
        updated=now,
        created=old.created,
        seq=seen.seq,
        turn=side.turn,
        nudges=seen.nudges if session is None else before.nudges,
        open=open,
        parent=seen.parent,
        request=old.request,
        docs=after.docs.with_changes(change.docs),
    )
    known = None
    if session is not None:
        body = Status(after.state, after.last_done, after.retries, "", after.message)
        known = Seen(
            ref,
            layout,
            seen.made,
            seen.nudges,
            status,
            body,
            seen.version + 1,
            now,
            session,
            side,
            seen.side_version + 1,
            after.priority,
            seen.parent,
            nodes,
            None,
            new_name,
        )
    return Result(
        record,
        known,
        dropped=dropped,
        passed=asked,
        closed=seen.parent if seen.open and not open else None,
        released=before.session is not None and session is None,
        claimable=session is None and parked is None,
    )


def remove(plan: Plan, change: Change, seen: Seen) -> Result | StoreError:
    before = change.before
    assert before is not None
    layout, ref, home = seen.layout, seen.ref, seen.layout.home(seen.ref.id)
    side = seen.side or caught_up(seen)  # of one that others moved: what it really holds
    if before.session is None:
        plan.ops += wire.absent(f"{home}/lock", "free")
    else:
        plan.ops.append(wire.delete(f"{home}/lock", "lock"))
    plan.ops.append(wire.delete(f"{home}/status", "status", seen.version))
    aside = layout.side(ref.id)
    if ref.kind == "batch":
        if "states" in seen.nodes:
            for bucket in BUCKETS:
                plan.drop(f"{home}/states/{bucket}", "jobs")
            plan.ops.append(wire.delete(f"{home}/states", "jobs"))
        if uuid := notes.batch_uuid((seen.docs or {}).get("submission")):
            plan.drop(f"/batch-uuids/{uuid}", "note")
    for name in sorted(seen.nodes - {"status", "lock", "states", "side"}):
        plan.drop(f"{home}/{name}", "document")
    for name in side.far:
        plan.drop(f"{aside}/{quote(name)}", "document")
    if seen.side_version >= 0:
        plan.ops.append(wire.delete(aside, "side", seen.side_version))
    plan.ops.append(wire.delete(home, "home"))
    plan.entries(layout, ref.id, f"{layout.folder(seen.state)}/{seen.entry_name}", None)
    if layout.parent and seen.parent is not None:
        plan.buckets(seen.parent, ref.id, layout.bucket(seen.state), None)
    _let_go(plan, ref, side.holds)
    notes.park(plan, ref, seen.side, None)
    notes.own(plan, ref, seen.side, None)
    notes.descend(plan, layout, ref, seen.side, None)
    if side.request is not None:
        plan.drop(places.request(ref.kind, side.request), "note")
    plan.drop(places.ask(ref), "note")
    asked = [key for key in side.keys if key not in side.holds]
    return Result(None, dropped=list(side.holds), passed=asked, closed=seen.parent if seen.open else None)


def outdated(change: Change, seen: Seen | None) -> StoreError | None:
    """Why `before` is no longer the truth."""
    before = change.before
    assert before is not None
    refusal = Conflict if before.session is None else ClaimLost
    if seen is None:
        return refusal(f"{before.ref} is gone. Read it again, then decide again.")
    if before.session != seen.holder:
        if before.session is None:
            return Conflict(f"{before.ref} is held by {seen.holder}; nothing was changed.")
        return ClaimLost(f"The claim on {before.ref} ended; perhaps another worker has it now.")
    if before.session is not None and seen.foreign:
        return ClaimLost(
            f"Another service wrote {before.ref} while it was held (it is {seen.state} now); the claim has ended."
        )
    if before.seq != seen.seq or before.version != seen.record_version:
        return Conflict(
            f"{before.ref} moved on since it was read (it is {seen.state} now). Read it again, then decide again."
        )
    return None


def _unfit(layout: Layout, after: Record) -> StoreError | None:
    """What Merritt's services could not read, and so must not be written into their tree."""
    if not layout.known(after.state):
        return StoreError(
            f"A {layout.kind} in Merritt's tree cannot be {after.state}; its services know {', '.join(layout.states)}."
        )
    if layout.parent and (after.parent is None or after.parent.kind != layout.parent):
        return StoreError(f"A {layout.kind} in Merritt's tree needs a {layout.parent} as its parent.")
    return None


def _let_go(plan: Plan, ref: Ref, keys: Iterable[str], kept: Iterable[str] = ()) -> None:
    """Drop keys; but not one that somebody took away from it, and that is another's now, nor the node of one that is
    kept.
    """
    still = {key_path(key) for key in kept}
    for path in dict.fromkeys(map(key_path, keys)):
        holder = plan.real.get(path) if plan.real is not None else None
        if path not in still and (holder is None or holder.data == str(ref).encode()):
            plan.drop(path, "drop")
