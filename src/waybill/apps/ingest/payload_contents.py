"""What a payload contains: the objects of a batch, and the files of a job.

`read_batch_payload` determines the type of a batch's payload, and reads its manifest if it lists objects. `list_files`
lists the files of a job before anything large is fetched:

    1. The URL of the payload and its promised digests are read. An upload is compared with what was received.
    2. If the type of the payload is not declared, its name decides; where the name says nothing, its first bytes do.
    3. A manifest is fetched, compared and read strictly. A file or a container is one row; it is compared when it is fetched.
    4. Every name must be one that storage can keep.

The result is the document `files`: the rows (`ManifestRow`), and as `type` the type of the payload. A wrong digest and a
faulty manifest are final: only a new submission helps. What a server does not deliver (404, a private address) may be
repaired there.
"""

from __future__ import annotations

from waybill.apps.ingest import object_paths, payload
from waybill.apps.ingest.documents import PayloadFiles
from waybill.apps.ingest.formats.checkm import (
    MANIFEST_LIMIT,
    BadManifest,
    CheckmManifest,
    ManifestKind,
    ManifestRow,
    detect_kind,
    read_manifest,
)
from waybill.apps.ingest.job_refusal import SubmissionRefused, join_first_reasons
from waybill.apps.ingest.payload import Payload
from waybill.apps.ingest.resources import resources_of
from waybill.apps.ingest.submission import PayloadType, Submission
from waybill.files.containers import CONTAINER_ENDINGS, kind_of
from waybill.manifests import record_lists
from waybill.record import Record
from waybill.step import StepContext
from waybill.transfer import PARTIAL_FOLDER, DownloadRequest, probe_sizes

_MANIFEST_KINDS = {
    PayloadType.MANIFESTS: ManifestKind.MANIFESTS,
    PayloadType.CONTAINERS: ManifestKind.CONTAINERS,
    PayloadType.FILES: ManifestKind.FILES,
}
_TYPES_OF_KINDS = {
    ManifestKind.MANIFESTS: PayloadType.MANIFESTS,
    ManifestKind.CONTAINERS: PayloadType.CONTAINERS,
    ManifestKind.FILES: PayloadType.FILES,
    ManifestKind.OBJECT: PayloadType.OBJECT,
}
_MANIFEST_ENDING = ".checkm"
_UNTELLING_ENDINGS = ("", ".txt", ".manifest")  # of names that may belong to a manifest or to something else
_ROW_TYPES = {
    PayloadType.MANIFESTS: PayloadType.OBJECT,
    PayloadType.CONTAINERS: PayloadType.CONTAINER,
    PayloadType.FILES: PayloadType.FILE,
}


# --- the objects of a batch


def read_batch_payload(ctx: StepContext, submission: Submission) -> tuple[PayloadType, CheckmManifest | None]:
    """The type of the payload, and its manifest if it lists objects.

    Raises SubmissionRefused, TransferError or BadManifest if it cannot be determined.
    """
    body: bytes | None = None
    declared = submission.type
    if declared is None and _lowercase_name_of(submission).endswith(_MANIFEST_ENDING):
        body = payload.read_small_payload(ctx, payload.payload_of(submission), MANIFEST_LIMIT)
        found = detect_kind(body)
        # if it is no manifest, the strict reader says what is wrong with it, line by line
        declared = _TYPES_OF_KINDS[found] if found else PayloadType.OBJECT
    kind = declared or (
        PayloadType.CONTAINER if _lowercase_name_of(submission).endswith(CONTAINER_ENDINGS) else PayloadType.FILE
    )
    if not kind.is_batch:
        return kind, None
    return kind, read_manifest(
        payload.read_small_payload(ctx, payload.payload_of(submission), MANIFEST_LIMIT) if body is None else body,
        kind=_MANIFEST_KINDS[kind],
    )


def _lowercase_name_of(submission: Submission) -> str:
    return (submission.filename or payload.file_name_of(submission.url)).lower()


