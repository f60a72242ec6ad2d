"""Keeping: what was said of an object so far, and an update keeps where nobody says otherwise.

    the inventory             who, what, when, and the local ids of the owner
    the version before        its system/mrt-dc.xml; and those of the depositor's own descriptions that it has and the update leaves there

Not kept are the papers of the deposit before: its list of deletions, its list of files, and what a bag said of itself
(mrt-bag/). They speak of what came then, and of the files of the update they would say something wrong; the version
that they came with has them.

The version before is read from storage, where it is before it is recorded. A second run finds the same one, not the one
that the first has made.
"""

from __future__ import annotations

import hashlib
from collections.abc import Container, Mapping, Sequence
from itertools import takewhile

from waybill.apps.ingest.anvl import Erc
from waybill.apps.ingest.describing import DC, DELETE, LARGEST, PRODUCER, READ, SYSTEM, BadDescription, Kept, told_by
from waybill.apps.ingest.dublincore import BadDublinCore
from waybill.apps.ingest.dublincore import read as read_dublin_core
from waybill.apps.ingest.outfit import Outfit
from waybill.apps.ingest.placing import TAGS
from waybill.apps.ingest.steps.corroborating import LISTED
from waybill.apps.ingest.storage import NotStored, StorageService, Unsound
from waybill.manifests import Entry, ManifestError
from waybill.objects import NotFound
from waybill.step import Fail

_OWN = frozenset(PRODUCER + name for name in READ - {DELETE})  # what was deleted once is not deleted again
_SYSTEM_DC = SYSTEM + DC
_READ = _OWN | {_SYSTEM_DC}  # no deposit was described by a longer one than LARGEST
_PAPERS = frozenset({PRODUCER + DELETE, PRODUCER + LISTED})
_TAGS = f"{PRODUCER}{TAGS}/"
_DECLARATION = _TAGS + "bagit.txt"


def kept_of(outfit: Outfit, ark: str, owner: str, request: str, gone: Container[str]) -> Kept:
    """`request`: of the update itself; `gone`: the files that it replaces or deletes, by their paths in the object."""
    row = outfit.inventory.object(ark)
    erc = Erc(who=row["creator"], what=row["title"], when=row["date"]) if row is not None else Erc()
    found = _before(outfit.storage, ark, request, gone)
    files = {
        entry.uri: _bytes(outfit.storage, ark, entry) for entry in found if entry.uri in _READ and entry.size <= LARGEST
    }
    try:
        told = told_by({path.removeprefix(PRODUCER): data for path, data in files.items() if path in _OWN})
    except BadDescription as error:
        raise Fail(
            f"{error} It is in {ark}, and the update leaves it there: send another one, or delete it."
        ) from error
    return Kept(
        erc, outfit.inventory.local_ids(ark, owner), _dublin_core(files), told, _papers([entry.uri for entry in found])
    )


def _papers(paths: Sequence[str]) -> tuple[str, ...]:
    is_bag = _DECLARATION in paths  # else the folder is only called so
    return tuple(path for path in paths if path in _PAPERS or (is_bag and path.startswith(_TAGS)))


def _dublin_core(files: Mapping[str, bytes]) -> dict[str, list[str]]:
    try:
        return read_dublin_core(files[_SYSTEM_DC]) if _SYSTEM_DC in files else {}
    except BadDublinCore:
        return {}  # another program's: the depositor could not mend it, and ours takes its place


def _before(storage: StorageService, ark: str, request: str, gone: Container[str]) -> list[Entry]:
    """What the version before has of descriptions that are not gone, and of papers."""
    try:
        before = list(takewhile(lambda version: version.request != request, storage.versions(ark)))
        if not before:
            return []
        stored = storage.stored(ark, before[-1].number)
        with storage.manifest(stored) as reader:
            return [entry for entry in reader if _is_wanted(entry.uri, gone)]
    except NotStored:
        return []  # it is not there yet; or another service keeps it, or another program wrote it
    except (ManifestError, NotFound, Unsound) as error:
        raise Fail(f"The manifest of the version of {ark} before this one cannot be read: {error}") from error


def _is_wanted(path: str, gone: Container[str]) -> bool:
    return path == _SYSTEM_DC or path in _PAPERS or path.startswith(_TAGS) or (path in _OWN and path not in gone)


def _bytes(storage: StorageService, ark: str, entry: Entry) -> bytes:
    try:
        with storage.read(ark, str(entry.extra.get("place", ""))) as body:
            data = body.read()
    except NotFound:
        data = b""
    if (len(data), hashlib.sha256(data).hexdigest()) != (entry.size, entry.sha256):
        raise Fail(f"{entry.uri} of {ark} is damaged in storage: `waybill ingest audit {ark}` says how.")
    return data
