"""Processing: an assembly is packed into an archive, streamed to the objects, and every file is verified on the way.

    content -> archive -> <place>/<attempt>/<name>     the commit that ends the step says which attempt counts

An assembly without an order was created by another service, which keeps its data elsewhere: it is left to that service,
and nothing of it is changed. One that was imported from an old queue, and requeued, fails: no service packs those any
more.
"""

from __future__ import annotations

from collections.abc import Iterator

from waybill.apps.ingest.access import tokens
from waybill.apps.ingest.access.archives import ArchiveContents
from waybill.apps.ingest.access.orders import ASK_AGAIN, is_imported, leave_to_other_service
from waybill.apps.ingest.documents import AssemblyOrder, AssemblyToken, PackedArchive
from waybill.apps.ingest.machine.access import ASSEMBLY
from waybill.apps.ingest.resources import resources_of
from waybill.apps.ingest.storage import NotInStorage, StorageDamaged
from waybill.files.containers import ZipPacker, compress_gzip, pack_tar, store_container
from waybill.manifests import ManifestError
from waybill.record import Record
from waybill.step import Done, Fail, Outcome, StepContext


def run_step(record: Record, ctx: StepContext) -> Outcome:
    order, resources = record.find_document(AssemblyOrder), resources_of(ctx)
    token = tokens.token_of(record)
    if is_imported(record):
        raise Fail(ASK_AGAIN)
    if order is None or not token:
        return leave_to_other_service(record)
    token_document = record.document(AssemblyToken)
    total = token_document.content_bytes

    def report_progress(done: int) -> None:
        ctx.check()
        ctx.report_progress(done, total or None, "bytes")

    contents = ArchiveContents(resources.storage, ctx.objects, order, report_progress)
    name = f"{tokens.place_of(token)}/{ctx.claim_version}/{order.file_name}"
    try:
        # Safe to repeat: the name holds the attempt, and an incomplete archive is not stored at all.
        info = store_container(ctx.objects, name, _build_archive(order, contents, ctx), total, resources.part_sizes)
    except (NotInStorage, StorageDamaged, ManifestError) as error:
        ctx.save((token_document.with_status(ASSEMBLY.failed),))  # safe to repeat: the same each time
        raise Fail(str(error)) from error
    packed = PackedArchive(
        name=name,
        size=info.size,
        sha256=str(info.sha256),
        files=contents.files,
        bytes=contents.bytes,
        expires=ctx.now() + resources.settings.access.keep_seconds,
        renamed=tuple(contents.names.renames),
    )
    return Done((packed, token_document.with_status(ASSEMBLY.completed, ctx.now())))


def _build_archive(order: AssemblyOrder, contents: ArchiveContents, ctx: StepContext) -> Iterator[bytes]:
    if order.form == "tar":
        return pack_tar(contents)
    if order.form == "tar.gz":
        return compress_gzip(pack_tar(contents))
    return ZipPacker(deflate=order.form == "zip", folder=str(ctx.workdir)).pack(contents)
