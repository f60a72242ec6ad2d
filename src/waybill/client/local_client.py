"""The client of a store: the same answers as a server's, for whoever may open the store."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

from waybill import rules, views
from waybill.client.records_client import ActionResultView
from waybill.engine import ActionResult, Engine
from waybill.environment import Environment
from waybill.errors import NotFound, WaybillError
from waybill.machine import Machine
from waybill.record import Ref
from waybill.rules import ActionRefused
from waybill.step import New
from waybill.views import ListQuery
from waybill.views.view_types import HistoryEntryView, MachineView, PageView, RecordView, SessionView, StateCountsView

MIN_INTERVAL = 0.2  # seconds between two reads of the store, at least


class LocalClient:
    def __init__(self, environment: Environment, engine: Engine, who: str) -> None:
        self._environment = environment
        self._engine = engine
        self._store = engine.store
        self._who = who

    def list_machines(self) -> list[MachineView]:
        return [views.to_machine_view(machine) for _, machine in sorted(self._environment.machines.items())]

    def get_machine(self, kind: str) -> MachineView:
        return views.to_machine_view(self._environment.machines[kind])

    def count_by_state(self, kind: str, *, parent: str | None = None) -> StateCountsView:
        machine = self._environment.machines[kind]
        parent_ref = self._parse_ref(parent) if parent is not None else None
        return views.to_state_counts_view(machine, self._store.count_by_state(kind, parent=parent_ref), parent_ref)

    def list_records(
        self,
        kind: str,
        *,
        state: str | None = None,
        parent: str | None = None,
        owner: str | None = None,
        newest: bool | None = None,
        page_token: str | None = None,
        limit: int = 100,
        documents: bool = False,
    ) -> PageView:
        machine = self._environment.machines[kind]
        if page_token is None:
            self._check_state(machine, state)
        query = ListQuery(kind, state, self._parse_ref(parent) if parent is not None else None, owner, bool(newest))
        page, next_token = views.find_page(
            self._store, query, page_token, limit=limit, documents=documents, is_order_given=newest is not None
        )
        progress = views.progress_of(self._store.list_sessions())
        return views.to_page_view(
            page, self._environment.machines, self._store, next_token, documents, progress=progress
        )

    def get_record(self, kind: str, id: str) -> RecordView:
        self._environment.machines[kind]
        record = self._store.get(kind, id)
        progress = views.progress_of(self._store.list_sessions())
        return views.to_record_view(
            record, self._environment.machines, documents=True, progress=progress, store=self._store
        )

    def get_history(self, kind: str, id: str) -> list[HistoryEntryView]:
        self._environment.machines[kind]
        self._store.get(kind, id)
        return [views.to_history_entry_view(entry) for entry in self._store.history(kind, id)]

    def submit(
        self,
        kind: str,
        documents: Mapping[str, Any],
        *,
        id: str | None = None,
        state: str | None = None,
        owner: str | None = None,
        priority: int | None = None,
        idempotency_key: str | None = None,
        why: str = "",
    ) -> RecordView:
        machine = self._environment.machines[kind]
        if machine.made_by:
            raise ActionRefused(
                f"No {kind} is created here, where its documents would not be checked: it is made by {machine.made_by}."
            )
        new = New(
            kind, dict(documents), id=id, state=state, owner=owner, priority=priority, idempotency_key=idempotency_key
        )
        with rules.translate_document_errors(machine):
            rules.create(self._engine.machines, new)  # pure: wrong documents are found before any write
        record = self._engine.submit(new, who=self._who, why=why)
        return views.to_record_view(record, self._environment.machines)

    def act(
        self,
        kind: str,
        id: str,
        action: str,
        *,
        why: str = "",
        args: Mapping[str, Any] | None = None,
        confirmed: bool = False,
    ) -> ActionResultView:
        machine = self._environment.machines[kind]
        declared = machine.find_action(action)
        if declared is None:
            names = ", ".join(each.name for each in machine.actions) or "none"
            raise NotFound(f"A {kind} has no action {action!r}; it has {names}.", code="unknown-action")
        with rules.translate_document_errors(machine, "arguments", is_read=declared.writes is not None):
            acted = self._engine.act(
                Ref(kind, id), action, who=self._who, why=why, args=dict(args or {}), confirmed=confirmed
            )
        return self._to_result_view(acted)

    def set_priority(self, kind: str, id: str, priority: int, *, why: str = "") -> ActionResultView:
        self._environment.machines[kind]
        return self._to_result_view(self._engine.set_priority(Ref(kind, id), priority, who=self._who, why=why))

    def list_holds(self) -> dict[str, str]:
        return self._store.list_holds()

    def set_hold(self, name: str, *, why: str = "") -> None:
        self._engine.set_hold(name, who=self._who, why=why)

    def clear_hold(self, name: str) -> None:
        if name not in (holds := self._store.list_holds()):
            raise NotFound(
                f"There is no hold {name!r} in force; there are {', '.join(sorted(holds)[:20]) or 'none'}.",
                code="unknown-hold",
            )
        self._engine.clear_hold(name)

    def list_sessions(self) -> list[SessionView]:
        now = self._store.now()
        return [views.to_session_view(session, now) for session in self._store.list_sessions()]

    def act_all(
        self,
        kind: str,
        action: str,
        *,
        state: str | None = None,
        parent: str | None = None,
        owner: str | None = None,
        why: str = "",
        confirmed: bool = False,
    ) -> Iterator[tuple[Ref, ActionResultView | WaybillError]]:
        self._check_state(self._environment.machines[kind], state)
        results = self._engine.act_all(
            kind,
            action,
            state=state,
            parent=self._parse_ref(parent) if parent is not None else None,
            owner=owner,
            who=self._who,
            why=why,
            confirmed=confirmed,
        )
        for ref, result in results:
            yield ref, self._to_result_view(result) if isinstance(result, ActionResult) else result

    def follow_record(self, kind: str, id: str, interval: float) -> Iterator[RecordView]:
        while True:
            yield self.get_record(kind, id)
            self.wait(interval)

    def wait(self, seconds: float) -> None:
        """At least MIN_INTERVAL: a busy store signals all the time."""
        started_at = time.monotonic()
        self._store.watch(seconds)
        if (left := MIN_INTERVAL - (time.monotonic() - started_at)) > 0:
            time.sleep(left)

    def _to_result_view(self, acted: ActionResult) -> ActionResultView:
        return {"record": views.to_record_view(acted.record, self._environment.machines), "pending": acted.pending}

    def _parse_ref(self, text: str) -> Ref:
        kind, colon, id = text.partition(":")
        if not colon or not kind or not id:
            raise NotFound(f"{text!r} names no record; write KIND:ID, such as shipment:shp0000000001.")
        self._environment.machines[kind]
        return Ref(kind, id)

    def _check_state(self, machine: Machine, state: str | None) -> None:
        """Raise NotFound unless the state is declared, or holds records of an earlier release."""
        if (
            state is not None
            and machine.find_state(state) is None
            and state not in self._store.count_by_state(machine.name)
        ):
            names = ", ".join(s.name for s in machine.states)
            raise NotFound(f"A {machine.name} has no state {state!r}; it has {names}.", code="unknown-state")
