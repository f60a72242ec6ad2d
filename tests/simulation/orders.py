"""Orders of many items: parents and children, holds, retries, files of hosts, an outbox, and deleting with all children.

order   Filling -> Gathering -> Labelling -> Sending -> Sent -> (delete) Deleting -> Deleted
item    Picking -> Packing -> Weighing -> Shelving -> Shelved; a hold on its aisle sends it to rest from Picking, and blocks
        it in Shelving
notice  Telling -> Told: what an order publishes, created in the commit that sends it
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from waybill.machine import RESUME, STAY, Backoff, Document, Machine, action, end, join, rest, retired, work
from waybill.record import Change, Record, Store
from waybill.sim.invariant_checker import CheckedRecord, InvariantViolation
from waybill.sim.scenario import Scenario
from waybill.sim.world import SimulatedWorld, get_current_world
from waybill.step import Done, Fail, New, Outcome, StepContext, Wait

SHORT_BACKOFF = Backoff(1.0, 2.0, 4.0)


def _has_items(order: Record, store: Store) -> str | None:
    """Guards read the store, also in the middle of a worker's commit."""
    counts = store.count_by_state("item", parent=order.ref)
    return None if counts else "An order without items is left as it is."


def _is_not_sold(item: Record, store: Store) -> str | None:
    if item.parent is None:
        return None
    order = next(iter(store.find("order", state="Sending", limit=1).records), None)
    return "Its order is being sent." if order is not None and order.ref == item.parent else None


ORDER = Machine(
    name="order",
    plural="orders",
    prefix="ord",
    description="A customer's order of some items.",
    steps=__name__,
    states=(
        work("Filling", to="Gathering", description="Creates its items, page by page.", backoff=SHORT_BACKOFF),
        join(
            "Gathering", to="Labelling", description="Its items are on their way.", or_to=("Short",), on_fail="Failed"
        ),
        work(
            "Labelling",
            to="Sending",
            description="Gets a label, which costs money.",
            max_tries=2,
            backoff=SHORT_BACKOFF,
        ),
        work("Sending", to="Sent", description="Hands it over and says so.", max_tries=2, backoff=SHORT_BACKOFF),
        work(
            "Deleting",
            to="Deleted",
            description="Removes its items.",
            on_fail=None,
            poll_interval=1.0,
            backoff=SHORT_BACKOFF,
        ),
        rest("Short", description="An item is missing.", settled=True),
        rest("Failed", description="A step gave up.", settled=True),
        rest("Sent", description="On its way.", settled=True, keep=40.0),
        end("Deleted", description="Gone, with its items.", keep=10.0),
    ),
    actions=(
        action("resume", "Failed", RESUME, "Try again."),
        action("complete", "Short", "Labelling", "Send what is there.", guard=_has_items),
        action(
            "cancel",
            "Filling Gathering Labelling",
            "Deleting",
            "Do not send it.",
            when_claimed="wait",
            guard=_has_items,
            confirm="Sure?",
        ),
        action("delete", "Sent Short Failed", "Deleting", "Forget it."),
        action(
            "annotate",
            "Filling Gathering Sent",
            STAY,
            "Leave a note.",
            when_claimed="wait",
            writes=lambda r, _: {"note": {"at": r.state}},
        ),
    ),
    documents=(
        Document("order", None, "service", "How many items, and how they are."),
        Document("made", None, "step", "How many items are created."),
        Document("label", None, "step", "The label."),
        Document("note", None, "service", "A note of the operator."),
    ),
)

