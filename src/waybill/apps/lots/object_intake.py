"""Objects of other applications that arrive in a dataset: an event says `dataset = "NAME/VERSION"`, with `key` and `version` of a
thing, and what that thing consists of becomes arrivals.

    ingest.object.recorded -> object-intake: Taking -> Taken
"""

from __future__ import annotations

from typing import Any

from waybill.machine import Document, Machine, end, work
from waybill.record import DocumentStruct
from waybill.step import Done, New
from waybill.subscriptions import ReceivedEvent, SubscriberContext

DAY = 86400.0


class ObjectIntakeDocument(DocumentStruct, frozen=True):
    origin: str  # the key of the thing, as `waybill trace` has it
    version: int
    dataset: str  # NAME or NAME/VERSION
    at: float  # when it happened, in seconds since 1970


OBJECT_INTAKE = Machine(
    name="object-intake", plural="object-intakes", prefix="take", description="An object of another application that arrives in a dataset.",
    made_by="an event of that application",
    steps="waybill.apps.lots.steps.object_intake",
    states=(
        work("Taking", to="Taken", max_tries=50, description="Copies what is not below the dataset's path, and says that all has arrived."),
        end("Taken", keep=30 * DAY, description="It is in a lot, or will be when that ends."),
    ),
    documents=(Document("intake", ObjectIntakeDocument, "service", "Which object, and for which dataset."),),
)  # fmt: skip


def take_object(event: ReceivedEvent, ctx: SubscriberContext) -> Done | None:
    """Make an intake. Safe to repeat: one for each version and dataset, by its idempotency key."""
    dataset, key = _text(event.data.get("dataset")), _text(event.data.get("key"))
    if not dataset or not key:
        return None
    version = int(event.data.get("version", 1))
    document = ObjectIntakeDocument(key, version, dataset, event.at)
    return Done(spawn=(New(OBJECT_INTAKE.name, (document,), idempotency_key=f"{key} {version} {dataset}"),))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


SUBSCRIBES = {"ingest.object.recorded": take_object}
