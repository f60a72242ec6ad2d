"""The records of every kind: list, read, submit, act.

A write is answered when it is committed. A submission with an `Idempotency-Key` is safe to repeat: the response is the
first record again.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal
from urllib.parse import quote

from fastapi import APIRouter, Header, Path, Query
from fastapi.responses import Response
from pydantic import Field
from typing_extensions import TypedDict

from waybill import rules, views
from waybill.accounts import RecordAccess
from waybill.engine import ActionResult
from waybill.http.api_services import API_PREFIX, ApiServices, IdText, KindText, ParentText
from waybill.http.authentication import check_role, make_forbidden_problem, require_role
from waybill.http.errors import WRITE_STATUSES, HttpProblem, describe_responses
from waybill.http.json_io import Name, RequestBody, Text, to_json_response
from waybill.machine import Machine
from waybill.record import MAX_PAGE, Change, Record, Ref, Store
from waybill.rules import inputs
from waybill.step import New
from waybill.tokens import Identity
from waybill.views.view_types import HistoryEntryView, PageView, RecordView

IDEMPOTENCY_KEY_PATTERN = inputs.IDEMPOTENCY_KEY_PATTERN


class RecordSubmissionBody(RequestBody):
    id: Annotated[str, Field(max_length=600)] | None = Field(
        None, description="Only for kinds whose records are named by the client."
    )
    state: Name | None = Field(None, description="The initial state, where the machine allows a choice.")
    documents: dict[str, Any] = Field(default_factory=dict, description="The documents of the new record, by name.")
    priority: int | None = Field(None, ge=0, le=99, strict=True, description="0 to 99, lower first.")
    owner: Name | None = Field(None, description="The owner: a depositor, a project, an account.")
    idempotency_key: Annotated[str, Field(pattern=IDEMPOTENCY_KEY_PATTERN)] | None = Field(
        None, description="The same as the header Idempotency-Key."
    )
    why: Text = ""


class RecordActionBody(RequestBody):
    why: Text = ""
    args: dict[str, Any] = Field(default_factory=dict, description="The arguments of the action, if it has any.")
    confirmed: bool = Field(False, description="The user has seen the text of the action's `confirm`, and agreed.")


class PriorityBody(RequestBody):
    priority: int = Field(ge=0, le=99, strict=True, description="0 to 99, lower first.")
    why: Text = ""


class ActionResultView(TypedDict):
    record: RecordView
    pending: bool  # a worker has claimed the record; it applies this when its step has ended


class HistoryView(TypedDict):
    entries: list[HistoryEntryView]


def build_router(services: ApiServices) -> APIRouter:
    routes = services.build_router("records")
    machines = services.environment.machines

    @routes.get(
        "/records/{kind}", summary="Records of a kind, in creation order, page by page", response_model=PageView
    )
    def list_records(
        identity: Annotated[Identity, require_role("reader", somewhere=True)],
        kind: Annotated[KindText, Path()],
        state: Annotated[Name | None, Query(description="Only those in this state.")] = None,
        parent: Annotated[ParentText | None, Query(description="KIND:ID: only the children of this record.")] = None,
        owner: Annotated[Name | None, Query(description="Only those of this owner.")] = None,
        order: Annotated[
            Literal["oldest", "newest"] | None, Query(description="Which come first; oldest by default.")
        ] = None,
        page_token: Annotated[
            str | None, Query(description="The `next` of the page before; it holds the filter and the order.")
        ] = None,
        limit: Annotated[int, Query(ge=1, le=MAX_PAGE, description="Records in a page.")] = 100,
        documents: Annotated[bool, Query(description="Include the documents.")] = False,
    ) -> Response:
        """Give at most one of state, parent and owner."""
        machine = services.get_visible_machine(kind)
        requested = views.ListQuery(
            kind, state, services.parse_ref(parent) if parent is not None else None, owner, order == "newest"
        )
        if sum(f is not None for f in (state, parent, owner)) > 1:
            raise HttpProblem(
                "bad-query", "A list has at most one filter.", "Give only one of state, parent and owner."
            )
        with services.open_store(identity) as store:
            if state is not None and page_token is None:
                check_state(machine, state, store)
            page, next_token = views.find_page(
                store,
                requested,
                page_token,
                limit=limit,
                documents=documents,
                is_order_given=order is not None,
                tokens_of=services.get_page_tokens,
            )
            progress = _read_progress(store, page.records)
            view = views.to_page_view(page, machines, store, next_token, documents, progress=progress)
        return to_json_response(view)

    @routes.get("/records/{kind}/{id}", summary="One record with its documents", response_model=RecordView)
    def get_record(
        identity: Annotated[Identity, require_role("reader", somewhere=True)],
        kind: Annotated[KindText, Path()],
        id: Annotated[IdText, Path()],
    ) -> Response:
        """Each of its actions says in `why_not` why it is refused now."""
        ref = services.make_ref(kind, id)
        with services.open_store(identity) as store:
            record = store.get(*ref)
            return to_json_response(
                views.to_record_view(
                    record, machines, documents=True, progress=_read_progress(store, [record]), store=store
                )
            )

    @routes.get(
        "/records/{kind}/{id}/history", summary="What happened to a record, oldest first", response_model=HistoryView
    )
    def get_history(
        identity: Annotated[Identity, require_role("reader", somewhere=True)],
        kind: Annotated[KindText, Path()],
        id: Annotated[IdText, Path()],
    ) -> Response:
        ref = services.make_ref(kind, id)
        with services.open_store(identity) as store:
            entries = store.history(*ref)
            if not entries:
                store.get(*ref)  # raises when there is no such record; one without history has an empty list
        return to_json_response({"entries": [views.to_history_entry_view(entry) for entry in entries]})

    @routes.post(
        "/records/{kind}",
        summary="Submit a record",
        status_code=201,
        response_model=RecordView,
        responses=describe_responses(
            *WRITE_STATUSES,
            extra={
                200: {"model": RecordView, "description": "The key is known: this is the record that it made first."}
            },
        ),
    )
    def submit_record(
        identity: Annotated[Identity, require_role("submitter", somewhere=True)],
        kind: Annotated[KindText, Path()],
        body: RecordSubmissionBody,
        idempotency_key: Annotated[
            str | None,
            Header(pattern=IDEMPOTENCY_KEY_PATTERN, description="Two requests with the same key make one record."),
        ] = None,
    ) -> Response:
        machine = services.get_visible_machine(kind)
        if machine.made_by:
            message = f"No {kind} is created here, where its documents would not be checked."
            raise HttpProblem("forbidden", message, f"It is made by {machine.made_by}.")
        if idempotency_key is not None and body.idempotency_key is not None and idempotency_key != body.idempotency_key:
            raise HttpProblem(
                "bad-query",
                "The header Idempotency-Key and the idempotency_key of the body differ.",
                "Send one of them.",
            )
        key = idempotency_key if idempotency_key is not None else body.idempotency_key
        new = New(
            kind,
            body.documents,
            id=body.id,
            state=body.state,
            owner=body.owner if body.owner is not None or not identity.owners else identity.owners[0],
            priority=body.priority,
            idempotency_key=key,
        )
        access = services.get_access(identity)
        with rules.translate_document_errors(machine):
            # pure: wrong documents are found before any write, and so is whose it would be
            created = rules.create(machines, new, who=identity.name, why=body.why)
        check_may_submit(access, created)
        with services.connections.open_engine() as engine:
            # a record that is older than this was made by an earlier request
            started_at = engine.store.now() if key is not None else 0.0
            record = engine.submit(new, who=identity.name, why=body.why)
        if not access.may(record, "reader"):  # made before, with the same key, for somebody else
            raise HttpProblem("conflict", f"The key {key} is in use.", "Use a new key for a new record.")
        is_repeated = key is not None and record.created < started_at
        if is_repeated and body.id is not None and record.id != body.id:
            raise HttpProblem(
                "conflict", f"The key {key} made {record.ref} before, not {body.id}.", "Use a new key for a new record."
            )
        services.change_feed.notify_changed()
        location = f"{API_PREFIX}/records/{kind}/{quote(record.id, safe='')}"
        return to_json_response(
            views.to_record_view(record, machines), 200 if is_repeated else 201, {"Location": location}
        )

    @routes.post(
        "/records/{kind}/{id}/{action}",
        summary="Take an action",
        response_model=ActionResultView,
        responses=describe_responses(
            *WRITE_STATUSES,
            extra={
                202: {
                    "model": ActionResultView,
                    "description": "A worker has claimed the record, and applies the action when its step has ended.",
                }
            },
        ),
    )
    def take_action(
        identity: Annotated[Identity, require_role("reader", somewhere=True)],
        kind: Annotated[KindText, Path()],
        id: Annotated[IdText, Path()],
        action: Annotated[Name, Path()],
        body: RecordActionBody | None = None,
    ) -> Response:
        """The machine says which role it needs. The message of 409 says why it is refused."""
        ref, request = services.make_ref(kind, id), body if body is not None else RecordActionBody(confirmed=False)
        declared = machines[kind].find_action(action)
        if declared is None:
            names = ", ".join(a.name for a in machines[kind].actions) or "none"
            raise HttpProblem(
                "unknown-action", f"A {kind} has no action {action!r}; it has {names}.", f"GET /api/v1/machines/{kind}."
            )
        with (
            services.connections.open_engine() as engine,
            rules.translate_document_errors(machines[kind], "arguments", is_read=declared.writes is not None),
        ):
            if not identity.has_role(declared.role):
                check_may_act(services.get_access(identity), engine.store, ref, declared.role)
            acted = engine.act(
                ref, action, who=identity.name, why=request.why, args=request.args, confirmed=request.confirmed
            )
        return _action_response_of(acted)

    @routes.put(
        "/records/{kind}/{id}/priority",
        summary="Set the priority",
        response_model=ActionResultView,
        responses=describe_responses(
            *WRITE_STATUSES,
            extra={
                202: {
                    "model": ActionResultView,
                    "description": "A worker has claimed the record, and applies the priority when its step has ended.",
                }
            },
        ),
    )
    def set_priority(
        identity: Annotated[Identity, require_role("operator", somewhere=True)],
        kind: Annotated[KindText, Path()],
        id: Annotated[IdText, Path()],
        body: PriorityBody,
    ) -> Response:
        ref = services.make_ref(kind, id)
        with services.connections.open_engine() as engine:
            if not identity.has_role("operator"):
                check_may_act(services.get_access(identity), engine.store, ref, "operator")
            return _action_response_of(engine.set_priority(ref, body.priority, who=identity.name, why=body.why))

    def _action_response_of(acted: ActionResult) -> Response:
        services.change_feed.notify_changed()
        return to_json_response(
            {"record": views.to_record_view(acted.record, machines), "pending": acted.pending},
            202 if acted.pending else 200,
        )

    return routes


def check_may_act(access: RecordAccess, store: Store, ref: Ref, role: str) -> None:
    """Raise unless the caller has a role for a record: 404 where it may not be seen, then 403."""
    if access.identity.has_role("reader"):
        check_role(access.identity, role, somewhere=True)  # before the record is read: it may be anything
    access.get(store, ref, role)


def check_may_submit(access: RecordAccess, created: Change) -> None:
    """Raise unless the caller may submit what would be created: for its owner, and within its scope."""
    record = created.after
    assert record is not None
    if not access.may(record, "submitter"):
        where = f"within {record.scope}" if record.scope else "outside of all scopes"
        message = f"You may not submit a {record.kind} for {record.owner!r} {where}"
        raise make_forbidden_problem(access.identity, message, "submitter")


def check_state(machine: Machine, state: str, store: Store) -> None:
    """Raise unless the state is declared, or holds records of another release."""
    if machine.find_state(state) is None and state not in store.count_by_state(machine.name):
        names = ", ".join(s.name for s in machine.states)
        message = f"A {machine.name} has no state {state!r}; it has {names}."
        raise HttpProblem("unknown-state", message, f"GET /api/v1/machines/{machine.name}.")


def _read_progress(store: Store, records: list[Record]) -> dict[str, Any]:
    """Read from the sessions only when a worker has claimed one of the records."""
    return views.progress_of(store.list_sessions()) if any(r.session is not None for r in records) else {}
