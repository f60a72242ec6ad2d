"""The events of lots: what others can subscribe to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from waybill.apps.lots.publishing import PublishedLot
from waybill.events import Event, EventType
from waybill.tracing import key_of

if TYPE_CHECKING:
    from waybill.apps.lots.resources import LotsResources

LOT_AVAILABLE = EventType(
    "lots.lot.available", "A lot of a dataset is complete or empty; also when a new generation of it is."
)
LOT_OVERDUE = EventType("lots.lot.overdue", "A lot of a dataset was due and is not there.")
LOT_RECOVERED = EventType("lots.lot.recovered", "A lot that was overdue is there.")
EVENTS = (LOT_AVAILABLE, LOT_OVERDUE, LOT_RECOVERED)


def make_lot_event(resources: LotsResources, published: PublishedLot) -> Event:
    dataset = published.dataset
    data = {
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
        # others ask for its objects by these two
        "key": key_of("lots", "lot", f"{dataset.title}/{published.lot}"),
        "version": published.generation,
        "count": published.object_count,
    }
    if dataset.archive and published.state == "complete":
        data |= {"archive": dataset.archive, "label": f"{dataset.title} {published.lot}"}
    return Event(LOT_AVAILABLE, f"{dataset.title}/{published.lot}", data)