# --- the files of a job


def list_files(job: Record, ctx: StepContext) -> PayloadFiles:
    """The document `files`, which lists the files to fetch; raises SubmissionRefused, or TransferError."""
    submission = Submission.from_job(job)
    source = payload.payload_of(submission)
    if source.upload:
        payload.check_upload(ctx, source)
    # Other services write the type of the batch into its jobs: then the type of its rows counts.
    kind = _ROW_TYPES.get(submission.type, submission.type) if submission.type else guess_type(ctx, source)
    if kind is PayloadType.OBJECT:
        return _save_rows(ctx, kind, _read_manifest_rows(ctx, source))
    algorithm, digest = next(iter(source.digests.items()), ("", ""))
    name = source.name if kind is PayloadType.FILE else source.name or "container"
    fault = object_paths.find_fault(name) if kind is PayloadType.FILE else None
    if fault:
        raise SubmissionRefused(
            fault if name else "The payload has no name, and its URL does not end with one: give it as `filename`."
        )
    return _save_rows(ctx, kind, [ManifestRow(0, source.url, name, algorithm, digest, source.size)])


def _save_rows(ctx: StepContext, kind: PayloadType, rows: list[ManifestRow]) -> PayloadFiles:
    name = f"ingest/lists/job/{ctx.record.id}/{ctx.claim_version}/files"
    # safe to repeat: the name is this attempt's own
    return record_lists.write_list(ctx.objects, name, rows).extend(PayloadFiles, type=kind)


def _read_manifest_rows(ctx: StepContext, source: Payload) -> list[ManifestRow]:
    try:
        rows = read_manifest(payload.read_small_payload(ctx, source, MANIFEST_LIMIT), kind=ManifestKind.OBJECT).rows
    except BadManifest as error:
        raise SubmissionRefused(
            f"The manifest is not taken: {error}", [str(each) for each in error.complaints]
        ) from None
    wrong = [f"Line {row.line}: {fault}" for row in rows if (fault := object_paths.find_fault(row.name))]
    if wrong:
        raise SubmissionRefused(f"The manifest is not taken: {join_first_reasons(wrong)}", wrong)
    return rows


def guess_type(ctx: StepContext, source: Payload) -> PayloadType:
    """The type of a payload that is not declared. A telling name decides: many files are zips inside, and are files."""
    name = source.name.lower()
    if name.endswith(CONTAINER_ENDINGS):
        return PayloadType.CONTAINER
    ending = name[name.rfind(".") :] if "." in name else ""
    if ending == _MANIFEST_ENDING:
        return PayloadType.OBJECT
    head = _read_head(ctx, source) if ending in _UNTELLING_ENDINGS else b""
    kind = detect_kind(head)
    if kind is ManifestKind.OBJECT:
        return PayloadType.OBJECT
    if kind is not None:
        raise SubmissionRefused(
            f"The payload is a manifest of a batch ({kind}), and this is one object of it: submit it as a batch."
        )
    return PayloadType.CONTAINER if not ending and kind_of(head[:512]) else PayloadType.FILE


def _read_head(ctx: StepContext, source: Payload) -> bytes:
    """The first bytes; of a file on a server only if it is short enough to be a manifest."""
    if source.upload:
        with ctx.objects.get(source.upload, end=65536) as body:
            return b"".join(body)
    resources = resources_of(ctx)
    limits = resources.settings.fetch
    probed = probe_sizes(
        [DownloadRequest(source.url, PARTIAL_FOLDER)],
        timeout=limits.timeout,
        redirects=limits.max_redirects,
        policy=resources.address_policy,
        stop=lambda: ctx.stop,
    )
    sizes = [offer.size for offer in probed]
    ctx.check()
    return (
        payload.read_small_payload(ctx, source, MANIFEST_LIMIT)[:65536]
        if sizes[0] is not None and sizes[0] <= MANIFEST_LIMIT
        else b""
    )
