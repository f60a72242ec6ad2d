"""Rows: what one line of a manifest says of a file or an object, checked cell by cell."""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import StrEnum
from urllib.parse import unquote, urlsplit

import msgspec

from waybill.apps.ingest import names
from waybill.apps.ingest.noid import fault_of_ark
from waybill.apps.ingest.submission import LONGEST_LOCAL_ID, MOST_LOCAL_IDS
from waybill.digests import UnknownDigest, promised

_MOST = 2**63 - 1
_NUMBER = re.compile("[0-9]{1,19}")
_UNFIT = re.compile(r"[\x00-\x20\x7f<>\"\\]")
_CONTAINER = re.compile(r".+\.(zip|tar|tar\.gz|tgz|tar\.bz2|tbz2|bz2)", re.IGNORECASE | re.DOTALL)


class Kind(StrEnum):
    """Of what a manifest is, by the last part of its profile."""

    OBJECT = "mrt-ingest-manifest"  #: the files of one object
    MANIFESTS = "mrt-batch-manifest"  #: objects, each with a manifest of its own
    CONTAINERS = "mrt-container-batch-manifest"  #: objects, each a container
    FILES = "mrt-single-file-batch-manifest"  #: objects, each one file


_FILE = ("fileUrl", "hashAlgorithm", "hashValue", "fileSize", "fileLastModified", "fileName")
_OBJECT = ("primaryIdentifier", "localIdentifier", "creator", "title", "date")


def columns(kind: Kind) -> tuple[str, ...]:
    """The names of the columns, in their order."""
    return (*_FILE, "mimeType") if kind is Kind.OBJECT else (*_FILE, *_OBJECT)


class Complaint(msgspec.Struct, frozen=True, order=True):
    """What is wrong, or worth knowing, in one line; line 0 is the whole manifest."""

    line: int
    text: str

    def __str__(self) -> str:
        return f"Line {self.line}: {self.text}" if self.line else self.text


class BadManifest(Exception):
    """The manifest has faults."""

    permanent = True

    def __init__(self, complaints: Sequence[Complaint]) -> None:
        more = f" (and {len(complaints) - 1} more complaints)" if len(complaints) > 1 else ""
        super().__init__(f"{complaints[0]}{more}")
        self.complaints = list(complaints)


class Row(msgspec.Struct, frozen=True):
    """One file of an object, or one object of a batch. What the manifest does not say is empty, or None."""

    line: int
    url: str
    name: str = ""  # in a batch of manifests or containers it may be empty
    algorithm: str = ""  # as `waybill.digests` names it
    digest: str = ""  # lower-case hex
    size: int | None = None
    modified: str = ""  # as it was written
    mime: str = ""
    primary_id: str = ""
    local_ids: tuple[str, ...] = ()
    creator: str = ""
    title: str = ""
    date: str = ""
    follows: tuple[int, ...] = ()  # of a batch: the lines above that are for the same object, the last of them

    @property
    def digests(self) -> dict[str, str]:
        return {self.algorithm: self.digest} if self.algorithm else {}


class Manifest(msgspec.Struct, frozen=True):
    """A manifest without faults."""

    kind: Kind
    rows: list[Row]
    remarks: list[Complaint]


