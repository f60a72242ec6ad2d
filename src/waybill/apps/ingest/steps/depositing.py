"""Depositing: from a job's working folder to a version in storage, for whichever state does it (Processing, or Storing).

    working files      what was fetched, as the job's document `downloaded` lists it; never believed without its digest
    described          the depositor's own descriptions are read, and the system files made. They are lent to storage out of memory; where
                       storing is a state of its own, for whoever does it, they are also published as `system/` in the working folder
    written            storage copies all of it, compares it with the digests, and answers with the version

A working folder can be replaced at any moment by a worker that was thought dead. So each file is compared with what is known of it whenever
it is read: the few that are read here, here; all of them by storage while it copies.
"""

from __future__ import annotations

import fcntl
import hashlib
import itertools
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import msgspec

from waybill.apps.ingest import lists, submission
from waybill.apps.ingest.anvl import BadAnvl
from waybill.apps.ingest.checkm import Row, object_manifest, storage_manifest
from waybill.apps.ingest.describing import (
    LARGEST,
    PRODUCER,
    READ,
    SYSTEM,
    BadDescription,
    Description,
    Told,
    deletions_of,
    describe,
    told_by,
)
from waybill.apps.ingest.outfit import Outfit, outfit_of
from waybill.apps.ingest.profile import Profile
from waybill.apps.ingest.steps.corroborating import LISTED, corroborate
from waybill.apps.ingest.steps.held import Held
from waybill.apps.ingest.storage import Deposit, FileToStore, NotStorable, Stored, Unsound
from waybill.apps.ingest.storage.sources import FILE, SourceGone, open_inside
from waybill.apps.ingest.submission import Submission
from waybill.objects import Damaged
from waybill.record import Record
from waybill.step import Context, Fail

MANIFEST = "mrt-manifest.txt"  # for a storage service that reads the working folder
SUBMITTED = "mrt-submission-manifest.txt"
_MIME = {".txt": "text/plain; charset=UTF-8", ".xml": "application/xml"}
_PORTION = 1024 * 1024


class Changed(Exception):
    """A working file is not what was fetched."""


class Prepared(NamedTuple):
    """An object that is described and ready to be stored."""

    ark: str
    said: Submission
    description: Description
    system: tuple[Held, ...]
    deletions: tuple[str, ...]


def working_files(job: Record, ctx: Context) -> Iterator[Held]:
    """The depositor's files, as they were fetched; of a job that another service fetched here, as they lie in the folder."""
    listed = job.docs.get("downloaded")
    if isinstance(listed, dict):
        return lists.each(ctx.objects, listed, Held)
    if (ctx.folder / "producer").is_dir():
        return _found(ctx)
    raise Fail("The files of this job are not in its working folder: `restart` fetches them.")


def told_of(job: Record, ctx: Context) -> Told:
    """What the depositor's own files say of the object; Fail if they cannot be read, or if his list of files is not what came."""
    try:
        own = dict(_read_own(job, ctx))
        if LISTED in own:
            corroborate(ctx, own[LISTED], working_files(job, ctx))
        return told_by(own)
    except BadDescription as error:
        raise Fail(str(error)) from error


def prepare(job: Record, ctx: Context, profile: Profile, ark: str, told: Told) -> Prepared:
    """Describe the object, and publish its system files if someone else may have to store them."""
    said = submission.of_job(job)
    try:
        description = describe(said, profile, ark, told)
    except (BadDescription, BadAnvl) as error:
        raise Fail(str(error)) from error
    system = tuple(
        Held(SYSTEM + name, len(data), hashlib.sha256(data).hexdigest(), _MIME[Path(name).suffix])
        for name, data in description.files.items()
    )
    prepared = Prepared(ark, said, description, system, deletions_of(said, told))
    # Files that are made and removed again with every job are what a file system is slowest at: so only where somebody reads them.
    if outfit_of(ctx).settings.storing:
        _write_system(job, ctx, prepared)
    return prepared


def write(job: Record, ctx: Context, prepared: Prepared) -> Stored:
    """Let storage make a version of it. Safe to repeat: the same request is answered with the version that it made."""
    with outfit_of(ctx).sources.lending(prepared.description.files) as lent:
        deposit = Deposit(
            object=prepared.ark, request=request_of(job), mode="update" if prepared.said.update else "add", deletions=prepared.deletions,
            files=_to_store(job, ctx, prepared, lent), message=prepared.said.note, user=prepared.said.submitter or "waybill",
            about=prepared.description.about,
        )  # fmt: skip
        try:
            return stored(ctx, deposit)
        except (Damaged, SourceGone) as error:
            changed = next(_changed(job, ctx), None)
            if changed is not None and job.tries:  # at first it may only be that the folder was just being replaced
                raise Fail(f"The working copy of {changed} is not what was fetched: `restart` fetches it again.") from error
            raise


def _to_store(job: Record, ctx: Context, prepared: Prepared, lent: str) -> Iterator[FileToStore]:
    below = f"{FILE}{ctx.folder.relative_to(_root(ctx)).as_posix()}/"
    for held in working_files(job, ctx):
        yield FileToStore(held.path, held.size, held.sha256, below + held.path, held.mime)
    for held in prepared.system:
        yield FileToStore(held.path, held.size, held.sha256, lent + held.path.removeprefix(SYSTEM), held.mime)


