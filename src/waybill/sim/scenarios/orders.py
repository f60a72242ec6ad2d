"""Orders of many items: parents and children, marks, retries, files of hosts, an outbox, and deleting with all below.

order   Filling -> Gathering -> Labelling -> Sending -> Sent -> (delete) Deleting -> Deleted
item    Picking -> Packing -> Weighing -> Shelving -> Shelved, held by the mark of its aisle, stopped at the mark of its shelf
notice  Telling -> Told: what an order publishes, made in the commit that sends it
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from waybill.machine import RESUME, STAY, Backoff, Document, Machine, action, end, join, rest, retired, work
from waybill.record import Change, Record, Store
from waybill.sim.ledger import Entry, Violation
from waybill.sim.scenario import Scenario
from waybill.sim.world import World, current
from waybill.step import Context, Done, Fail, New, Outcome, Wait

SOON = Backoff(1.0, 2.0, 4.0)


def _has_items(order: Record, store: Store) -> str | None:
    """Guards read the store, also in the middle of a worker's commit."""
    there = store.tally("item", parent=order.ref)
    return None if there else "An order without items is left as it is."


def _is_not_sold(item: Record, store: Store) -> str | None:
    if item.parent is None:
        return None
    order = next(iter(store.find("order", state="Sending", limit=1).records), None)
    return "Its order is being sent." if order is not None and order.ref == item.parent else None


ORDER = Machine(
    name="order",
    plural="orders",
    prefix="ord",
    doc="A customer's order of some items.",
    states=(
        work("Filling", "Gathering", "Makes its items, a portion at a time.", backoff=SOON),
        join("Gathering", "Labelling", "Its items are on their way.", also=("Short",), fails="Failed"),
        work("Labelling", "Sending", "Gets a label, which costs money.", tries=2, backoff=SOON),
        work("Sending", "Sent", "Hands it over and says so.", tries=2, backoff=SOON),
        work("Deleting", "Deleted", "Removes its items.", fails=None, every=1.0, backoff=SOON),
        rest("Short", "An item is missing.", settled=True),
        rest("Failed", "A step gave up.", settled=True),
        rest("Sent", "On its way.", settled=True, keep=40.0),
        end("Deleted", "Gone, with its items.", keep=10.0),
    ),
    actions=(
        action("resume", "Failed", RESUME, "Try again."),
        action("complete", "Short", "Labelling", "Send what is there.", guard=_has_items),
        action(
            "cancel",
            "Filling Gathering Labelling",
            "Deleting",
            "Do not send it.",
            claimed="wait",
            guard=_has_items,
            confirm="Sure?",
        ),
        action("delete", "Sent Short Failed", "Deleting", "Forget it."),
        action(
            "annotate",
            "Filling Gathering Sent",
            STAY,
            "Leave a note.",
            claimed="wait",
            writes=lambda r, _: {"note": {"at": r.state}},
        ),
    ),
    documents=(
        Document("order", "service", "How many items, and how they are."),
        Document("made", "step", "How many items are made."),
        Document("label", "step", "The label."),
        Document("note", "service", "What people say."),
    ),
)

ITEM = Machine(
    name="item",
    plural="items",
    prefix="itm",
    doc="One item of an order.",
    parent="order",
    begins=("Wrapping",),
    states=(
        work("Picking", "Packing", "Takes it from its aisle.", holds="Held", backoff=SOON),
        work("Packing", "Weighing", "Packs it, on this host.", leaves_files=True, tries=2, backoff=SOON),
        work("Weighing", "Shelving", "Weighs the package.", remakes="Packing", every=2.0, tries=2, backoff=SOON),
        work("Shelving", "Shelved", "Puts it on its shelf.", gated=True, fails=None, backoff=SOON),
        retired("Wrapping", "Shelving", "Was done by hand once."),
        rest("Held", "Its aisle is closed."),
        rest("Failed", "There is none.", settled=True),
        end("Shelved", "There it is."),
        end("Dropped", "Not wanted any more."),
    ),
    actions=(
        action("resume", "Failed", RESUME, "Look again."),
        action("reopen", "Held", "Picking", "Its aisle is open."),
        action(
            "drop", "Picking Packing Weighing Held Failed", "Dropped", "Leave it.", claimed="wait", guard=_is_not_sold
        ),
    ),
    documents=(Document("item", "service", "Where it is."), Document("weight", "step", "What it weighs.")),
    gates=lambda record: (f"aisle/{record.docs['item']['aisle']}",),
)

NOTICE = Machine(
    name="notice",
    plural="notices",
    prefix="ntc",
    doc="Something that the world is told, once.",
    states=(work("Telling", "Told", "Tells it.", fails=None, backoff=SOON), end("Told", "They know.", keep=30.0)),
    documents=(Document("notice", "service", "What to tell."),),
)


@ORDER.step("Filling")
def fill(order: Record, ctx: Context) -> Outcome:
    current().meet_trouble("the catalogue")
    plan = order.docs["order"]
    news = (New("item", {"item": item}, state="Wrapping" if item["old"] else None) for item in plan["items"])
    ctx.spawn_each(_slowly(news), cursor="made", portion=plan["portion"])
    return Done()


def _slowly(news: Iterable[New]) -> Iterator[New]:
    for n, new in enumerate(news):
        if n:
            current().point("next item")
        yield new


@ORDER.step("Gathering")
def gather(order: Record, ctx: Context) -> Outcome:
    states = ctx.tally("item", parent=order.ref)
    current().meet_trouble("the list")
    return Done(to="Short") if states.get("Failed") else Done()


