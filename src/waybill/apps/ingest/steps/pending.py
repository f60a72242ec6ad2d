"""Pending: what a job is to be made from is found out, and compared with what the depositor promised, before
anything large is fetched.

    1. The payload's address and its promised digests are read. An upload is compared with what was received.
    2. What kind of payload it is, if nobody said so: by its name; by its first bytes, where the name says nothing.
    3. A manifest is fetched, compared and read strictly. A file or a container is one row; it is compared when it is fetched.
    4. Every name is one that storage can keep.

`listed` answers with the document `files`: the rows (`checkm.Row`), and as `type` the kind of payload. A wrong digest
and a manifest with faults are final: only a new submission can mend them. What cannot be had from a server (404, a
private address) may be mended there.
"""

from __future__ import annotations

from typing import Any

from waybill.apps.ingest import lists, names, placing, submission
from waybill.apps.ingest.checkm import LIMIT, BadManifest, Kind, Row, glance, read
from waybill.apps.ingest.containers import kind_of
from waybill.apps.ingest.outfit import outfit_of
from waybill.apps.ingest.steps import payload
from waybill.apps.ingest.steps.belonging import belonging, on_hold
from waybill.apps.ingest.steps.owning import owned
from waybill.apps.ingest.steps.payload import Payload
from waybill.apps.ingest.steps.refusal import Unfit, cleared, gathered, refused
from waybill.apps.ingest.submission import Type
from waybill.record import Record
from waybill.step import Context, Done, Outcome
from waybill.transfer import Fetch, look

_CONTAINERS = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz2")
_SAY_NOTHING = ("", ".txt", ".manifest")  # ends of names behind which there may be a manifest
_ROWS_OF = {Type.MANIFESTS: Type.OBJECT, Type.CONTAINERS: Type.CONTAINER, Type.FILES: Type.FILE}


def pending(job: Record, ctx: Context) -> Outcome:
    found = belonging(job, ctx)
    if (on_its_hold := on_hold(found, ctx)) is not None:
        return on_its_hold
    try:
        said = submission.of_job(job)
        # a row of a batch, or what nobody knew to be one object; others' are minted for
        if said.checked and said.updates_nothing:
            raise Unfit(submission.NO_OBJECT)
        return Done({"files": listed(job, ctx), **found, **owned(job, ctx), **cleared(job)})
    except Unfit as error:
        raise refused(ctx, error) from None


def listed(job: Record, ctx: Context) -> dict[str, Any]:
    """The files to fetch, as the document `files`; Unfit, or Trouble that is worth another try."""
    said = submission.of_job(job)
    wanted = payload.of(said)
    if wanted.upload:
        payload.check_upload(ctx, wanted)
    # Other services write the type of the batch into its jobs: then it is the type of a row that counts.
    kind = _ROWS_OF.get(said.type, said.type) if said.type else guessed(ctx, wanted)
    if kind is Type.OBJECT:
        return _kept(ctx, kind, _rows(ctx, wanted))
    algorithm, digest = next(iter(wanted.digests.items()), ("", ""))
    name = wanted.name if kind is Type.FILE else wanted.name or "container"
    wrong = placing.fault(name) if kind is Type.FILE else None
    if wrong:
        raise Unfit(
            wrong if name else "The payload has no name, and its URL does not end with one: give it as `filename`."
        )
    return _kept(ctx, kind, [Row(0, wanted.url, name, algorithm, digest, wanted.size)])


def _kept(ctx: Context, kind: Type, rows: list[Row]) -> dict[str, Any]:
    name = f"ingest/lists/job/{ctx.record.id}/{ctx.attempt}/files"
    return {**lists.keep(ctx.objects, name, rows), "type": kind.value}  # safe to repeat: the name is this attempt's own


def _rows(ctx: Context, wanted: Payload) -> list[Row]:
    try:
        rows = read(payload.small(ctx, wanted, LIMIT), kind=Kind.OBJECT).rows
    except BadManifest as error:
        raise Unfit(f"The manifest is not taken: {error}", [str(each) for each in error.complaints]) from None
    wrong = [f"Line {row.line}: {fault}" for row in rows if (fault := placing.fault(row.name))]
    if wrong:
        raise Unfit(f"The manifest is not taken: {gathered(wrong)}", wrong)
    return rows


def guessed(ctx: Context, wanted: Payload) -> Type:
    """What a payload is of which nobody said it. A name that says something is believed: many files are zips inside,
    and are files.
    """
    name = wanted.name.lower()
    if name.endswith(_CONTAINERS):
        return Type.CONTAINER
    end = name[name.rfind(".") :] if "." in name else ""
    if end == ".checkm":
        return Type.OBJECT
    head = _head(ctx, wanted) if end in _SAY_NOTHING else b""
    kind = glance(head)
    if kind is Kind.OBJECT:
        return Type.OBJECT
    if kind is not None:
        raise Unfit(
            f"The payload is a manifest of a batch ({kind}), and this is one object of it: submit it as a batch."
        )
    return Type.CONTAINER if not end and kind_of(head[:512]) else Type.FILE


def _head(ctx: Context, wanted: Payload) -> bytes:
    """The first bytes; of what lies elsewhere, only if it is short enough to be a manifest."""
    if wanted.upload:
        with ctx.objects.get(wanted.upload, end=65536) as body:
            return b"".join(body)
    outfit = outfit_of(ctx)
    limits = outfit.settings.fetch
    asked = look(
        [Fetch(wanted.url, names.UNFINISHED)],
        timeout=limits.timeout,
        redirects=limits.redirects,
        reach=outfit.reach,
        stop=lambda: ctx.stop,
    )
    sizes = [offer.size for offer in asked]
    ctx.check()
    return payload.small(ctx, wanted, LIMIT)[:65536] if sizes[0] is not None and sizes[0] <= LIMIT else b""
