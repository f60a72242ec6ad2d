"""Working folders of this host that no record needs, and records of this host whose working folder is not there.

A folder is needed while its record exists and is in a state that does not clear its files. A worker that died between
the commit and the clearing leaves one behind, and so does an action of a person's, which calls this duty on every host.
The other way round: a state that works on files of an earlier state finds none, and is led back to make them.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass

from waybill import rules
from waybill.duties.duty import Hand, ref_of
from waybill.record import Committed, Finding, Group, NotFound, Record, Ref
from waybill.rules import calls
from waybill.worker.folders import all_folders, clear_folder, folder_of, last_attempt

NO_RECORD = "folder without a record"
NO_FOLDER = "record without its folder"


@dataclass(frozen=True)
class Folders:
    age: float = 3600.0  # seconds; a younger folder without a record may belong to one that is being made
    name: str = calls.FOLDERS
    doc: str = "Removes working folders that no record needs, and leads records back whose folder is gone."
    every: float = 600.0
    per_host: bool = True
    routine: bool = False

    def check(self, hand: Hand) -> Iterator[Finding]:
        yield from self._folders(hand)
        yield from self._records(hand)

    def _folders(self, hand: Hand) -> Iterator[Finding]:
        for folder, ref in all_folders(hand.root, hand.machines):
            if self._needed(hand, ref):
                continue
            try:
                young = time.time() - folder.lstat().st_mtime < self.age
            except FileNotFoundError:
                continue  # cleared since it was listed
            if young and not _exists(hand, ref):
                continue
            place = folder.relative_to(hand.root).as_posix()
            yield Finding(NO_RECORD, place, f"the folder {place} is needed by no record.", "remove the folder", ref=ref)

    def _records(self, hand: Hand) -> Iterator[Finding]:
        for machine in hand.machines.values():
            for state in (s for s in machine.states if s.remakes is not None):
                after: int | None = None
                while True:
                    page = hand.store.find(
                        machine.name, state=state.name, after=after, limit=500, docs=machine.folder is not None
                    )
                    for record in page.records:
                        if _misses_folder(hand, record):
                            problem = f"{record.ref} is {state.name} and its working folder is not on {hand.host}."
                            yield Finding(
                                NO_FOLDER, str(record.ref), problem, f"go back to {state.remakes}", ref=record.ref
                            )
                    if page.after is None:
                        break
                    after = page.after

    def mend(self, hand: Hand, finding: Finding) -> bool:
        ref = ref_of(finding)
        if finding.rule == NO_RECORD:
            if len(parts := finding.where.split("/")) < 2 or not all(map(_is_name, parts)):
                raise ValueError(f"{finding.where!r} is no working folder.")
            folder = hand.root / finding.where
            last = last_attempt(folder)
            if self._needed(hand, ref):  # looked at again: it may have been made or resumed meanwhile
                return False
            clear_folder(folder, last)
            return not os.path.lexists(folder)
        try:
            record = hand.store.get(*ref)
        except NotFound:
            return False
        if not _misses_folder(hand, record):
            return False
        return isinstance(
            hand.store.commit([Group((rules.remake(hand.machines[ref.kind], record, hand.who),))])[0], Committed
        )

    def _needed(self, hand: Hand, ref: Ref) -> bool:
        machine = hand.machines.get(ref.kind)
        if machine is None:
            return True  # of an application that is not loaded here: not ours to judge
        try:
            record = hand.store.get(*ref)
        except NotFound:
            return False
        state = machine.state(record.state)
        return state is None or not state.clears_files or record.session is not None


def _exists(hand: Hand, ref: Ref) -> bool:
    try:
        hand.store.get(*ref)
    except NotFound:
        return False
    return True


def _is_name(part: str) -> bool:
    return part not in ("", ".", "..")


def _misses_folder(hand: Hand, record: Record) -> bool:
    if record.session is not None or record.host != hand.host:
        return False
    return not folder_of(hand.root, hand.machines[record.kind], record).exists()
