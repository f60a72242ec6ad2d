"""The rows of a manifest, checked cell by cell, and which rows of a batch belong to the same object.

Rows belong together if they share an ARK or a local id, directly or through other rows, or if their local ids are known
to belong to one ARK. They become versions of one object in the order of their lines.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from urllib.parse import unquote, urlsplit

import msgspec

from waybill.apps.ingest.identifiers.noid import find_ark_fault
from waybill.apps.ingest.submission import MAX_LOCAL_ID_LENGTH, MAX_LOCAL_IDS
from waybill.digests import normalize_digests
from waybill.errors import FormatError, InputError
from waybill.files import names
from waybill.files.containers import CONTAINER_ENDINGS

_MAX_SIZE = 2**63 - 1
_NUMBER = re.compile("[0-9]{1,19}")
_UNFIT_IN_URL = re.compile(r"[\x00-\x20\x7f<>\"\\]")

ObjectName = tuple[str, str]  # "ark" or "local", and the name: an ARK that is used as a local id is another name


class ManifestKind(StrEnum):
    """The kind of a manifest: the last part of its profile."""

    OBJECT = "mrt-ingest-manifest"  #: the files of one object
    MANIFESTS = "mrt-batch-manifest"  #: objects, each with its own manifest
    CONTAINERS = "mrt-container-batch-manifest"  #: objects, each a container
    FILES = "mrt-single-file-batch-manifest"  #: objects, each one file


_FILE_COLUMNS = ("fileUrl", "hashAlgorithm", "hashValue", "fileSize", "fileLastModified", "fileName")
_OBJECT_COLUMNS = ("primaryIdentifier", "localIdentifier", "creator", "title", "date")


def columns_of(kind: ManifestKind) -> tuple[str, ...]:
    """Return the names of the columns, in order."""
    return (*_FILE_COLUMNS, "mimeType") if kind is ManifestKind.OBJECT else (*_FILE_COLUMNS, *_OBJECT_COLUMNS)


class ManifestComplaint(msgspec.Struct, frozen=True, order=True):
    """A complaint about, or a remark on, one line; line 0 is the whole manifest."""

    line: int
    text: str

    def __str__(self) -> str:
        return f"Line {self.line}: {self.text}" if self.line else self.text


class BadManifest(FormatError):
    """The manifest has faults."""

    code = "bad-manifest"

    def __init__(self, complaints: Sequence[ManifestComplaint]) -> None:
        more = f" (and {len(complaints) - 1} more complaints)" if len(complaints) > 1 else ""
        super().__init__(f"{complaints[0]}{more}")
        self.complaints = list(complaints)


class ManifestRow(msgspec.Struct, frozen=True):
    """One file of an object, or one object of a batch. Missing values are empty, or None."""

    line: int
    url: str
    name: str = ""  # may be empty in a batch of manifests or containers
    algorithm: str = ""  # as `waybill.digests` names it
    digest: str = ""  # lower-case hex
    size: int | None = None
    modified: str = ""  # as written
    mime: str = ""
    primary_id: str = ""
    local_ids: tuple[str, ...] = ()
    creator: str = ""
    title: str = ""
    date: str = ""
    follows: tuple[int, ...] = ()  # of a batch: earlier lines of the same object, the last of each group

    @property
    def digests(self) -> dict[str, str]:
        return {self.algorithm: self.digest} if self.algorithm else {}


class CheckmManifest(msgspec.Struct, frozen=True):
    """A manifest without faults."""

    kind: ManifestKind
    rows: list[ManifestRow]
    remarks: list[ManifestComplaint]


def read_row(kind: ManifestKind, line: int, cells: Sequence[str]) -> tuple[ManifestRow, list[str]]:
    """Return the row and its complaints; only a row without complaints may be used."""
    complaints: list[str] = []
    columns = columns_of(kind)
    if any(cells[len(columns) :]):
        complaints.append(
            f"There are {len(cells)} columns, but a manifest of this kind has {len(columns)}; write a | inside a value as %7C."
        )
    values = dict(zip(columns, cells, strict=False))
    url = values.get("fileUrl", "")
    complaints.extend(_find_url_faults(url))
    algorithm, digest = _parse_digest(values.get("hashAlgorithm", ""), values.get("hashValue", ""), complaints)
    row = ManifestRow(
        line=line,
        url=url,
        name=_parse_name(kind, values.get("fileName", ""), url, complaints),
        algorithm=algorithm,
        digest=digest,
        size=_parse_size(values.get("fileSize", ""), complaints),
        modified="" if values.get("fileLastModified") == "-" else values.get("fileLastModified", ""),
        mime=values.get("mimeType", ""),
        primary_id=values.get("primaryIdentifier", ""),
        local_ids=_parse_local_ids(values.get("localIdentifier", ""), complaints),
        creator=values.get("creator", ""),
        title=values.get("title", ""),
        date=values.get("date", ""),
    )
    if row.primary_id and (fault := find_ark_fault(row.primary_id)):
        complaints.append(fault)
    return row, complaints


def _find_url_faults(url: str) -> list[str]:
    if not url:
        return ["The URL is missing: it is the first column."]
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        return [f"{names.quote_text(url)} is not a URL."]
    if parts.scheme not in ("http", "https"):
        return [f"{names.quote_text(url)} cannot be fetched: only http and https URLs can."]
    if _UNFIT_IN_URL.search(url):
        return [
            f"{names.quote_text(url)} is not a URL: spaces and special characters are written with %, a space as %20."
        ]
    if not host:
        return [f"{names.quote_text(url)} names no host."]
    if "@" in parts.netloc:
        return [f"The URL at {names.quote_text(host)} contains a user name or password: remove them from the manifest."]
    return []


def _parse_digest(algorithm: str, value: str, complaints: list[str]) -> tuple[str, str]:
    if not algorithm and not value:
        return "", ""
    if not algorithm or not value:
        complaints.append(f"The hash {'algorithm' if value else 'value'} is missing: give both, or neither.")
        return "", ""
    try:
        return normalize_digests({algorithm: value}).popitem()
    except InputError as error:
        complaints.append(str(error))
        return "", ""


def _parse_size(text: str, complaints: list[str]) -> int | None:
    if not text:
        return None
    if not _NUMBER.fullmatch(text) or int(text) > _MAX_SIZE:
        complaints.append(f"{names.quote_text(text)} is not a size: write the number of bytes in digits.")
        return None
    return int(text)


def _parse_name(kind: ManifestKind, name_cell: str, url: str, complaints: list[str]) -> str:
    """Return the name, or the last part of the URL; a batch of manifests or containers needs none."""
    name = name_cell or _name_from_url(url)
    fault = names.find_fault(name)
    if fault and (name_cell or kind in (ManifestKind.OBJECT, ManifestKind.FILES)):
        complaints.append(
            fault
            if name_cell
            else "The file name is missing, and the URL does not end with one: give it in the sixth column."
        )
    if name_cell and kind is ManifestKind.MANIFESTS and not name_cell.lower().endswith(".checkm"):
        complaints.append(
            f"{names.quote_text(name_cell)} is not the name of a manifest: in a batch of manifests it ends with .checkm."
        )
    if name_cell and kind is ManifestKind.CONTAINERS and not _is_container_name(name_cell):
        complaints.append(
            f"{names.quote_text(name_cell)} is not the name of a container: it ends with .zip, .tar, .tar.gz or .tar.bz2."
        )
    return "" if fault else name


def _is_container_name(name: str) -> bool:
    """Merritt also accepts .bz2 alone. A name that is nothing but an ending is none."""
    return any(name.lower().endswith(ending) and len(name) > len(ending) for ending in (*CONTAINER_ENDINGS, ".bz2"))


def _name_from_url(url: str) -> str:
    try:
        return unquote(urlsplit(url).path.rpartition("/")[2], errors="strict")
    except ValueError:
        return ""


def _parse_local_ids(text: str, complaints: list[str]) -> tuple[str, ...]:
    """The limits are those of all deposits: each local id is a lock name, which stores limit."""
    local_ids = tuple(dict.fromkeys(each for part in text.split(";") if (each := part.strip())))
    if len(local_ids) > MAX_LOCAL_IDS:
        complaints.append(f"There are {len(local_ids)} local ids; an object has at most {MAX_LOCAL_IDS}.")
    for each in local_ids[:MAX_LOCAL_IDS]:
        if len(each) > MAX_LOCAL_ID_LENGTH:
            complaints.append(
                f"The local id {names.quote_text(each)} has {len(each)} characters; at most {MAX_LOCAL_ID_LENGTH} are allowed."
            )
    return local_ids


@dataclass(eq=False)
class _RowObject:
    names: set[ObjectName] = field(default_factory=set)
    line: int = 0  # the last line that names it


class RowObjects:
    def __init__(self) -> None:
        self._by_name: dict[ObjectName, _RowObject] = {}

    def add(
        self, line: int, primary_id: str, local_ids: Sequence[str], known_arks: Iterable[str] = ()
    ) -> dict[int, str]:
        """Add a row; return the earlier lines of its object, each with a shared name. Where the row joins objects that
        were separate until now, the last line of each is returned. `known_arks`: the ARKs of its local ids.
        """
        arks = dict.fromkeys((*([primary_id] if primary_id else []), *known_arks))
        row_names = [*(("ark", ark) for ark in arks), *(("local", local) for local in local_ids)]
        above: dict[int, str] = {}
        known: list[_RowObject] = []
        for name in row_names:
            if (found := self._by_name.get(name)) is not None and found not in known:
                known.append(found)
                above.setdefault(found.line, name[1])
        # the smaller objects are merged into the largest
        merged = max(known, key=lambda each: len(each.names), default=_RowObject())
        for other in known:
            if other is not merged:
                self._by_name.update(dict.fromkeys(other.names, merged))
                merged.names |= other.names
        self._by_name.update(dict.fromkeys(row_names, merged))
        merged.names.update(row_names)
        merged.line = line
        return above


def link_rows(rows: Sequence[ManifestRow], ark_of: Callable[[str], str | None]) -> Iterator[tuple[ManifestRow, str]]:
    """Yield the rows of a batch with the lines that each follows, and the ARK by which it follows more lines than the
    manifest alone says.

    `ark_of` returns the object that a local id belongs to; it is called once for each local id.
    """
    objects = RowObjects()
    known: dict[str, str | None] = {}
    for row in rows:
        for local in row.local_ids if len(rows) > 1 else ():
            if local not in known:
                known[local] = ark_of(local)
        known_arks = [ark for local in row.local_ids if (ark := known.get(local))]
        above = objects.add(row.line, row.primary_id, row.local_ids, known_arks)
        more = next((above[line] for line in above if line not in row.follows), "")
        yield (msgspec.structs.replace(row, follows=tuple(above)) if tuple(above) != row.follows else row), more
