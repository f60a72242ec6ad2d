"""Failures: everything that failed or is retried, grouped by cause, and one button for a whole group after a preview."""

from __future__ import annotations

from typing import NamedTuple

from fastapi import APIRouter, Response

from waybill import views
from waybill.http.request_context import declare_role
from waybill.machine import Action, Machine
from waybill.pages.actions import MAX_SHOWN, find_action, preview_action, to_selected
from waybill.pages.figures import tone_of
from waybill.pages.page_context import PageContext, PageRequest
from waybill.pages.page_routes import make_page_router
from waybill.record import Store
from waybill.sign_in import PRIVATE_KINDS
from waybill.views.failures import MAX_LOOKED_AT, FailureGroup, iter_group, list_failure_groups
from waybill.views.standstill import is_failed_state


class FailureRow(NamedTuple):
    group: FailureGroup
    machine: Machine
    tone: str
    first: str | None
    last: str | None
    actions: list[Action]


class CutState(NamedTuple):
    """A state of failure of which only the newest records are grouped."""

    machine: Machine
    state: str
    records: int  # all that are in it


def build_router() -> APIRouter:
    routes = make_page_router()

    @routes.get("/failures", **declare_role("reader", somewhere=True))
    def show_failures(context: PageRequest) -> Response:
        with context.open_store() as store:
            rows = list_rows(context, store)
            cut = list_cut_states(context, store)
        total = sum(row.group.count for row in rows)
        return context.render("failures.html", rows=rows, total=total, cut=cut, looked_at=MAX_LOOKED_AT)

    @routes.post("/failures/preview", **declare_role("reader", somewhere=True))
    def preview_group(context: PageRequest) -> Response:
        machine = context.get_machine(context.get_field("kind"))
        action = find_action(context, machine, context.get_field("action"))
        with context.open_store() as store:
            records = iter_group(store, machine, context.get_field("state"), context.get_field("cause"))
            found = preview_action(store, machine, action, records, context.access)
        return context.render(
            "preview.html",
            machine=machine,
            action=action,
            preview=found,
            selected=[to_selected(record).to_field() for record in found.eligible],
            shown=MAX_SHOWN,
            back="/failures",
            tone=lambda name: tone_of(machine, name),
        )

    return routes


def list_cut_states(context: PageContext, store: Store) -> list[CutState]:
    """The states of failure with more records than are grouped."""
    return [
        CutState(machine, name, count)
        for machine in context.machines.values()
        if machine.name not in PRIVATE_KINDS
        for name, count in store.count_by_state(machine.name).items()
        if count > MAX_LOOKED_AT and is_failed_state(machine, name)
    ]


def list_rows(context: PageContext, store: Store) -> list[FailureRow]:
    rows = []
    for group in list_failure_groups(store, context.machines):
        machine = context.machines[group.kind]
        possible = [
            a for a in machine.list_actions_from(group.state) if a.writes is None and context.can_somewhere(a.role)
        ]
        rows.append(
            FailureRow(
                group,
                machine,
                tone_of(machine, group.state),
                views.format_time(group.first),
                views.format_time(group.last),
                possible,
            )
        )
    return rows
