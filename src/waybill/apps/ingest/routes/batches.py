"""Batches over HTTP: submit, look at, release.

    POST /api/v1/ingest/batches                    JSON with a URL, or a form: the part `submission` (the same JSON), then the part `file`
    GET  /api/v1/ingest/batches                    the newest first, page by page
    GET  /api/v1/ingest/batches/<id or batchID>    one, with how its jobs stand and what was reported
    GET  /api/v1/ingest/batches/<...>/report       every job that the last report tells of, one JSON line each
    POST /api/v1/ingest/batches/<...>/release      it, and its jobs, if they are held

What else can be done to batches and jobs is done as to all records: /api/v1/records/job/<id>/<action>.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Header, Path, Query, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response, StreamingResponse
from msgspec.structs import replace
from pydantic import ValidationError

from waybill import views
from waybill.apps.ingest import lists, service
from waybill.apps.ingest.report import Told
from waybill.apps.ingest.routes.arriving import Berth
from waybill.apps.ingest.routes.counter import At, Counter, refusals, role, router
from waybill.apps.ingest.routes.form import BadForm, Part, read_form
from waybill.apps.ingest.routes.shapes import AcceptedView, BatchesView, BatchView, BulkView, NewBatch, Why
from waybill.apps.ingest.submission import Submission
from waybill.http.errors import Problem, responses
from waybill.http.records import check_state
from waybill.http.wire import Name, answer
from waybill.record import encode
from waybill.views import BadToken

LINES = "application/x-ndjson"
KEY = r"^[\x21-\x7e]{1,200}$"
BatchName = Annotated[str, Path(max_length=200, description="Its id, or its batchID.")]

_FORM = {
    "type": "object",
    "required": ["submission", "file"],
    "properties": {
        "submission": {"type": "string", "description": "What is submitted, as JSON; it comes before the file."},
        "file": {"type": "string", "format": "binary"},
    },
}


def routes(berth: Berth) -> APIRouter:
    made = router("ingest batches")
    taken = {"application/json": {"schema": NewBatch.model_json_schema()}, "multipart/form-data": {"schema": _FORM}}

    @made.post(
        "/batches",
        summary="Submit a deposit",
        status_code=201,
        response_model=AcceptedView,
        responses=responses(
            400,
            401,
            403,
            404,
            408,
            409,
            413,
            415,
            422,
            503,
            504,
            also={
                200: {
                    "model": AcceptedView,
                    "description": "The batchID or the key was known: this is the batch that was made first.",
                }
            },
        ),
        **role("submitter", requestBody={"required": True, "content": taken}),
    )
    async def submit(
        at: At,
        request: Request,
        idempotency_key: Annotated[
            str | None, Header(pattern=KEY, description="Asked twice with one key, made once.")
        ] = None,
    ) -> Response:
        """The payload is at the `url`, or comes as a file; it is hashed as it comes.

        What it holds is looked at later, by the batch.
        """
        if request.headers.get("content-type", "").lower().startswith("multipart/"):
            accepted = await berth.take(request, lambda chunks: _uploaded(at, chunks, idempotency_key))
        else:
            said = _said(await request.json(), at, idempotency_key)
            accepted = await run_in_threadpool(_fetched_later, at, said)
        return await run_in_threadpool(_accepted, at, accepted)

    @made.get(
        "/batches",
        summary="Batches, the newest first, page by page",
        response_model=BatchesView,
        responses=responses(400, 401, 403, 422, 503),
        **role("reader"),
    )
    def find(
        at: At,
        state: Annotated[Name | None, Query(description="Only those in this state.")] = None,
        submitter: Annotated[Name | None, Query(description="Only those of this submitter.")] = None,
        token: Annotated[str | None, Query(description="The `next` of the page before; it knows the filter.")] = None,
        limit: Annotated[int, Query(ge=1, le=200)] = 50,
    ) -> Response:
        if state is not None and submitter is not None:
            raise Problem(400, "bad-query", "A list has at most one filter.", "Leave state or submitter away.")
        query, after = views.Query("batch", state, None, submitter, True), None
        with at.engine() as engine:
            tokens = at.pages(engine.store)
            if token is not None:
                asked, after = tokens.verify(token)
                if asked.kind != "batch" or asked.parent is not None or not asked.newest:
                    raise BadToken
                query = asked
            elif state is not None:
                check_state(engine.machines["batch"], state, engine.store)
            page = engine.store.find(
                "batch", state=query.state, owner=query.owner, after=after, newest=True, limit=limit, docs=True
            )
            found = [service.batch_view(engine, record) for record in page.records]
            return answer({"batches": found, "next": tokens.sign(query, page.after)})

    @made.get(
        "/batches/{name}",
        summary="One batch",
        response_model=BatchView,
        responses=responses(401, 403, 404, 422, 503),
        **role("reader"),
    )
    def one(at: At, name: BatchName) -> Response:
        with at.engine() as engine:
            return answer(service.batch_view(engine, service.find_batch(engine, name)))

    @made.get(
        "/batches/{name}/report",
        summary="Every job that the last report tells of, one JSON line each",
        response_class=Response,
        responses=responses(
            401,
            403,
            404,
            422,
            503,
            also={
                200: {
                    "content": {LINES: {"schema": {"type": "string"}}},
                    "description": "Its id and state then; of a failure, why.",
                }
            },
        ),
        **role("reader"),
    )
    def report(at: At, name: BatchName) -> Response:
        with at.engine() as engine:
            batch = service.find_batch(engine, name)
        told = batch.docs.get("status-report")
        jobs = told.get("jobs") if isinstance(told, dict) else None
        if not isinstance(jobs, dict):
            raise Problem(
                404, "not-found", f"{batch.ref} has not been reported yet.", "Ask again when it is Completed or Failed."
            )
        rows = lists.each(at.outfit.objects, jobs, Told)
        return StreamingResponse((encode(row.shown()) + b"\n" for row in rows), media_type=LINES)

    @made.post(
        "/batches/{name}/release",
        summary="Release a batch and its jobs, if they are held",
        response_model=BulkView,
        responses=responses(400, 401, 403, 404, 409, 413, 415, 422, 503, 504),
        **role("operator"),
    )
    def release(at: At, name: BatchName, body: Why | None = None) -> Response:
        """What a collection's hold still stops is refused, each with its sentence."""
        with at.engine() as engine:
            bulk = service.release_batch(
                engine, service.find_batch(engine, name), who=at.who, why=body.why if body is not None else ""
            )
        at.changed()
        return answer(msgspec.to_builtins(bulk))

    return made


