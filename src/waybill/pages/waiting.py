"""Waiting: everything that is not moving, by the reason why, the longest first.

Of each state the records that were created first are looked at, MAX_LOOKED_AT of them: where more stand still the page says so, and
links to their list.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from fastapi import APIRouter, Response

from waybill import views
from waybill.http.request_context import declare_role
from waybill.machine import Machine
from waybill.maintenance import MAINTENANCE
from waybill.pages.figures import tone_of
from waybill.pages.page_context import PageContext, PageRequest
from waybill.pages.page_routes import make_page_router
from waybill.record import Record, Store
from waybill.sign_in import PRIVATE_KINDS
from waybill.views.standstill import STANDSTILL_REASONS, StandstillReader, StandstillView, is_failed_state

MAX_LOOKED_AT = 200  # records of a state
MAX_SHOWN = 20  # records of a reason
LEFT_OUT_KINDS = PRIVATE_KINDS | {MAINTENANCE.name}


class WaitingRecord(NamedTuple):
    record: Record
    tone: str
    since: str | None
    standstill: StandstillView


@dataclass(frozen=True)
class WaitingGroup:
    reason: str
    title: str
    count: int
    records: list[WaitingRecord]


@dataclass(frozen=True)
class UnreadState:
    """A state with more records than were looked at."""

    machine: Machine
    state: str
    count: int


def build_router() -> APIRouter:
    routes = make_page_router()

    @routes.get("/waiting", **declare_role("reader", somewhere=True))
    def show_waiting(context: PageRequest) -> Response:
        with context.open_store() as store:
            groups, unread = find_waiting(context, store)
        return context.render("waiting.html", groups=groups, unread=unread, looked_at=MAX_LOOKED_AT)

    return routes


def find_waiting(context: PageContext, store: Store) -> tuple[list[WaitingGroup], list[UnreadState]]:
    reader = StandstillReader(store, context.machines)
    found: dict[str, list[WaitingRecord]] = {reason: [] for reason in STANDSTILL_REASONS}
    unread: list[UnreadState] = []
    for machine in context.machines.values():
        if machine.name in LEFT_OUT_KINDS or not machine.list_work_states():
            continue  # where nothing is worked on, nothing stands still
        for name, count in store.count_by_state(machine.name).items():
            state = machine.find_state(name)
            if state is not None and (
                state.type == "end" or is_failed_state(machine, name) or not _can_stand_still(state.type, state.settled)
            ):
                continue
            page = store.find(machine.name, state=name, limit=MAX_LOOKED_AT)
            if page.after is not None:
                unread.append(UnreadState(machine, name, count))
            for record in page.records:
                standstill = reader.explain(record)
                if standstill["reason"] in found:
                    since = views.format_time(record.updated)
                    found[standstill["reason"]].append(WaitingRecord(record, tone_of(machine, name), since, standstill))
    groups = [
        WaitingGroup(
            reason, STANDSTILL_REASONS[reason], len(each), sorted(each, key=lambda w: w.record.updated)[:MAX_SHOWN]
        )
        for reason, each in found.items()
        if each
    ]
    return groups, unread


def _can_stand_still(type: str, settled: bool) -> bool:
    """A settled rest state is where a record belongs; nobody waits for it."""
    return not (type == "rest" and settled)
