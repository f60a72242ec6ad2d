"""The jobs of a batch: one for each object of its payload.

    make_jobs              reads the payload and creates the jobs, in several commits if there are many
    wait_for_rows_above    makes a job wait for earlier rows of the same object: they become its versions in the order of the manifest

A payload that cannot be read has no jobs: the document `failure` says why, line by line, and so does the report, to
which the batch moves on.

Other services may create batches, and jobs of them, too. Jobs that they leave out are created here, if it is certain
which they are (merritt/unfinished_batches.py).
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import chain

import msgspec

from waybill.apps.ingest import priority
from waybill.apps.ingest.batch_report import build_queued_mail
from waybill.apps.ingest.documents import BatchFailure, BatchJobs, BatchPlan
from waybill.apps.ingest.formats.checkm import BadManifest, ManifestComplaint, ManifestRow, link_rows
from waybill.apps.ingest.job_refusal import SubmissionRefused
from waybill.apps.ingest.machine.job import JOB, UNRECORDED_STATES
from waybill.apps.ingest.merritt.unfinished_batches import POLL_SECONDS, make_failure, plan_of
from waybill.apps.ingest.payload_contents import read_batch_payload
from waybill.apps.ingest.resources import resources_of
from waybill.apps.ingest.submission import PayloadType, Submission
from waybill.manifests import record_lists
from waybill.record import Record, RecordNotFound, Ref, Store, StoreUnavailable, document_of
from waybill.step import Fail, New, StepContext, Wait
from waybill.transfer import TransferError

MAX_JOBS_PER_COMMIT = 200  # jobs created in one commit
# and bytes of their documents: a ZooKeeper transaction has at most 1 MiB, and names count too
MAX_BYTES_PER_COMMIT = 300_000
MAX_DOCUMENT_BYTES = 100_000  # bytes of the documents of one job
MAX_REMARKS = 20
_JOB_ID_NAMESPACE = uuid.UUID("6f3c1c5a-7c0e-5d53-9d0e-3b1f0f6d2a11")  # jobIDs are derived from batch and row
_ROW_TYPES = {
    PayloadType.MANIFESTS: PayloadType.OBJECT,
    PayloadType.CONTAINERS: PayloadType.CONTAINER,
    PayloadType.FILES: PayloadType.FILE,
}


def no_more_jobs_document(batch: Record) -> BatchJobs:
    """Says that no more jobs of the batch are created."""
    return msgspec.structs.replace(batch.document(BatchJobs), whole=True)


def has_jobs_to_make(batch: Record) -> bool:
    """Whether Waybill has still to create jobs of it."""
    created = batch.find_document(BatchJobs)
    return created is not None and not created.whole


# --- creating jobs


def make_jobs(batch: Record, ctx: StepContext) -> Wait | BatchFailure:
    """Create all jobs, and wait for them; or return the document `failure` that says why there can be none.

    Safe to repeat: each commit that creates jobs also says how many there are now, and their order is always the same.
    """
    resources, submission = resources_of(ctx), Submission.from_batch(batch)
    submission = msgspec.structs.replace(submission, batch_id=submission.batch_id or batch.id)
    if not submission.profile:
        return make_failure("Its submission names no profile. Submit it again with a profile.")
    try:
        profile = resources.get_profile(ctx, submission)
    except Fail as error:
        return make_failure(f"{error} Submit it again.")
    try:
        count, max_document_bytes, remarks, rows, followed = _list_objects(
            batch, ctx, submission, submission.owner or profile.owner
        )
    except StoreUnavailable as error:
        return Wait(POLL_SECONDS, f"The owners of its local ids cannot be looked up now: {error}")
    except TransferError as error:
        if batch.error_count + 1 < 2 * resources.settings.fetch.max_tries:
            raise  # tried again after the back-off, some minutes in all: a batch cannot be resumed
        return make_failure(f"{error} Submit it again when it can be fetched.")
    except SubmissionRefused as error:
        return make_failure(error.reason, error.reasons)
    except BadManifest as error:
        return make_failure(str(error), [str(each) for each in error.complaints])
    first_priority = priority.initial_priority_of(count, profile.priority)
    jobs = (
        New(
            "job",
            row_submission.to_job_documents(),
            priority=first_priority,
            idempotency_key=row_idempotency_key_of(batch.ref, line) if line in followed else None,
        )
        for line, row_submission in rows
    )
    mail = build_queued_mail(batch, submission, profile, resources, count, ctx.now())
    page_size = max(1, min(MAX_JOBS_PER_COMMIT, MAX_BYTES_PER_COMMIT // max_document_bytes))
    count_made = ctx.spawn_each(
        chain(jobs, mail), page_size=page_size
    )  # the mail is in one commit with the last of the jobs
    foreign_jobs = plan_of(batch).foreign_jobs
    return Wait(0, documents=(BatchJobs(count_made, True, count + foreign_jobs, tuple(remarks)),))


def _list_objects(
    batch: Record, ctx: StepContext, submission: Submission, owner: str
) -> tuple[int, int, list[str], Iterable[tuple[int, Submission]], frozenset[int]]:
    """The number of objects, the bytes of the longest documents of one, remarks, the submission of each object with its
    line, and the lines that later rows follow.
    """
    plan = plan_of(batch)
    if plan.type is not None:
        objects = _submissions_of_rows(
            batch, submission, plan.type, record_lists.read_list(ctx.objects, plan, ManifestRow)
        )
        return (
            plan.count,
            plan.max_document_bytes,
            list(plan.remarks),
            objects,
            _followed_lines_of(record_lists.read_list(ctx.objects, plan, ManifestRow)),
        )
    kind, manifest = read_batch_payload(ctx, submission)
    if manifest is None:
        one = msgspec.structs.replace(
            submission, type=kind, job_id=submission.job_id or job_id_of(submission.batch_id, 0)
        )
        return 1, _measure_documents(one, 0), [], [(0, one)], frozenset()
    rows, remarks = order_rows(ctx, manifest.rows, owner, manifest.remarks)
    max_document_bytes = _max_document_bytes(batch, submission, kind, rows)
    if len(rows) * max_document_bytes > MAX_BYTES_PER_COMMIT or len(rows) > MAX_JOBS_PER_COMMIT:
        # More than one commit is needed, and the second must use the rows of the first, whatever the URL returns by then.
        ctx.save((save_plan(batch, ctx, submission, kind, rows, remarks),))
    return (
        len(rows),
        max_document_bytes,
        remarks,
        _submissions_of_rows(batch, submission, kind, rows),
        _followed_lines_of(rows),
    )


def save_plan(
    batch: Record,
    ctx: StepContext,
    submission: Submission,
    kind: PayloadType,
    rows: Sequence[ManifestRow],
    remarks: list[str],
) -> BatchPlan:
    # Safe to repeat: the list has this attempt's own name.
    row_list = record_lists.write_list(ctx.objects, f"ingest/lists/batch/{batch.id}/{ctx.claim_version}/rows", rows)
    max_document_bytes = _max_document_bytes(batch, submission, kind, rows)
    return row_list.extend(BatchPlan, type=kind, max_document_bytes=max_document_bytes, remarks=tuple(remarks))


def _max_document_bytes(batch: Record, submission: Submission, kind: PayloadType, rows: Sequence[ManifestRow]) -> int:
    return max(_measure_documents(each, line) for line, each in _submissions_of_rows(batch, submission, kind, rows))


def order_rows(
    ctx: StepContext, rows: Sequence[ManifestRow], owner: str, remarks: list[ManifestComplaint]
) -> tuple[list[ManifestRow], list[str]]:
    """The rows, each with the rows that it follows (also where only the inventory knows that they are of one object),
    and the remarks.
    """
    inventory = resources_of(ctx).inventory

    def find_ark(local: str) -> str | None:
        ctx.check()
        return inventory.ark_of(owner, local)

    linked, texts = [], [str(each) for each in remarks[:MAX_REMARKS]]
    for row, ark in link_rows(rows, find_ark):
        linked.append(row)
        if ark and len(texts) < MAX_REMARKS:
            text = f"It is for {ark}, as a row above is, by a local id that belongs to it: both become its versions, in this order."
            texts.append(str(ManifestComplaint(row.line, text)))
    return linked, [each[:500] for each in texts]


def _followed_lines_of(rows: Iterable[ManifestRow]) -> frozenset[int]:
    return frozenset(line for row in rows for line in row.follows)


def _submissions_of_rows(
    batch: Record, submission: Submission, kind: PayloadType, rows: Iterable[ManifestRow]
) -> Iterator[tuple[int, Submission]]:
    """The submission of each row: that of the batch, with the fields that the row sets; identifiers are always the row's."""
    for row in rows:
        yield (
            row.line,
            msgspec.structs.replace(
                submission,
                type=_ROW_TYPES[kind],
                url=row.url,
                filename=row.name,
                size=row.size,
                digest_type="",
                digest_value="",
                received_digests={},
                row_digests=row.digests,
                primary_id=row.primary_id,
                local_ids=row.local_ids,
                creator=row.creator or submission.creator,
                title=row.title or submission.title,
                date=row.date or submission.date,
                job_id=job_id_of(submission.batch_id, row.line),
                follows=tuple(row_idempotency_key_of(batch.ref, line) for line in row.follows),
            ),
        )


