"""Checking: what would be wrong with a payload, before it is submitted and before anything of it is fetched.

    a manifest     every complaint with its line; also each URL that may not be fetched, if it is said which may
    a container    every file that would be refused, with the reason; also a damaged container
    a bag          the same, and whether it holds what it says: it is unpacked into a scratch folder and read once
    a file         whether storage can keep it under its name: it is stored as it is

Nothing is kept, no store is needed.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from waybill.apps.ingest import bagit, checkm, containers, placing
from waybill.apps.ingest.service.reaching import unreachable
from waybill.apps.ingest.service.receiving import HEAD
from waybill.apps.ingest.service.refusals import TooLarge
from waybill.apps.ingest.service.submitting import guess
from waybill.apps.ingest.submission import Type
from waybill.transfer import Reach

MOST = 1000  # complaints that are told

_OF_TYPE = {
    Type.OBJECT: checkm.Kind.OBJECT,
    Type.MANIFESTS: checkm.Kind.MANIFESTS,
    Type.CONTAINERS: checkm.Kind.CONTAINERS,
    Type.FILES: checkm.Kind.FILES,
}


class Note(msgspec.Struct, frozen=True):
    """A complaint or a remark: of a line of a manifest, or of a file in a container; without either of the whole
    payload.
    """

    text: str
    line: int | None = None
    file: str | None = None

    def __str__(self) -> str:
        return f"Line {self.line}: {self.text}" if self.line else self.text


class Report(msgspec.Struct):
    """`good`: it would be taken as far as can be told without fetching what it names."""

    sort: Literal["manifest", "container", "bag", "file"]
    type: Type | None
    count: int = 0  # rows of a manifest, files of a container
    octets: int = 0  # of those, as far as their sizes are said
    complaints: list[Note] = []
    remarks: list[Note] = []

    @property
    def good(self) -> bool:
        return not self.complaints


def check_payload(
    path: Path,
    *,
    filename: str = "",
    type: Type | None = None,
    scratch: Path | None = None,
    limits: containers.Limits | None = None,
    came: Callable[[int], None] = lambda count: None,
    reach: Reach | None = None,
) -> Report:
    """`filename`: as it is to be submitted, if not by the file's own. `came` is told of bytes that were read, and may
    raise to stop. `reach`: where files may be fetched from; without it addresses are not looked at.
    """
    with path.open("rb") as file:
        head = file.read(HEAD)
    name = filename or path.name
    found = type or guess(name, head)
    if type is None and found is Type.FILE and "." not in name and containers.kind_of(head) is not None:
        found = Type.CONTAINER  # of what has no name, the bytes alone tell
    if found is Type.FILE:
        wrong = placing.fault(name)
        return Report("file", found, 1, path.stat().st_size, [Note(wrong, file=name)] if wrong else [])
    if found is Type.CONTAINER:
        return _container(path, scratch, limits or containers.Limits(), came)
    return _manifest(path, found, reach)


def _manifest(path: Path, type: Type | None, reach: Reach | None) -> Report:
    report = Report("manifest", type)
    try:
        with path.open("rb") as file:
            manifest = checkm.read(file, kind=_OF_TYPE[type] if type is not None else None)
    except checkm.BadManifest as error:
        report.complaints = [Note(each.text, line=each.line or None) for each in error.complaints[:MOST]]
        return report
    report.type = next(each for each, kind in _OF_TYPE.items() if kind is manifest.kind)
    report.count, report.octets = len(manifest.rows), sum(row.size or 0 for row in manifest.rows)
    report.remarks = [Note(each.text, line=each.line or None) for each in manifest.remarks[:MOST]]
    if manifest.kind in (checkm.Kind.OBJECT, checkm.Kind.FILES):
        report.complaints = [Note(wrong, line=row.line) for row in manifest.rows if (wrong := placing.fault(row.name))][
            :MOST
        ]
    for said in unreachable(manifest.rows, reach) if reach is not None else ():
        notes = report.complaints if said.refused else report.remarks
        if len(notes) < MOST:
            notes.append(Note(said.words, line=said.line or None))
    report.complaints.sort(key=lambda note: note.line or 0)
    return report


def _container(path: Path, scratch: Path | None, limits: containers.Limits, came: Callable[[int], None]) -> Report:
    report, is_bag = Report("container", Type.CONTAINER), False
    try:
        for member in containers.look(path, limits):
            report.count, report.octets = report.count + 1, report.octets + member.size
            is_bag = is_bag or member.name == "bagit.txt" or member.name.split("/")[1:] == ["bagit.txt"]
            _take_fault(report, member.name, placing.fault(member.name))
            came(0)
        if is_bag:
            _bag(report, path, scratch, limits, came)
    except containers.BadContainer as error:
        report.complaints = [*_notes(error.complaints), *report.complaints][:MOST]
    return report


def _take_fault(report: Report, name: str, wrong: str | None) -> None:
    if wrong and len(report.complaints) < MOST:
        report.complaints.append(Note(wrong, file=name))


def _bag(
    report: Report, path: Path, scratch: Path | None, limits: containers.Limits, came: Callable[[int], None]
) -> None:
    if scratch is not None:
        scratch.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="check-", dir=scratch) as folder:
        unpacked = [file.name for file in containers.unpack(path, Path(folder), limits, came=came)]
        bag = bagit.find(Path(folder))
        if bag is None:
            return  # a bagit.txt that lies about: the container is taken as one
        report.sort = "bag"
        found = bagit.validate(bag, came=came)
        report.complaints, report.remarks = [*_notes(found.problems), *report.complaints][:MOST], _notes(found.remarks)
        top = "" if bag == Path(folder) else f"{bag.name}/"
        for name in unpacked:
            if placing.fault(name) is None:  # else it was told
                _take_fault(report, name, placing.fault_of_bag(top, name))


def _notes(said: Sequence[containers.Complaint | bagit.Problem]) -> list[Note]:
    return [Note(each.text, file=each.name or None) for each in said[:MOST]]


def at_most(octets: int) -> Callable[[int], None]:
    """A `came` that stops the look at a container which unpacks to more: for a server, whose disk is not the
    depositor's.
    """
    left = octets

    def came(count: int) -> None:
        nonlocal left
        left -= count
        if left < 0:
            raise TooLarge(
                f"It unpacks to more than {octets:,} bytes, the most that is checked here: check it on your own machine."
            )

    return came
