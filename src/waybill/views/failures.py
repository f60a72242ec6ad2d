"""Failures grouped by their cause: what went wrong, without the ids, paths and numbers that differ from record to record."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from waybill.machine import Machine
from waybill.record import Record, Store
from waybill.rules import Machines
from waybill.rules.causes import compute_cause
from waybill.sign_in import PRIVATE_KINDS
from waybill.views.standstill import is_failed_state

MAX_LOOKED_AT = 2_000  # records of a state


@dataclass(frozen=True)
class FailureGroup:
    """Records of one kind that failed, or are retried, in one state for one cause."""

    kind: str
    state: str
    cause: str
    count: int
    first: float
    last: float
    sample: Record
    is_retried: bool  # their step is tried again by itself


def list_failure_groups(store: Store, machines: Machines) -> list[FailureGroup]:
    """Return the groups, the newest failure first."""
    groups: dict[tuple[str, str, str], FailureGroup] = {}
    for record, machine in _iter_failing(store, machines):
        key = (record.kind, record.state, compute_cause(record.message))
        group = groups.get(key)
        if group is None:
            is_retried = not is_failed_state(machine, record.state)
            groups[key] = FailureGroup(*key, 1, record.updated, record.updated, record, is_retried)
        else:
            groups[key] = replace(
                group,
                count=group.count + 1,
                first=min(group.first, record.updated),
                last=max(group.last, record.updated),
            )
    return sorted(groups.values(), key=lambda group: -group.last)


def iter_group(store: Store, machine: Machine, state: str, cause: str) -> Iterator[Record]:
    """Yield the records of a group, with their documents."""
    for record in store.each(machine.name, state=state, documents=True, page_size=500):
        if _is_failing(machine, record) and compute_cause(record.message) == cause:
            yield record


def _iter_failing(store: Store, machines: Machines) -> Iterator[tuple[Record, Machine]]:
    for machine in machines.values():
        if machine.name in PRIVATE_KINDS:
            continue
        for state, count in store.count_by_state(machine.name).items():
            declared = machine.find_state(state)
            if not count or declared is None or not (declared.works or is_failed_state(machine, state)):
                continue
            after: int | None = None
            for _ in range(MAX_LOOKED_AT // 500):
                page = store.find(machine.name, state=state, after=after, newest=True, limit=500)
                yield from ((record, machine) for record in page.records if _is_failing(machine, record))
                if (after := page.after) is None:
                    break


def _is_failing(machine: Machine, record: Record) -> bool:
    return record.error_count > 0 or is_failed_state(machine, record.state)
