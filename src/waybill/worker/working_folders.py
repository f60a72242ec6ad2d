"""Working folders: one for each record, and in it one for each run of a step, removed when the record's state says so.

    <root>/<kind>/<id>/<claim version>   by default
    <root>/<top>/.../<claim version>     where the machine names its folders (`machine.WorkingFolder`); a file `.record`
                                         in the folder names its record

The root is either this host's own, or one folder that every host sees. Claim versions only grow, also when an id is
used again after its record was removed. `clear_folder` names the last claim version to remove: a record that was claimed
again meanwhile, by any worker, uses a later one, which is left alone.
"""

from __future__ import annotations

import errno
import logging
import os
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from waybill.machine import Machine
from waybill.objects.directory_files import OPEN_FOLDER_FLAGS
from waybill.objects.directory_folders import remove_tree
from waybill.record import BadStore, Record, Ref, Store
from waybill.rules import Machines, find_id_problem

ROOT_NAME_FILE = ".waybill-root"  # names a root that all hosts share
RECORD_FILE = ".record"  # names the record of a folder
MAX_DEPTH = 4  # folders between a machine's top folder and those of its records

log = logging.getLogger("waybill.worker")


def check_work_root(store: Store, root: Path, shared: bool) -> None:
    """Make the root; with `shared`, check that it is the one that all workers of this store share."""
    try:
        root.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not os.access(root, os.W_OK | os.X_OK):
            raise PermissionError(13, "it is not writable")
        if not shared:
            return
        name = _read_or_make_name(root)
    except OSError as error:
        raise BadStore(
            f"The working root {root} cannot be used: {error.strerror or error}. Set work.root to another folder."
        ) from error
    if not name:
        raise BadStore(f"{root / ROOT_NAME_FILE} is empty: remove it, and start the workers again.")
    if store.remember("work-root", name) != name:
        raise BadStore(
            f"work.shared is set, but {root} is not the folder that the other workers share. Mount that folder here, or unset work.shared."
        )


def _read_or_make_name(root: Path) -> str:
    """The name of the root, made at the first start. The file is linked into place with the name already in it: other
    workers may read it at any moment.
    """
    file = root / ROOT_NAME_FILE
    if not file.exists():
        draft = root / f"{ROOT_NAME_FILE}.{uuid.uuid4()}"
        try:
            draft.write_text(f"root-{uuid.uuid4()}")
            os.link(draft, file)
        except FileExistsError:
            pass  # another worker has made it
        finally:
            draft.unlink(missing_ok=True)
    return file.read_text().strip()


def folder_of(root: Path, machine: Machine, record: Record) -> Path:
    if machine.folder is None:
        return root / record.kind / record.id
    parts = machine.folder.path_of(record)
    if not 1 <= len(parts) <= MAX_DEPTH or any(find_id_problem(part) or part.startswith(".") for part in parts):
        raise ValueError(f"{record.ref} cannot have a working folder called {'/'.join(parts)!r}.")
    return root.joinpath(machine.folder.top, *parts)


def make_folder(folder: Path, machine: Machine, record: Record) -> Path:
    """Make the folder of a record, with its record file if the machine names its folders. Safe to repeat."""
    folder.mkdir(parents=True, exist_ok=True)
    if machine.folder is not None:
        record_file = folder / RECORD_FILE
        try:
            is_written = record_file.stat().st_size > 0  # a crash can leave it empty
        except FileNotFoundError:
            is_written = False
        if not is_written:
            with open(record_file, "wb", buffering=0) as file:
                file.write(f"{record.kind} {record.id}".encode())
    return folder


def make_workdir(folder: Path, machine: Machine, record: Record, claim_version: int) -> Path:
    """Make the folder of one run of a step. Safe to repeat."""
    workdir = folder / str(claim_version)
    while not workdir.is_dir():
        # The folder of an earlier run may be cleared at this moment, and the record's empty folder with it: try again.
        with suppress(FileNotFoundError):
            make_folder(folder, machine, record)
            workdir.mkdir(exist_ok=True)
    return workdir


def find_last_claim_version(folder: Path) -> int:
    """The last claim version that has a folder; -1 if none has."""
    try:
        return max((int(name) for name in os.listdir(folder) if name.isdecimal()), default=-1)
    except OSError:
        return -1


def clear_folder(folder: Path, last_claim_version: int) -> None:
    """Remove a record's working folder with all runs up to this claim version. A link in its place is removed, never
    followed. Safe to repeat.
    """
    try:
        try:
            fd = os.open(folder, OPEN_FOLDER_FLAGS)
        except OSError as error:
            if error.errno not in (errno.ENOTDIR, errno.ELOOP):
                raise
            folder.unlink()  # a link, or a file
            return
        try:
            names = os.listdir(fd)
            later = {name for name in names if name.isdecimal() and int(name) > last_claim_version}
            for name in names:
                if name not in later and name != RECORD_FILE:
                    remove_tree(fd, name)
            if not later and RECORD_FILE in names:
                _remove_record_file(folder, fd)
        finally:
            os.close(fd)
        if not later:
            os.rmdir(folder)
    except FileNotFoundError:
        return
    except OSError as error:
        if find_last_claim_version(folder) <= last_claim_version:  # else it is in use again
            log.warning("%s could not be removed: %s", folder, error)


def _remove_record_file(folder: Path, fd: int) -> None:
    """Remove the record file, last of all. If a run has begun in the folder meanwhile the file is written again:
    without it nobody would ever clear the folder.
    """
    content = (folder / RECORD_FILE).read_bytes()
    os.unlink(RECORD_FILE, dir_fd=fd)
    if any(name.isdecimal() for name in os.listdir(fd)):
        (folder / RECORD_FILE).write_bytes(content)


def iterate_folders(root: Path, machines: Machines) -> Iterator[tuple[Path, Ref]]:
    """Every working folder below the root with its record; none of applications that are not loaded here."""
    for machine in machines.values():
        if machine.folder is None:
            for entry in _list_entries(root / machine.name):
                if find_id_problem(entry.name) is None and (entry.is_dir() or entry.is_symlink()):
                    yield entry, Ref(machine.name, entry.name)
    for top in sorted({machine.folder.top for machine in machines.values() if machine.folder is not None}):
        yield from _iterate_named_folders(root / top, MAX_DEPTH)


def _iterate_named_folders(folder: Path, depth: int) -> Iterator[tuple[Path, Ref]]:
    """Folders with a record file, the innermost first: a folder may contain those of other records."""
    for entry in _list_entries(folder):
        if entry.is_dir() and not entry.is_symlink() and not entry.name.isdecimal():
            if depth > 1:
                yield from _iterate_named_folders(entry, depth - 1)
            try:
                kind, _, id = (entry / RECORD_FILE).read_text().partition(" ")
            except OSError:
                continue
            if find_id_problem(id) is None:
                yield entry, Ref(kind, id)


def _list_entries(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir()) if folder.is_dir() and not folder.is_symlink() else []
    except FileNotFoundError:
        return []  # cleared meanwhile