ITEM = Machine(
    name="item",
    plural="items",
    prefix="itm",
    description="One item of an order.",
    steps=__name__,
    parent="order",
    initial_states=("Wrapping",),
    states=(
        work("Picking", to="Packing", description="Takes it from its aisle.", on_hold="Held", backoff=SHORT_BACKOFF),
        work(
            "Packing",
            to="Weighing",
            description="Packs it, on this host.",
            leaves_files=True,
            max_tries=2,
            backoff=SHORT_BACKOFF,
        ),
        work(
            "Weighing",
            to="Shelving",
            description="Weighs the package.",
            on_host_lost="Packing",
            poll_interval=2.0,
            max_tries=2,
            backoff=SHORT_BACKOFF,
        ),
        work(
            "Shelving",
            to="Shelved",
            description="Puts it on its shelf.",
            blocks_on_hold=True,
            on_fail=None,
            backoff=SHORT_BACKOFF,
        ),
        retired("Wrapping", to="Shelving", description="Was done by hand once."),
        rest("Held", description="Its aisle is closed."),
        rest("Failed", description="There is none.", settled=True),
        end("Shelved", description="There it is."),
        end("Dropped", description="Not wanted any more."),
    ),
    actions=(
        action("resume", "Failed", RESUME, "Look again."),
        action("reopen", "Held", "Picking", "Its aisle is open."),
        action(
            "drop",
            "Picking Packing Weighing Held Failed",
            "Dropped",
            "Leave it.",
            when_claimed="wait",
            guard=_is_not_sold,
        ),
    ),
    documents=(Document("item", None, "service", "Where it is."), Document("weight", None, "step", "What it weighs.")),
    hold_names=lambda record: (f"aisle/{record.documents['item']['aisle']}",),
)

NOTICE = Machine(
    name="notice",
    plural="notices",
    prefix="ntc",
    description="Something that is published once.",
    steps=__name__,
    states=(
        work("Telling", to="Told", description="Tells it.", on_fail=None, backoff=SHORT_BACKOFF),
        end("Told", description="They know.", keep=30.0),
    ),
    documents=(Document("notice", None, "service", "What to tell."),),
)


def filling(order: Record, ctx: StepContext) -> Outcome:
    get_current_world().inject_transient_error("the catalogue")
    plan = order.documents["order"]
    items = (New("item", {"item": item}, state="Wrapping" if item["old"] else None) for item in plan["items"])
    ctx.spawn_each(_iterate_slowly(items), cursor="made", page_size=plan["page_size"])
    return Done()


def _iterate_slowly(items: Iterable[New]) -> Iterator[New]:
    for n, item in enumerate(items):
        if n:
            get_current_world().reach_point("next item")
        yield item


def gathering(order: Record, ctx: StepContext) -> Outcome:
    states = ctx.count_by_state("item", parent=order.ref)
    get_current_world().inject_transient_error("the list")
    return Done(to="Short") if states.get("Failed") else Done()


def labelling(order: Record, ctx: StepContext) -> Outcome:
    """The label is paid for when it is made: it is saved at once, and never made again after that."""
    world = get_current_world()
    if "label" not in order.documents:
        name = f"{order.id}-{ctx.claim_version}"
        saved = _orders_scenario_of(world).label_versions.get(order.id)
        if saved is not None and saved <= ctx.claim_version:
            raise InvariantViolation(
                f"{order.ref} has had a label since version {saved}, and claim version {ctx.claim_version} makes another"
            )
        world.perform_effect("label", order.id)
        ctx.save({"label": {"name": name}})
    world.inject_transient_error("the printer")
    if get_current_world().draw_chance(0.2):
        return Wait(1.0, "the printer is busy")
    return Done()


def sending(order: Record, ctx: StepContext) -> Outcome:
    world = get_current_world()
    world.inject_transient_error("the carrier")
    world.perform_effect("hand over", order.documents["label"]["name"])  # safe to repeat: the carrier knows the label
    return Done(spawn=(New("notice", {"notice": {"order": order.id}}, is_child=False),))


def deleting(order: Record, ctx: StepContext) -> Outcome:
    left = ctx.remove_children("item")
    if left or any(ctx.count_by_state("item", parent=order.ref).values()):
        return Wait(message=f"{left} are still claimed")
    return Done()


def picking(item: Record, ctx: StepContext) -> Outcome:
    world = get_current_world()
    world.inject_transient_error("the ladder")
    if item.documents["item"]["missing"] and item.resume_count == 0:
        raise Fail("There is none left.")
    world.spend_time(2.0)
    ctx.check()
    return Done()


def packing(item: Record, ctx: StepContext) -> Outcome:
    get_current_world().write_files(item)
    get_current_world().spend_time(2.0)
    get_current_world().inject_transient_error("the tape")
    return Done()


