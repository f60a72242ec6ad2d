"""Working files: what was fetched for a job, as its document `downloaded` lists it, and what the depositor's own
files say of the object.

A working folder can be replaced at any moment by a worker that was thought dead. So each file is compared with what is
known of it whenever it is read: the few that are read here, here; all of them by storage while it copies.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

from waybill.apps.ingest.describing import LARGEST, PRODUCER, READ, BadDescription, Told, told_by
from waybill.apps.ingest.steps.corroborating import LISTED, corroborate
from waybill.apps.ingest.steps.held import Held, each
from waybill.apps.ingest.storage.sources import SourceGone, open_inside
from waybill.record import Record
from waybill.step import Context, Fail

_PORTION = 1024 * 1024


class Changed(Exception):
    """A working file is not what was fetched."""


def working_files(job: Record, ctx: Context) -> Iterator[Held]:
    """The depositor's files, as they were fetched; of a job that another service fetched here, as they lie in the
    folder.
    """
    listed = job.docs.get("downloaded")
    if isinstance(listed, dict):
        return each(ctx.objects, listed)
    if (ctx.folder / "producer").is_dir():
        return _found(ctx)
    raise Fail("The files of this job are not in its working folder: `restart` fetches them.")


def told_of(job: Record, ctx: Context) -> Told:
    """What the depositor's own files say of the object; Fail if they cannot be read, or if his list of files is not
    what came.
    """
    try:
        own = dict(_read_own(job, ctx))
        if LISTED in own:
            corroborate(ctx, own[LISTED], working_files(job, ctx))
        return told_by(own)
    except BadDescription as error:
        raise Fail(str(error)) from error


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


def changed(job: Record, ctx: Context) -> Iterator[str]:
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
