"""What came of an import from old queues: counts, and the first of what is to be said of single entries."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

KEPT = 100  # refusals and remarks of a report


class Note(msgspec.Struct, frozen=True):
    """What is to be said of one entry."""

    path: str
    words: str


class Imported(msgspec.Struct):
    """What came of an import. Of refusals and remarks the first are kept, and all are counted."""

    dry_run: bool = False
    entries: int = 0
    made: dict[str, int] = {}  # kind -> how many; in a dry run: would be made
    there: int = 0  # entries whose record was made by an earlier import
    states: dict[str, int] = {}  # "job Estimating" -> how many entries
    refused: int = 0
    refusals: list[Note] = []
    remarked: int = 0
    remarks: list[Note] = []
    gone: int = 0  # entries that were taken out of their queue meanwhile

    def refuse(self, path: str, words: str) -> None:
        self.refused += 1
        if len(self.refusals) < KEPT:
            self.refusals.append(Note(path, words))

    def remark(self, path: str, words: Iterable[str]) -> None:
        for each in words:
            self.remarked += 1
            if len(self.remarks) < KEPT:
                self.remarks.append(Note(path, each))

    def count(self, kind: str, repeated: bool) -> None:
        if repeated:
            self.there += 1
        else:
            self.made[kind] = self.made.get(kind, 0) + 1
