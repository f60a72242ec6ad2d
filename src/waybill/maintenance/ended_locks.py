"""Locks of records that have ended: an end state needs none, and a record that waits for such a lock would wait for
ever.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from msgspec.structs import replace

from waybill.maintenance.routine import MaintenanceContext, ref_of
from waybill.record import Change, CommitGroup, CommitResult, Finding, Record, RecordNotFound, Ref, lock_names_of


@dataclass(frozen=True)
class EndedLockRoutine:
    name: str = "ended-locks"
    description: str = "Releases locks that a record still owns although it has ended."
    poll_interval: float = 3600.0
    per_host: bool = False
    has_routine_findings: bool = False

    def check(self, context: MaintenanceContext) -> Iterator[Finding]:
        after = ""
        while page := context.store.list_locks(after=after):
            for owned in page:
                for owner in owned.owners:
                    record = _get_ended_record(context, owner)
                    # read after the lock: not if it was just released
                    if record is not None and owned.name in lock_names_of(record.locks):
                        problem = f"{record.ref} has ended ({record.state}) and owns the lock {owned.name}."
                        yield Finding("lock of an ended record", owned.name, problem, "release it", ref=record.ref)
            if context.stop():
                return
            after = page[-1].name

    def repair(self, context: MaintenanceContext, finding: Finding) -> bool:
        record = _get_ended_record(context, ref_of(finding))
        if record is None or finding.where not in lock_names_of(record.locks):
            return False
        # Safe to repeat: fenced by the version just read.
        change = Change(
            record, replace(record, locks=()), "release-locks", context.who, "an ended record owns no locks"
        )
        return isinstance(context.store.commit([CommitGroup((change,))])[0], CommitResult)


def _get_ended_record(context: MaintenanceContext, ref: Ref) -> Record | None:
    if ref.kind not in context.machines:
        return None
    try:
        record = context.store.get(*ref)
    except RecordNotFound:
        return None
    state = context.machines[ref.kind].find_state(record.state)
    return record if state is not None and state.type == "end" and record.session is None else None
