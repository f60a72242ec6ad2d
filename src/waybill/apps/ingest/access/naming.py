"""Names inside an archive: whatever an object's files are called, the archive can be unpacked on any disk and none
replaces another.

A name that is fit stays as it is. One that is not (another program may have written the object) has what is unfit
replaced; one that a disk could take for another (`é` as one character and as two) gets a number before its ending:
`café.txt`, `café~2.txt`.
"""

from __future__ import annotations

import hashlib
import itertools
import re
from collections.abc import Iterator

from waybill.apps.ingest import names

_UNFIT = re.compile("[\x00-\x1f\x7f\\\\\ud800-\udfff\ufffe\uffff]")
_LONGEST = names.LONGEST_SEGMENT - 12  # bytes; a number may come in front of the ending
FEW = 20  # names of which it is told what became of them


class Naming:
    """The names of one archive so far."""

    def __init__(self, top: str) -> None:
        self._top = _segment(top)
        self._names = names.Names()
        self.renamed: list[tuple[str, str]] = []  # the first few

    def name(self, path: str) -> str:
        """What the file is called in the archive, below its one folder."""
        wanted = path if names.fault(path) is None else "/".join(_segment(part) for part in path.split("/"))
        given = next(name for name in _candidates(wanted) if self._names.take(name) is None)
        if given != path and len(self.renamed) < FEW:
            self.renamed.append((path, given))
        return f"{self._top}/{given}"


def file_name(text: str) -> str:
    """A text, such as an ARK, as the name of a file or folder that every system takes."""
    return re.sub(r"[^A-Za-z0-9._-]+", "_", text).strip("._")[:100] or "object"


def _segment(text: str) -> str:
    part = _UNFIT.sub("_", text)
    if part in ("", ".", "..", names.UNFINISHED):
        return "_" + part
    if len(part.encode()) <= names.LONGEST_SEGMENT:
        return part
    # What is cut away stands in the digest, so that two long names that differ only there stay two names.
    stem, ending = _split(part)
    mark = "~" + hashlib.sha256(part.encode()).hexdigest()[:8]
    return _cut(stem, _LONGEST - len((mark + ending).encode())) + mark + ending


def _candidates(path: str) -> Iterator[str]:
    """The name itself; then with a number at its end, or at its beginning if it lies in what is a file."""
    yield path
    folder, slash, last = path.rpartition("/")
    first, below, rest = path.partition("/")
    for number in itertools.count(2):
        yield f"{folder}{slash}{_numbered(last, number)}"
        yield f"{_numbered(first, number)}{below}{rest}"


def _numbered(segment: str, number: int) -> str:
    stem, ending = _split(segment)
    mark = f"~{number}{ending}"
    return _cut(stem, names.LONGEST_SEGMENT - len(mark.encode())) + mark


def _split(name: str) -> tuple[str, str]:
    """The stem and the ending, if it has a short one."""
    stem, dot, ending = name.rpartition(".")
    return (stem, dot + ending) if stem and len(ending.encode()) <= 16 else (name, "")


def _cut(text: str, most: int) -> str:
    return text.encode()[: max(1, most)].decode(errors="ignore")
