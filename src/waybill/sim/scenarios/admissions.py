"""Tickets that take places of a pool: commits that change several records, all or nothing, whatever crashes between two
calls.

    pool      Open -> Closed; its document names the tickets that have a place, at most `limit`
    ticket    Asking -> Riding -> Left; it takes its place in the commit that admits it, and gives it back in the commit
              that ends it, whoever ends it
    closer    ends every ticket of a pool, in whatever stage, then closes the pool
    source    Coming -> Arrived; wakes the run that waits for it
    run       Waiting, until all its sources have arrived -> Gathering, a join of its pieces -> Over
    piece     belongs to a run or to a pool, and is made only while that is open
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any

from waybill.engine import Engine
from waybill.errors import ActionRefused
from waybill.machine import RESUME, STAY, Backoff, Document, Machine, action, end, join, rest, work
from waybill.record import Change, Record, RecordNotFound, Ref, Store
from waybill.sim.invariant_checker import CheckedRecord, InvariantViolation
from waybill.sim.scenario import ClientScript, Scenario
from waybill.sim.world import get_current_world
from waybill.step import Act, Done, New, Outcome, StepContext, Wait

SHORT_BACKOFF = Backoff(0.5, 2.0, 4.0)
FOREVER = 1e6  # seconds: a wait that only a wake ends
MAX_STOPS = 3  # tickets that a closer ends in one commit


def holders_of(pool: Record) -> list[str]:
    return list(pool.documents["places"]["holders"])


def take_place(pool: Record, args: Mapping[str, Any]) -> dict[str, Any]:
    """Raises ActionRefused for one who has a place, or where none is left: a guard does not see the arguments."""
    ticket, holders = args.get("ticket"), holders_of(pool)
    if ticket is None or ticket in holders:
        raise ActionRefused(f"{ticket or 'Nobody'} cannot take a place of {pool.ref}.")
    return {"places": {**pool.documents["places"], "holders": [*holders, ticket]}}


def give_place(pool: Record, args: Mapping[str, Any]) -> dict[str, Any]:
    ticket, holders = args.get("ticket"), holders_of(pool)
    if ticket not in holders:
        raise ActionRefused(f"{ticket or 'Nobody'} has no place of {pool.ref}.")
    return {"places": {**pool.documents["places"], "holders": [each for each in holders if each != ticket]}}


def is_full(pool: Record) -> bool:
    return len(holders_of(pool)) >= int(pool.documents["places"]["limit"])


def refuse_full(pool: Record, store: Store) -> str | None:
    return f"{pool.ref} is full." if is_full(pool) else None


def refuse_held(pool: Record, store: Store) -> str | None:
    return f"{pool.ref} still has tickets." if holders_of(pool) else None


def refuse_awaited(source: Record, store: Store) -> str | None:
    run = Ref("run", source.documents["plan"]["run"])
    found = store.get_many([run]).get(run)
    return f"{run} still waits for it." if found is None or found.state == "Waiting" else None


def has_place(ticket: Record) -> bool:
    return ticket.last_done == "Asking" and ticket.state in ("Riding", "Failed")


def pool_of(record: Record) -> Ref:
    return Ref("pool", record.documents["plan"]["pool"])


def give_back(ticket: Record, args: Mapping[str, Any]) -> Iterator[Act]:
    if has_place(ticket):
        yield Act(pool_of(ticket), "give", {"ticket": ticket.id})


POOL = Machine(
    name="pool", plural="pools", description="So many places.",
    states=(
        rest("Open", description="There may be room."),
        rest("Closed", description="No more.", settled=True),
        end("Gone", description="-"),
    ),
    actions=(
        action("take", "Open", STAY, "Take a place.", guard=refuse_full, writes=take_place),
        action("give", "Open Closed", STAY, "Give a place back.", writes=give_place),
        action("close", "Open", "Closed", "Let nobody in.", guard=refuse_held),
        action("remove", "Closed", "Gone", "Forget it."),
    ),
    documents=(Document("places", None, "service", "How many, and who has one."),),
)  # fmt: skip
TICKET = Machine(
    name="ticket", plural="tickets", prefix="tck", description="Wants a place.", steps=__name__,
    states=(
        work(
            "Asking", to="Riding", or_to=("Queued",), backoff=SHORT_BACKOFF,
            description="Takes a place in the commit that admits it.",
        ),
        work("Riding", to="Left", description="Rides, and gives the place back in the commit that ends it.", backoff=SHORT_BACKOFF),
        rest("Queued", description="There was no place; whoever leaves calls it."),
        rest("Failed", description="Tried too often; keeps its place if it has one."),
        end("Left", description="Has ridden."),
        end("Stopped", description="Ended by another."),
    ),
    actions=(
        action("resume", "Failed", RESUME, "Try again."),
        action("ask", "Queued", "Asking", "There may be a place now."),
        action("stop", "Asking Queued Riding Failed", "Stopped", "End it.", when_claimed="wait", acts=give_back),
    ),
    documents=(Document("plan", None, "service", "Which pool, how many laps."), Document("laps", None, "step", "How many are done.")),
)  # fmt: skip
CLOSER = Machine(
    name="closer", plural="closers", prefix="cls", description="Ends the tickets of a pool.", steps=__name__,
    states=(
        work("Closing", to="Closed", description="Stops tickets, a few in each commit.", on_fail=None, backoff=SHORT_BACKOFF),
        end("Closed", description="The pool has no tickets."),
    ),
    documents=(Document("plan", None, "service", "Which pool."),),
)  # fmt: skip
SOURCE = Machine(
    name="source", plural="sources", description="Something that a run waits for.", steps=__name__,
    states=(
        work("Coming", to="Arrived", description="On its way.", on_fail=None, backoff=SHORT_BACKOFF),
        rest("Arrived", description="Here."), end("Used", description="-"),
    ),
    actions=(action("use", "Arrived", "Used", "The run has begun.", guard=refuse_awaited),),
    documents=(Document("plan", None, "service", "Which run."),),
)  # fmt: skip
RUN = Machine(
    name="run", plural="runs", description="Waits for its sources, then for its pieces.", steps=__name__,
    states=(
        work("Waiting", to="Gathering", description="Until every source has arrived.", on_fail=None, backoff=SHORT_BACKOFF),
        join("Gathering", to="Over", description="Until its pieces are settled."),
        end("Over", description="All is done."), end("Cancelled", description="Ended."),
    ),
    actions=(action("cancel", "Waiting Gathering", "Cancelled", "End it, whatever its pieces do.", when_claimed="wait"),),
    documents=(Document("plan", None, "service", "Its sources."),),
)  # fmt: skip
PIECE = Machine(
    name="piece", plural="pieces", prefix="pie", description="A part of a run, or of a pool.", parent="run pool", steps=__name__,
    states=(work("Cutting", to="Cut", description="Cuts it.", on_fail=None, backoff=SHORT_BACKOFF), end("Cut", description="Done.")),
)  # fmt: skip


def asking(ticket: Record, ctx: StepContext) -> Outcome:
    pool = ctx.get(*pool_of(ticket))
    # one that has met an error before does not look: the act is refused then
    if pool.state != "Open" or (is_full(pool) and ticket.error_count == 0):
        return Done(to="Queued", message=f"{pool.ref} is full or closed.")
    take = Act(pool.ref, "take", {"ticket": ticket.id})
    get_current_world().reach_point("before admission")
    return Done(acts=(take,))


def riding(ticket: Record, ctx: StepContext) -> Outcome:
    world = get_current_world()
    world.spend_time(2.0)
    world.inject_transient_error("the train")
    laps = ticket.documents["laps"]["done"] if "laps" in ticket.documents else 0
    if laps < ticket.documents["plan"]["laps"]:
        return Wait(1.0, documents={"laps": {"done": laps + 1}})
    queued = ctx.find("ticket", state="Queued", limit=1).records
    return Done(acts=(*give_back(ticket, {}), *(Act(each.ref, "ask") for each in queued)))


def closing(closer: Record, ctx: StepContext) -> Outcome:
    try:
        pool = ctx.get(*pool_of(closer))
    except RecordNotFound:
        return Done()
    if pool.state != "Open":
        return Done()
    found = [
        ticket
        for state in ("Asking", "Riding", "Failed")
        for ticket in ctx.find("ticket", state=state, documents=True).records
        if pool_of(ticket) == pool.ref
    ]
    stops = [Act(ticket.ref, "stop", why="the pool is closed") for ticket in found[:MAX_STOPS]]
    if stops and get_current_world().draw_chance(0.5):
        ctx.act(stops[0].ref, "stop")  # a second run finds it stopped, or its worker told to stop
        return Wait()
    return Wait(acts=tuple(stops)) if stops else Done(acts=(Act(pool.ref, "close"),))


def coming(source: Record, ctx: StepContext) -> Outcome:
    get_current_world().spend_time(0.02)
    return Done(wakes=(Ref("run", source.documents["plan"]["run"]),))


def waiting(run: Record, ctx: StepContext) -> Outcome:
    for id in run.documents["plan"]["sources"]:
        try:
            if ctx.get("source", id).state == "Coming":
                return Wait(FOREVER, "Its sources wake it.")
        except RecordNotFound:
            return Wait(FOREVER, "Not all sources are known.")
    return Done()


def cutting(piece: Record, ctx: StepContext) -> Outcome:
    get_current_world().spend_time(0.5)
    return Done()


def _submit_waking(new: New, parent: Ref, engine: Engine) -> None:
    engine.submit_all([new], wakes=[parent], who="client")


class AdmissionsScenario(Scenario):
    name = "admissions"
    description = (
        "Commits that change several records: places of a pool, records ended by others, wakes of two sources."
    )
    is_retry_free = False  # an act that is refused is a transient error

    def build_machines(self) -> tuple[Machine, ...]:
        return (POOL, TICKET, CLOSER, SOURCE, RUN, PIECE)

    def build_submissions(self) -> Iterator[New]:
        rng = self.rng
        limit = rng.choice((1, 1, 2, 3))
        places = {"limit": limit, "holders": []}
        yield New("pool", {"places": places}, id="pool", idempotency_key="pool")
        for n in range(rng.choice((2, 4, 8))):
            plan = {"pool": "pool", "laps": 0 if self.world.is_instant else rng.choice((0, 1, 2))}
            yield New("ticket", {"plan": plan}, idempotency_key=f"ticket-{n}")
        for n in range(rng.choice((0, 1, 2))):
            sources = [f"source-{n}-{i}" for i in range(2)]
            yield New("run", {"plan": {"sources": sources}}, id=f"run-{n}", idempotency_key=f"run-{n}")
            for id in sources:
                yield New("source", {"plan": {"run": f"run-{n}"}}, id=id, idempotency_key=id)

    def build_client_scripts(self) -> Iterable[ClientScript]:
        for n in range(self.rng.choice((0, 2, 4))):
            parent = self.rng.choice((Ref("run", "run-0"), Ref("pool", "pool")))
            new = New("piece", parent=parent, if_parent_open=True, idempotency_key=f"piece-{n}")
            yield partial(_submit_waking, new, parent)
        if self.rng.random() < 0.5:
            yield self._close_pool

    def _close_pool(self, engine: Engine) -> None:
        """Create a closer, and stop the first tickets in the commit that creates it."""
        tickets = engine.store.find("ticket", limit=2).records
        acts = [Act(ticket.ref, "stop") for ticket in tickets if TICKET.list_actions_from(ticket.state)]
        new = New("closer", {"plan": {"pool": "pool"}}, idempotency_key="closer")
        engine.submit_all([new], acts=acts, who="client")

    def check_change(self, change: Change, record: Record | None, checked: CheckedRecord) -> None:
        if record is not None and record.kind == "pool" and "places" in record.documents:
            holders = holders_of(record)
            if len(holders) > record.documents["places"]["limit"] or len(set(holders)) < len(holders):
                raise InvariantViolation(f"{record.ref} has given places to {holders}")

    def find_problems(self, store: Store) -> Iterator[str]:
        held = sorted(ticket.id for ticket in store.each("ticket") if has_place(ticket))
        for pool in store.each("pool", documents=True):
            if sorted(holders_of(pool)) != held:
                yield f"{pool.ref} has given places to {holders_of(pool)}, and {held} ride"
        if held and not store.count_by_state("pool"):
            yield f"{held} ride, and there is no pool"