def job_id_of(batch_id: str, row: int) -> str:
    """Always the same for a row, so that a job that is created again is the same job to all who know its jobID."""
    return f"jid-{uuid.uuid5(_JOB_ID_NAMESPACE, f'{batch_id} {row}')}"


def _measure_documents(submission: Submission, line: int) -> int:
    """The bytes of the documents of its job. Very long texts are refused: no store could hold them."""
    size = sum(len(document_of(type(each)).encode(each)) for each in submission.to_job_documents())
    if size > MAX_DOCUMENT_BYTES:
        raise BadManifest(
            [
                ManifestComplaint(
                    line, "The description of the object is too long: shorten its title, its creator, the note."
                )
            ]
        )
    return size


# --- rows for the same object

SECONDS_PER_ROW_AHEAD = 5.0  # a job waits so long for each row ahead of it before it checks again
MAX_ROWS_AHEAD = 12  # rows ahead that are counted
MAX_ROWS_READ = 100  # rows above that are read to find them
_PASSED_OVER_STATES = (JOB.failed, JOB.held, JOB.deleted)  # of a row that is not waited for; rows above it still are


def row_idempotency_key_of(batch: Ref, line: int) -> str:
    """The idempotency key of the job of a row that later rows follow."""
    return f"{batch.id} {line}"


def wait_for_rows_above(job: Record, ctx: StepContext) -> Wait | None:
    """Wait while a row above it in the manifest is in progress for the same object."""
    follows = Submission.from_job(job).follows
    ahead = ctx.run_on_store(partial(_find_jobs_ahead, follows)) if follows else []
    if not ahead:
        return None
    return Wait(
        SECONDS_PER_ROW_AHEAD * len(ahead),
        f"It waits for {ahead[0]}, which is for the same object and precedes it in the manifest.",
    )


def _find_jobs_ahead(follows: Sequence[str], store: Store) -> list[str]:
    """The ids of the jobs in progress, the nearest first."""
    found: list[str] = []
    waiting, known = list(follows), set(follows)
    read_count = 0
    while waiting and len(found) < MAX_ROWS_AHEAD and read_count < MAX_ROWS_READ:
        read_count += 1
        try:
            above = store.get_by_idempotency_key("job", waiting.pop(0))
        except RecordNotFound:
            continue  # it was removed
        if above.state in UNRECORDED_STATES:
            found.append(above.id)
        elif above.state not in _PASSED_OVER_STATES:
            continue
        followed = [each for each in Submission.from_job(above).follows if each not in known]
        known.update(followed)
        waiting += followed
    return found