def weighing(item: Record, ctx: StepContext) -> Outcome:
    world = get_current_world()
    if not world.has_files(item) and world.simulation.is_live(item):
        raise InvariantViolation(
            f"{item.ref} is weighed on {world.simulation.cluster.get_current_process().host} and packed on {item.host or 'no host'}"
        )
    world.inject_transient_error("the scale")
    if "weight" not in item.documents:
        return Wait(documents={"weight": {"grams": 5}})
    return Done()


def shelving(item: Record, ctx: StepContext) -> Outcome:
    get_current_world().inject_transient_error("the shelf")
    return Done()


def telling(notice: Record, ctx: StepContext) -> Outcome:
    get_current_world().perform_effect("tell", notice.id)
    get_current_world().inject_transient_error("the telephone")
    return Done()


class OrdersScenario(Scenario):
    name = "orders"
    description = "Parents and children, holds, retries, files of hosts, an outbox, deleting with all children."

    def __init__(self, world: SimulatedWorld) -> None:
        super().__init__(world)
        self.label_versions: dict[str, int] = {}  # the version that saved the label, by order
        self.notice_counts: dict[str, int] = {}
        self.sent_orders: dict[str, None] = {}
        self.planned_items: dict[str, int] = {}

    def build_machines(self) -> tuple[Machine, ...]:
        return (ORDER, ITEM, NOTICE)

    def build_submissions(self) -> Iterator[New]:
        for n in range(self.rng.choice((1, 1, 2, 3))):
            items = [
                {"aisle": self.rng.choice("ab"), "missing": self.rng.random() < 0.1, "old": self.rng.random() < 0.2}
                for _ in range(self.rng.choice((0, 1, 2, 3, 5)))
            ]
            yield New(
                "order",
                {"order": {"items": items, "page_size": self.rng.choice((1, 2, 3))}},
                idempotency_key=f"order-{n}",
            )

    def list_hold_names(self) -> tuple[str, ...]:
        return ("aisle/a", "aisle/b")

    def check_change(self, change: Change, record: Record | None, checked: CheckedRecord) -> None:
        if record is None:
            return
        if record.kind == "order":
            self._check_order(change, record)
        elif record.kind == "notice" and change.before is None:
            order = _decode_document(change, "notice")["order"]
            self.notice_counts[order] = self.notice_counts.get(order, 0) + 1
            if self.notice_counts[order] > 1:
                raise InvariantViolation(f"order {order} is published twice")

    def _check_order(self, change: Change, record: Record) -> None:
        if change.before is None:
            self.planned_items[record.id] = len(_decode_document(change, "order")["items"])
        if "label" in change.documents:
            if record.id in self.label_versions:
                raise InvariantViolation(f"order {record.id} has a label and gets another")
            self.label_versions[record.id] = record.version
        if change.cause == "done" and record.state == "Sent":
            self.sent_orders[record.id] = None
        if record.state == "Deleted" and any(
            checked.parent == record.ref for checked in self.world.simulation.checker.records.values()
        ):
            raise InvariantViolation(f"order {record.id} is deleted, and has items")
        if change.cause == "done" and record.state == "Gathering":
            created = self.world.simulation.checker.child_counts.get(record.ref, 0)
            if created != self.planned_items[record.id]:
                raise InvariantViolation(
                    f"order {record.id} has {self.planned_items[record.id]} items, and {created} were created"
                )

    def find_problems(self, store: Store) -> Iterator[str]:
        for order in self.sent_orders:
            if self.notice_counts.get(order) != 1:
                yield f"order {order} was sent and published {self.notice_counts.get(order, 0)} times"
        if not self.world.simulation.faults.counts and not self.world.simulation.profile.transient_error_rate:
            for (name, key), count in self.world.effects.items():
                if name in ("label", "tell") and count > 1:
                    yield f"{name} {key} happened {count} times without any fault"


def _orders_scenario_of(world: SimulatedWorld) -> OrdersScenario:
    scenario = world.simulation.scenario
    assert isinstance(scenario, OrdersScenario)
    return scenario


def _decode_document(change: Change, name: str) -> dict[str, Any]:
    body = change.documents[name]
    assert body is not None
    decoded: dict[str, Any] = msgspec.json.decode(body)
    return decoded
