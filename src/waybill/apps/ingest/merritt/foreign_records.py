"""Records that other services create or work on.

Their documents may lack what Waybill's own submissions have: the owner of the local ids, and the collections that a
deposit can be held by. Both are read from the profile.

A job that another service has processed names a storage manifest by its URL, from which it is stored or recorded. A URL
is http or https, and may lead only where deposits may be fetched from; or it is a `file:` URL inside our work root,
which a service on the same disk has written. Everything is fetched into the work folder of the claim and compared with
its digest.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

from waybill.apps.ingest.formats.anvl import read_deletions
from waybill.apps.ingest.formats.checkm import BadManifest, ManifestRow
from waybill.apps.ingest.formats.checkm.reader import CHECKM_PREFIX, read_storage_manifest
from waybill.apps.ingest.machine.holds import COLLECTION_HOLD_PREFIX
from waybill.apps.ingest.resources import IngestResources, resources_of
from waybill.apps.ingest.storage import FileToStore
from waybill.apps.ingest.storage.sources import FILE_SCHEME, SourceMissing, open_working_file
from waybill.apps.ingest.submission import DepositCollections, DepositOwner, Submission
from waybill.errors import FormatError
from waybill.masking import mask_foreign_url
from waybill.record import Record
from waybill.step import Fail, StepContext, Wait
from waybill.transfer import DownloadRequest, TransferError, download

MAX_MANIFEST_BYTES = 100_000_000
FETCH_FOLDER = "foreign"  # below the work folder of the claim


def find_owner(job: Record, ctx: StepContext) -> tuple[DepositOwner, ...]:
    """Return the document `owner` of a job with local ids and no owner, else nothing. Safe to repeat."""
    deposit = Submission.from_job(job)
    if deposit.owner or not deposit.local_ids:
        return ()
    owner = resources_of(ctx).get_profile(ctx, deposit).owner
    return (DepositOwner(owner),) if owner else ()


def find_collections(record: Record, ctx: StepContext) -> tuple[DepositCollections, ...]:
    """Return the document `collections` of a record that has none, else nothing. Safe to repeat: it is never replaced."""
    deposit = Submission.from_batch(record) if record.kind == "batch" else Submission.from_job(record)
    if deposit.is_profile_checked or deposit.collections or not deposit.profile:
        return ()
    resources = resources_of(ctx)
    mnemonics = resources.get_mnemonics(ctx, resources.get_profile(ctx, deposit))
    return (DepositCollections(mnemonics),) if mnemonics else ()


def wait_on_hold(collections: tuple[DepositCollections, ...], ctx: StepContext) -> Wait | None:
    """Wait if one of the collections just found is on hold: the record is released with the document, and the next
    claim moves it to Held.
    """
    names = [name for each in collections for name in each.mnemonics]
    holds = ctx.run_on_store(lambda store: store.list_holds()) if names else {}
    held = next((name for name in names if f"{COLLECTION_HOLD_PREFIX}{name}" in holds), None)
    return Wait(0, f"Its collection {held} is on hold.", documents=collections) if held is not None else None


def fetch_foreign_file(ctx: StepContext, url: str, name: str) -> Path:
    """Fetch a URL into the work folder. Raises Fail if it cannot be fetched, TransferError if not now."""
    if urlsplit(url).scheme == "file":
        target = ctx.workdir / name
        try:
            with (
                open_working_file(_work_root_of(ctx), path_in_work_root_of(ctx, url)) as source,
                open(target, "wb") as file,
            ):
                while chunk := source.read(1024 * 1024):
                    file.write(chunk)
        except SourceMissing as error:
            raise TransferError(str(error)) from error
        return target
    _fetch_all(ctx, [DownloadRequest(url, name)], ctx.workdir, MAX_MANIFEST_BYTES)
    return ctx.workdir / name


def read_foreign_manifest(ctx: StepContext, url: str) -> list[ManifestRow]:
    """Read the storage manifest at a URL."""
    path = fetch_foreign_file(ctx, url, "storage-manifest.txt")
    with open(path, "rb") as file:
        if not file.read(len(CHECKM_PREFIX)) == CHECKM_PREFIX:
            raise Fail(
                f"{mask_foreign_url(url)} is not a storage manifest: it does not begin with {CHECKM_PREFIX.decode()}."
            )
        file.seek(0)
        try:
            return read_storage_manifest(file)
        except BadManifest as error:
            raise Fail(f"The storage manifest {mask_foreign_url(url)} cannot be used: {error}") from error


def list_foreign_files(ctx: StepContext, rows: Iterable[ManifestRow]) -> Iterator[FileToStore]:
    """Yield the files of a storage manifest; those that are not in the work root are fetched."""
    workdir = ctx.workdir.relative_to(_work_root_of(ctx)).as_posix()
    requests: list[DownloadRequest] = []
    for row in rows:
        if urlsplit(row.url).scheme == "file":
            source = f"{FILE_SCHEME}{path_in_work_root_of(ctx, row.url)}"
        else:
            requests.append(DownloadRequest(row.url, row.name, row.size, {"sha256": row.digest}))
            source = f"{FILE_SCHEME}{workdir}/{FETCH_FOLDER}/{row.name}"
        yield FileToStore(row.name, row.size or 0, row.digest, source, row.mime)
    # The caller reads the whole list before it stores anything, so all files are here by then.
    _fetch_all(ctx, requests, ctx.workdir / FETCH_FOLDER)


def read_foreign_deletions(ctx: StepContext, url: str) -> tuple[str, ...]:
    """Read a list of files to delete, one per line, as paths of the object."""
    try:
        listed = read_deletions(fetch_foreign_file(ctx, url, "deletions.txt").read_bytes())
    except FormatError as error:
        raise Fail(f"The list of deletions {mask_foreign_url(url)} cannot be used: {error}") from error
    return tuple(name if name.startswith(("producer/", "system/")) else f"producer/{name}" for name in listed)


def path_in_work_root_of(ctx: StepContext, url: str) -> str:
    """Return the path of a `file:` URL below the work root; raise Fail if it is outside."""
    parts = urlsplit(url)
    root = str(_work_root_of(ctx)).rstrip("/") + "/"
    path = unquote(parts.path)
    if parts.netloc not in ("", "localhost") or not path.startswith(root) or ".." in path.split("/"):
        raise Fail(
            f"{mask_foreign_url(url)[:200]} is not below the work root of this service, and no other files are read."
        )
    return path.removeprefix(root)


def _fetch_all(ctx: StepContext, requests: Iterable[DownloadRequest], into: Path, max_bytes: int | None = None) -> None:
    settings, urls = resources_of(ctx).settings.fetch, dict[str, str]()

    def note_urls() -> Iterator[DownloadRequest]:
        for each in requests:
            urls[each.name] = each.url
            yield each

    for fetched in download(
        note_urls(),
        into,
        earlier_folders=[folder / into.relative_to(ctx.workdir) for folder in ctx.list_earlier_folders()],
        parallel=settings.parallel,
        tries=settings.max_tries,
        timeout=settings.timeout,
        max_size=max_bytes or settings.max_bytes,
        redirects=settings.max_redirects,
        policy=resources_of(ctx).address_policy,
        stop=lambda: ctx.stop,
    ):
        ctx.check()
        url = mask_foreign_url(urls.pop(fetched.name, fetched.name))
        if not fetched.ok:
            raise (Fail if fetched.permanent else TransferError)(f"{url} cannot be fetched: {fetched.reason}")


def _work_root_of(ctx: StepContext) -> Path:
    resources: IngestResources = resources_of(ctx)
    return resources.environment.config.work.root
