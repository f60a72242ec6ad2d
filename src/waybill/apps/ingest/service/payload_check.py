"""Checks a payload before it is submitted, and before anything that it names is fetched.

    a manifest     every complaint with its line; also each URL that may not be fetched, if an address policy is given
    a container    every file that would be refused, with the reason; also a damaged container
    a bag          the same, and whether the bag is valid: it is unpacked into a scratch folder and read once
    a file         whether storage can keep it under its name

Nothing is stored, and no store is needed.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import httpx2
import msgspec

from waybill.apps.ingest import object_paths
from waybill.apps.ingest.formats import bagit, checkm
from waybill.apps.ingest.formats.checkm import ManifestRow
from waybill.apps.ingest.service.deposits import guess_payload_type
from waybill.apps.ingest.submission import PayloadType
from waybill.errors import InputError
from waybill.files import containers, names
from waybill.files.staged_uploads import HEAD_BYTES
from waybill.transfer import AddressPolicy, TransferError

MAX_COMPLAINTS = 1000  # complaints that the report lists
LOOKUP_SECONDS = 10.0  # seconds after which no more host names are looked up

_MANIFEST_KINDS = {
    PayloadType.OBJECT: checkm.ManifestKind.OBJECT,
    PayloadType.MANIFESTS: checkm.ManifestKind.MANIFESTS,
    PayloadType.CONTAINERS: checkm.ManifestKind.CONTAINERS,
    PayloadType.FILES: checkm.ManifestKind.FILES,
}


class PayloadRemark(msgspec.Struct, frozen=True):
    """A complaint or a remark: on a line of a manifest, on a file in a container, or on the whole payload."""

    text: str
    line: int | None = None
    file: str | None = None

    def __str__(self) -> str:
        return f"Line {self.line}: {self.text}" if self.line else self.text


class PayloadCheckReport(msgspec.Struct):
    """`is_good`: the payload would be accepted, as far as can be known without fetching what it names."""

    format: Literal["manifest", "container", "bag", "file"]
    type: PayloadType | None
    count: int = 0  # rows of a manifest, files of a container
    total_bytes: int = 0  # of those whose sizes are known
    complaints: list[PayloadRemark] = []
    remarks: list[PayloadRemark] = []

    @property
    def is_good(self) -> bool:
        return not self.complaints


def check_payload(
    path: Path,
    *,
    filename: str = "",
    payload_type: PayloadType | None = None,
    scratch: Path | None = None,
    limits: containers.ContainerLimits | None = None,
    on_bytes: Callable[[int], None] = lambda count: None,
    address_policy: AddressPolicy | None = None,
) -> PayloadCheckReport:
    """`filename`: the name for the submission, if not that of the file. `on_bytes` gets the number of bytes read, and may
    raise to stop. `address_policy`: where files may be fetched from; without it addresses are not checked.
    """
    with path.open("rb") as file:
        head = file.read(HEAD_BYTES)
    name = filename or path.name
    decided_type = payload_type or guess_payload_type(name, head)
    if (
        payload_type is None
        and decided_type is PayloadType.FILE
        and "." not in name
        and containers.kind_of(head) is not None
    ):
        decided_type = PayloadType.CONTAINER  # a payload without an extension is recognized by its bytes alone
    if decided_type is PayloadType.FILE:
        fault = object_paths.find_fault(name)
        return PayloadCheckReport(
            "file", decided_type, 1, path.stat().st_size, [PayloadRemark(fault, file=name)] if fault else []
        )
    if decided_type is PayloadType.CONTAINER:
        return _check_container(path, scratch, limits or containers.ContainerLimits(), on_bytes)
    return _check_manifest(path, decided_type, address_policy)


def _check_manifest(
    path: Path, payload_type: PayloadType | None, address_policy: AddressPolicy | None
) -> PayloadCheckReport:
    report = PayloadCheckReport("manifest", payload_type)
    try:
        with path.open("rb") as file:
            manifest = checkm.read_manifest(
                file, kind=_MANIFEST_KINDS[payload_type] if payload_type is not None else None
            )
    except checkm.BadManifest as error:
        report.complaints = [
            PayloadRemark(each.text, line=each.line or None) for each in error.complaints[:MAX_COMPLAINTS]
        ]
        return report
    report.type = next(each for each, kind in _MANIFEST_KINDS.items() if kind is manifest.kind)
    report.count, report.total_bytes = len(manifest.rows), sum(row.size or 0 for row in manifest.rows)
    report.remarks = [PayloadRemark(each.text, line=each.line or None) for each in manifest.remarks[:MAX_COMPLAINTS]]
    if manifest.kind in (checkm.ManifestKind.OBJECT, checkm.ManifestKind.FILES):
        report.complaints = [
            PayloadRemark(wrong, line=row.line) for row in manifest.rows if (wrong := object_paths.find_fault(row.name))
        ][:MAX_COMPLAINTS]
    for row in find_unreachable_rows(manifest.rows, address_policy) if address_policy is not None else ():
        notes = report.complaints if row.is_refused else report.remarks
        if len(notes) < MAX_COMPLAINTS:
            notes.append(PayloadRemark(row.text, line=row.line or None))
    report.complaints.sort(key=lambda note: note.line or 0)
    return report


class RowReachability(NamedTuple):
    """A row (line 0: all rows that follow) that would be refused, or a remark on it."""

    line: int
    text: str
    is_refused: bool


def find_unreachable_rows(
    rows: Iterable[ManifestRow], address_policy: AddressPolicy, clock: Callable[[], float] = time.monotonic
) -> Iterator[RowReachability]:
    """The rows whose URLs may not be fetched, in their order; each host is looked up once."""
    results: dict[tuple[str, str, int | None], TransferError | None] = {}
    until = clock() + LOOKUP_SECONDS
    for row in rows:
        try:
            url = httpx2.URL(row.url)
        except httpx2.InvalidURL as error:
            yield RowReachability(row.line, f"{names.quote_text(row.url)} is not a URL: {error}.", True)
            continue
        host = (url.scheme, url.host, url.port)
        if host not in results:
            if clock() > until:
                yield RowReachability(
                    0, f"From line {row.line} on no more hosts were looked up: the name server is slow.", False
                )
                return
            results[host] = fault = _look_up_host(address_policy, url)
            if fault is not None and fault.is_retryable:  # once: the name server may only be unavailable for a moment
                yield RowReachability(row.line, str(fault), False)
        fault = results[host]
        if fault is not None and not fault.is_retryable:
            yield RowReachability(row.line, f"It would not be fetched. {fault}", True)


def _look_up_host(address_policy: AddressPolicy, url: httpx2.URL) -> TransferError | None:
    try:
        address_policy.resolve_allowed(url)
    except TransferError as error:
        return error
    return None


def _check_container(
    path: Path, scratch: Path | None, limits: containers.ContainerLimits, on_bytes: Callable[[int], None]
) -> PayloadCheckReport:
    report, is_bag = PayloadCheckReport("container", PayloadType.CONTAINER), False
    try:
        for member in containers.list_members(path, limits):
            report.count, report.total_bytes = report.count + 1, report.total_bytes + member.size
            is_bag = is_bag or member.name == "bagit.txt" or member.name.split("/")[1:] == ["bagit.txt"]
            _add_fault(report, member.name, object_paths.find_fault(member.name))
            on_bytes(0)
        if is_bag:
            _check_bag(report, path, scratch, limits, on_bytes)
    except containers.BadContainer as error:
        report.complaints = [*_remarks_of(error.complaints), *report.complaints][:MAX_COMPLAINTS]
    return report


def _add_fault(report: PayloadCheckReport, name: str, fault: str | None) -> None:
    if fault and len(report.complaints) < MAX_COMPLAINTS:
        report.complaints.append(PayloadRemark(fault, file=name))


def _check_bag(
    report: PayloadCheckReport,
    path: Path,
    scratch: Path | None,
    limits: containers.ContainerLimits,
    on_bytes: Callable[[int], None],
) -> None:
    if scratch is not None:
        scratch.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="check-", dir=scratch) as folder:
        unpacked = [file.name for file in containers.unpack(path, Path(folder), limits, on_bytes=on_bytes)]
        bag = bagit.find_bag(Path(folder))
        if bag is None:
            return  # a stray bagit.txt: the container is no bag
        report.format = "bag"
        validation = bagit.validate_bag(bag, on_bytes=on_bytes)
        report.complaints, report.remarks = (
            [*_remarks_of(validation.problems), *report.complaints][:MAX_COMPLAINTS],
            _remarks_of(validation.remarks),
        )
        top = "" if bag == Path(folder) else f"{bag.name}/"
        for name in unpacked:
            if object_paths.find_fault(name) is None:  # otherwise it was reported already
                _add_fault(report, name, object_paths.find_bag_fault(top, name))


def _remarks_of(complaints: Sequence[containers.ContainerComplaint | bagit.BagProblem]) -> list[PayloadRemark]:
    return [PayloadRemark(each.text, file=each.name or None) for each in complaints[:MAX_COMPLAINTS]]


def limit_bytes(max_bytes: int) -> Callable[[int], None]:
    """An `on_bytes` that stops the check of a container which unpacks to more: for a server, whose disk is not the
    depositor's.
    """
    left = max_bytes

    def count_bytes(count: int) -> None:
        nonlocal left
        left -= count
        if left < 0:
            raise InputError(
                f"It unpacks to more than {max_bytes:,} bytes, the most that is checked here: check it on your own machine.",
                code="too-large",
            )

    return count_bytes
