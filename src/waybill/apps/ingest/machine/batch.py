"""The machine of batches: one submission, its jobs, and the report to the depositor."""

from __future__ import annotations

from collections.abc import Collection

from waybill.apps.ingest.documents import BatchFailure, BatchJobs, BatchPlan, BatchReport
from waybill.apps.ingest.machine.holds import (
    COLLECTION_HOLD_PREFIX,
    PATIENT_BACKOFF,
    PAUSE_HOLD,
    check_collection_is_open,
    hold_names_of,
    scope_of,
)
from waybill.apps.ingest.machine.state_names import StateNames
from waybill.apps.ingest.submission import BatchSubmission, DepositCollections, Submission, choose_folder_name
from waybill.machine import Document, Machine, WorkingFolder, action, end, join, rest, work
from waybill.masking import mask_document
from waybill.record import Record, Store

DAY = 86400.0

_STATES = (
    work("Pending", to="Processing", description="Submitted; its payload has not been read.", on_fail=None, on_hold="Held",
         backoff=PATIENT_BACKOFF),
    rest("Held", description="Its collection is on hold; an operator releases it when the hold is over."),
    join("Processing", to="Reporting", description="Its jobs are created, one for each object, and run.", children_document="spawned"),
    join("Reporting", to="Completed", description="Every job has settled: the depositor gets the report.", or_to=["Failed"],
         children_document="spawned"),
    rest("Failed", settled=True,
         description="A job failed, or the payload could not be read; an operator repairs it, and has the rest reported."),
    join("UpdateReporting", to="Completed", or_to=["Failed"],
         description="The depositor gets a report of what has changed since the last one."),
    end("Completed", description="Reported: everything in it was stored, recorded and announced, or deleted.", keep=30 * DAY),
    end("Deleted", description="Given up by an operator; it is removed with its jobs.", keep=0.0),
)  # fmt: skip
BATCH = StateNames.from_states(_STATES)


def _folder_of_batch(batch: Record) -> tuple[str, ...]:
    return (choose_folder_name(Submission.from_batch(batch).batch_id, batch.id),)


def build_batch_machine(live_job_states: Collection[str]) -> Machine:
    """`live_job_states`: a batch is not deleted while one of its jobs is in one of them."""

    def check_no_job_runs(batch: Record, store: Store) -> str | None:
        counts = store.count_by_state("job", parent=batch.ref)
        running = ", ".join(f"{count} {state}" for state, count in counts.items() if count and state in live_job_states)
        return f"Jobs of it are running: {running}. Wait for them, or fail them first." if running else None

    return Machine(
        name="batch",
        plural="batches",
        prefix="bid",
        steps="waybill.apps.ingest.steps.batch",
        made_by="POST /api/v1/ingest/batches, or by `waybill ingest submit`",
        description="One submission: a job for each object, and a report when all jobs have settled.",
        queue=PAUSE_HOLD,
        hold_names=hold_names_of,
        scope_of=scope_of,
        hold_prefixes=(COLLECTION_HOLD_PREFIX,),
        folder=WorkingFolder("queue", _folder_of_batch),
        initial_states=("Held", "Processing", "Completed"),
        states=_STATES,
        actions=(
            action("hold", "Pending", "Held", "Do not start it yet.", when_claimed="wait"),
            action("release", "Held", "Pending", "Let it continue.", guard=check_collection_is_open),
            action("report", "Failed", "UpdateReporting", "The repair is over: report to the depositor what has changed."),
            action("delete", "Failed Held", "Deleted", "Remove it with its jobs and their working folders.", guard=check_no_job_runs,
                   confirm="The depositor gets no report, and its jobs are removed with it."),
        ),
        documents=(
            Document("submission", BatchSubmission, "service", "What was submitted, in the vocabulary of the services that share the tree.",
                     v=None, parse=BatchSubmission.parse, render=BatchSubmission.render,
                     redact=mask_document),
            Document("collections", DepositCollections, "step",
                     "The collections that can hold it, from its profile, if another service submitted it."),
            Document("plan", BatchPlan, "step", "Where the list of its objects is, and how many there are.", redact=mask_document),
            Document("spawned", BatchJobs, "step", "How many of its jobs were created, and remarks on the manifest."),
            Document("failure", BatchFailure, "step", "Why no jobs could be created, with line numbers."),
            Document("status-report", BatchReport, "step", "The last report: counts, the first ids, and where the full list is.", v=None,
                     parse=BatchReport.parse),
        ),
    )  # fmt: skip
