"""A small demonstration: shipments and their parcels, so that there is something to watch. Loaded only with `--demo`.

    shipment   Sorting -> Travelling (until its parcels have settled) -> Delivered, or Incomplete when one of them failed
    parcel     Packing -> Sending -> Delivered; a carrier on hold keeps it in Held, a wrong address in Failed

Nothing is random and nothing is busy: a journey is a step that answers Wait, and which parcel meets which trouble
follows from its number. Every seventh carrier does not answer the first time (trouble, tried again); every eleventh
address is wrong (a mistake, failed at once) until somebody resumes the parcel.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from waybill.application import Application
from waybill.engine import Engine
from waybill.machine import RESUME, Backoff, Document, Machine, action, end, join, rest, work
from waybill.record import Record, Store
from waybill.step import Context, Done, Fail, New, Outcome, Wait

if TYPE_CHECKING:
    from waybill.depot import Depot

CARRIERS = ("pigeon", "mule", "barge")
STOPS = 3  # looks at a parcel on its way
PAUSE = 1.0  # seconds between two of them
SHIPMENTS = 6
PARCELS = 8  # in each shipment


def _no_failed_parcel(shipment: Record, store: Store) -> str | None:
    failed = store.tally("parcel", parent=shipment.ref).get("Failed", 0)
    return f"{failed} of its parcels failed; resume them or give them up first." if failed else None


SHIPMENT = Machine(
    name="shipment",
    plural="shipments",
    prefix="shp",
    doc="Parcels that travel together.",
    states=(
        work("Sorting", "Travelling", "Makes the parcels of the order."),
        join("Travelling", "Delivered", "Lasts until every parcel has settled.", also=("Incomplete",)),
        rest("Incomplete", "Some parcels failed; resume or give them up, then close.", settled=True),
        rest("Failed", "The order could not be sorted.", settled=True),
        end("Delivered", "Everything that was sent has arrived."),
        end("Cancelled", "Called off before its parcels were made."),
    ),
    actions=(
        action("close", "Incomplete", "Travelling", "Look at the parcels again.", guard=_no_failed_parcel),
        action("resume", "Failed", RESUME, "Sort the order again."),
        action(
            "cancel",
            "Failed",
            "Cancelled",
            "Call the shipment off.",
            confirm="A cancelled shipment cannot be taken up again.",
        ),
    ),
    documents=(
        Document("order", "service", "What to send: how many parcels."),
        Document("spawned", "step", "How many parcels have been made, so that a crash goes on from there."),
    ),
)


def _carrier(parcel: Record) -> Iterable[str]:
    return (f"carrier/{parcel.docs['label']['carrier']}",)


def _new_address(parcel: Record, args: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"label": {**parcel.docs["label"], "address": str(args.get("address", "corrected"))}}


PARCEL = Machine(
    name="parcel",
    plural="parcels",
    prefix="pcl",
    parent="shipment",
    doc="One parcel on its way.",
    states=(
        work("Packing", "Sending", "Puts the goods into a box.", holds="Held"),
        work(
            "Sending",
            "Delivered",
            "Hands it to the carrier and follows it.",
            tries=3,
            backoff=Backoff(first=1.0),
            every=PAUSE,
        ),
        rest("Held", "Its carrier is on hold; it goes on when the hold is released."),
        rest("Failed", "It could not be sent; the message says why.", settled=True),
        end("Delivered", "Signed for."),
        end("Returned", "Given up and sent back."),
    ),
    actions=(
        action("unhold", "Held", "Packing", "Try to go on; while the carrier is on hold it comes back."),
        action("resume", "Failed", RESUME, "Try again after the last step that was done."),
        action("readdress", "Failed", "Packing", "Write another address on it and begin again.", writes=_new_address),
        action("give-up", "Failed", "Returned", "Send it back.", confirm="A returned parcel is not sent again."),
    ),
    documents=(
        Document("label", "service", "Its number, its carrier and its address."),
        Document("trip", "step", "How many stops it has passed."),
    ),
    gates=_carrier,
)


@SHIPMENT.step("Sorting")
def sort(shipment: Record, ctx: Context) -> Outcome:
    order = shipment.docs.get("order")
    wanted = order.get("parcels") if isinstance(order, dict) else None
    if not isinstance(wanted, int) or isinstance(wanted, bool):
        raise Fail(
            """The order does not say how many parcels to send; submit another with --doc order='{"parcels": 3}'."""
        )
    if wanted < 1:
        raise Fail("The order names no parcel; a shipment has at least one.")
    labels = (
        {"number": n, "carrier": CARRIERS[n % len(CARRIERS)], "address": f"{n} Quay Street"}
        for n in range(1, wanted + 1)
    )
    made = ctx.spawn_each(New("parcel", {"label": label}) for label in labels)
    return Done(message=f"{made} parcels")


@SHIPMENT.step("Travelling")
def arrive(shipment: Record, ctx: Context) -> Outcome:
    failed = ctx.tally("parcel", parent=shipment.ref).get("Failed", 0)
    return Done(to="Incomplete", message=f"{failed} of the parcels failed") if failed else Done()


@PARCEL.step("Packing")
def pack(parcel: Record, ctx: Context) -> Outcome:
    return Done({"trip": {"stops": 0}})


@PARCEL.step("Sending")
def send(parcel: Record, ctx: Context) -> Outcome:
    number = int(parcel.docs["label"]["number"])
    stops = int(parcel.docs["trip"]["stops"])
    if number % 11 == 5 and parcel.retries == 0 and parcel.docs["label"]["address"].endswith("Quay Street"):
        raise Fail("There is no such house in Quay Street; readdress the parcel, or resume it to try the neighbours.")
    if number % 7 == 3 and stops == 0 and parcel.tries == 0:
        raise ConnectionError("the carrier does not answer")
    ctx.progress(stops, STOPS, "stops")
    if stops < STOPS:
        return Wait(PAUSE + number % 3, f"passed {stops} of {STOPS} stops", {"trip": {"stops": stops + 1}})
    return Done(message="signed for")


def demonstrate(depot: Depot, engine: Engine) -> None:
    """Some shipments to look at. Asked twice, made once."""
    for n in range(1, SHIPMENTS + 1):
        order = {"parcels": PARCELS + n % 5}
        engine.submit(
            New("shipment", {"order": order}, owner="demo", priority=3 + n % 3, request=f"demo {n}"), who="demo"
        )


DEMO = Application("demo", "Shipments and their parcels, to look at.", (SHIPMENT, PARCEL), demo=demonstrate)
