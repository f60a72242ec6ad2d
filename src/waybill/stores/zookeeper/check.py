"""check and mend: every rule of the tree, asked of every node that it is about, in portions."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from waybill.record import Finding
from waybill.stores.zookeeper import rules_merritt as merritt
from waybill.stores.zookeeper import rules_notes as notes
from waybill.stores.zookeeper import rules_own as own
from waybill.stores.zookeeper.faults import Ages, Fault, Judge, Rule
from waybill.stores.zookeeper.tree import Tree

_PORTION = 500  # subjects looked at together


class Checker:
    def __init__(self, tree: Tree, ages: Ages) -> None:
        self._tree = tree
        judge = Judge(tree, ages)
        # What must be mended first stands first: a job without a status is in no place, a batch that is gone lists
        # nobody.
        self._rules: list[Rule] = [
            merritt.UuidNamesABatch(judge),
            merritt.BatchHasItsUuid(judge),
            merritt.HasAStatus(judge),
            own.CanBeRead(judge),
            merritt.JobHasABatch(judge),
            merritt.StatesHasChildren(judge),
            merritt.BatchListsItsJobs(judge),
            merritt.JobIsListed(judge),
            own.QueueHoldsRecords(judge),
            own.RecordIsQueued(judge),
            merritt.LocksAreShort(judge),
            own.SideHasARecord(judge),
            own.KeysHaveHolders(judge),
            own.HoldersHaveKeys(judge),
            notes.NotesAreTrue(judge),
            notes.NotesAreThere(judge),
            own.AsksHaveRecords(judge),
            own.WorkersLive(judge),
        ]

    @property
    def rules(self) -> list[str]:
        return [rule.name for rule in self._rules]

    def check(self) -> Iterator[Finding]:
        """Every fault that is still there at a second look."""
        self._tree.link.sync()
        for rule in self._rules:
            subjects = rule.subjects()
            while portion := list(islice(subjects, _PORTION)):
                suspects = list(dict.fromkeys(fault.finding.where for fault in rule.faults(portion)))
                if suspects:
                    self._tree.link.sync()
                    yield from (fault.finding for fault in rule.faults(suspects))

    def mend(self, finding: Finding) -> bool:
        """Mend it if it is still so; True when something was written."""
        for fault in self._again(finding):
            if fault.ops and self._tree.write(fault.ops) is None:
                self._tree.rings()
                return True
        return False

    def _again(self, finding: Finding) -> Iterator[Fault]:
        for rule in self._rules:
            if rule.name == finding.rule:
                yield from rule.faults([finding.where])