def _said(body: Any, at: Counter, key: str | None) -> Submission:
    try:
        said = NewBatch.model_validate(body).said()
    except ValidationError as error:
        raise RequestValidationError(
            [{**each, "loc": ("body", *each["loc"])} for each in error.errors(include_input=False)]
        ) from None
    if key is None:
        return said
    derived = service.batch_id_of(key, at.who)
    if said.batch_id not in ("", derived):
        raise Problem(400, "bad-query", "There are an Idempotency-Key and a batch_id.", "Send one of them.")
    return replace(said, batch_id=derived)


def _fetched_later(at: Counter, said: Submission) -> service.Accepted:
    with refusals():
        with at.connection() as engine:
            complete, profile = service.ready(engine, at.outfit, said, who=at.who)
        whole = service.located(at.outfit, complete)
        with at.connection() as engine:
            return service.enter(engine, whole, profile, who=at.who)


def _uploaded(at: Counter, chunks: Iterator[bytes], key: str | None) -> service.Accepted:
    with refusals(), service.uploading(at.outfit) as keep:
        said, received = None, None
        for part in read_form(chunks, at.request.headers.get("content-type", "")):
            if part.name == "submission" and said is None:
                said = _said(_json(part), at, key)
                if said.url:
                    raise service.Unfit("Give a file or a URL, not both.")
                with at.connection() as engine:
                    complete, profile = service.ready(engine, at.outfit, said, who=at.who)
            elif part.name == "file" and said is not None and received is None:
                wanted = [said.digest_type] if said.digest_type else []
                received = service.receive(
                    at.outfit, complete.batch_id, said.filename or part.filename or "", part.data, digests=wanted
                )
                keep(received)
            else:
                raise BadForm(
                    f"The part {part.name[:60]!r} is not expected here: send `submission` first, then one `file`, and nothing else."
                )
        if said is None or received is None:
            raise BadForm("The form is not whole: send `submission`, then `file`.")
        whole = service.arrived(at.outfit, complete, received)
        with at.connection() as engine:
            accepted = service.enter(engine, whole, profile, who=at.who)
        return service.settle(at.outfit, accepted, received)


def _json(part: Part) -> Any:
    try:
        return msgspec.json.decode(part.text())
    except (msgspec.DecodeError, RecursionError) as error:
        raise BadForm(f"The part `submission` is not JSON: {error}.") from None


def _accepted(at: Counter, accepted: service.Accepted) -> Response:
    at.changed()
    with at.engine() as engine:
        view = {**service.batch_view(engine, accepted.batch), "repeated": accepted.repeated, "warnings": []}
    return answer(view, 200 if accepted.repeated else 201, {"Location": view["links"]["batch"]})
