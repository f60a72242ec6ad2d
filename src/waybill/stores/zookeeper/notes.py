"""The notes that a plan makes beside a record's own nodes: why it is parked, whose it is, whose child it is, its
documents.

Each function takes the plan from one state of a note to the next. Where a record has no such note, None stands for it.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from waybill.record import Ref, StoreError
from waybill.stores.zookeeper import places, wire
from waybill.stores.zookeeper.layout import Layout
from waybill.stores.zookeeper.names import quote
from waybill.stores.zookeeper.plan import Plan, chain, parent_of
from waybill.stores.zookeeper.side import INLINE, Side


def parked_path(ref: Ref, side: Side) -> str | None:
    return places.parked(ref.kind, side.state, ref.id, side.parked, side.wake_at) if side.parked else None


def waiting_path(side: Side) -> str | None:
    reason, _, key = (side.parked or "").partition(" ")
    return f"{places.waiting_folder(key)}/{side.spot}" if reason == "key" and side.spot else None


def park(plan: Plan, ref: Ref, before: Side | None, after: Side | None) -> None:
    """Why it cannot be claimed."""
    for old, new in (
        (before and parked_path(ref, before), after and parked_path(ref, after)),
        (before and waiting_path(before), after and waiting_path(after)),
    ):
        if old == new:
            continue
        if old:
            plan.drop(old, "note")
        if new:
            plan.folder(*chain(parent_of(new)))
            plan.make(new, "note")


def own(plan: Plan, ref: Ref, before: Side | None, after: Side | None) -> None:
    """Whose it is."""
    old = places.owner(before.owner, ref.kind, before.seq, ref.id) if before and before.owner else None
    new = places.owner(after.owner, ref.kind, after.seq, ref.id) if after and after.owner else None
    if old == new:
        return
    if old:
        plan.drop(old, "note")
    if new:
        plan.folder(*chain(parent_of(new)))
        plan.make(new, "note")


def child_path(layout: Layout, ref: Ref, side: Side, open: bool) -> str | None:
    """Its place among the children of its parent; None for those that Merritt's folders list."""
    if side.parent is None or layout.parent:
        return None
    return f"{places.kin(Ref(*side.parent))}/{'open' if open else 'shut'}/{places.child_name(ref.kind, side.seq, side.state, ref.id)}"


def descend(plan: Plan, layout: Layout, ref: Ref, before: Side | None, after: Side | None) -> None:
    """Whose child it is, and whether its parent waits for it."""
    old = child_path(layout, ref, before, before.open) if before else None
    new = child_path(layout, ref, after, after.open) if after else None
    if old == new:
        return
    if old:
        plan.drop(old, "note")
    if new:
        plan.folder(*chain(parent_of(new)))
        plan.make(new, "note")


def document(
    plan: Plan, layout: Layout, ref: Ref, nodes: frozenset[str], side: Side, docs: Mapping[str, bytes | None]
) -> StoreError | None:
    """Write and remove documents; `side` is the one to be written, and is changed here."""
    inline, far, fill = dict(side.docs), dict.fromkeys(side.far), dict.fromkeys(side.fill)
    home, aside = layout.home(ref.id), layout.side(ref.id)
    for name, body in docs.items():
        if name in layout.documents:
            path = f"{home}/{name}"
            if body is None:
                if name in nodes:
                    plan.drop(path, "document")
                if name in layout.fillers:  # the other services cannot do without the node
                    plan.ops.append(wire.create(path, layout.fillers[name], "document"))
                    fill[name] = None
                continue
            if name in layout.numbers and not _is_number(body):
                return StoreError(
                    f"The document {name} of {ref} is a whole number and nothing else; {body[:40]!r} is not."
                )
            plan.write(path, body, "document", name in nodes)
            fill.pop(name, None)
            continue
        path = f"{aside}/{quote(name)}"
        text = _text(body) if body is not None and len(body) <= INLINE else None
        if body is not None and text is None:
            plan.write(path, body, "document", name in far)
            far[name] = None
            inline.pop(name, None)
            continue
        if name in far:
            plan.drop(path, "document")
            del far[name]
        if text is None:
            inline.pop(name, None)
        else:
            inline[name] = text
    side.docs, side.far, side.fill = inline, tuple(far), tuple(fill)
    return None


def _text(body: bytes) -> str | None:
    try:
        return body.decode()
    except UnicodeDecodeError:
        return None


def _is_number(body: bytes) -> bool:
    digits = body[1:] if body.startswith(b"-") else body
    return digits.isdigit()


def batch_uuid(submission: bytes | None) -> str | None:
    """The name under which Merritt's services look a batch up."""
    if submission is None:
        return None
    try:
        uuid = msgspec.json.decode(submission).get("batchID")
    except (msgspec.DecodeError, AttributeError):
        return None
    return uuid if isinstance(uuid, str) and uuid and "/" not in uuid else None
