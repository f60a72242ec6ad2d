"""Unpacks a fetched container into the files of the object.

    1. Its members are listed, nothing is unpacked: names that storage cannot keep, links, bombs, and how much space all of it needs.
    2. It is unpacked into a folder of this attempt, each file with its SHA-256.
    3. If it holds a bag, the bag is validated. Its payload (`data/...`) becomes the object's files; everything beside the payload is kept
       under `mrt-bag/`, so that the bag can be restored: data/ from the object's files, the rest from there.

Every fault is final: only a new submission with another container helps.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from waybill.apps.ingest import object_paths
from waybill.apps.ingest.formats import bagit
from waybill.apps.ingest.job_refusal import SubmissionRefused, join_first_reasons
from waybill.apps.ingest.object_paths import BAG_TAGS
from waybill.files import containers
from waybill.files.containers import BadContainer, UnpackedFile
from waybill.step import StepContext

_MAX_REASONS = 1000

_encode = msgspec.json.Encoder().encode
_decode_file = msgspec.json.Decoder(UnpackedFile).decode


def measure_unpacked(ctx: StepContext, path: Path) -> int:
    """The bytes of all its files; raises SubmissionRefused with a reason for each that cannot be stored."""
    total = 0
    faults: list[str] = []
    try:
        for member in containers.list_members(path, on_bytes=lambda count: ctx.check()):
            ctx.check()
            total += member.size
            if len(faults) < _MAX_REASONS and (fault := object_paths.find_fault(member.name)):
                faults.append(fault)
    except BadContainer as error:
        raise _make_refusal(error) from None
    if faults:
        raise SubmissionRefused(f"The container is not taken: {join_first_reasons(faults)}", faults)
    return total


class UnpackedContainer:
    """The files of an unpacked container; listed in a file, since there may be a million."""

    def __init__(self, listing: Path, prefix: str | None) -> None:
        """`prefix`: the folder of the bag in the container; None if there is no bag."""
        self._listing, self._prefix = listing, prefix

    def read_files(self) -> Iterator[UnpackedFile]:
        """The files, by their names in the object."""
        for file in self._read_listing():
            name = file.name if self._prefix is None else object_paths.bag_path_of(self._prefix, file.name)
            if name:
                yield msgspec.structs.replace(file, name=name)

    def find_faults(self) -> Iterator[str | None]:
        """For each file of a bag, why it cannot be stored; None if it can."""
        for file in self._read_listing():
            yield object_paths.find_bag_fault(self._prefix or "", file.name)

    def _read_listing(self) -> Iterator[UnpackedFile]:
        with open(self._listing, "rb") as lines:
            for line in lines:
                yield _decode_file(line)


def unpack_container(ctx: StepContext, path: Path, into: Path, on_bytes: Callable[[int], None]) -> UnpackedContainer:
    """Unpack the container so that its files are in `into`, which must not exist yet."""
    unpacked, listing = ctx.workdir / "unpacked", ctx.workdir / "unpacked.jsonl"
    unpacked.mkdir()

    def count_bytes(count: int) -> None:
        ctx.check()
        on_bytes(count)

    try:
        with open(listing, "wb") as lines:
            for file in containers.unpack(path, unpacked, on_bytes=count_bytes):
                lines.write(_encode(file) + b"\n")
    except BadContainer as error:
        raise _make_refusal(error) from None
    bag = bagit.find_bag(unpacked)
    if bag is None:
        os.rename(unpacked, into)
        return UnpackedContainer(listing, None)
    _validate_bag(ctx, bag)
    prefix = "" if bag == unpacked else f"{bag.name}/"
    container = UnpackedContainer(listing, prefix)
    _check_bag_names(ctx, container)
    os.rename(bag / "data", into)
    (into / BAG_TAGS).mkdir()
    for entry in list(os.scandir(bag)):
        os.rename(entry.path, into / BAG_TAGS / entry.name)
    return container


def _validate_bag(ctx: StepContext, bag: Path) -> None:
    report = bagit.validate_bag(bag, on_bytes=lambda count: ctx.check())
    if not report.is_valid:
        reasons = [str(problem) for problem in report.problems]
        raise SubmissionRefused(f"The bag is not valid: {join_first_reasons(reasons)}", reasons)
    for remark in report.remarks[:10]:
        ctx.log.info("remark on the bag: %s", remark)


def _check_bag_names(ctx: StepContext, container: UnpackedContainer) -> None:
    faults: list[str] = []
    for fault in container.find_faults():
        ctx.check()
        if fault and len(faults) < _MAX_REASONS:
            faults.append(fault)
    if faults:
        raise SubmissionRefused(f"The bag is not taken: {join_first_reasons(faults)}", faults)


def _make_refusal(error: BadContainer) -> SubmissionRefused:
    reasons = [str(each) for each in error.complaints]
    return SubmissionRefused(f"The container is not taken: {join_first_reasons(reasons)}", reasons)
