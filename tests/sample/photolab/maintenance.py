"""Rolls that nobody collects are discarded."""

from collections.abc import Iterator
from dataclasses import dataclass

from waybill.maintenance import MaintenanceContext
from waybill.record import Finding


@dataclass(frozen=True)
class UnclaimedRolls:
    name: str = "photolab-unclaimed-rolls"
    description: str = "Discards rolls that nobody has collected for a long time."
    poll_interval: float = 3600.0
    per_host: bool = False
    has_routine_findings: bool = True  # what it finds is due, and nothing is wrong

    def check(self, context: MaintenanceContext) -> Iterator[Finding]:
        days = context.resources_of("photolab").settings.keep_days
        for roll in context.store.each("roll", state="Ready"):
            if roll.updated < context.store.now() - days * 86400:
                yield Finding(
                    "rolls are collected", str(roll.ref), f"ready for {days:g} days", "discard it", ref=roll.ref
                )

    def repair(self, context: MaintenanceContext, finding: Finding) -> bool:
        assert finding.ref is not None
        context.engine.act(finding.ref, "discard", who=context.who, confirmed=True)
        return True