def stored(ctx: Context, deposit: Deposit) -> Stored:
    try:
        return outfit_of(ctx).storage.write(deposit, check=ctx.check)
    except (NotStorable, Unsound) as error:
        raise Fail(str(error)) from error


def documents(outfit: Outfit, version: Stored) -> dict[str, Any]:
    """What the job says of a version that storage has made."""
    return {
        "stored": msgspec.to_builtins(version),
        "inventory": {"manifest_url": manifest_url(outfit, version.object, version.version), "mode": "add"},
    }


def manifest_url(outfit: Outfit, ark: str, version: int) -> str:
    """Where the manifest of a version can be read."""
    http = outfit.depot.config.http
    base = outfit.settings.url.rstrip("/") or f"http://{http.host}:{http.port}"
    return f"{base}/ingest/objects/{quote(ark, safe='')}/versions/{version}/manifest"


def request_of(job: Record) -> str:
    """The name of a job's deposit among all of its object. Without an id of its own, that of the batch makes it unique."""
    said = submission.read(job.docs.get("configuration"))
    return said.job_id or "/".join(part for part in (submission.of_job(job).batch_id, job.id) if part)


# --- working files


def _root(ctx: Context) -> Path:
    return outfit_of(ctx).depot.config.work.root


def _found(ctx: Context) -> Iterator[Held]:
    top = ctx.folder / "producer"
    for folder, folders, names in os.walk(top):  # links are neither followed nor kept
        folders.sort()
        for name in sorted(names):
            path = (Path(folder) / name).relative_to(ctx.folder).as_posix()
            if not (ctx.folder / path).is_symlink():
                yield Held(path, *_measured(ctx, path))


def _measured(ctx: Context, path: str) -> tuple[int, str]:
    digest, size = hashlib.sha256(), 0
    with open_inside(ctx.folder, path) as file:
        while portion := file.read(_PORTION):
            ctx.check()
            digest.update(portion)
            size += len(portion)
    return size, digest.hexdigest()


def _changed(job: Record, ctx: Context) -> Iterator[str]:
    """The working files that are not what they should be."""
    for held in working_files(job, ctx):
        try:
            if _measured(ctx, held.path) != (held.size, held.sha256):
                yield held.path
        except SourceGone:
            yield held.path


def _read_own(job: Record, ctx: Context) -> Iterator[tuple[str, bytes]]:
    """The depositor's files that are read here, by their names."""
    for held in working_files(job, ctx):
        name = held.path.removeprefix(PRODUCER)
        if name not in READ and name != LISTED:
            continue
        if held.size > LARGEST:
            raise BadDescription(f"{held.path} cannot be read: it is longer than {LARGEST:,} bytes.")
        with open_inside(ctx.folder, held.path) as file:
            data = file.read(LARGEST + 1)
        if (len(data), hashlib.sha256(data).hexdigest()) != (held.size, held.sha256):
            raise Changed(f"The working copy of {held.path} is not what was fetched: `restart` fetches it again.")
        yield name, data


# --- system files


def _write_system(job: Record, ctx: Context, prepared: Prepared) -> None:
    folder = ctx.workdir / "system"  # this attempt's own: a second run makes another
    folder.mkdir(exist_ok=True)
    for name, data in prepared.description.files.items():
        (folder / name).write_bytes(data)  # not synced: it is made again from the record whenever it is needed
    with open(folder / SUBMITTED, "wb") as file:
        rows = lists.each(ctx.objects, job.docs["files"], Row) if isinstance(job.docs.get("files"), dict) else ()
        file.writelines(object_manifest(_writable(row) for row in rows))
    with open(folder / MANIFEST, "wb") as file:
        file.writelines(storage_manifest(_rows(itertools.chain(working_files(job, ctx), prepared.system), ctx.folder)))
    publish(ctx, "system")


def _rows(files: Iterable[Held], folder: Path) -> Iterator[Row]:
    for held in files:
        # As a storage service that shares the disk reads it; quoting leaves no | in it.
        url = f"file://{quote(str(folder))}/{quote(held.path)}"
        yield _writable(Row(0, url, held.path, "sha256", held.sha256, held.size, "", held.mime))


def _writable(row: Row) -> Row:
    """The row, with what the format cannot hold in a name written with %."""
    name = row.name.replace("|", "%7C")
    if name != name.strip():
        name = quote(name[:1]) + name[1:-1] + quote(name[-1:])
    return msgspec.structs.replace(row, name=name) if name != row.name else row


def publish(ctx: Context, name: str) -> None:
    """Let a folder of this attempt be the job's own. Safe to repeat: an earlier one moves into this attempt's folder, and goes with it."""
    with _alone(ctx.folder):
        ctx.check()
        target = ctx.folder / name
        if os.path.lexists(target):
            os.rename(target, ctx.workdir / f"replaced-{name}")
        os.rename(ctx.workdir / name, target)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    fd = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)
