"""The folders of a record's attempts, and what they leave in the record's own folder.

    ctx.workdir/NAME -> publish_folder -> ctx.folder/NAME       complete, or as it was before; never a part of it

Each run of a step writes into a folder of its own (`ctx.workdir`), beside those of earlier runs.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from pathlib import Path

from waybill.step import StepContext

_LOCK_FILE = ".lock"


def publish_folder(ctx: StepContext, name: str) -> None:
    """Move `workdir/name` to `folder/name`, and remove an older one. Safe to repeat: each attempt makes its own, and the
    last one is as good.
    """
    made, target, replaced = ctx.workdir / name, ctx.folder / name, ctx.workdir / f"{name}.replaced"
    with open(ctx.folder / _LOCK_FILE, "ab", buffering=0) as lock:  # for writing: a network file system demands it
        fcntl.flock(lock, fcntl.LOCK_EX)
        ctx.check()
        try:
            os.rename(target, replaced)
        except FileNotFoundError:
            first = True
        else:
            first = False
        os.rename(made, target)
    if not first:
        shutil.rmtree(replaced)


def list_earlier_attempts(ctx: StepContext) -> list[Path]:
    """The folders of earlier attempts, latest first. One of a later attempt is not among them: then this one is over."""
    return [folder for folder in ctx.list_earlier_folders() if int(folder.name) < ctx.claim_version]


def remove_earlier_attempts(ctx: StepContext) -> None:
    """Safe to repeat: files of earlier attempts only save time."""
    for folder in list_earlier_attempts(ctx):
        remove_attempt(ctx, folder)


def remove_attempt(ctx: StepContext, folder: Path) -> None:
    try:
        shutil.rmtree(folder)
    except OSError as error:  # a late worker still writes there; it is removed with the record's folder
        ctx.log.info("%s could not be removed: %s", folder, error.strerror or error)


def measure_folder(folder: Path) -> int:
    """The bytes of all files in the folder."""
    return sum((Path(place) / name).lstat().st_size for place, _, files in os.walk(folder) for name in files)
