"""A single step: one that is due, or that of one record, and the arrow that it took."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from waybill.cli.desk import Desk
from waybill.cli.problems import MISSING
from waybill.depot import Depot, make_folder
from waybill.record import Conflict, Record, Ref
from waybill.rules import pausing

if TYPE_CHECKING:
    from waybill.worker import Arrow


def take_one(desk: Desk, target: Ref | None, kinds: Iterable[str], take_up: Callable[[], None]) -> int | None:
    """`take_up` binds the duties to this process, once it is known that a step can be due."""
    from waybill.worker import step_once

    depot, settings = desk.depot, desk.config.work
    with desk.store() as store:
        roles = _unpaused(depot, kinds, store.marks(), store.get(*target) if target is not None else None)
    if not roles:
        return _say_arrow(desk, None)
    make_folder(settings.root)
    take_up()
    arrow = step_once(
        depot.open_store,
        depot.machines,
        host=depot.host,
        work_root=settings.root,
        objects=depot.objects,
        target=target,
        roles=roles,
        shared=settings.shared,
        ttl=settings.ttl,
        outfit=depot.outfit,
    )
    return _say_arrow(desk, arrow)


def _unpaused(depot: Depot, kinds: Iterable[str], marks: Iterable[str], target: Record | None) -> tuple[str, ...]:
    """The roles of a single step, without those whose queue is paused: nothing is due there."""
    from waybill.worker import roles_of

    paused = set(marks)

    def by(kind: str, state: str) -> set[str]:
        return pausing(depot.machines[kind], state) & paused

    if target is not None:
        if stops := by(target.kind, target.state):
            raise Conflict(
                f"Work on {target.ref} is paused by {', '.join(sorted(stops))}; `waybill release` that first."
            )
        return (target.kind,)
    # Upkeep is due at any time, so it is taken only by whoever asks for it.
    words = depot.config.work.roles or tuple(kind for kind in kinds if kind != "duty")
    return tuple(
        f"{role.kind}.{role.state}" for role in roles_of(depot.machines, words) if not by(role.kind, role.state)
    )


def _say_arrow(desk: Desk, arrow: Arrow | None) -> int | None:
    if arrow is None:
        if desk.as_json:
            desk.print_json({"arrow": None})
        desk.note("No step is due.")
        return MISSING
    if desk.as_json:
        desk.print_json(
            {
                "arrow": {
                    "kind": arrow.ref.kind,
                    "id": arrow.ref.id,
                    "before": arrow.before,
                    "after": arrow.after,
                    "event": arrow.event,
                    "message": arrow.message,
                }
            }
        )
    else:
        said = f" ({arrow.message})" if arrow.message else ""
        desk.say(f"{arrow.ref}: {arrow.before} → {arrow.after}, {arrow.event}{said}")
    return None
