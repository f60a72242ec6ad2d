"""Layout: how names are written in this directory, agreed once, by whoever opens it first.

`.waybill/layout.json` is `{"waybill": "objects", "v": 1, "folding": false}`. Folding is true if the file system takes
two names for one (by case, or by composed and decomposed accents): then the escape scheme writes capitals and accents
in hex. A directory that was filled without folding is refused on a file system that folds.
"""

from __future__ import annotations

import errno
import json
import os
import unicodedata
from collections.abc import Callable
from contextlib import suppress

from waybill.objects.files import open_object, write_all
from waybill.objects.folders import OWN, Folders
from waybill.objects.protocol import Refused
from waybill.objects.publishing import Publisher

_FILE = "layout.json"


def agreed_folding(folders: Folders, publisher: Publisher, token: Callable[[], str], root: str) -> bool:
    with folders.find([*OWN, "tmp"]) as tmp, folders.find(OWN) as own:
        kept = _kept(own)
        try:
            folds = _folds(tmp, token())
        except OSError as error:
            if kept is None or error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
                raise
            folds = False  # cannot be tried where nothing may be written; reading is still possible
        if kept is None:
            with publisher.temp("the layout") as (fd, temp):
                write_all(fd, json.dumps({"waybill": "objects", "v": 1, "folding": folds}).encode() + b"\n")
                folders.sync(fd)
                with suppress(FileExistsError):  # someone else was first
                    os.link(temp, _FILE, src_dir_fd=tmp, dst_dir_fd=own, follow_symlinks=False)
                folders.sync(own)
                os.unlink(temp, dir_fd=tmp)
            kept = _kept(own)
    try:
        layout = json.loads(kept or b"")
        kind, version, folding = layout["waybill"], layout["v"], bool(layout["folding"])
    except (ValueError, TypeError, KeyError):
        kind, version, folding = None, None, False
    if (kind, version) != ("objects", 1):
        raise Refused(
            f"{root}/.waybill/{_FILE} is not one that this version of Waybill writes: the directory is left alone."
        )
    if folds and not folding:
        raise Refused(
            f"{root} was filled where names are kept apart that this file system takes for one: copy it with Waybill instead."
        )
    return folding


def _kept(own: int) -> bytes | None:
    fd = open_object(_FILE, own)
    if fd is None:
        return None
    with os.fdopen(fd, "rb") as file:
        return file.read(10_000)


def _folds(tmp: int, token: str) -> bool:
    written = f"{token}-Aé"
    os.close(os.open(written, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666, dir_fd=tmp))
    try:
        return any(_exists(other, tmp) for other in (written.lower(), unicodedata.normalize("NFD", written)))
    finally:
        os.unlink(written, dir_fd=tmp)


def _exists(entry: str, folder: int) -> bool:
    try:
        os.stat(entry, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True
