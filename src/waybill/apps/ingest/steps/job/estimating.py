"""Estimating: the servers are asked for the size of each file, several at a time, for the disk space and the priority.

If one server does not answer (404, a time-out) or does not say, the whole size is unknown: this state never fails;
Downloading will say what cannot be fetched. `space_needed` is -1 for unknown. A container needs at least twice its
size: packed, and unpacked beside it.

A job that is large, or may be, becomes less urgent. That is computed from its first priority, which `files` keeps once
it was changed: a second estimate does not add twice, and a priority that an operator has set since counts as the first.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from waybill.apps.ingest import payload
from waybill.apps.ingest.documents import PayloadFiles, SpaceNeeded
from waybill.apps.ingest.formats.checkm import ManifestRow
from waybill.apps.ingest.job_refusal import SubmissionRefused
from waybill.apps.ingest.job_space import adjust_job_priority
from waybill.apps.ingest.payload_contents import list_files
from waybill.apps.ingest.resources import resources_of
from waybill.apps.ingest.storage.sources import OBJECT_SCHEME
from waybill.apps.ingest.submission import PayloadType
from waybill.manifests import ManifestError, record_lists
from waybill.objects import ObjectsError
from waybill.record import Record
from waybill.step import Done, Outcome, StepContext
from waybill.transfer import DownloadRequest, TransferError

PATIENCE_TIMEOUTS = 10  # time-outs of one request, after which the sizes of the other files are unknown


def run_step(job: Record, ctx: StepContext) -> Outcome:
    files = listed = job.find_document(PayloadFiles)
    needed, message = None, ""
    try:
        files = listed or list_files(job, ctx)  # another service moved it here
        needed = _estimate_needed(ctx, files)
    except (SubmissionRefused, TransferError, ObjectsError, ManifestError, msgspec.DecodeError) as error:
        message = f"Its size is not known: {error}"
    if files is None:  # the first priority could not be remembered, so it is not changed
        return Done((SpaceNeeded(needed),), message=message)
    priority, files = adjust_job_priority(job, files, needed, resources_of(ctx).settings.fetch.large_job_bytes)
    changed = () if files is listed else (files,)
    return Done((SpaceNeeded(needed), *changed), message=message, priority=priority)


def _estimate_needed(ctx: StepContext, files: PayloadFiles) -> int | None:
    total, unknown = 0, False
    for size in _ask_sizes(ctx, files):
        total, unknown = total + (size or 0), unknown or size is None
    if unknown:
        return None
    return max(1, 2 * total if files.type == PayloadType.CONTAINER else total)


def _ask_sizes(ctx: StepContext, files: PayloadFiles) -> Iterator[int | None]:
    resources = resources_of(ctx)
    limits = resources.settings.fetch
    declared: dict[str, int | None] = {}  # at most the rows of one manifest
    requests: list[DownloadRequest] = []
    for row in record_lists.read_list(ctx.objects, files, ManifestRow):
        if payload.is_upload(row.url):
            yield ctx.objects.head(row.url.removeprefix(OBJECT_SCHEME)).size
        else:
            declared[row.name] = row.size
            requests.append(DownloadRequest(row.url, row.name))
    until = ctx.now() + PATIENCE_TIMEOUTS * limits.timeout
    probed = resources.ask_sizes(
        requests,
        parallel=limits.parallel,
        timeout=limits.timeout,
        redirects=limits.max_redirects,
        policy=resources.address_policy,
        stop=lambda: ctx.stop or ctx.now() > until,
        connections=resources.connections,
    )
    for probe in probed if requests else ():
        ctx.check()
        yield declared[probe.name] if probe.size is None else probe.size
