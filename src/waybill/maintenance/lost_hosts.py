"""Records whose working files are on a lost host: back to the state that makes the files again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from waybill import rules
from waybill.maintenance.routine import MaintenanceContext, ref_of
from waybill.record import CommitGroup, CommitResult, Finding, Record, RecordNotFound
from waybill.rules import triggered_maintenance


@dataclass(frozen=True)
class LostHostRoutine:
    grace: float = 600.0  # seconds without a session before a host counts as lost: a restart is no loss
    name: str = "lost-hosts"
    description: str = "Sends records back whose host, and working files, are lost."
    poll_interval: float = 60.0
    per_host: bool = False
    has_routine_findings: bool = False

    def check(self, context: MaintenanceContext) -> Iterator[Finding]:
        now = context.store.now()
        live = {s.host for s in context.store.list_sessions()}
        missing: dict[str, float] = {h: at for h, at in context.memory.get("missing", {}).items() if h not in live}
        # a host that is not among the missing had a session a moment ago
        watched = now - context.memory.get("at", 0.0) < self.grace
        context.memory["missing"] = missing
        if not context.thorough:  # a check by hand does not watch the hosts
            context.memory["at"] = now
        for machine in context.machines.values():
            for state in machine.states:
                if not state.works or machine.name == triggered_maintenance.MAINTENANCE_KIND:
                    continue
                for record in _iter_bound_records(context, machine.name, state.name):
                    if record.host in live:
                        continue
                    if context.thorough and not watched and record.host not in (*missing, context.host):
                        since = (
                            record.updated
                        )  # nobody has watched the hosts; the record has not changed since then, at least
                    else:
                        since = missing.setdefault(record.host, now)
                    if now - since >= self.grace:
                        target = state.on_host_lost or state.name
                        problem = f"{record.ref} has its working files on {record.host}, which has had no worker for {self.grace:.0f} s."
                        yield Finding(
                            "host lost", str(record.ref), problem, f"go back to {target}, on any host", ref=record.ref
                        )

    def repair(self, context: MaintenanceContext, finding: Finding) -> bool:
        ref = ref_of(finding)
        try:
            record = context.store.get(*ref)
        except RecordNotFound:
            return False
        if (
            record.session is not None
            or not record.host
            or record.host in {s.host for s in context.store.list_sessions()}
        ):
            return False
        # Safe to repeat: fenced by the version just read.
        change = rules.rebuild_files(context.machines[ref.kind], record, context.who)
        return isinstance(context.store.commit([CommitGroup((change,))])[0], CommitResult)


def _iter_bound_records(context: MaintenanceContext, kind: str, state: str) -> Iterator[Record]:
    if not context.machines[kind].can_bind_to_host():
        return
    yield from (r for r in context.store.each(kind, state=state, page_size=500) if r.host and r.session is None)
