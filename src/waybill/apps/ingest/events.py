"""The events of ingest: what others can subscribe to."""

from waybill.events import EventType

OBJECT_RECORDED = EventType("ingest.object.recorded", "An object was stored and recorded.")
BATCH_COMPLETED = EventType("ingest.batch.completed", "All objects of a deposit were stored, or deleted.")
BATCH_FAILED = EventType(
    "ingest.batch.failed", "Some objects of a deposit were not stored; `data.failed_jobs` names the first of them."
)

EVENTS = (OBJECT_RECORDED, BATCH_COMPLETED, BATCH_FAILED)
