"""The working root: either this host's own, or one folder that every host sees.

A shared root carries a name in a file, and the store remembers that name: a worker that is told its root is shared, but
sees another folder than the others do, must not start, or records would look for files that are elsewhere.
"""

from __future__ import annotations

import os
import uuid
from pathlib import Path

from waybill.record import BadStore, Store

NAME = ".waybill-root"


def check_root(store: Store, root: Path, shared: bool) -> None:
    """Make the root; with `shared`, see that it is the one that all workers of this store share."""
    try:
        root.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not os.access(root, os.W_OK | os.X_OK):
            raise PermissionError(13, "it is not writable")
        if not shared:
            return
        name = _name(root)
    except OSError as error:
        raise BadStore(
            f"The working root {root} cannot be used: {error.strerror or error}. Set work.root to another folder."
        ) from error
    if not name:
        raise BadStore(f"{root / NAME} is empty: remove it, and start the workers again.")
    if store.remember("work-root", name) != name:
        raise BadStore(
            f"work.shared is set, but {root} is not the folder that the other workers share. Mount that folder here, or unset work.shared."
        )


def _name(root: Path) -> str:
    """The root's own name, which it gets with the first start. The file appears with the name in it: others may read
    it at any moment.
    """
    file = root / NAME
    if not file.exists():
        draft = root / f"{NAME}.{uuid.uuid4()}"
        try:
            draft.write_text(f"root-{uuid.uuid4()}")
            os.link(draft, file)
        except FileExistsError:
            pass  # another worker was quicker
        finally:
            draft.unlink(missing_ok=True)
    return file.read_text().strip()
