"""The first page: every machine as a live figure, and beside it what holds things up: workers, holds, disks, late maintenance."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from fastapi import APIRouter, Response

from waybill import views
from waybill.activity import ActivitySeries, read_activity
from waybill.application import Application
from waybill.config import Config
from waybill.http.request_context import declare_role
from waybill.machine import Machine, State
from waybill.maintenance import MAINTENANCE
from waybill.pages.application_pages import NavigationEntry
from waybill.pages.figures import list_rows, tone_of
from waybill.pages.page_context import PageContext, PageRequest
from waybill.pages.page_routes import make_page_router
from waybill.record import Record, Store
from waybill.sign_in import PRIVATE_KINDS
from waybill.views.standstill import is_failed_state
from waybill.views.view_types import SessionView

LATE_ROUNDS = 3  # a maintenance routine is late when it has missed so many rounds
LATE_GRACE = 120.0  # seconds
MAX_LOOKED_AT = 100  # records of a state, those that were created first, whose age and tries a figure shows


@dataclass(frozen=True)
class StateBoxView:
    """A state in a figure."""

    name: str
    tone: str
    description: str
    count: int
    oldest: str | None  # since when its oldest record has been in it
    retrying: int = 0  # records whose step failed and is tried again, of those that were looked at
    is_cut: bool = False  # there are more than were looked at


class MachineFigure(NamedTuple):
    machine: Machine
    rows: list[list[StateBoxView]]
    others: list[StateBoxView]
    total: int
    activity: ActivitySeries | None = None  # of the last day

    def count(self, state: str) -> int:
        return sum(box.count for box in (*self.others, *(s for row in self.rows for s in row)) if box.name == state)

    @property
    def is_quiet(self) -> bool:
        """Whether a line is enough: it holds nothing, or only what nobody works on."""
        return not self.total or not self.machine.list_work_states()

    @property
    def is_troubled(self) -> bool:
        return any(
            state.tone == "bad" and state.count for state in (*self.others, *(s for row in self.rows for s in row))
        )


class ApplicationFigures(NamedTuple):
    name: str
    description: str
    figures: list[MachineFigure]
    shortcuts: list[NavigationEntry]


class DiskView(NamedTuple):
    purpose: str
    path: str
    total: int
    free: int


def build_router() -> APIRouter:
    routes = make_page_router()

    @routes.get("/", **declare_role("reader", somewhere=True))
    def show_home(context: PageRequest) -> Response:
        sees_all = context.can("reader")
        with context.open_store() as store:
            applications = [
                ApplicationFigures(
                    each.name,
                    each.description,
                    [build_figure(store, m) for m in machines],
                    list_shortcuts(context, each),
                )
                for each, machines in _list_application_machines(context)
            ]
            built_in = [build_figure(store, m) for m in _list_built_in(context)] if sees_all else []
            sessions = (
                [views.to_session_view(session, store.now()) for session in store.list_sessions()] if sees_all else []
            )
            activity = read_activity(store) if sees_all else {}
            late = list_late_maintenance(store) if sees_all else []
            holds = sorted(store.list_holds().items()) if sees_all else []
        for each in applications:
            each.figures[:] = [figure._replace(activity=activity.get(figure.machine.name)) for figure in each.figures]
        return context.render(
            "home.html",
            applications=applications,
            built_in=built_in,
            workers=[session for session in sessions if not session["about"].get("server")],
            holds=holds,
            disks=list_disks(context.environment.config) if context.can("operator") else [],
            late=late,
            sees_all=sees_all,
        )

    return routes


def _list_application_machines(context: PageContext) -> Iterable[tuple[Application, list[Machine]]]:
    environment = context.environment
    for application in environment.applications:
        yield (
            application,
            [m for m in context.machines.values() if environment.application_of_kind(m.name) is application],
        )


def list_shortcuts(context: PageContext, application: Application) -> list[NavigationEntry]:
    pages = context.site.pages.get(application.name)
    if pages is None:
        return []
    return [
        entry
        for entry in pages.shortcuts
        if context.can(entry.role) or (entry.somewhere and context.can_somewhere(entry.role))
    ]


def _list_built_in(context: PageContext) -> list[Machine]:
    environment = context.environment
    return [
        m
        for m in context.machines.values()
        if environment.application_of_kind(m.name) is None and m.name not in PRIVATE_KINDS
    ]


def build_figure(store: Store, machine: Machine) -> MachineFigure:
    counts = store.count_by_state(machine.name)
    rows = list_rows(machine)
    undeclared = [name for name in sorted(counts) if machine.find_state(name) is None]

    def box_of(state: State) -> StateBoxView:
        count = counts.get(state.name, 0)
        is_waiting = count > 0 and state.open and not is_failed_state(machine, state.name)
        oldest, retrying = _look_at_oldest(store, machine, state) if is_waiting else (None, 0)
        return StateBoxView(
            state.name, tone_of(machine, state.name), state.description, count, oldest, retrying, count > MAX_LOOKED_AT
        )

    # off the way only states that hold something are shown: there are many, and mostly empty
    others = [box_of(state) for state in rows.others if counts.get(state.name)]
    others += [StateBoxView(name, "unknown", views.UNDECLARED, counts[name], None) for name in undeclared]
    return MachineFigure(machine, [[box_of(state) for state in row] for row in rows.rows], others, sum(counts.values()))


def _look_at_oldest(store: Store, machine: Machine, state: State) -> tuple[str | None, int]:
    """Since when the longest of those that were created first has been in a state, and how many of them are retried."""
    records = store.find(machine.name, state=state.name, limit=MAX_LOOKED_AT if state.works else 1).records
    oldest = views.format_time(min(record.updated for record in records)) if records else None
    return oldest, sum(record.error_count > 0 for record in records)


def list_late_maintenance(store: Store) -> list[Record]:
    """The maintenance routines whose round should have been a while ago, or that fail."""
    now = store.now()
    records = store.find(MAINTENANCE.name, limit=200).records
    return [
        record
        for record in records
        if record.session is None
        and (record.error_count or (record.blocked_by == "wait" and record.wake_at + LATE_GRACE < now))
    ]


def list_disks(config: Config) -> list[DiskView]:
    """The disks that this server writes to, each once."""
    disks: dict[int, DiskView] = {}
    for purpose, path in (("data", config.data), ("working files", config.work.root)):
        folder = next(each for each in (path.absolute(), *path.absolute().parents) if each.is_dir())
        device = os.stat(folder).st_dev
        usage = os.statvfs(folder)
        view = DiskView(purpose, str(folder), usage.f_blocks * usage.f_frsize, usage.f_bavail * usage.f_frsize)
        disks[device] = view._replace(purpose=f"{disks[device].purpose}, {purpose}") if device in disks else view
    return list(disks.values())


def count_steps(workers: Iterable[SessionView]) -> int:
    return sum(len(worker["steps"]) for worker in workers)
