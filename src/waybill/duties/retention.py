"""Records that have rested or ended long enough: removed, with their children, after the time that their state, or a
setting, says.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from waybill.duties.duty import Hand, ref_of
from waybill.record import Conflict, Finding, NotFound
from waybill.rules import Refused, calls
from waybill.worker.folders import clear_folder, folder_of, last_attempt


@dataclass(frozen=True)
class Retention:
    name: str = calls.RETENTION
    doc: str = "Removes records that have been settled for longer than their state's time."
    every: float = 300.0
    per_host: bool = False
    routine: bool = True

    def check(self, hand: Hand) -> Iterator[Finding]:
        now = hand.store.now()
        for machine in hand.machines.values():
            for state in machine.states:
                keep = hand.retention.get(f"{machine.name}.{state.name}", state.keep)
                if keep is None or state.open:
                    continue
                after: int | None = None
                while True:
                    page = hand.store.find(machine.name, state=state.name, after=after, limit=500)
                    for record in page.records:
                        # A child goes with its parent while there is one, so that the parent's report stays true.
                        if (
                            (keep == 0 or now - record.updated > keep)
                            and record.session is None
                            and not _has_parent(hand, record.parent)
                        ):
                            long = f" for more than {keep:.0f} s" if keep else ""
                            problem = f"{record.ref} has been {state.name}{long}."
                            yield Finding("kept long enough", str(record.ref), problem, "remove it", ref=record.ref)
                    if page.after is None:
                        break
                    after = page.after

    def mend(self, hand: Hand, finding: Finding) -> bool:
        ref = ref_of(finding)
        try:
            folder = folder_of(hand.root, hand.machines[ref.kind], hand.store.get(*ref))
            last = last_attempt(folder)
            hand.engine.remove(ref, who=hand.who, why="kept long enough")  # safe to repeat: the record itself goes last
        except (NotFound, Refused, Conflict):
            return False
        clear_folder(folder, last)
        return True


def _has_parent(hand: Hand, parent: tuple[str, str] | None) -> bool:
    if parent is None:
        return False
    try:
        hand.store.get(*parent)
    except NotFound:
        return False
    return True
