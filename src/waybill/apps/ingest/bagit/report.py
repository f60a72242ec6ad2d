"""Report: what a bag holds, and why it is not valid."""

from __future__ import annotations

import msgspec

from waybill.apps.ingest.bagit.tagfiles import Fetch


class Problem(msgspec.Struct, frozen=True):
    """Why the bag is not valid; `name` is the file it is about, from the bag's folder."""

    name: str
    text: str

    def __str__(self) -> str:
        return self.text


class Report(msgspec.Struct):
    version: str = ""
    problems: list[Problem] = []
    remarks: list[Problem] = []
    files: int = 0  # of the payload
    octets: int = 0  # of the payload
    info: list[tuple[str, str]] = []
    fetch: list[Fetch] = []

    @property
    def ok(self) -> bool:
        return not self.problems
