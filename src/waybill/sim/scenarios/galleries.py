"""Visitors who share a gallery, restorers who need it alone, and tours of which so many go at a time: shared, exclusive and
counted locks that survive waits, failures and crashes.

    visit   Looking (gallery, shared) -> Touring (gallery, shared; tour, counted) -> Gone
            Looking -> Restoring (gallery, exclusive) -> Gone; a restorer begins in Restoring
"""

from __future__ import annotations

from collections.abc import Iterator

from waybill.machine import RESUME, Document, LockFamily, Machine, action, end, rest, work
from waybill.record import Change, Record
from waybill.sim.invariant_checker import CheckedRecord, InvariantViolation
from waybill.sim.scenario import Scenario
from waybill.sim.scenarios.transfers import SHORT_BACKOFF
from waybill.sim.world import SimulatedWorld, get_current_world
from waybill.step import Done, New, Outcome, StepContext, Wait

VISIT = Machine(
    name="visit",
    plural="visits",
    prefix="vis",
    description="Somebody in a gallery.",
    steps=__name__,
    initial_states=("Restoring",),
    states=(
        work(
            "Looking",
            to="Touring",
            or_to=("Restoring", "Gone"),
            description="Looks at pictures beside others.",
            shared_locks=("gallery",),
            poll_interval=1.0,
            backoff=SHORT_BACKOFF,
        ),
        work(
            "Touring",
            to="Gone",
            description="Goes on a tour; so many at a time.",
            locks=("tour",),
            shared_locks=("gallery",),
            on_fail="Tired",
            poll_interval=1.0,
            max_tries=2,
            backoff=SHORT_BACKOFF,
        ),
        work(
            "Restoring",
            to="Gone",
            description="Works on a picture, alone.",
            locks=("gallery",),
            on_fail="Tired",
            poll_interval=1.0,
            max_tries=2,
            backoff=SHORT_BACKOFF,
        ),
        rest("Tired", description="Sits down, beside others.", shared_locks=("gallery",)),
        rest("Failed", description="Left."),
        end("Gone", description="Outside.", keep=60.0),
    ),
    actions=(
        action("resume", "Tired Failed", RESUME, "Get up."),
        action("leave", "Tired Failed Looking Touring Restoring", "Gone", "Leave at once.", when_claimed="wait"),
    ),
    documents=(Document("visit", None, "service", "Which gallery, how many go on a tour, and what for."),),
    locks=(
        LockFamily("gallery", "Many look, one restores.", names_of=lambda r: (r.documents["visit"]["gallery"],)),
        LockFamily(
            "tour",
            "So many on a tour at a time.",
            names_of=lambda r: (r.documents["visit"]["gallery"],),
            limit_of=lambda r: int(r.documents["visit"]["limit"]),
        ),
    ),
)


def looking(visit: Record, ctx: StepContext) -> Outcome:
    _enter(visit, "shares")
    if visit.documents["visit"]["wants"] == "restore":
        return Done(to="Restoring")
    if visit.documents["visit"]["wants"] == "glance":
        return Done(to="Gone")
    return _stay(ctx)


def touring(visit: Record, ctx: StepContext) -> Outcome:
    _enter(visit, "shares")
    return _stay(ctx)


def restoring(visit: Record, ctx: StepContext) -> Outcome:
    _enter(visit, "is alone in")
    return _stay(ctx)


def _stay(ctx: StepContext) -> Outcome:
    world = get_current_world()
    world.spend_time(3.0)
    ctx.check()
    world.inject_transient_error("the guard")
    return Wait(message="one more picture") if not world.is_instant and world.draw_chance(0.3) else Done()


def _enter(visit: Record, how: str) -> None:
    """A late worker whose claim is lost is no violation: it cannot commit."""
    world = get_current_world()
    scenario = world.simulation.scenario
    assert isinstance(scenario, GalleriesScenario)
    if not world.simulation.is_live(visit):
        return
    gallery = visit.documents["visit"]["gallery"]
    inside = scenario.inside.setdefault(gallery, {})
    inside[visit.ref.id] = how
    if "is alone in" in inside.values() and len(inside) > 1:
        raise InvariantViolation(
            f"{visit.ref} {how} {gallery}, where {', '.join(f'{ref} {other} it' for ref, other in inside.items())}"
        )


class GalleriesScenario(Scenario):
    name = "galleries"
    description = "Shared, exclusive and counted locks, that survive waits, failures and crashes."

    def __init__(self, world: SimulatedWorld) -> None:
        super().__init__(world)
        self.inside: dict[str, dict[str, str]] = {}  # by gallery: who is in it, and how

    def build_machines(self) -> tuple[Machine, ...]:
        return (VISIT,)

    def build_submissions(self) -> Iterator[New]:
        rng = self.rng
        galleries = rng.choice(("x", "x", "xy"))
        for n in range(rng.choice((3, 5, 8))):
            wants = rng.choice(("look", "look", "look", "glance", "restore", "alone"))
            plan = {"gallery": rng.choice(galleries), "limit": rng.choice((1, 1, 2, 3)), "wants": wants}
            yield New(
                "visit",
                {"visit": plan},
                state="Restoring" if wants == "alone" else None,
                idempotency_key=f"visit-{n}",
                priority=rng.choice((5, 5, 5, 3)),
            )

    def check_change(self, change: Change, record: Record | None, checked: CheckedRecord) -> None:
        """A record leaves its gallery with the very commit after which it no longer needs the lock in that sort."""
        state = checked.machine.find_state(record.state) if record is not None else None
        for inside in self.inside.values():
            how = inside.get(checked.ref.id)
            if how is not None and (
                state is None or "gallery" not in (state.shared_locks if how == "shares" else state.locks)
            ):
                del inside[checked.ref.id]
