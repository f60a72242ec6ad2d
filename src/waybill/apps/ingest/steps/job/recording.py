"""Recording: a stored version is recorded in the inventory, from its storage manifest and nothing else.

A job that was stored here has the answer of storage in its document `stored`. One that another service has stored names
the manifest by a URL, in its document `inventory`: a manifest of Waybill, or a storage manifest in checkm form. Its
files are recorded with their URLs as their places, as the next version of the object; or, if the version is in our own
storage, as it is there.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote, urljoin

from waybill.apps.ingest import job_warnings
from waybill.apps.ingest.description import PreviousMetadata, describe_object
from waybill.apps.ingest.documents import InventoryRequest
from waybill.apps.ingest.formats.checkm import BadManifest
from waybill.apps.ingest.formats.checkm.reader import CHECKM_PREFIX, read_storage_manifest
from waybill.apps.ingest.inventory import InventoryConflict, LocalIdTaken, VersionSource
from waybill.apps.ingest.merritt import foreign_records
from waybill.apps.ingest.object_versions import read_previous_metadata, storage_request_of
from waybill.apps.ingest.resources import resources_of
from waybill.apps.ingest.storage import NotInStorage, StoredVersion
from waybill.apps.ingest.submission import Submission
from waybill.manifests import ManifestEntry, ManifestError, ManifestHeader, ManifestReader, ManifestWriter
from waybill.masking import mask_foreign_url
from waybill.record import Record
from waybill.step import Done, Fail, StepContext

_WAYBILL_MANIFEST_START = b'{"waybill":"manifest"'


def run_step(job: Record, ctx: StepContext) -> Done:
    resources = resources_of(ctx)
    stored = job.find_document(StoredVersion)
    try:
        source = (
            VersionSource(stored, resources.storage.open_manifest)
            if stored is not None
            else _find_foreign_source(job, ctx)
        )
        if source is not None:
            inventory = resources.inventory
            # safe to repeat: a version that is recorded already is left as it is
            inventory.catalogue.record(inventory.tables, source)
    except (LocalIdTaken, InventoryConflict, ManifestError, NotInStorage) as error:
        raise Fail(str(error)) from error
    return Done(message=job_warnings.format_message(job))


def _find_foreign_source(job: Record, ctx: StepContext) -> VersionSource | None:
    """The version that another service has stored; None if it is recorded already."""
    request = job.find_document(InventoryRequest)
    url = request.manifest_url if request is not None else ""
    if not url:
        raise Fail("The job does not say where its storage manifest is: `restart` stores it again.")
    path = foreign_records.fetch_foreign_file(ctx, url, "fetched-manifest")
    with open(path, "rb") as file:
        start = file.read(len(_WAYBILL_MANIFEST_START))
    if start == _WAYBILL_MANIFEST_START:
        return _source_of_waybill_manifest(job, ctx, url, path)
    if start.startswith(CHECKM_PREFIX):
        return _source_of_checkm_manifest(job, ctx, url, path)
    raise Fail(
        f"{mask_foreign_url(url)} is no storage manifest that can be recorded: neither Waybill's nor in checkm form."
    )


def _source_of_waybill_manifest(job: Record, ctx: StepContext, url: str, path: Path) -> VersionSource:
    """The manifest of a version that another Waybill has stored, or this one."""
    storage = resources_of(ctx).storage
    with _open_manifest(path) as reader:
        about = reader.header.about
        ark, number = about.get("object"), about.get("version")
        if not isinstance(ark, str) or not isinstance(number, int):
            raise Fail(f"The manifest {mask_foreign_url(url)} does not say of which object and version it is.")
        _check_ark(job, ark, url)
        try:
            ours = storage.get_version(ark, number)
            if ours.sha256 == _compute_sha256(path):
                return VersionSource(ours, storage.open_manifest)
        except NotInStorage:
            pass  # it is stored elsewhere
        entries = (
            ManifestEntry(e.uri, e.size, e.sha256, {**e.extra, "place": urljoin(url, f"files/{quote(e.uri)}")})
            for e in reader
        )
        return _write_manifest(ctx, url, dict(about), entries)


def _source_of_checkm_manifest(job: Record, ctx: StepContext, url: str, path: Path) -> VersionSource | None:
    resources, submission = resources_of(ctx), Submission.from_job(job)
    if not submission.primary_id:
        raise Fail(f"The job has no ARK, so {mask_foreign_url(url)} cannot be recorded.")
    known = {row["number"]: row["request"] for row in _read_versions(ctx, submission.primary_id)}
    if storage_request_of(job) in known.values():
        return None
    try:
        with open(path, "rb") as file:
            rows = sorted(read_storage_manifest(file), key=lambda row: row.name)
    except BadManifest as error:
        raise Fail(f"The storage manifest {mask_foreign_url(url)} cannot be recorded: {error}") from error
    profile, replaced_paths = resources.get_profile(ctx, submission), {row.name for row in rows}
    previous = (
        read_previous_metadata(
            resources, submission.primary_id, submission.owner or profile.owner, storage_request_of(job), replaced_paths
        )
        if submission.update
        else PreviousMetadata()
    )
    about = {
        "object": submission.primary_id,
        "version": max(known, default=0) + 1,
        "request": storage_request_of(job),
        "created": datetime.fromtimestamp(ctx.now(), UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "mode": "update" if submission.update else "add",
        "about": describe_object(submission, profile, submission.primary_id, previous=previous).about,
    }
    entries = (
        ManifestEntry(
            row.name, row.size or 0, row.digest, {"place": row.url, **({"mime": row.mime} if row.mime else {})}
        )
        for row in rows
    )
    return _write_manifest(ctx, url, about, entries)


def _read_versions(ctx: StepContext, ark: str) -> Iterator[dict[str, Any]]:
    after = 0
    while rows := resources_of(ctx).inventory.list_versions(ark, after=after):
        yield from rows
        after = rows[-1]["number"]


def _write_manifest(
    ctx: StepContext, url: str, about: dict[str, Any], entries: Iterable[ManifestEntry]
) -> VersionSource:
    """Write a manifest in the folder of this attempt, to be recorded from."""
    path, digest, size = ctx.workdir / "recorded-manifest", hashlib.sha256(), 0
    with open(path, "wb") as file:
        for chunk in ManifestWriter(ManifestHeader(ordered=True, about=about)).iter_chunks(entries):
            size += file.write(chunk)
            digest.update(chunk)
    stored = StoredVersion(
        object=about["object"],
        version=about["version"],
        request=str(about.get("request", "")),
        created=str(about.get("created", "")),
        place=url,
        sha256=digest.hexdigest(),
        size=size,
    )
    return VersionSource(stored, lambda stored: _open_manifest(path))


def _open_manifest(path: Path) -> ManifestReader:
    file = open(path, "rb")  # noqa: SIM115 - the reader closes it
    try:
        return ManifestReader(iter(lambda: file.read(1024 * 1024), b""), file.close)
    except BaseException:
        file.close()
        raise


def _check_ark(job: Record, ark: str, url: str) -> None:
    expected = Submission.from_job(job).primary_id
    if expected and expected != ark:
        raise Fail(f"The job is for {expected}, and the manifest {mask_foreign_url(url)} is of {ark}.")


def _compute_sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
