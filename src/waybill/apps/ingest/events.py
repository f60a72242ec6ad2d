"""The events of ingest: what webhooks can subscribe to."""

from waybill.application import EventType

JOB_COMPLETED = EventType("org.waybill.ingest.job.completed", "An object was stored and recorded.")
BATCH_COMPLETED = EventType("org.waybill.ingest.batch.completed", "All objects of a deposit were stored, or deleted.")
BATCH_FAILED = EventType(
    "org.waybill.ingest.batch.failed",
    "Some objects of a deposit were not stored; `data.failed_jobs` names the first of them.",
)

EVENTS = (JOB_COMPLETED, BATCH_COMPLETED, BATCH_FAILED)
