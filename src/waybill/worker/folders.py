"""Working folders: one of each record, and in it one for each run of a step, removed when the record's state says so.

    <root>/<kind>/<id>/<attempt>                 where the machine says nothing else
    <root>/<top>/.../<attempt>                   where it names its folders (machine.Folder); a file `.record` in them says whose they are

Attempts count up, also over the lives of an id. Whoever clears names the last attempt that it knows of: a record that
was taken up again meanwhile, by whatever worker, works in a later one, and that is left alone.
"""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from waybill.machine import Machine
from waybill.objects.files import OPEN_FOLDER
from waybill.objects.folders import remove_tree
from waybill.record import Record, Ref
from waybill.rules import Machines, bad_id

NAME = ".record"  # the file that says whose a folder is
DEEPEST = 4  # folders between a machine's top and its records' own

log = logging.getLogger("waybill.worker")


def folder_of(root: Path, machine: Machine, record: Record) -> Path:
    if machine.folder is None:
        return root / record.kind / record.id
    parts = machine.folder.of(record)
    if not 1 <= len(parts) <= DEEPEST or any(bad_id(part) or part.startswith(".") for part in parts):
        raise ValueError(f"{record.ref} cannot have a working folder called {'/'.join(parts)!r}.")
    return root.joinpath(machine.folder.top, *parts)


def make_folder(folder: Path, machine: Machine, record: Record) -> Path:
    """The folder of a record, which says whose it is. Safe to repeat."""
    folder.mkdir(parents=True, exist_ok=True)
    if machine.folder is not None:
        name = folder / NAME
        try:
            written = name.stat().st_size > 0  # a crash can leave it empty
        except FileNotFoundError:
            written = False
        if not written:
            with open(name, "wb", buffering=0) as file:
                file.write(f"{record.kind} {record.id}".encode())
    return folder


def make_attempt(folder: Path, machine: Machine, record: Record, attempt: int) -> Path:
    """The folder of one run of a step. Safe to repeat."""
    own = folder / str(attempt)
    while not own.is_dir():
        # what an earlier run left is being cleared, and the empty folder went with it: once more
        with suppress(FileNotFoundError):
            make_folder(folder, machine, record)
            own.mkdir(exist_ok=True)
    return own


def last_attempt(folder: Path) -> int:
    """The last attempt that has left a folder; -1: none has."""
    try:
        return max((int(name) for name in os.listdir(folder) if name.isdecimal()), default=-1)
    except OSError:
        return -1


def clear_folder(folder: Path, upto: int) -> None:
    """Remove a record's working folder with all attempts up to this one; a link in its place is removed, never
    followed. Safe to repeat.
    """
    try:
        try:
            fd = os.open(folder, OPEN_FOLDER)
        except OSError as error:
            if error.errno not in (errno.ENOTDIR, errno.ELOOP):
                raise
            folder.unlink()  # a link, or a file
            return
        try:
            names = os.listdir(fd)
            later = {name for name in names if name.isdecimal() and int(name) > upto}
            for name in names:
                if name not in later and name != NAME:
                    remove_tree(fd, name)
            if not later and NAME in names:
                _end(folder, fd)
        finally:
            os.close(fd)
        if not later:
            os.rmdir(folder)
    except FileNotFoundError:
        return
    except OSError as error:
        if last_attempt(folder) <= upto:  # else it is in use again
            log.warning("%s could not be removed: %s", folder, error)


def _end(folder: Path, fd: int) -> None:
    """Take away whose folder it is, last of all; a run that has begun in it meanwhile gets it back, or nobody would
    ever clear it again.
    """
    whose = (folder / NAME).read_bytes()
    os.unlink(NAME, dir_fd=fd)
    if any(name.isdecimal() for name in os.listdir(fd)):
        (folder / NAME).write_bytes(whose)


def all_folders(root: Path, machines: Machines) -> Iterator[tuple[Path, Ref]]:
    """Every working folder below the root, and whose it is; of applications that are not loaded here, none."""
    for machine in machines.values():
        if machine.folder is None:
            for entry in _entries(root / machine.name):
                if bad_id(entry.name) is None and (entry.is_dir() or entry.is_symlink()):
                    yield entry, Ref(machine.name, entry.name)
    for top in sorted({machine.folder.top for machine in machines.values() if machine.folder is not None}):
        yield from _named(root / top, DEEPEST)


def _named(folder: Path, depth: int) -> Iterator[tuple[Path, Ref]]:
    """Those that say whose they are, the innermost first: a folder may hold others' folders."""
    for entry in _entries(folder):
        if entry.is_dir() and not entry.is_symlink() and not entry.name.isdecimal():
            if depth > 1:
                yield from _named(entry, depth - 1)
            try:
                kind, _, id = (entry / NAME).read_text().partition(" ")
            except OSError:
                continue
            if bad_id(id) is None:
                yield entry, Ref(kind, id)


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir()) if folder.is_dir() and not folder.is_symlink() else []
    except FileNotFoundError:
        return []  # cleared meanwhile
