"""From a deposit to the files of the version it will be, before anything is written.

Refused here: paths that are none, or that get in each other's way; the same path twice; a deletion of what is not
there; an update of an object that another program keeps in a way of its own.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

from waybill import manifests
from waybill.apps.ingest.storage.holding import Held, stored_in
from waybill.apps.ingest.storage.protocol import MANIFEST, Deposit, NoSuchFile, NotStorable, NotStored
from waybill.manifests import Entry
from waybill.objects import Objects

_SHA256 = re.compile("[0-9a-f]{64}")


class Wanted(NamedTuple):
    """A file of the version: `source` is empty for one that is kept from before."""

    sha256: bytes
    size: int
    mime: str
    source: str = ""


def planned(objects: Objects, deposit: Deposit, held: Held | None) -> dict[str, Wanted]:
    """The files of the version by their paths, without its manifest."""
    if not deposit.object or not deposit.request.strip() or not deposit.request.isprintable():
        raise NotStorable("A deposit names its object, and its request in one line of text.")
    if deposit.mode == "add" and deposit.deletions:
        raise NotStorable("A deposit in mode add says all that the version has: deletions belong to mode update.")
    if held is not None and (
        held.inventory.contentDirectory != "content" or held.inventory.head != f"v{held.inventory.number}"
    ):
        raise NotStorable(
            f"{held.inventory.id} was written by another program, with folders named in another way: it can only be read."
        )
    if held is not None and not all(content.sha256 for content in held.inventory.contents()):
        raise NotStorable(
            f"{held.inventory.id} was written by another program, without SHA-256 in its fixity block: it can only be read."
        )
    new: dict[str, Wanted] = {}
    for file in deposit.files:
        check_path(file.path)
        if file.path in new:
            raise NotStorable(f"{file.path} is in the deposit twice.")
        if not _SHA256.fullmatch(file.sha256) or file.size < 0:
            raise NotStorable(f"{file.path} needs its size and its SHA-256 in lower-case hex.")
        new[file.path] = Wanted(bytes.fromhex(file.sha256), file.size, sys.intern(file.mime), file.source)
    files = dict(_kept(objects, deposit, held, new)) if deposit.mode == "update" else {}
    files.update(new)
    if not files:
        raise NotStorable("A version needs at least one file.")
    _check_apart(files)
    return files


def check_path(path: str) -> None:
    try:
        path.encode()
    except UnicodeEncodeError:
        raise NotStorable(
            f"{path!a} is no path of a file: it holds half of a surrogate pair, which UTF-8 cannot express."
        ) from None
    if path == MANIFEST:
        raise NotStorable(f"{MANIFEST} is written by the storage itself.")
    if "\0" in path or any(segment in ("", ".", "..") for segment in path.split("/")):
        raise NotStorable(
            f"{path!r} is no path of a file: it holds a zero byte, or a segment of it is empty, '.' or '..'."
        )


def _kept(
    objects: Objects, deposit: Deposit, held: Held | None, new: dict[str, Wanted]
) -> Iterator[tuple[str, Wanted]]:
    """What the newest version has, without what is replaced or deleted."""
    gone = set(deposit.deletions)
    for path, wanted in files_of(objects, held) if held else ():
        if path in gone:
            gone.discard(path)
        elif path not in new:
            yield path, wanted
    if gone:
        more = f" and {len(gone) - 1} more are" if len(gone) > 1 else " is"
        raise NoSuchFile(
            f"{min(gone)!r}{more} to be deleted, and {deposit.object} has no such file. Nothing of the update was stored."
        )


def files_of(objects: Objects, held: Held) -> Iterator[tuple[str, Wanted]]:
    """The files of the newest version, from its manifest; or from the inventory, if another program wrote it."""
    try:
        stored = stored_in(objects, held, held.inventory.number)
    except NotStored:
        yield from _files_of_others(objects, held)
        return
    with manifests.read(objects, f"{held.root}/{stored.place}") as reader:
        for entry in reader:
            yield (
                entry.uri,
                Wanted(bytes.fromhex(entry.sha256), entry.size, sys.intern(str(entry.extra.get("mime", "")))),
            )


def _files_of_others(objects: Objects, held: Held) -> Iterator[tuple[str, Wanted]]:
    by_digest = {content.digest: content for content in held.inventory.contents()}
    for text, paths in held.inventory.block(held.inventory.number).state.items():
        content = by_digest[bytes.fromhex(text)]
        if not content.sha256:
            raise NotStorable(
                f"{held.inventory.id} was written by another program, without SHA-256 in its fixity block: it can only be read."
            )
        size = objects.head(f"{held.root}/{content.place}").size
        for path in paths:
            yield path, Wanted(content.sha256, size, "")


def _check_apart(files: dict[str, Wanted]) -> None:
    """No file may be a folder of another: OCFL forbids it, and nobody could unpack it."""
    for path in files:
        at = path.find("/")
        while at >= 0:
            if path[:at] in files or path[:at] == MANIFEST:
                raise NotStorable(f"{path[:at]!r} cannot be a file and the folder of {path!r}.")
            at = path.find("/", at + 1)
        if MANIFEST.startswith(f"{path}/"):
            raise NotStorable(f"{path!r} cannot be a file: it is the folder of {MANIFEST}.")


def entries(files: dict[str, Wanted], places: dict[bytes, str]) -> Iterator[Entry]:
    """The lines of the version's manifest, in the order of the paths."""
    for path in sorted(files):
        wanted = files[path]
        extra: dict[str, Any] = {"place": places[wanted.sha256]}
        if wanted.mime:
            extra["mime"] = wanted.mime
        yield Entry(path, wanted.size, wanted.sha256.hex(), extra)
