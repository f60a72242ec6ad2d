"""Working folders: `<root>/<kind>/<id>/<attempt>`, one for each run of a step, removed when the record's state says so.

Attempts count up, also over the lives of an id. Whoever clears names the last attempt that it knows of: a record that was taken up again
meanwhile, by whatever worker, works in a later one, and that is left alone.
"""

from __future__ import annotations

import logging
import os
import shutil
from pathlib import Path

from waybill.record import Ref

log = logging.getLogger("waybill.worker")


def last_attempt(root: Path, ref: Ref) -> int:
    """The last attempt that has left a folder; -1: none has."""
    try:
        return max((int(name) for name in os.listdir(_folder(root, ref)) if name.isdecimal()), default=-1)
    except OSError:
        return -1


def has_folder(root: Path, ref: Ref) -> bool:
    return os.path.lexists(_folder(root, ref))


def clear_folder(root: Path, ref: Ref, upto: int) -> None:
    """Remove a record's working folder with all attempts up to this one; a link in its place is removed, never followed. Safe to repeat."""
    folder = _folder(root, ref)
    try:
        if os.path.islink(folder):
            os.unlink(folder)
            return
        with os.scandir(folder) as found:
            entries = [entry for entry in found if not (entry.name.isdecimal() and int(entry.name) > upto)]
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path)
            else:
                os.unlink(entry.path)
        os.rmdir(folder)
    except FileNotFoundError:
        return
    except OSError as error:
        if last_attempt(root, ref) <= upto:  # else it is in use again
            log.warning("%s could not be removed: %s", folder, error)


def _folder(root: Path, ref: Ref) -> str:
    return f"{root}/{ref.kind}/{ref.id}"
