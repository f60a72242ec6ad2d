"""Unwrapping: a container that was fetched becomes the files of the object.

    1. Its files are looked at, nothing is unpacked: names that storage cannot keep, links, bombs, and how much room all of it needs.
    2. It is unpacked into a folder of this attempt, each file with its SHA-256.
    3. If it holds a bag, the bag is validated. Its payload (`data/...`) becomes the object's files; everything beside the payload is kept
       under `mrt-bag/`, so that the bag can be put together again: data/ from the object's files, the rest from there.

Whatever is wrong is final: only another container can mend it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from waybill.apps.ingest import bagit, containers, placing
from waybill.apps.ingest.containers import BadContainer, File
from waybill.apps.ingest.placing import TAGS
from waybill.apps.ingest.steps.refusal import Unfit, gathered
from waybill.step import Context

_MOST = 1000  # reasons

_encode = msgspec.json.Encoder().encode
_file = msgspec.json.Decoder(File).decode


def unpacked_size(ctx: Context, path: Path) -> int:
    """How many bytes its files have together; Unfit with a reason for each that cannot be taken."""
    total = 0
    wrong: list[str] = []
    try:
        for member in containers.look(path, came=lambda count: ctx.check()):
            ctx.check()
            total += member.size
            if len(wrong) < _MOST and (fault := placing.fault(member.name)):
                wrong.append(fault)
    except BadContainer as error:
        raise _unfit(error) from None
    if wrong:
        raise Unfit(f"The container is not taken: {gathered(wrong)}", wrong)
    return total


class Unwrapped:
    """The files of a container, unpacked below `into`; listed in a file, since there may be a million."""

    def __init__(self, listing: Path, prefix: str | None) -> None:
        """`prefix`: of the names of a bag's files; None if there is no bag."""
        self._listing, self._prefix = listing, prefix

    def files(self) -> Iterator[File]:
        """By the names that they have in the object."""
        for file in self._listed():
            name = file.name if self._prefix is None else placing.of_bag(self._prefix, file.name)
            if name:
                yield msgspec.structs.replace(file, name=name)

    def faults(self) -> Iterator[str | None]:
        """Of each file of a bag, why it cannot be stored; None if it can."""
        for file in self._listed():
            yield placing.fault_of_bag(self._prefix or "", file.name)

    def _listed(self) -> Iterator[File]:
        with open(self._listing, "rb") as lines:
            for line in lines:
                yield _file(line)


def unwrap(ctx: Context, path: Path, into: Path, told: Callable[[int], None]) -> Unwrapped:
    """Unpack the container so that its files lie in `into`, which must not be there yet."""
    unpacked, listing = ctx.workdir / "unpacked", ctx.workdir / "unpacked.jsonl"
    unpacked.mkdir()

    def came(count: int) -> None:
        ctx.check()
        told(count)

    try:
        with open(listing, "wb") as lines:
            for file in containers.unpack(path, unpacked, came=came):
                lines.write(_encode(file) + b"\n")
    except BadContainer as error:
        raise _unfit(error) from None
    bag = bagit.find(unpacked)
    if bag is None:
        os.rename(unpacked, into)
        return Unwrapped(listing, None)
    _validate(ctx, bag)
    prefix = "" if bag == unpacked else f"{bag.name}/"
    found = Unwrapped(listing, prefix)
    _check_names(ctx, found)
    os.rename(bag / "data", into)
    (into / TAGS).mkdir()
    for entry in list(os.scandir(bag)):
        os.rename(entry.path, into / TAGS / entry.name)
    return found


def _validate(ctx: Context, bag: Path) -> None:
    report = bagit.validate(bag, came=lambda count: ctx.check())
    if not report.ok:
        reasons = [str(problem) for problem in report.problems]
        raise Unfit(f"The bag is not valid: {gathered(reasons)}", reasons)
    for remark in report.remarks[:10]:
        ctx.log.info("the bag is odd: %s", remark)


def _check_names(ctx: Context, found: Unwrapped) -> None:
    wrong: list[str] = []
    for fault in found.faults():
        ctx.check()
        if fault and len(wrong) < _MOST:
            wrong.append(fault)
    if wrong:
        raise Unfit(f"The bag is not taken: {gathered(wrong)}", wrong)


def _unfit(error: BadContainer) -> Unfit:
    reasons = [str(each) for each in error.complaints]
    return Unfit(f"The container is not taken: {gathered(reasons)}", reasons)
