"""Foreign: what other services have left for a job to be stored or recorded from, read from a manifest that they
name by its URL.

A URL is http or https, and may lead only where deposits may be fetched from; or it is a `file:` URL of something in our
working folder, which a service on the same disk has written. Everything is fetched into the folder of the attempt, and
compared with its digest.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from waybill.apps.ingest.anvl import BadAnvl, read_deletions
from waybill.apps.ingest.checkm import BadManifest, Row
from waybill.apps.ingest.checkm.stored import BEGINS, read_storage_manifest
from waybill.apps.ingest.outfit import Outfit, outfit_of
from waybill.apps.ingest.signatures import without_secrets
from waybill.apps.ingest.storage import FileToStore
from waybill.apps.ingest.storage.sources import FILE, SourceGone, open_inside
from waybill.step import Context, Fail
from waybill.transfer import Fetch, download

LARGEST = 100_000_000  # bytes of a manifest
FETCHED = "foreign"  # the folder of the attempt into which files are fetched


class NotFetched(Exception):
    """Something could not be fetched now."""


def fetch(ctx: Context, url: str, name: str) -> Path:
    """What a URL names, as a file of this attempt. Fail if it cannot be had, NotFetched if it cannot be had now."""
    if urlsplit(url).scheme == "file":
        target = ctx.workdir / name
        try:
            with open_inside(_root(ctx), inside(ctx, url)) as source, open(target, "wb") as file:
                while portion := source.read(1024 * 1024):
                    file.write(portion)
        except SourceGone as error:
            raise NotFetched(str(error)) from error
        return target
    _fetch_all(ctx, [Fetch(url, name)], ctx.workdir, LARGEST)
    return ctx.workdir / name


def rows_at(ctx: Context, url: str) -> list[Row]:
    """The storage manifest at a URL."""
    path = fetch(ctx, url, "storage-manifest.txt")
    with open(path, "rb") as file:
        if not file.read(len(BEGINS)) == BEGINS:
            raise Fail(f"{without_secrets(url)} is no storage manifest: it does not begin with {BEGINS.decode()}.")
        file.seek(0)
        try:
            return read_storage_manifest(file)
        except BadManifest as error:
            raise Fail(f"The storage manifest {without_secrets(url)} cannot be used: {error}") from error


def files_to_store(ctx: Context, rows: Iterable[Row]) -> Iterator[FileToStore]:
    """The files of a storage manifest, fetched where they are not in the working folder already."""
    below = ctx.workdir.relative_to(_root(ctx)).as_posix()
    wanted: list[Fetch] = []
    for row in rows:
        if urlsplit(row.url).scheme == "file":
            source = f"{FILE}{inside(ctx, row.url)}"
        else:
            wanted.append(Fetch(row.url, row.name, row.size, {"sha256": row.digest}))
            source = f"{FILE}{below}/{FETCHED}/{row.name}"
        yield FileToStore(row.name, row.size or 0, row.digest, source, row.mime)
    _fetch_all(ctx, wanted, ctx.workdir / FETCHED)  # before the last file is asked for, so before anything is stored


def deletions_at(ctx: Context, url: str) -> tuple[str, ...]:
    """The list of files to be taken away, one in each line, as paths of the object."""
    try:
        listed = read_deletions(fetch(ctx, url, "deletions.txt").read_bytes())
    except BadAnvl as error:
        raise Fail(f"The list of deletions {without_secrets(url)} cannot be used: {error}") from error
    return tuple(name if name.startswith(("producer/", "system/")) else f"producer/{name}" for name in listed)


def inside(ctx: Context, url: str) -> str:
    """The path below the working root that a `file:` URL names; Fail if it leads elsewhere."""
    parts = urlsplit(url)
    root = str(_root(ctx)).rstrip("/") + "/"
    path = unquote(parts.path)
    if parts.netloc not in ("", "localhost") or not path.startswith(root) or ".." in path.split("/"):
        raise Fail(
            f"{without_secrets(url)[:200]} is not in the working folder of this service, and no other files are read."
        )
    return path.removeprefix(root)


def _fetch_all(ctx: Context, wanted: Iterable[Fetch], into: Path, largest: int | None = None) -> None:
    told, urls = outfit_of(ctx).settings.fetch, dict[str, str]()

    def noted() -> Iterator[Fetch]:
        for each in wanted:
            urls[each.name] = each.url
            yield each

    for fetched in download(
        noted(),
        into,
        earlier=[folder / into.relative_to(ctx.workdir) for folder in ctx.earlier()],
        parallel=told.parallel,
        tries=told.tries,
        timeout=told.timeout,
        largest=largest or told.largest,
        redirects=told.redirects,
        reach=outfit_of(ctx).reach,
        stop=lambda: ctx.stop,
    ):
        ctx.check()
        url = without_secrets(urls.pop(fetched.name, fetched.name))
        if not fetched.ok:
            raise (Fail if fetched.permanent else NotFetched)(f"{url} cannot be fetched: {fetched.reason}")


def _root(ctx: Context) -> Path:
    outfit: Outfit = outfit_of(ctx)
    return outfit.depot.config.work.root


def told(document: Any, name: str) -> str:
    """A text of a document that anybody may have written."""
    value = document.get(name) if isinstance(document, dict) else None
    return value if isinstance(value, str) else ""
