"""The machine of batches: one submission, its jobs, and the report."""

from __future__ import annotations

from waybill.apps.ingest import submission
from waybill.apps.ingest.machine.holding import PATIENT, PAUSE, collection_is_open, gates
from waybill.apps.ingest.machine.job import LIVE
from waybill.apps.ingest.signatures import unsigned
from waybill.machine import Document, Folder, Machine, action, end, join, rest, work
from waybill.record import Record, Store

DAY = 86400.0


def no_job_runs(batch: Record, store: Store) -> str | None:
    tally = store.tally("job", parent=batch.ref)
    running = {state: count for state, count in tally.items() if count and state in LIVE.split()}
    said = ", ".join(f"{count} {state}" for state, count in running.items())
    return f"Jobs of it are at work: {said}. Wait for them, or fail them first." if running else None


def _batch_folder(batch: Record) -> tuple[str, ...]:
    return (submission.folder_name(submission.of_batch(batch).batch_id, batch.id),)


def batch_machine() -> Machine:
    return Machine(
        name="batch",
        plural="batches",
        prefix="bid",
        made_by="POST /api/v1/ingest/batches, or by `waybill ingest submit`",
        doc="One submission: a job for each object of it, and a report when all have settled.",
        queue=PAUSE,
        gates=gates,
        folder=Folder("queue", _batch_folder),
        begins=("Held", "Processing", "Completed"),
        states=(
            work("Pending", "Processing", "Submitted; its payload has not been looked at.", fails=None, holds="Held", backoff=PATIENT),
            rest("Held", "Its collection is on hold; an operator releases it when that is over."),
            join("Processing", "Reporting", "Its jobs are made, one for each object, and go their way.", opens="spawned"),
            join("Reporting", "Completed", "Every job has settled: the depositor is told what became of them.", also=["Failed"],
                 opens="spawned"),
            rest("Failed", "A job failed, or the payload could not be read; an operator mends, and has the rest reported.", settled=True),
            join("UpdateReporting", "Completed", "The depositor is told what has changed since the last report.", also=["Failed"]),
            end("Completed", "Reported: everything in it was stored, recorded and announced, or deleted.", keep=30 * DAY),
            end("Deleted", "Given up by an operator; it is removed with its jobs.", keep=0.0),
        ),
        actions=(
            action("hold", "Pending", "Held", "Do not begin it yet.", claimed="wait"),
            action("release", "Held", "Pending", "Let it go on.", guard=collection_is_open),
            action("report", "Failed", "UpdateReporting", "Mending has ended: tell the depositor what has changed."),
            action("delete", "Failed Held", "Deleted", "Remove it with its jobs and their working folders.", guard=no_job_runs,
                   confirm="The depositor will not be told, and its jobs go with it."),
        ),
        documents=(
            Document("submission", "service", "What was submitted, in the words of the services that share the tree.", v=None,
                     shown=unsigned),
            Document("collections", "step", "The collections by which it is held, by its profile, where another service submitted it."),
            Document("plan", "step", "Where the list of its objects lies, and how many there are.", shown=unsigned),
            Document("spawned", "step", "How many of its jobs have been made, and what is worth knowing of the manifest."),
            Document("trouble", "step", "Why no jobs could be made of it, with line numbers."),
            Document("status-report", "step", "The last report: counts, the first ids, and where all of them are listed.", v=None),
        ),
    )  # fmt: skip
