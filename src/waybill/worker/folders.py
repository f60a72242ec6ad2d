"""Working folders: `<root>/<kind>/<id>/<attempt>`, one for each run of a step, removed when the record's state says so."""

from __future__ import annotations

import logging
import os
import shutil
import stat
from pathlib import Path

from waybill.record import Ref

log = logging.getLogger("waybill.worker")


def clear_folder(root: Path, ref: Ref) -> None:
    """Remove a record's working folder; a link in its place is removed, never followed. Safe to repeat."""
    folder = f"{root}/{ref.kind}/{ref.id}"
    try:
        if stat.S_ISLNK(os.lstat(folder).st_mode):
            os.unlink(folder)
        else:
            shutil.rmtree(folder)
    except FileNotFoundError:
        return
    except OSError as error:
        log.warning("%s could not be removed: %s", folder, error)
