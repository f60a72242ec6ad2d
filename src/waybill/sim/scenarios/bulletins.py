"""Bulletins: events of steps, actions and clients, and subscribers that create records, act on them, and fail, whatever
crashes between two calls.

    paper    Writing -> Printing -> Sold; tells that it was printed, then that it was sold; `withdraw` ends it
    stack    made by the subscriber `kiosk` for each printed paper; its document names the events that were noted there
    kiosk    creates a stack when a paper is printed, and notes the sale there: each in the commit that moves its cursor
    reader   only reads: what it does outside of the store may happen twice
    grump    cannot handle some papers, and is parked; an operator resumes it, or skips the event
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from waybill.errors import ActionRefused
from waybill.events import Event, EventBody, EventType
from waybill.machine import STAY, Backoff, Document, Machine, action, end, rest, work
from waybill.maintenance import MaintenanceRoutine
from waybill.record import Change, Record, RecordNotFound, Ref, Store
from waybill.sim.invariant_checker import CheckedRecord, InvariantViolation
from waybill.sim.scenario import ClientScript, Scenario
from waybill.sim.world import SimulatedWorld, get_current_world
from waybill.step import Act, Done, New, Outcome, StepContext, Wait
from waybill.subscriptions import EventLogRoutine, ReceivedEvent, Subscriber, SubscriberContext
from waybill.subscriptions.machines import LISTENING, position_of

SHORT_BACKOFF = Backoff(0.5, 2.0, 4.0)
PRINTED, SOLD, STRIKE = "press.paper.printed", "press.paper.sold", "press.strike"
EVENT_TYPES = (EventType(PRINTED, "-"), EventType(SOLD, "-"), EventType(STRIKE, "Nobody prints."))
KEPT_SECONDS = 60.0


def note_event(stack: Record, args: Mapping[str, Any]) -> dict[str, Any]:
    if not args.get("event"):
        raise ActionRefused("Say which event.")
    return {"notes": {"events": [*stack.documents["notes"]["events"], args["event"]]}}


PAPER = Machine(
    name="paper", plural="papers", prefix="paper", description="Written, printed and sold.", steps=__name__,
    states=(
        work("Writing", to="Printing", description="Takes some time.", on_fail=None, backoff=SHORT_BACKOFF),
        work("Printing", to="Sold", description="Tells that it is printed, and that it is sold.", on_fail=None, backoff=SHORT_BACKOFF),
        end("Sold", description="Gone."), end("Withdrawn", description="Never sold."),
    ),
    actions=(action("withdraw", "Writing Printing", "Withdrawn", "Stop it.", when_claimed="wait"),),
    documents=(Document("plan", None, "service", "What happens to it."), Document("state", None, "step", "What was told.")),
)  # fmt: skip
STACK = Machine(
    name="stack", plural="stacks", description="Papers at a kiosk.",
    states=(rest("Open", description="There."), end("Cleared", description="-")),
    actions=(
        action("note", "Open", STAY, "An event.", writes=note_event),
        action("clear", "Open", "Cleared", "Never.", guard=lambda record, store: "It stays."),
    ),
    documents=(Document("notes", None, "service", "The events that were noted."),),
)  # fmt: skip


def writing(paper: Record, ctx: StepContext) -> Outcome:
    world = get_current_world()
    world.spend_time(1.0)
    world.inject_transient_error("the editor")
    return Done()


def printing(paper: Record, ctx: StepContext) -> Outcome:
    """The paper tells twice: in a save or a wait, and in the commit that ends it."""
    world = get_current_world()
    told = "state" in paper.documents
    printed = Event(PRINTED, paper.id, {"pages": 12})
    if not told and paper.documents["plan"]["saves"]:
        ctx.save({"state": {"told": True}}, events=(printed,))
    elif not told:
        return Wait(0.5, documents={"state": {"told": True}}, events=(printed,))
    world.spend_time(1.0)
    world.reach_point("before the sale")
    return Done(events=(Event(SOLD, paper.id),))


def note_handled(subscriber: str, event: ReceivedEvent) -> None:
    """Check the order: the first time of an event never comes after the first time of a later one."""
    world = get_current_world()
    if not world.count_effects(subscriber, event.id):
        handled = handled_events_of(world)
        if event.seq < handled.get(subscriber, 0):
            raise InvariantViolation(f"{subscriber} gets {event.id} after an event that happened later")
        handled[subscriber] = event.seq
    world.perform_effect(subscriber, event.id)


def handled_events_of(world: SimulatedWorld) -> dict[str, int]:
    scenario = world.simulation.scenario
    assert isinstance(scenario, BulletinsScenario)
    return scenario.handled


def sell(event: ReceivedEvent, ctx: SubscriberContext) -> Done | None:
    note_handled("kiosk", event)
    if event.type == STRIKE:
        return None
    if event.type == PRINTED:
        return Done(spawn=(New("stack", {"notes": {"events": [event.id]}}, id=event.subject),))
    try:
        ctx.get("stack", event.subject)
    except RecordNotFound:
        raise InvariantViolation(f"{event.subject} is sold and its stack is not there") from None
    return Done(acts=(Act(Ref("stack", event.subject), "note", {"event": event.id}),))


def read(event: ReceivedEvent, ctx: SubscriberContext) -> None:
    get_current_world().inject_transient_error("the glasses")
    note_handled("reader", event)


def grumble(event: ReceivedEvent, ctx: SubscriberContext) -> None:
    if event.seq % 5 == 0:
        raise ValueError("not this one")
    note_handled("grump", event)


class BulletinsScenario(Scenario):
    name = "bulletins"
    description = "Events, and subscribers that create records, act on them, and fail."
    is_retry_free = False  # a handler that raises is tried again

    def __init__(self, world: SimulatedWorld) -> None:
        super().__init__(world)
        self.handled: dict[str, int] = {}  # by subscriber, the latest event that it has handled
        self.told: dict[str, list[str]] = {}  # by subject, the types that were logged

    def build_machines(self) -> tuple[Machine, ...]:
        return (PAPER, STACK)

    def build_subscribers(self) -> Mapping[str, Subscriber]:
        subscribers = {
            "kiosk": Subscriber("kiosk", {"press.*": sell}, max_tries=1_000),
            "reader": Subscriber("reader", {PRINTED: read, SOLD: read}, max_tries=1_000),
        }
        return subscribers | (
            {"grump": Subscriber("grump", {"*": grumble}, max_tries=3)} if self.rng.random() < 0.5 else {}
        )

    def list_event_types(self) -> tuple[EventType, ...]:
        return EVENT_TYPES

    def build_submissions(self) -> Iterator[New]:
        for n in range(self.rng.choice((2, 4, 8))):
            plan = {"saves": self.rng.random() < 0.5}
            yield New("paper", {"plan": plan}, idempotency_key=f"paper-{n}")

    def build_client_scripts(self) -> Iterator[ClientScript]:
        if self.rng.random() < 0.5:
            new = New("paper", {"plan": {"saves": True}}, idempotency_key="last")
            yield lambda engine: void(engine.submit_all([new], events=[Event(STRIKE, "all")], who="client"))

    def build_maintenance_routines(self) -> tuple[MaintenanceRoutine, ...]:
        return (EventLogRoutine(keep_days=KEPT_SECONDS / 86400, poll_interval=20.0),)

    def check_change(self, change: Change, record: Record | None, checked: CheckedRecord) -> None:
        if change.before is None and record is not None and record.kind == "event":
            body = record.document(EventBody)
            self.told.setdefault(body.subject, []).append(body.type)
        if record is not None and record.kind == "stack" and "notes" in record.documents:
            noted = record.documents["notes"]["events"]
            if len(set(noted)) < len(noted):
                raise InvariantViolation(f"{record.ref} has noted an event twice: {noted}")

    def find_problems(self, store: Store) -> Iterator[str]:
        stacks = {stack.id: stack.documents["notes"]["events"] for stack in store.each("stack", documents=True)}
        for paper in store.each("paper", documents=True):
            told = self.told.get(paper.id, [])
            if told != [PRINTED, SOLD][: len(told)] or (paper.state == "Sold") is not (SOLD in told):
                yield f"{paper.ref} is {paper.state} and has told of {told}"
            if len(stacks.get(paper.id, ())) != len(told):
                yield f"{paper.ref} has told of {told}, and {stacks.get(paper.id, ())} was noted"
        readers = list(store.each("subscription", documents=True))
        for event in store.each("event", documents=True):
            type = event.documents["event"]["type"]
            for reader in readers:
                is_read = reader.state == LISTENING and position_of(reader) >= event.seq
                wants = reader.id == "kiosk" or (reader.id == "reader" and type != STRIKE)
                if is_read and wants and not self.world.count_effects(reader.id, event.id):
                    yield f"{reader.ref} has passed over {event.ref}"


def void(result: object) -> None:
    """Drop the result of a script."""
