"""The records of every kind: list, look at, submit, act.

A write is answered when it is written. A submission with an `Idempotency-Key` is safe to repeat: the first record is
answered again.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal
from urllib.parse import quote

from fastapi import APIRouter, Header, Path, Query
from fastapi.responses import Response
from pydantic import Field
from typing_extensions import TypedDict

from waybill import rules, views
from waybill.engine import Acted
from waybill.http.errors import Problem, responses
from waybill.http.front import PREFIX, Front, Id, Kind, Parent
from waybill.http.guard import demand, need
from waybill.http.wire import Body, Name, Text, answer
from waybill.machine import Machine
from waybill.record import MAX_PAGE, Record, Store
from waybill.rules import words
from waybill.step import New
from waybill.tokens import Identity
from waybill.views import BadToken
from waybill.views.shapes import LineView, PageView, RecordView

KEY = words.REQUEST


class Submission(Body):
    id: Annotated[str, Field(max_length=600)] | None = Field(
        None, description="Only for kinds whose caller names the records."
    )
    docs: dict[str, Any] = Field(
        default_factory=dict, description="The documents that the record begins with, by name."
    )
    priority: int | None = Field(None, ge=0, le=99, strict=True, description="0 to 99, lower first.")
    owner: Name | None = Field(None, description="Whose it is: a depositor, a project, an account.")
    request: Annotated[str, Field(pattern=KEY)] | None = Field(
        None, description="The same as the header Idempotency-Key."
    )
    why: Text = ""


class Act(Body):
    why: Text = ""
    args: dict[str, Any] = Field(
        default_factory=dict, description="What the action needs to know, where it needs something."
    )
    confirmed: bool = Field(False, description="Whoever asks was told what the action's `confirm` says, and agreed.")


class Priority(Body):
    priority: int = Field(ge=0, le=99, strict=True, description="0 to 99, lower first.")
    why: Text = ""


class ActedView(TypedDict):
    record: RecordView
    pending: bool  # a worker holds the record; it was asked, and applies this when its step has ended


class HistoryView(TypedDict):
    lines: list[LineView]


def router(front: Front) -> APIRouter:
    routes = front.router("records")
    machines = front.depot.machines

    @routes.get(
        "/records/{kind}",
        summary="Records of a kind, in creation order, page by page",
        response_model=PageView,
        responses=responses(400, 401, 403, 404, 422, 503),
    )
    def find(
        identity: Annotated[Identity, need("reader")],
        kind: Annotated[Kind, Path()],
        state: Annotated[Name | None, Query(description="Only those in this state.")] = None,
        parent: Annotated[Parent | None, Query(description="KIND:ID: only the children of this record.")] = None,
        owner: Annotated[Name | None, Query(description="Only those of this owner.")] = None,
        order: Annotated[
            Literal["oldest", "newest"] | None, Query(description="Which come first; oldest if not given.")
        ] = None,
        token: Annotated[
            str | None, Query(description="The `next` of the page before; it knows the filter and the order.")
        ] = None,
        limit: Annotated[int, Query(ge=1, le=MAX_PAGE, description="Records in a page.")] = 100,
        docs: Annotated[bool, Query(description="With their documents.")] = False,
    ) -> Response:
        """At most one of state, parent and owner."""
        machine = front.shown_kind(kind)
        asked = views.Query(
            kind, state, front.parse_ref(parent) if parent is not None else None, owner, order == "newest"
        )
        if sum(f is not None for f in (state, parent, owner)) > 1:
            raise Problem(
                400, "bad-query", "A list has at most one filter.", "Leave all but one of state, parent and owner away."
            )
        with front.connections.store() as store:
            tokens, after = front.pages(store), None
            if token is not None:
                query, after = tokens.verify(token)
                if not _same_list(query, asked, order):
                    raise BadToken(
                        "This page token belongs to another list. Give it with the same kind, filter and order, or alone."
                    )
                asked = query
            elif state is not None:
                check_state(machine, state, store)
            page = store.find(
                kind,
                state=asked.state,
                parent=asked.parent,
                owner=asked.owner,
                after=after,
                newest=asked.newest,
                limit=limit,
                docs=docs,
            )
            view = views.page(
                page, machines, store, tokens.sign(asked, page.after), docs, progress=_progress(store, page.records)
            )
        return answer(view)

    @routes.get(
        "/records/{kind}/{id}",
        summary="One record with its documents",
        response_model=RecordView,
        responses=responses(401, 403, 404, 422, 503),
    )
    def get(
        identity: Annotated[Identity, need("reader")], kind: Annotated[Kind, Path()], id: Annotated[Id, Path()]
    ) -> Response:
        """Each of its actions says in `why_not` what its guard would say now."""
        ref = front.ref(kind, id)
        with front.connections.store() as store:
            record = store.get(*ref)
            return answer(views.record(record, machines, docs=True, progress=_progress(store, [record]), store=store))

    @routes.get(
        "/records/{kind}/{id}/history",
        summary="What happened to a record, oldest first",
        response_model=HistoryView,
        responses=responses(401, 403, 404, 422, 503),
    )
    def history(
        identity: Annotated[Identity, need("reader")], kind: Annotated[Kind, Path()], id: Annotated[Id, Path()]
    ) -> Response:
        ref = front.ref(kind, id)
        with front.connections.store() as store:
            lines = store.history(*ref)
            if not lines:
                store.get(*ref)  # a record without lines is not the same as no record
        return answer({"lines": [views.line(line) for line in lines]})

    @routes.post(
        "/records/{kind}",
        summary="Submit a record",
        status_code=201,
        response_model=RecordView,
        responses=responses(
            400,
            401,
            403,
            404,
            409,
            413,
            415,
            422,
            503,
            504,
            also={
                200: {"model": RecordView, "description": "The key was known: this is the record that was made first."}
            },
        ),
    )
    def submit(
        identity: Annotated[Identity, need("submitter")],
        kind: Annotated[Kind, Path()],
        body: Submission,
        idempotency_key: Annotated[
            str | None, Header(pattern=KEY, description="Asked twice with one key, made once.")
        ] = None,
    ) -> Response:
        machine = front.shown_kind(kind)
        if machine.made_by:
            said = f"No {kind} is made here, where nobody would look at what is sent."
            raise Problem(403, "forbidden", said, f"It is made by {machine.made_by}.")
        if idempotency_key is not None and body.request is not None and idempotency_key != body.request:
            raise Problem(
                400, "bad-query", "The header Idempotency-Key and the body's request differ.", "Send one of them."
            )
        request = idempotency_key if idempotency_key is not None else body.request
        new = New(kind, body.docs, id=body.id, owner=body.owner, priority=body.priority, request=request)
        with rules.users_documents(machine):
            # pure: what is wrong with the documents is found before any write
            rules.create(machines, new, who=identity.name, why=body.why)
        with front.connections.engine() as engine:
            # what was made before this was made by an earlier request
            began = engine.store.now() if request is not None else 0.0
            record = engine.submit(new, who=identity.name, why=body.why)
        repeated = request is not None and record.created < began
        if repeated and body.id is not None and record.id != body.id:
            raise Problem(
                409,
                "conflict",
                f"The key {request} made {record.ref} before, not {body.id}.",
                "Use a new key for a new record.",
            )
        front.hub.hint()
        where = f"{PREFIX}/records/{kind}/{quote(record.id, safe='')}"
        return answer(views.record(record, machines), 200 if repeated else 201, {"Location": where})

    @routes.post(
        "/records/{kind}/{id}/{action}",
        summary="Take an action",
        response_model=ActedView,
        responses=responses(
            400,
            401,
            403,
            404,
            409,
            413,
            415,
            422,
            503,
            504,
            also={
                202: {
                    "model": ActedView,
                    "description": "A worker holds the record and was asked; it applies the action.",
                }
            },
        ),
    )
    def act(
        identity: Annotated[Identity, need("reader")],
        kind: Annotated[Kind, Path()],
        id: Annotated[Id, Path()],
        action: Annotated[Name, Path()],
        body: Act | None = None,
    ) -> Response:
        """Which role it needs, the machine says. 409 carries the guard's sentence."""
        ref, asked = front.ref(kind, id), body if body is not None else Act(confirmed=False)
        declared = machines[kind].action(action)
        if declared is None:
            names = ", ".join(a.name for a in machines[kind].actions) or "none"
            raise Problem(
                404,
                "unknown-action",
                f"A {kind} has no action {action!r}; it has {names}.",
                f"GET /api/v1/machines/{kind}.",
            )
        demand(identity, declared.role)
        with (
            front.connections.engine() as engine,
            rules.users_documents(machines[kind], "arguments", read=declared.writes is not None),
        ):
            acted = engine.act(
                ref, action, who=identity.name, why=asked.why, args=asked.args, confirmed=asked.confirmed
            )
        return _acted(acted)

    @routes.put(
        "/records/{kind}/{id}/priority",
        summary="Set the priority",
        response_model=ActedView,
        responses=responses(
            400,
            401,
            403,
            404,
            409,
            413,
            415,
            422,
            503,
            504,
            also={
                202: {
                    "model": ActedView,
                    "description": "A worker holds the record and was asked; it applies the priority.",
                }
            },
        ),
    )
    def priority(
        identity: Annotated[Identity, need("operator")],
        kind: Annotated[Kind, Path()],
        id: Annotated[Id, Path()],
        body: Priority,
    ) -> Response:
        ref = front.ref(kind, id)
        with front.connections.engine() as engine:
            return _acted(engine.priority(ref, body.priority, who=identity.name, why=body.why))

    def _acted(acted: Acted) -> Response:
        front.hub.hint()
        return answer(
            {"record": views.record(acted.record, machines), "pending": acted.pending}, 202 if acted.pending else 200
        )

    return routes


def _same_list(query: views.Query, asked: views.Query, order: str | None) -> bool:
    """A token alone goes on with its own list; what is given beside it must agree with it."""
    given = (asked.state, asked.parent, asked.owner)
    return (
        query.kind == asked.kind
        and (given == (None, None, None) or given == (query.state, query.parent, query.owner))
        and (order is None or query.newest == asked.newest)
    )


def check_state(machine: Machine, state: str, store: Store) -> None:
    """A state that is not declared can still hold records of another release; otherwise it is a mistake."""
    if machine.state(state) is None and state not in store.tally(machine.name):
        names = ", ".join(s.name for s in machine.states)
        said = f"A {machine.name} has no state {state!r}; it has {names}."
        raise Problem(400, "unknown-state", said, f"GET /api/v1/machines/{machine.name}.")


def _progress(store: Store, records: list[Record]) -> dict[str, Any]:
    """Read only where a worker is busy with one of them."""
    return views.progress_of(store.sessions()) if any(r.session is not None for r in records) else {}
