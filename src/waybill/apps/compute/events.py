"""The events of compute: what webhooks can subscribe to."""

from waybill.application import EventType

JOB_DONE = EventType("org.waybill.compute.job.done", "A job is done, and its files are written.")
JOB_FAILED = EventType("org.waybill.compute.job.failed", "A job is done with errors, or was cancelled.")
EVENTS = (JOB_DONE, JOB_FAILED)
