"""Temporary folders for servers: short names, owned by whoever runs the server, gone with the process that made them.

A folder carries the id of its process in its name. One that was left behind because that process was killed is removed
by the next run that makes a folder.
"""

import os
import re
import shutil
import tempfile
from pathlib import Path

from tests.servers.accounts import Account

_PREFIX = "waybill-test"
# PostgreSQL's socket is a file in here, and the path of a unix socket has at most 107 bytes.
_LONGEST = 60


def make_folder(owner: Account | None = None) -> Path:
    place = tempfile.gettempdir()
    if len(place) > _LONGEST:
        place = "/tmp"
    _sweep(Path(place))
    folder = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}-{os.getpid()}-", dir=place))
    if owner is not None:
        os.chown(folder, owner.uid, owner.gid)
    return folder


def remove_folder(folder: Path) -> None:
    # A server that was killed may leave a child that still writes for a moment: what cannot be removed now is swept by
    # the next run.
    shutil.rmtree(folder, ignore_errors=True)


def _sweep(place: Path) -> None:
    for folder in place.glob(f"{_PREFIX}-*-*"):
        match = re.fullmatch(rf"{_PREFIX}-(\d+)-\w+", folder.name)
        if match and not Path("/proc", match[1]).exists():
            remove_folder(folder)
