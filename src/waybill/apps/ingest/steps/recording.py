"""Recording: a version that is at rest is entered into the inventory, from its storage manifest and nothing else.

A job that was stored here knows what storage answered. One that another service has stored names the manifest by a URL,
in its document `inventory`: a manifest of Waybill's, or a storage manifest in checkm form. What that lists is entered
with the URLs of its files as their places, as the next version of the object; or, if the version lies in our own
storage, as it lies there.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote, urljoin

import msgspec

from waybill.apps.ingest import caveats, submission
from waybill.apps.ingest.checkm import BadManifest
from waybill.apps.ingest.checkm.stored import BEGINS, read_storage_manifest
from waybill.apps.ingest.describing import Kept, describe
from waybill.apps.ingest.inventory import Contradiction, LocalIdTaken, Source
from waybill.apps.ingest.outfit import outfit_of
from waybill.apps.ingest.signatures import without_secrets
from waybill.apps.ingest.steps import foreign
from waybill.apps.ingest.steps.depositing import request_of
from waybill.apps.ingest.steps.keeping import kept_of
from waybill.apps.ingest.storage import NotStored, Stored
from waybill.manifests import Entry, Header, ManifestError, Reader, Writer
from waybill.record import Record
from waybill.step import Context, Done, Fail

_OURS = b'{"waybill":"manifest"'


def recording(job: Record, ctx: Context) -> Done:
    outfit = outfit_of(ctx)
    told = job.docs.get("stored")
    try:
        source = (
            Source(msgspec.convert(told, Stored), outfit.storage.manifest)
            if isinstance(told, dict)
            else _foreign(job, ctx)
        )
        if source is not None:
            inventory = outfit.inventory
            # safe to repeat: a version that is there is left as it is
            inventory.catalogue.record(inventory.shelf, source)
    except (LocalIdTaken, Contradiction, ManifestError, NotStored) as error:
        raise Fail(str(error)) from error
    return Done(message=caveats.message(job))


def _foreign(job: Record, ctx: Context) -> Source | None:
    """What another service has stored; None if it is recorded already."""
    url = foreign.told(job.docs.get("inventory"), "manifest_url")
    if not url:
        raise Fail("Nothing says where the storage manifest of this job is: `restart` stores it anew.")
    path = foreign.fetch(ctx, url, "fetched-manifest")
    with open(path, "rb") as file:
        begins = file.read(len(_OURS))
    if begins == _OURS:
        return _of_waybill(job, ctx, url, path)
    if begins.startswith(BEGINS):
        return _of_checkm(job, ctx, url, path)
    raise Fail(
        f"{without_secrets(url)} is no storage manifest that can be recorded: neither Waybill's nor in checkm form."
    )


def _of_waybill(job: Record, ctx: Context, url: str, path: Path) -> Source:
    """The manifest of a version that another Waybill has stored; or that ours has."""
    storage = outfit_of(ctx).storage
    with _opened(path) as reader:
        about = reader.header.about
        ark, number = about.get("object"), about.get("version")
        if not isinstance(ark, str) or not isinstance(number, int):
            raise Fail(f"The manifest {without_secrets(url)} does not say of which object and version it is.")
        _check_ark(job, ark, url)
        try:
            ours = storage.stored(ark, number)
            if ours.sha256 == _sha256(path):
                return Source(ours, storage.manifest)
        except NotStored:
            pass  # it lies elsewhere
        entries = (
            Entry(e.uri, e.size, e.sha256, {**e.extra, "place": urljoin(url, f"files/{quote(e.uri)}")}) for e in reader
        )
        return _written(ctx, url, dict(about), entries)


def _of_checkm(job: Record, ctx: Context, url: str, path: Path) -> Source | None:
    outfit, said = outfit_of(ctx), submission.of_job(job)
    if not said.primary_id:
        raise Fail(f"The job has no ARK, so {without_secrets(url)} cannot be recorded.")
    known = {row["number"]: row["request"] for row in _versions(ctx, said.primary_id)}
    if request_of(job) in known.values():
        return None
    try:
        with open(path, "rb") as file:
            rows = sorted(read_storage_manifest(file), key=lambda row: row.name)
    except BadManifest as error:
        raise Fail(f"The storage manifest {without_secrets(url)} cannot be recorded: {error}") from error
    profile, gone = outfit.profile(ctx, said), {row.name for row in rows}
    kept = (
        kept_of(outfit, said.primary_id, said.owner or profile.owner, request_of(job), gone) if said.update else Kept()
    )
    about = {
        "object": said.primary_id,
        "version": max(known, default=0) + 1,
        "request": request_of(job),
        "created": datetime.fromtimestamp(ctx.now(), UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "mode": "update" if said.update else "add",
        "about": describe(said, profile, said.primary_id, kept=kept).about,
    }
    entries = (
        Entry(row.name, row.size or 0, row.digest, {"place": row.url, **({"mime": row.mime} if row.mime else {})})
        for row in rows
    )
    return _written(ctx, url, about, entries)


def _versions(ctx: Context, ark: str) -> Iterator[dict[str, Any]]:
    after = 0
    while rows := outfit_of(ctx).inventory.versions(ark, after=after):
        yield from rows
        after = rows[-1]["number"]


def _written(ctx: Context, url: str, about: dict[str, Any], entries: Iterable[Entry]) -> Source:
    """A manifest of this attempt's own, to be recorded from."""
    path, digest, size = ctx.workdir / "recorded-manifest", hashlib.sha256(), 0
    with open(path, "wb") as file:
        for portion in Writer(Header(ordered=True, about=about)).portions(entries):
            size += file.write(portion)
            digest.update(portion)
    stored = Stored(
        object=about["object"],
        version=about["version"],
        request=str(about.get("request", "")),
        created=str(about.get("created", "")),
        place=url,
        sha256=digest.hexdigest(),
        size=size,
    )
    return Source(stored, lambda stored: _opened(path))


def _opened(path: Path) -> Reader:
    file = open(path, "rb")  # noqa: SIM115 - the reader closes it
    try:
        return Reader(iter(lambda: file.read(1024 * 1024), b""), file.close)
    except BaseException:
        file.close()
        raise


def _check_ark(job: Record, ark: str, url: str) -> None:
    wanted = submission.of_job(job).primary_id
    if wanted and wanted != ark:
        raise Fail(f"The job is for {wanted}, and the manifest {without_secrets(url)} is of {ark}.")


def _sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