def read_row(kind: Kind, line: int, cells: Sequence[str]) -> tuple[Row, list[str]]:
    """The row, and what is wrong with it: only a row without complaints is to be used."""
    wrong: list[str] = []
    wanted = columns(kind)
    if any(cells[len(wanted) :]):
        wrong.append(
            f"There are {len(cells)} columns, and a manifest of this kind has {len(wanted)}; a | inside a value is written %7C."
        )
    said = dict(zip(wanted, cells, strict=False))
    url = said.get("fileUrl", "")
    wrong.extend(_faults_of_url(url))
    algorithm, digest = _digest(said.get("hashAlgorithm", ""), said.get("hashValue", ""), wrong)
    row = Row(
        line=line,
        url=url,
        name=_name(kind, said.get("fileName", ""), url, wrong),
        algorithm=algorithm,
        digest=digest,
        size=_size(said.get("fileSize", ""), wrong),
        modified="" if said.get("fileLastModified") == "-" else said.get("fileLastModified", ""),
        mime=said.get("mimeType", ""),
        primary_id=said.get("primaryIdentifier", ""),
        local_ids=_local_ids(said.get("localIdentifier", ""), wrong),
        creator=said.get("creator", ""),
        title=said.get("title", ""),
        date=said.get("date", ""),
    )
    if row.primary_id and (fault := fault_of_ark(row.primary_id)):
        wrong.append(fault)
    return row, wrong


def _faults_of_url(url: str) -> list[str]:
    if not url:
        return ["The URL is missing: it is the first column."]
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        return [f"{names.shown(url)} is not a URL."]
    if parts.scheme not in ("http", "https"):
        return [f"{names.shown(url)} cannot be fetched: only http and https URLs can."]
    if _UNFIT.search(url):
        return [f"{names.shown(url)} is not a URL: spaces and such are written with %, a space as %20."]
    if not host:
        return [f"{names.shown(url)} names no host."]
    if "@" in parts.netloc:
        return [f"The URL at {names.shown(host)} holds a user name or password: a manifest is no place for them."]
    return []


def _digest(algorithm: str, value: str, wrong: list[str]) -> tuple[str, str]:
    if not algorithm and not value:
        return "", ""
    if not algorithm or not value:
        wrong.append(f"The hash {'algorithm' if value else 'value'} is missing: give both, or neither.")
        return "", ""
    try:
        return promised({algorithm: value}).popitem()
    except UnknownDigest as error:
        wrong.append(str(error))
        return "", ""


def _size(text: str, wrong: list[str]) -> int | None:
    if not text:
        return None
    if not _NUMBER.fullmatch(text) or int(text) > _MOST:
        wrong.append(f"{names.shown(text)} is not a size: write the number of bytes in digits.")
        return None
    return int(text)


def _name(kind: Kind, said: str, url: str, wrong: list[str]) -> str:
    """The name, or the one that the URL ends with; a batch of manifests or containers does without."""
    name = said or _last_of(url)
    fault = names.fault(name)
    if fault and (said or kind in (Kind.OBJECT, Kind.FILES)):
        wrong.append(
            fault
            if said
            else "The file name is missing, and the URL does not end with one: give it in the sixth column."
        )
    if said and kind is Kind.MANIFESTS and not said.lower().endswith(".checkm"):
        wrong.append(
            f"{names.shown(said)} is not the name of a manifest: in a batch of manifests it ends with .checkm."
        )
    if said and kind is Kind.CONTAINERS and not _CONTAINER.fullmatch(said):
        wrong.append(
            f"{names.shown(said)} is not the name of a container: it ends with .zip, .tar, .tar.gz or .tar.bz2."
        )
    return "" if fault else name


def _last_of(url: str) -> str:
    try:
        return unquote(urlsplit(url).path.rpartition("/")[2], errors="strict")
    except ValueError:
        return ""


def _local_ids(text: str, wrong: list[str]) -> tuple[str, ...]:
    """As many and as long as those of any deposit: each is a key, and no store has keys of any length."""
    found = tuple(dict.fromkeys(each for part in text.split(";") if (each := part.strip())))
    if len(found) > MOST_LOCAL_IDS:
        wrong.append(f"There are {len(found)} local ids; an object has at most {MOST_LOCAL_IDS}.")
    for each in found[:MOST_LOCAL_IDS]:
        if len(each) > LONGEST_LOCAL_ID:
            wrong.append(
                f"The local id {names.shown(each)} has {len(each)} characters; at most {LONGEST_LOCAL_ID} are kept."
            )
    return found
