"""Actions that were requested of a worker which died, or unclaimed the record, before it could apply them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from waybill.maintenance.routine import MaintenanceContext
from waybill.record import MAX_PAGE, Finding


@dataclass(frozen=True)
class ActionRequestRoutine:
    name: str = "action-requests"
    description: str = "Applies actions that were requested of a worker that is gone."
    poll_interval: float = 10.0
    per_host: bool = False
    has_routine_findings: bool = False

    def check(self, context: MaintenanceContext) -> Iterator[Finding]:
        for request in context.store.list_action_requests(MAX_PAGE):
            if request.ref.kind not in context.machines:
                continue  # of an application that is not loaded here: another worker knows it
            who = request.who or "somebody"
            problem = f"{who} requested {request.action} of {request.ref}, and no worker claims it any more."
            yield Finding("action request left behind", str(request.ref), problem, "apply it", ref=request.ref)

    def repair(self, context: MaintenanceContext, finding: Finding) -> bool:
        # Safe to repeat: the commit that applies a request removes it.
        return context.engine.apply_action_requests(MAX_PAGE) > 0