@ORDER.step("Labelling")
def label(order: Record, ctx: Context) -> Outcome:
    """The label is paid for when it is made: saved at once, and never made again after that."""
    world = current()
    if "label" not in order.docs:
        mine = f"{order.id}-{ctx.attempt}"
        saved = _orders(world).labels.get(order.id)
        if saved is not None and saved <= ctx.attempt:
            raise Violation(
                f"{order.ref} has had a label since version {saved}, and attempt {ctx.attempt} makes another"
            )
        world.happen("label", order.id)
        ctx.save({"label": {"name": mine}})
    world.meet_trouble("the printer")
    if current().chance(0.2):
        return Wait(1.0, "the printer is busy")
    return Done()


@ORDER.step("Sending")
def send(order: Record, ctx: Context) -> Outcome:
    world = current()
    world.meet_trouble("the carrier")
    world.happen("hand over", order.docs["label"]["name"])  # the carrier knows the label: twice is once
    return Done(spawn=(New("notice", {"notice": {"order": order.id}}, child=False),))


@ORDER.step("Deleting")
def delete(order: Record, ctx: Context) -> Outcome:
    left = ctx.remove_children("item")
    if left or any(ctx.tally("item", parent=order.ref).values()):
        return Wait(message=f"{left} are still worked on")
    return Done()


@ITEM.step("Picking")
def pick(item: Record, ctx: Context) -> Outcome:
    world = current()
    world.meet_trouble("the ladder")
    if item.docs["item"]["missing"] and item.retries == 0:
        raise Fail("There is none left.")
    world.takes(2.0)
    ctx.check()
    return Done()


@ITEM.step("Packing")
def pack(item: Record, ctx: Context) -> Outcome:
    current().write_files(item)
    current().takes(2.0)
    current().meet_trouble("the tape")
    return Done()


@ITEM.step("Weighing")
def weigh(item: Record, ctx: Context) -> Outcome:
    world = current()
    if not world.has_files(item) and world.simulation.is_live(item):
        raise Violation(
            f"{item.ref} is weighed on {world.simulation.stage.here().host} and packed on {item.host or 'no host'}"
        )
    world.meet_trouble("the scale")
    if "weight" not in item.docs:
        return Wait(docs={"weight": {"grams": 5}})
    return Done()


@ITEM.step("Shelving")
def shelve(item: Record, ctx: Context) -> Outcome:
    current().meet_trouble("the shelf")
    return Done()


@NOTICE.step("Telling")
def tell(notice: Record, ctx: Context) -> Outcome:
    current().happen("tell", notice.id)
    current().meet_trouble("the telephone")
    return Done()


class Orders(Scenario):
    name = "orders"
    doc = "Orders of many items: parents and children, marks, retries, files of hosts, an outbox, deleting with all below."

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.labels: dict[str, int] = {}  # orders whose label is saved: since which version
        self.notices: dict[str, int] = {}
        self.sent: dict[str, None] = {}
        self.planned: dict[str, int] = {}

    def machines(self) -> tuple[Machine, ...]:
        return (ORDER, ITEM, NOTICE)

    def submissions(self) -> Iterator[New]:
        for n in range(self.rng.choice((1, 1, 2, 3))):
            items = [
                {"aisle": self.rng.choice("ab"), "missing": self.rng.random() < 0.1, "old": self.rng.random() < 0.2}
                for _ in range(self.rng.choice((0, 1, 2, 3, 5)))
            ]
            yield New("order", {"order": {"items": items, "portion": self.rng.choice((1, 2, 3))}}, request=f"order-{n}")

    def marks(self) -> tuple[str, ...]:
        return ("aisle/a", "aisle/b")

    def changed(self, change: Change, record: Record | None, entry: Entry) -> None:
        if record is None:
            return
        if record.kind == "order":
            self._order_changed(change, record)
        elif record.kind == "notice" and change.before is None:
            about = _document(change, "notice")["order"]
            self.notices[about] = self.notices.get(about, 0) + 1
            if self.notices[about] > 1:
                raise Violation(f"order {about} is published twice")

    def _order_changed(self, change: Change, record: Record) -> None:
        if change.before is None:
            self.planned[record.id] = len(_document(change, "order")["items"])
        if "label" in change.docs:
            if record.id in self.labels:
                raise Violation(f"order {record.id} has a label and gets another")
            self.labels[record.id] = record.version
        if change.event == "done" and record.state == "Sent":
            self.sent[record.id] = None
        if record.state == "Deleted" and any(
            e.parent == record.ref for e in self.world.simulation.ledger.entries.values()
        ):
            raise Violation(f"order {record.id} is deleted, and has items")
        if change.event == "done" and record.state == "Gathering":
            made = self.world.simulation.ledger.children.get(record.ref, 0)
            if made != self.planned[record.id]:
                raise Violation(f"order {record.id} has {self.planned[record.id]} items, and {made} were made")

    def finished(self, store: Store) -> Iterator[str]:
        for order in self.sent:
            if self.notices.get(order) != 1:
                yield f"order {order} was sent and published {self.notices.get(order, 0)} times"
        if not self.world.simulation.faults.counts and not self.world.simulation.profile.trouble:
            for (name, key), count in self.world.effects.items():
                if name in ("label", "tell") and count > 1:
                    yield f"{name} {key} happened {count} times, and nothing had gone wrong"


def _orders(world: World) -> Orders:
    scenario = world.simulation.scenario
    assert isinstance(scenario, Orders)
    return scenario


def _document(change: Change, name: str) -> dict[str, Any]:
    body = change.docs[name]
    assert body is not None
    decoded: dict[str, Any] = msgspec.json.decode(body)
    return decoded
