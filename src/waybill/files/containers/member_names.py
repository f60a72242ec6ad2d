"""Names inside a container that is packed: it can be unpacked on any disk, and no file replaces another.

A valid name is kept. In an invalid one (another program may have written the file) the invalid characters are
replaced. A name that some disks do not distinguish from another (`é` as one character and as two) gets a number before
its ending: `café.txt`, `café~2.txt`.
"""

from __future__ import annotations

import hashlib
import itertools
import re
from collections.abc import Iterator

from waybill.files import names
from waybill.transfer.partial_file import PARTIAL_FOLDER

_UNFIT = re.compile("[\x00-\x1f\x7f\\\\\ud800-\udfff\ufffe\uffff]")
_LONGEST = names.MAX_SEGMENT_BYTES - 12  # bytes; leaves space for a number before the ending
MAX_RENAMES_REPORTED = 20  # renamed files that are listed


class MemberNames:
    """The names of one container."""

    def __init__(self, top: str) -> None:
        self._top = _to_segment(top)
        self._names = names.FileNames()
        self.renames: list[tuple[str, str]] = []  # the first few

    def assign(self, path: str) -> str:
        """Return the name of the file in the container, below its top folder."""
        wanted = path if names.find_fault(path) is None else "/".join(_to_segment(part) for part in path.split("/"))
        assigned = next(name for name in _iter_candidates(wanted) if self._names.add_file(name) is None)
        if assigned != path and len(self.renames) < MAX_RENAMES_REPORTED:
            self.renames.append((path, assigned))
        return f"{self._top}/{assigned}"


def _to_segment(text: str) -> str:
    part = _UNFIT.sub("_", text)
    if part in ("", ".", "..", PARTIAL_FOLDER):
        return "_" + part
    if len(part.encode()) <= names.MAX_SEGMENT_BYTES:
        return part
    # The digest keeps two long names apart that differ only in what is cut off.
    stem, ending = _split(part)
    suffix = "~" + hashlib.sha256(part.encode()).hexdigest()[:8]
    return _cut(stem, _LONGEST - len((suffix + ending).encode())) + suffix + ending


def _iter_candidates(path: str) -> Iterator[str]:
    """Yield the name itself, then with numbers in its last segment, or in its first if that is the name of a file."""
    yield path
    folder, slash, last = path.rpartition("/")
    first, below, rest = path.partition("/")
    for number in itertools.count(2):
        yield f"{folder}{slash}{_add_number(last, number)}"
        yield f"{_add_number(first, number)}{below}{rest}"


def _add_number(segment: str, number: int) -> str:
    stem, ending = _split(segment)
    suffix = f"~{number}{ending}"
    return _cut(stem, names.MAX_SEGMENT_BYTES - len(suffix.encode())) + suffix


def _split(name: str) -> tuple[str, str]:
    """Return stem and ending; the ending is empty unless it is short."""
    stem, dot, ending = name.rpartition(".")
    return (stem, dot + ending) if stem and len(ending.encode()) <= 16 else (name, "")


def _cut(text: str, max_bytes: int) -> str:
    return text.encode()[: max(1, max_bytes)].decode(errors="ignore")
