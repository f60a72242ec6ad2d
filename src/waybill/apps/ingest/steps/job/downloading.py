"""Downloading: the files of a job are fetched into its working folder, and compared with what was promised.

    1. Disk space is reserved, as in Provisioning, where it was normally granted. But another service may have moved the job here, or its
       reservation was removed as stale.
    2. The files are fetched, several at a time, into the folder of this attempt; files of earlier attempts are reused or resumed.
    3. The members of a container are listed. What it unpacks to needs space too; without it the job waits, and keeps the container. After
       a while it gives the container up as well: two jobs that wait for each other's space would wait for ever.
    4. The container is unpacked. A file that was submitted as a file is not opened, whatever it is.
    5. All of it becomes `producer/` of the job's folder, and the document `downloaded` lists every file with its digest.

A server may announce another size when a file is fetched than when it was asked: then space is reserved before anything
of the file is written. It may also send more than it announced: then space is granted in small chunks, as long as there
is any. waybill.disk_space says what happens to a job for which there is none.

A file that can never be fetched (404, a wrong digest) fails the job, with a reason for each; other errors are tried
again. If the payload itself is a file or a container, a wrong digest is final.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from waybill.apps.ingest import payload
from waybill.apps.ingest.documents import DownloadedFiles, PayloadFiles, Refusal, SpaceNeeded
from waybill.apps.ingest.formats.checkm import ManifestRow
from waybill.apps.ingest.job_refusal import SubmissionRefused, join_first_reasons, save_refusal
from waybill.apps.ingest.job_space import adjust_job_priority, space_needed_of
from waybill.apps.ingest.merritt.foreign_records import find_owner
from waybill.apps.ingest.object_paths import PRODUCER
from waybill.apps.ingest.payload_contents import list_files
from waybill.apps.ingest.resources import resources_of
from waybill.apps.ingest.submission import PayloadType, Submission
from waybill.apps.ingest.unpacked_container import measure_unpacked, unpack_container
from waybill.apps.ingest.working_files import StagedFile, staged_file_of
from waybill.disk_space import NeverFits, SpaceWait, is_disk_full
from waybill.files import names
from waybill.files.folders import publish_folder, remove_earlier_attempts
from waybill.files.gathered_files import FileGatherer, GatheredFiles, count_gathered_bytes
from waybill.manifests import record_lists
from waybill.record import Record
from waybill.step import Done, Outcome, StepContext, Wait
from waybill.transfer import DownloadRequest, TransferError

_CONTAINER = "container"


def run_step(job: Record, ctx: StepContext) -> Outcome:
    disk = resources_of(ctx).working_disk
    try:
        outcome = _download(job, ctx)
    except SubmissionRefused as error:
        disk.release(ctx)
        raise save_refusal(ctx, error) from None
    except OSError as error:
        if not is_disk_full(error):
            raise
        return disk.wait_for_full_disk(ctx, space_needed_of(job))
    if isinstance(outcome, Done):
        disk.release(ctx)
    return outcome


def _download(job: Record, ctx: StepContext) -> Outcome:
    wait = _reserve_space(job, ctx)
    if wait:
        return wait
    files = job.find_document(PayloadFiles) or list_files(job, ctx)  # another service moved it here
    staged_files = (
        _fetch_container(job, ctx, files) if files.type == PayloadType.CONTAINER else _fetch_files(job, ctx, files)
    )
    if isinstance(staged_files, Wait):
        return staged_files
    return _publish_files(job, ctx, files, staged_files)


def _reserve_space(job: Record, ctx: StepContext) -> Wait | None:
    """Reserve space for the whole job, minus what earlier attempts left on disk. Wait if there is not enough."""
    disk, need = resources_of(ctx).working_disk, space_needed_of(job)
    wait = disk.reserve(ctx, need)
    if wait and (have := count_gathered_bytes(ctx)):
        wait = disk.reserve(ctx, need, have=have)
    if wait:
        disk.release_after_patience(ctx)
    return wait


# --- the files


def _fetch_files(job: Record, ctx: StepContext, files: PayloadFiles) -> list[StagedFile] | Wait:
    """The rows of a manifest, or the one file, in their order."""
    rows = list(record_lists.read_list(ctx.objects, files, ManifestRow))  # at most the rows of one manifest
    single = files.type != PayloadType.OBJECT
    fetched = _fetch_rows(job, ctx, rows, PRODUCER, single=single, many=len(rows) > 1)
    if isinstance(fetched, Wait):
        return fetched
    return [
        staged_file_of(row.name, fetched.files[row.name].size, fetched.files[row.name].sha256, row.mime) for row in rows
    ]


def _fetch_rows(
    job: Record, ctx: StepContext, rows: list[ManifestRow], folder: str, *, single: bool, many: bool
) -> GatheredFiles | Wait:
    disk, need = resources_of(ctx).working_disk, space_needed_of(job)
    meter = disk.start_meter(ctx, need)
    promised = payload.payload_of(Submission.from_job(job)) if single else None

    def copy_upload(request: DownloadRequest, path: Path, on_bytes: Callable[[int], None]) -> tuple[int, str] | None:
        if promised is None or not promised.upload:
            return None
        return payload.copy_upload(ctx, promised, path, on_bytes)

    gatherer = FileGatherer(ctx, ctx.workdir / folder, payload.bind_download(ctx), meter, note_all=many)
    requests = (DownloadRequest(row.url, row.name, row.size, (promised or row).digests) for row in rows)
    result = gatherer.gather(requests, copy_upload)
    if not result.failures:
        return result
    try:
        wait = disk.wait_if_short(ctx, meter, need, [row.size for row in rows], lambda need: (SpaceNeeded(need),))
    except NeverFits as error:
        begun = [f"{names.quote_text(each.name)}: {error.reason}" for each in result.failures if each.tries]
        raise SubmissionRefused(str(error), begun, is_final=False) from None
    if wait:
        return wait
    reasons = result.reasons
    if any(each.permanent for each in result.failures):
        final = single and any(each.mismatch for each in result.failures)
        subject = "The payload" if single else f"{len(reasons)} of {len(rows)} files"
        raise SubmissionRefused(
            f"{subject} could not be fetched: {join_first_reasons(reasons)}", reasons, is_final=final
        )
    raise TransferError(f"{len(reasons)} of {len(rows)} files could not be fetched: {join_first_reasons(reasons)}")


# --- a container


def _fetch_container(job: Record, ctx: StepContext, files: PayloadFiles) -> Iterable[StagedFile] | Wait:
    (row,) = record_lists.read_list(ctx.objects, files, ManifestRow)
    # under a name of our own: the container is removed after it is unpacked
    row = ManifestRow(0, row.url, _CONTAINER, row.algorithm, row.digest, row.size)
    fetched = _fetch_rows(job, ctx, [row], _CONTAINER, single=True, many=True)
    if isinstance(fetched, Wait):
        return fetched
    path, packed = ctx.workdir / _CONTAINER / _CONTAINER, fetched.files[_CONTAINER].size
    unpacked = measure_unpacked(ctx, path)
    need = packed + unpacked
    wait = resources_of(ctx).working_disk.reserve(ctx, need, have=packed, documents=(SpaceNeeded(need),))
    if wait:
        return wait
    done = 0

    def report_unpacked(count: int) -> None:
        nonlocal done
        done += count
        ctx.report_progress(done, unpacked, "bytes unpacked")

    container = unpack_container(ctx, path, ctx.workdir / PRODUCER, report_unpacked)
    path.unlink()
    return (staged_file_of(file.name, file.size, file.sha256) for file in container.read_files())


# --- the result


def _publish_files(job: Record, ctx: StepContext, files: PayloadFiles, staged_files: Iterable[StagedFile]) -> Done:
    total = 0

    def count_bytes() -> Iterable[StagedFile]:
        nonlocal total
        for file in staged_files:
            total += file.size
            yield file

    # Safe to repeat: the name holds the attempt.
    file_list = record_lists.write_list(
        ctx.objects, f"ingest/lists/job/{job.id}/{ctx.claim_version}/downloaded", count_bytes()
    )
    publish_folder(ctx, PRODUCER)
    remove_earlier_attempts(ctx)
    downloaded = file_list.extend(DownloadedFiles, attempt=ctx.claim_version, bytes=total)
    needed = SpaceNeeded(max(1, total))
    priority, files = adjust_job_priority(
        job, files, needed.byte_count, resources_of(ctx).settings.fetch.large_job_bytes
    )
    changed = [each for each in (files, needed) if each != job.find_document(type(each))]
    return Done((downloaded, *changed, *find_owner(job, ctx)), priority=priority, remove=(SpaceWait, Refusal))
