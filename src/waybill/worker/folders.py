"""Working folders: `<root>/<kind>/<id>/<attempt>`, one for each run of a step, removed when the record's state says so."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path

from waybill.record import Ref

log = logging.getLogger("waybill.worker")


def clear_folder(root: Path, ref: Ref) -> None:
    """Remove a record's working folder; a link in its place is removed, never followed. Safe to repeat."""
    folder = root / ref.kind / ref.id
    try:
        if folder.is_symlink():
            folder.unlink()
        elif folder.exists():
            shutil.rmtree(folder)
    except FileNotFoundError:
        return
    except OSError as error:
        log.warning("%s could not be removed: %s", folder, error)
