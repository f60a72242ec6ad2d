"""Maintenance routines that remove objects that nobody refers to, a limited number in each round.

    UnneededObjectRoutine     objects below some prefixes; the application says why one is unneeded
    OrphanedObjectRoutine     objects whose names say to which record they belong, when that record is gone
    AbandonedFolderRoutine    folders of objects in which nothing was written for a while

An application derives a routine, with a name, a description and prefixes. A routine is asked twice, for the finding and
again before the removal, because the object may be needed by then. A failing read removes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import ClassVar

from waybill.maintenance import MaintenanceContext
from waybill.objects import ObjectInfo, ObjectNotFound
from waybill.record import Finding, Ref

ROUND_SIZE = 5000  # objects below one prefix that are checked in one round


@dataclass(frozen=True)
class UnneededObjectRoutine:
    age: float = 86400.0  # seconds before an object without a reference is removed
    name: str = ""
    description: str = ""
    poll_interval: float = 3600.0
    per_host: bool = False
    has_routine_findings: bool = True
    rule: ClassVar[str] = ""
    prefixes: ClassVar[tuple[str, ...]] = ()

    def explain_unneeded(self, context: MaintenanceContext, info: ObjectInfo) -> str | None:
        """Return why the object is unneeded, as the end of a sentence; None if it is or may be needed."""
        raise NotImplementedError

    def is_old(self, context: MaintenanceContext, info: ObjectInfo) -> bool:
        return context.store.now() - info.modified.timestamp() > self.age

    def check(self, context: MaintenanceContext) -> Iterator[Finding]:
        """Each round continues where the last one ended."""
        for prefix in self.prefixes if context.objects is not None else ():
            assert context.objects is not None
            seen, last = 0, str(context.memory.get(prefix, ""))
            for info in context.objects.list(prefix, after=last, limit=ROUND_SIZE):
                if context.stop():
                    break
                seen, last = seen + 1, info.name
                if reason := self.explain_unneeded(context, info):
                    yield Finding(self.rule, info.name, f"{info.name} {reason}.", "remove it")
            context.memory[prefix] = last if seen == ROUND_SIZE else ""

    def repair(self, context: MaintenanceContext, finding: Finding) -> bool:
        if context.objects is None or not any(finding.where.startswith(f"{prefix}/") for prefix in self.prefixes):
            return False
        try:
            info = context.objects.head(finding.where)
        except ObjectNotFound:
            return False
        # Checked again. Safe to repeat: then there is nothing left.
        return self.explain_unneeded(context, info) is not None and context.objects.delete(finding.where)


@dataclass(frozen=True)
class OrphanedObjectRoutine(UnneededObjectRoutine):
    """An object is written after its record was created. So one that is old and has no record is not needed."""

    def owner_of(self, name: str) -> Ref | None:
        """Return the record that the object of this name belongs to; None if the name is not one of ours."""
        raise NotImplementedError

    def has_owner(self, context: MaintenanceContext, ref: Ref) -> bool:
        return context.has_record(ref)

    def explain_unneeded(self, context: MaintenanceContext, info: ObjectInfo) -> str | None:
        ref = self.owner_of(info.name)
        is_unneeded = ref is not None and self.is_old(context, info) and not self.has_owner(context, ref)
        return f"belongs to {ref}, which is removed" if is_unneeded else None


@dataclass(frozen=True)
class AbandonedFolderRoutine(UnneededObjectRoutine):
    """Folders directly below the prefixes. The newest object of a folder decides: to fill it may take days, and its first
    objects are needed to the end.
    """

    problem: ClassVar[str] = "is abandoned"  # the end of the sentence of a finding

    def check(self, context: MaintenanceContext) -> Iterator[Finding]:
        """Yield a finding per abandoned folder. A folder is read to its end; the next round continues after it."""
        for prefix in self.prefixes if context.objects is not None else ():
            yield from self._check_prefix(context, prefix)

    def _check_prefix(self, context: MaintenanceContext, prefix: str) -> Iterator[Finding]:
        assert context.objects is not None
        count = 0
        objects = context.objects.list(prefix, after=str(context.memory.get(prefix, "")))
        for folder, infos in groupby(objects, lambda info: _folder_of(prefix, info.name)):
            newest, last = None, ""
            for info in infos:
                count, last, newest = count + 1, info.name, max(newest or info, info, key=_modified_time_of)
            if newest is not None and self.is_old(context, newest):
                yield Finding(self.rule, folder, f"{folder} {self.problem}.", "remove it")
            if count >= ROUND_SIZE or context.stop():
                context.memory[prefix] = last
                return
        context.memory[prefix] = ""

    def repair(self, context: MaintenanceContext, finding: Finding) -> bool:
        """Check again, then remove the folder. Safe to repeat and to interrupt: the rest of the folder stays old."""
        folder = finding.where
        if context.objects is None or not any(_folder_of(prefix, folder) == folder for prefix in self.prefixes):
            return False
        newest = max(context.objects.list(folder), key=_modified_time_of, default=None)
        if newest is None or not self.is_old(context, newest):
            return False
        for info in context.objects.list(folder):
            if context.stop():
                return False
            context.objects.delete(info.name)
        return True


def _modified_time_of(info: ObjectInfo) -> float:
    return info.modified.timestamp()


def _folder_of(prefix: str, name: str) -> str:
    folder, _, _ = name.removeprefix(f"{prefix}/").partition("/")
    return f"{prefix}/{folder}"
