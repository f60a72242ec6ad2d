"""Pending and Processing of an assembly: what a user asked for is packed into an object, streamed, every file
verified on the way.

    Pending      its URL leads to it; it waits for its turn
    Processing   content -> archive -> <place>/<attempt>/<name>     the commit that ends the step says which of them counts

An assembly without an order was made by another service, which keeps what it needs to know elsewhere: it is left to
that service, and nothing of it is changed. One from an old queue, which somebody let try again, fails: no service looks
after those any more.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

from waybill.apps.ingest.access import tokens
from waybill.apps.ingest.access.asking import anticipated
from waybill.apps.ingest.access.contents import Contents, Unfit
from waybill.apps.ingest.access.order import ASK_AGAIN, Order, bytes_said, is_imported, order_of
from waybill.apps.ingest.access.tarring import gzip, tar
from waybill.apps.ingest.access.zipping import Zip
from waybill.apps.ingest.outfit import Parts, outfit_of
from waybill.apps.ingest.storage import NotStored, Unsound
from waybill.manifests import ManifestError
from waybill.objects import PART_MOST, Directory, ObjectInfo, Objects
from waybill.record import Record
from waybill.step import Context, Done, Fail, Outcome, Wait

FOREIGN = 24 * 3600.0  # seconds between two looks at an assembly of another service


def pending_assembly(record: Record, ctx: Context) -> Outcome:
    order, outfit = order_of(record), outfit_of(ctx)
    if is_imported(record):
        return Done()  # to Processing, where it can fail
    if order is None or not tokens.token_of(record):
        return _left_alone(record)
    tokens.point(ctx.objects, record)  # safe to repeat: the same each time
    said = {**record.docs["token"], "status": "Processing"}
    # it is itself one of those that wait
    ready = ctx.call(lambda store: anticipated(store, outfit, record.kind, 0, store.now()))
    return Done({"token": {**said, "anticipated-availability-time": tokens.rfc3339(ready)}, "packed": None})


def processing_assembly(record: Record, ctx: Context) -> Outcome:
    order, outfit = order_of(record), outfit_of(ctx)
    token = tokens.token_of(record)
    if is_imported(record):
        raise Fail(ASK_AGAIN)
    if order is None or not token:
        return _left_alone(record)
    total = bytes_said(record)

    def check(done: int) -> None:
        ctx.check()
        ctx.progress(done, total or None, "bytes")

    contents = Contents(outfit.storage, ctx.objects, order, check)
    name = f"{tokens.place_of(token)}/{ctx.attempt}/{order.file_name}"
    try:
        # Safe to repeat: the name is this attempt's own, and an archive that is not whole is not stored at all.
        info = _keep(ctx.objects, name, _archive(order, contents, ctx), total, outfit.parts)
    except (Unfit, NotStored, Unsound, ManifestError) as error:
        ctx.save({"token": {**record.docs["token"], "status": "Failed"}})  # safe to repeat: the same each time
        raise Fail(str(error)) from error
    packed = {
        "name": name,
        "size": info.size,
        "sha256": info.sha256,
        "files": contents.files,
        "bytes": contents.bytes,
        "expires": ctx.now() + outfit.settings.access.keep,
        "renamed": contents.naming.renamed,
    }
    said = {**record.docs["token"], "status": "Completed", "anticipated-availability-time": tokens.rfc3339(ctx.now())}
    return Done({"packed": packed, "token": said})


def _keep(objects: Objects, name: str, archive: Iterator[bytes], content: int, parts: Parts) -> ObjectInfo:
    """A very long archive goes to S3 in parts that are as large as it needs: how long it will be in the end is not
    known.
    """
    if content < parts.content or isinstance(objects, Directory):
        return objects.put(name, archive)
    size, digest = max(parts.least, content // (PART_MOST // 2)), hashlib.sha256()
    with objects.upload(name) as upload:
        for number, part in enumerate(_parts(archive, size), 1):
            digest.update(part)
            upload.part(number, part)
        return upload.complete(sha256=digest.hexdigest())


def _parts(portions: Iterator[bytes], size: int) -> Iterator[bytes]:
    held = bytearray()
    for portion in portions:
        held += portion
        if len(held) >= size:
            yield bytes(held)
            held.clear()
    if held:
        yield bytes(held)


def _archive(order: Order, contents: Contents, ctx: Context) -> Iterator[bytes]:
    if order.form == "tar":
        return tar(contents)
    if order.form == "tar.gz":
        return gzip(tar(contents))
    return Zip(deflate=order.form == "zip", folder=str(ctx.workdir)).portions(contents)


def _left_alone(record: Record) -> Wait:
    return Wait(FOREIGN, record.message)
