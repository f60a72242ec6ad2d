"""Records that have been settled for longer than their state, or a setting, says: removed, with their children."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from waybill.maintenance.clock_jump import ClockWatch, has_trusted_clock
from waybill.maintenance.routine import MaintenanceContext, ref_of
from waybill.record import Conflict, Finding, RecordNotFound
from waybill.rules import ActionRefused, triggered_maintenance
from waybill.worker.working_folders import clear_folder, find_last_claim_version, folder_of

RETENTION_EXPIRED = "retention expired"


@dataclass(frozen=True)
class RetentionRoutine:
    name: str = triggered_maintenance.RETENTION
    description: str = "Removes records that have been settled for longer than their state keeps them."
    poll_interval: float = 300.0
    per_host: bool = False
    has_routine_findings: bool = True
    clock: ClockWatch | None = field(default_factory=ClockWatch, compare=False, repr=False)

    def check(self, context: MaintenanceContext) -> Iterator[Finding]:
        now, is_clock_trusted = context.store.now(), has_trusted_clock(context, self.clock)
        for machine in context.machines.values():
            for state in machine.states:
                keep = context.retention.get(f"{machine.name}.{state.name}", state.keep)
                if keep is None or state.open or not (keep == 0 or is_clock_trusted):
                    continue
                for record in context.store.each(machine.name, state=state.name, page_size=500):
                    # A child is removed with its parent while there is one, so that the parent's report stays true.
                    if (
                        (keep == 0 or now - record.updated > keep)
                        and record.session is None
                        and not _has_parent(context, record.parent)
                    ):
                        duration = f" for more than {keep:.0f} s" if keep else ""
                        problem = f"{record.ref} has been {state.name}{duration}."
                        yield Finding(RETENTION_EXPIRED, str(record.ref), problem, "remove it", ref=record.ref)

    def repair(self, context: MaintenanceContext, finding: Finding) -> bool:
        ref = ref_of(finding)
        try:
            folder = folder_of(context.root, context.machines[ref.kind], context.store.get(*ref))
            last = find_last_claim_version(folder)
            # Safe to repeat: the record itself is removed last.
            context.engine.remove(ref, who=context.who, why=RETENTION_EXPIRED)
        except (RecordNotFound, ActionRefused, Conflict):
            return False
        clear_folder(folder, last)
        return True


def _has_parent(context: MaintenanceContext, parent: tuple[str, str] | None) -> bool:
    if parent is None:
        return False
    try:
        context.store.get(*parent)
    except RecordNotFound:
        return False
    return True
