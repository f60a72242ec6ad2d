"""Working folders of this host that no record needs, and records of this host whose working folder is not there.

A folder is needed while its record exists and is in a state that does not clear its files. A worker that died between the commit and the
clearing leaves one behind. The other way round: a state that works on files of an earlier state finds none, and is led back to make them.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from waybill import rules
from waybill.duties.duty import Hand, ref_of
from waybill.record import Committed, Finding, Group, NotFound, Record, Ref
from waybill.worker.folders import clear_folder, has_folder, last_attempt

NO_RECORD = "folder without a record"
NO_FOLDER = "record without its folder"


@dataclass(frozen=True)
class Folders:
    age: float = 3600.0  # a folder younger than this may belong to a record that is being made
    name: str = "folders"
    doc: str = "Removes working folders that no record needs, and leads records back whose folder is gone."
    every: float = 600.0
    per_host: bool = True

    def check(self, hand: Hand) -> Iterator[Finding]:
        yield from self._folders(hand)
        yield from self._records(hand)

    def _folders(self, hand: Hand) -> Iterator[Finding]:
        for folder in _folders(hand):
            ref = Ref(folder.parent.name, folder.name)
            try:
                young = time.time() - folder.lstat().st_mtime < self.age
            except FileNotFoundError:
                continue  # cleared since it was listed
            if young or self._needed(hand, ref):
                continue
            problem = f"the folder {folder.parent.name}/{folder.name} is needed by no record."
            yield Finding(NO_RECORD, str(ref), problem, "remove the folder", ref=ref)

    def _records(self, hand: Hand) -> Iterator[Finding]:
        for machine in hand.machines.values():
            for state in (s for s in machine.states if s.remakes is not None):
                after: int | None = None
                while True:
                    page = hand.store.find(machine.name, state=state.name, after=after, limit=500)
                    for record in page.records:
                        if _misses_folder(hand, record):
                            problem = f"{record.ref} is {state.name} and its working folder is not on {hand.host}."
                            yield Finding(NO_FOLDER, str(record.ref), problem, f"go back to {state.remakes}", ref=record.ref)
                    if page.after is None:
                        break
                    after = page.after

    def mend(self, hand: Hand, finding: Finding) -> bool:
        ref = ref_of(finding)
        if finding.rule == NO_RECORD:
            last = last_attempt(hand.root, ref)
            if self._needed(hand, ref):  # looked at again: it may have been made or resumed meanwhile
                return False
            clear_folder(hand.root, ref, last)
            return not has_folder(hand.root, ref)
        try:
            record = hand.store.get(*ref)
        except NotFound:
            return False
        if not _misses_folder(hand, record):
            return False
        return isinstance(hand.store.commit([Group((rules.remake(hand.machines[ref.kind], record, hand.who),))])[0], Committed)

    def _needed(self, hand: Hand, ref: Ref) -> bool:
        machine = hand.machines.get(ref.kind)
        if machine is None:
            return True  # of an application that is not loaded here: not ours to judge
        try:
            record = hand.store.get(*ref)
        except NotFound:
            return False
        state = machine.state(record.state)
        return state is None or not state.clears_files


def _misses_folder(hand: Hand, record: Record) -> bool:
    return record.session is None and record.host == hand.host and not (hand.root / record.kind / record.id).exists()


def _folders(hand: Hand) -> Iterator[Path]:
    if not hand.root.is_dir():
        return
    for kind in sorted(hand.root.iterdir()):
        if kind.is_dir() and not kind.is_symlink() and kind.name in hand.machines:
            yield from (entry for entry in sorted(kind.iterdir()) if _may_be_ours(entry))


def _may_be_ours(entry: Path) -> bool:
    """What lies there and cannot be a record's folder is somebody else's business."""
    return rules.bad_id(entry.name) is None and (entry.is_dir() or entry.is_symlink())
