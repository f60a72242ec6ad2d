"""The event of a lot that is there, as a CloudEvent for webhooks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from waybill.application import EventType
from waybill.apps.lots.publishing import PublishedLot
from waybill.notify import make_webhook_deliveries
from waybill.step import New

if TYPE_CHECKING:
    from waybill.apps.lots.resources import LotsResources

LOT_AVAILABLE = EventType(
    "org.waybill.lots.lot.available", "A lot of a dataset is complete or empty; also when a new generation of it is."
)
LOT_OVERDUE = EventType("org.waybill.lots.lot.overdue", "A lot of a dataset was due and is not there.")
LOT_RECOVERED = EventType("org.waybill.lots.lot.recovered", "A lot that was overdue is there.")
EVENTS = (LOT_AVAILABLE, LOT_OVERDUE, LOT_RECOVERED)


def make_lot_events(resources: LotsResources, published: PublishedLot, *, at: float) -> tuple[New, ...]:
    """Return one delivery for each webhook; the same lot and generation is the same event."""
    dataset = published.dataset
    return make_webhook_deliveries(
        resources.webhooks,
        event_type=LOT_AVAILABLE,
        source=f"/lots/datasets/{dataset.title}",
        subject=str(published.lot),
        data={
            "dataset": {
                "name": dataset.name,
                "version": dataset.version,
                "pathURI": resources.locations.absolute(dataset.path),
            },
            "lot": str(published.lot),
            "manifest": resources.locations.uri_of(published.manifest),
            "datasetId": dataset.title,
            "state": published.state,
            "generation": published.generation,
            "count": published.object_count,
        },
        key=f"{dataset.id} {published.lot} {published.generation}",
        at=at,
    )
