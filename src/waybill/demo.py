"""A small demonstration: shipments and their parcels, so that there is something to watch. Loaded only with `--demo`.

    shipment   Sorting -> Travelling (until its parcels have settled) -> Delivered, or Incomplete when one of them failed
    parcel     Packing -> Sending -> Delivered; a carrier on hold keeps it in Held, a wrong address in Failed

Nothing is random and nothing is busy: a journey is a step that returns Wait, and which parcel meets which error follows
from its number. Every seventh carrier does not answer the first time (a transient error, retried); every eleventh
address is wrong (a permanent error, failed at once) until somebody resumes the parcel.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from waybill.application import Application
from waybill.engine import Engine
from waybill.machine import Backoff, Document, Machine, action, end, join, rest, work
from waybill.record import DocumentStruct, Record, Store
from waybill.step import Done, Fail, New, Outcome, SpawnedChildren, StepContext, Wait

if TYPE_CHECKING:
    from waybill.environment import Environment

CARRIERS = ("pigeon", "mule", "barge")
STOPS = 3  # of a parcel on its way
PAUSE = 1.0  # seconds between two of them
SHIPMENTS = 6
PARCELS = 8  # in each shipment


def _check_no_failed_parcel(shipment: Record, store: Store) -> str | None:
    failed = store.count_by_state("parcel", parent=shipment.ref).get("Failed", 0)
    return f"{failed} of its parcels failed; resume them or give them up first." if failed else None


class ShipmentOrder(DocumentStruct, frozen=True):
    """What to send."""

    parcels: int


class ParcelLabel(DocumentStruct, frozen=True):
    number: int
    carrier: str
    address: str


class ParcelTrip(DocumentStruct, frozen=True):
    stops: int  # how many it has passed


SHIPMENT = Machine(
    name="shipment",
    plural="shipments",
    prefix="shp",
    description="Parcels that travel together.",
    steps=__name__,
    states=(
        work("Sorting", to="Travelling", description="Makes the parcels of the order."),
        join("Travelling", to="Delivered", description="Lasts until every parcel has settled.", or_to=("Incomplete",)),
        rest("Incomplete", description="Some parcels failed; resume or give them up, then close.", settled=True),
        end("Delivered", description="Everything that was sent has arrived."),
        end("Cancelled", description="Called off before its parcels were made."),
    ),
    actions=(
        action("close", "Incomplete", "Travelling", "Look at the parcels again.", guard=_check_no_failed_parcel),
        action(
            "cancel",
            "Failed",
            "Cancelled",
            "Call the shipment off.",
            confirm="A cancelled shipment cannot be taken up again.",
        ),
    ),
    documents=(
        Document("order", ShipmentOrder, "service", "What to send: how many parcels."),
        Document(
            "spawned", SpawnedChildren, "step", "How many parcels have been made, so that a crash goes on from there."
        ),
    ),
)


def _list_carrier_holds(parcel: Record) -> Iterable[str]:
    return (f"carrier/{parcel.document(ParcelLabel).carrier}",)


def _write_new_address(parcel: Record, args: Mapping[str, Any]) -> tuple[ParcelLabel]:
    return (replace(parcel.document(ParcelLabel), address=str(args.get("address", "corrected"))),)


PARCEL = Machine(
    name="parcel",
    plural="parcels",
    prefix="pcl",
    steps=__name__,
    parent="shipment",
    description="One parcel on its way.",
    states=(
        work("Packing", to="Sending", description="Puts the goods into a box.", on_hold="Held"),
        work(
            "Sending",
            to="Delivered",
            description="Hands it to the carrier and follows it.",
            max_tries=3,
            backoff=Backoff(first=1.0),
            poll_interval=PAUSE,
        ),
        rest("Held", description="Its carrier is on hold; it goes on when it is released."),
        end("Delivered", description="Signed for."),
        end("Returned", description="Given up and sent back."),
    ),
    actions=(
        action("unhold", "Held", "Packing", "Try to go on; while the carrier is on hold it comes back."),
        action(
            "readdress", "Failed", "Packing", "Write another address on it and begin again.", writes=_write_new_address
        ),
        action("give-up", "Failed", "Returned", "Send it back.", confirm="A returned parcel is not sent again."),
    ),
    documents=(
        Document("label", ParcelLabel, "service", "Its number, its carrier and its address."),
        Document("trip", ParcelTrip, "step", "How many stops it has passed."),
    ),
    hold_names=_list_carrier_holds,
    hold_prefixes=("carrier/",),
)


def sorting(shipment: Record, ctx: StepContext) -> Outcome:
    order = shipment.find_document(ShipmentOrder)
    if order is None:
        raise Fail("""No order says how many parcels to send; submit another with --document order='{"parcels": 3}'.""")
    if order.parcels < 1:
        raise Fail("The order names no parcel; a shipment has at least one.")
    labels = (ParcelLabel(n, CARRIERS[n % len(CARRIERS)], f"{n} Quay Street") for n in range(1, order.parcels + 1))
    created = ctx.spawn_each(New("parcel", (label,)) for label in labels)
    return Done(message=f"{created} parcels")


def travelling(shipment: Record, ctx: StepContext) -> Outcome:
    failed = ctx.count_by_state("parcel", parent=shipment.ref).get("Failed", 0)
    return Done(to="Incomplete", message=f"{failed} of the parcels failed") if failed else Done()


def packing(parcel: Record, ctx: StepContext) -> Outcome:
    return Done((ParcelTrip(0),))


def sending(parcel: Record, ctx: StepContext) -> Outcome:
    label, stops = parcel.document(ParcelLabel), parcel.document(ParcelTrip).stops
    number = label.number
    if number % 11 == 5 and parcel.resume_count == 0 and label.address.endswith("Quay Street"):
        raise Fail("There is no such house in Quay Street; readdress the parcel, or resume it to try the neighbours.")
    if number % 7 == 3 and stops == 0 and parcel.error_count == 0:
        raise ConnectionError("the carrier does not answer")
    ctx.report_progress(stops, STOPS, "stops")
    if stops < STOPS:
        return Wait(PAUSE + number % 3, f"passed {stops} of {STOPS} stops", (ParcelTrip(stops + 1),))
    return Done(message="signed for")


def make_demo_records(environment: Environment, engine: Engine) -> None:
    """Create some shipments to look at. Safe to repeat."""
    for n in range(1, SHIPMENTS + 1):
        order = ShipmentOrder(PARCELS + n % 5)
        engine.submit(
            New("shipment", (order,), owner="demo", priority=3 + n % 3, idempotency_key=f"demo {n}"), who="demo"
        )


DEMO = Application("demo", "Shipments and their parcels, to look at.", (SHIPMENT, PARCEL), demo=make_demo_records)
