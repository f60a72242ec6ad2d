"""Batches over HTTP: submit, list, show, release.

    POST /api/v1/ingest/batches                    JSON with a URL or an upload (uploads.py), or a form: the part `submission` (the
                                                   same JSON), then the part `file`
    GET  /api/v1/ingest/batches                    the newest first, page by page
    GET  /api/v1/ingest/batches/<id or batchID>    one batch, with the states of its jobs and its last report
    GET  /api/v1/ingest/batches/<...>/report       every job of the last report, one JSON line each
    POST /api/v1/ingest/batches/<...>/release      release the batch and its jobs, if they are held

All other actions on batches and jobs are those of all records: /api/v1/records/job/<id>/<action>.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, cast

import msgspec
from fastapi import APIRouter, Header, Path, Query, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response, StreamingResponse
from msgspec.structs import replace
from pydantic import ValidationError

from waybill.apps.ingest import service
from waybill.apps.ingest.batch_report import ReportedJob
from waybill.apps.ingest.documents import BatchReport
from waybill.apps.ingest.routes.context import PREFIX, IngestRequest, IngestRequestContext, check_may_deposit
from waybill.apps.ingest.routes.schemas import AcceptedView, BatchesView, BatchView, BulkView, NewBatch
from waybill.apps.ingest.routes.uploads import read_token
from waybill.apps.ingest.submission import Submission
from waybill.errors import InputError
from waybill.http.errors import READ_STATUSES, WRITE_STATUSES, HttpProblem, describe_responses
from waybill.http.holds_and_sessions import ReasonBody
from waybill.http.json_io import Name, to_json_response
from waybill.http.records import check_state
from waybill.http.request_context import declare_role, make_router
from waybill.http.uploads import FormPart, UploadSlots, read_form
from waybill.manifests import record_lists
from waybill.record import encode_document
from waybill.rules import IDEMPOTENCY_KEY_PATTERN
from waybill.views import ListQuery

NDJSON = "application/x-ndjson"
BatchName = Annotated[str, Path(max_length=200, description="Its id, or its batchID.")]

_FORM_SCHEMA = {
    "type": "object",
    "required": ["submission", "file"],
    "properties": {
        "submission": {"type": "string", "description": "The submission as JSON; it comes before the file."},
        "file": {"type": "string", "format": "binary"},
    },
}


def build_batch_router(upload_slots: UploadSlots) -> APIRouter:
    router = make_router(PREFIX, "ingest batches")
    content = {"application/json": {"schema": _describe_body()}, "multipart/form-data": {"schema": _FORM_SCHEMA}}

    @router.post(
        "/batches",
        summary="Submit a deposit",
        status_code=201,
        response_model=AcceptedView,
        responses=describe_responses(
            *WRITE_STATUSES,
            408,
            extra={
                200: {
                    "model": AcceptedView,
                    "description": "The batchID or the key is known: this is the first batch with it.",
                }
            },
        ),
        **declare_role("submitter", somewhere=True, requestBody={"required": True, "content": content}),
    )
    async def submit(
        context: IngestRequest,
        request: Request,
        idempotency_key: Annotated[
            str | None,
            Header(pattern=IDEMPOTENCY_KEY_PATTERN, description="Submitting twice with one key makes one batch."),
        ] = None,
    ) -> Response:
        """The payload is at the `url`, or is uploaded as a file and hashed while it arrives.

        Its contents are checked later, by the batch.
        """
        if request.headers.get("content-type", "").lower().startswith("multipart/"):
            accepted = await upload_slots.take(request, lambda chunks: _submit_upload(context, chunks, idempotency_key))
        else:
            body = _parse_body(await request.json())
            # an upload has its batchID already, so it makes one batch with and without a key
            submission = _to_submission(body, context, None if body.upload else idempotency_key)
            submit = _submit_pieces if body.upload else _submit_url
            accepted = await run_in_threadpool(submit, context, submission, body.upload)
        return await run_in_threadpool(_respond_accepted, context, accepted)

    @router.get(
        "/batches",
        summary="Batches, the newest first, page by page",
        response_model=BatchesView,
        **declare_role("reader", somewhere=True),
    )
    def list_batches(
        context: IngestRequest,
        state: Annotated[Name | None, Query(description="Only those in this state.")] = None,
        submitter: Annotated[Name | None, Query(description="Only those of this submitter.")] = None,
        page_token: Annotated[
            str | None, Query(description="The `next` of the page before; it includes the filter.")
        ] = None,
        limit: Annotated[int, Query(ge=1, le=200)] = 50,
    ) -> Response:
        if state is not None and submitter is not None:
            raise HttpProblem("bad-query", "A list has at most one filter.", "Leave out state or submitter.")
        requested = ListQuery("batch", state, None, submitter, newest=True)
        with context.open_reading_engine() as engine:
            if state is not None and page_token is None:
                check_state(engine.machines["batch"], state, engine.store)
            page, next_token = context.find_page(engine.store, requested, page_token, limit=limit, is_order_given=True)
            batches = [service.build_batch_view(engine, record) for record in page.records]
            return to_json_response({"batches": batches, "next": next_token})

    @router.get(
        "/batches/{name}", summary="One batch", response_model=BatchView, **declare_role("reader", somewhere=True)
    )
    def get_batch(context: IngestRequest, name: BatchName) -> Response:
        with context.open_reading_engine() as engine:
            return to_json_response(service.build_batch_view(engine, service.find_batch(engine, name)))

    @router.get(
        "/batches/{name}/report",
        summary="Every job of the last report, one JSON line each",
        response_class=Response,
        responses=describe_responses(
            *READ_STATUSES,
            extra={
                200: {
                    "content": {NDJSON: {"schema": {"type": "string"}}},
                    "description": "Its id, its state at that time, and why it failed.",
                }
            },
        ),
        **declare_role("reader", somewhere=True),
    )
    def stream_report(context: IngestRequest, name: BatchName) -> Response:
        with context.open_reading_engine() as engine:
            batch = service.find_batch(engine, name)
        report = batch.find_document(BatchReport)
        if report is None or report.jobs is None:
            raise HttpProblem(
                "not-found", f"{batch.ref} has no report yet.", "Ask again when it is Completed or Failed."
            )
        rows = record_lists.read_list(context.resources.objects, report.jobs, ReportedJob)
        return StreamingResponse((encode_document(row.to_document()) + b"\n" for row in rows), media_type=NDJSON)

    @router.post(
        "/batches/{name}/release",
        summary="Release a batch and its jobs, if they are held",
        response_model=BulkView,
        responses=describe_responses(*WRITE_STATUSES),
        **declare_role("operator", somewhere=True),
    )
    def release_batch(context: IngestRequest, name: BatchName, body: ReasonBody | None = None) -> Response:
        """Records that a hold of their collection still stops are refused, each with its reason."""
        with context.open_engine() as engine:
            batch = context.access.check(service.find_batch(engine, name), "operator")
            result = service.release_batch(engine, batch, who=context.who, why=body.why if body is not None else "")
        context.notify_change()
        return to_json_response(msgspec.to_builtins(result))

    return router


def _describe_body() -> dict[str, Any]:
    """The schema of a submission with its definitions in their places: references of a description begin at its root."""
    schema = NewBatch.model_json_schema()
    definitions = schema.pop("$defs", {})

    def inline(value: Any) -> Any:
        if isinstance(value, list):
            return [inline(each) for each in value]
        if not isinstance(value, dict):
            return value
        if "$ref" in value:
            return inline(definitions[value["$ref"].rpartition("/")[2]])
        return {name: inline(each) for name, each in value.items()}

    return cast(dict[str, Any], inline(schema))


def _parse_body(body: Any) -> NewBatch:
    try:
        return NewBatch.model_validate(body)
    except ValidationError as error:
        raise RequestValidationError(
            [{**each, "loc": ("body", *each["loc"])} for each in error.errors(include_input=False)]
        ) from None


def _to_submission(body: NewBatch, context: IngestRequestContext, idempotency_key: str | None) -> Submission:
    submission = body.to_submission()
    if idempotency_key is None:
        return submission
    batch_id = service.batch_id_of(idempotency_key, context.who)
    if submission.batch_id not in ("", batch_id):
        raise HttpProblem("bad-query", "There are an Idempotency-Key and a batch_id.", "Send one of them.")
    return replace(submission, batch_id=batch_id)


def _submit_url(context: IngestRequestContext, submission: Submission, upload: str = "") -> service.AcceptedDeposit:
    with context.open_engine() as engine:
        completed, profile = service.complete_submission(engine, context.resources, submission, who=context.who)
    check_may_deposit(context, completed)
    completed = service.add_url_payload(context.resources, completed)
    with context.open_engine() as engine:
        return service.make_batch(engine, completed, profile, who=context.who)


def _submit_pieces(context: IngestRequestContext, submission: Submission, upload: str) -> service.AcceptedDeposit:
    """Submit a file that was uploaded in pieces. Safe to repeat: its batchID is that of the upload, and makes one batch."""
    known = read_token(context, upload)
    if submission.url:
        raise InputError("Give an upload or a URL, not both.")
    if submission.batch_id not in ("", known.key):
        raise InputError(f"The upload was announced for the batchID {known.key}, and the submission names another one.")
    with context.open_engine() as engine:
        completed, profile = service.complete_submission(
            engine, context.resources, replace(submission, batch_id=known.key), who=context.who
        )
        check_may_deposit(context, completed)
        repeated = service.find_submitted(engine, known.key)
    if repeated is not None:
        return repeated  # its batch may have ended, and the upload is gone then
    digests = [submission.digest_type] if submission.digest_type else []
    received = service.piecewise_uploads_of(context.resources).finish(known, digests)
    completed = service.add_upload_payload(context.resources, completed, received)
    with context.open_engine() as engine:
        return service.make_batch(engine, completed, profile, who=context.who)


def _submit_upload(
    context: IngestRequestContext, chunks: Iterator[bytes], idempotency_key: str | None
) -> service.AcceptedDeposit:
    with service.remove_uploads_on_refusal(context.resources) as keep:
        submission, received = None, None
        for part in read_form(chunks, context.request.headers.get("content-type", "")):
            if part.name == "submission" and submission is None:
                submission = _to_submission(_parse_body(_decode_json(part)), context, idempotency_key)
                if submission.url:
                    raise InputError("Give a file or a URL, not both.")
                with context.open_engine() as engine:
                    completed, profile = service.complete_submission(
                        engine, context.resources, submission, who=context.who
                    )
                check_may_deposit(context, completed)
            elif part.name == "file" and submission is not None and received is None:
                received = service.receive_upload(
                    context.resources,
                    completed.batch_id,
                    submission.filename or part.filename or "",
                    part.data,
                    digests=[submission.digest_type] if submission.digest_type else [],
                )
                keep(received)
            else:
                raise InputError(
                    f"The part {part.name[:60]!r} is not expected here: send `submission` first, then one `file`, and nothing else."
                )
        if submission is None or received is None:
            raise InputError("The form is incomplete: send `submission`, then `file`.")
        completed = service.add_upload_payload(context.resources, completed, received)
        with context.open_engine() as engine:
            accepted = service.make_batch(engine, completed, profile, who=context.who)
        return service.remove_unused_upload(context.resources, accepted, received)


def _decode_json(part: FormPart) -> Any:
    try:
        return msgspec.json.decode(part.read_text())
    except (msgspec.DecodeError, RecursionError) as error:
        raise InputError(f"The part `submission` is not JSON: {error}.") from None


def _respond_accepted(context: IngestRequestContext, accepted: service.AcceptedDeposit) -> Response:
    if not context.access.may(accepted.batch, "reader"):  # of somebody else, submitted before
        raise HttpProblem("conflict", f"The batchID {accepted.batch_id} is in use.", "Choose another, or none.")
    context.notify_change()
    with context.open_engine() as engine:
        view = {**service.build_batch_view(engine, accepted.batch), "is_repeated": accepted.is_repeated, "warnings": []}
    return to_json_response(view, 200 if accepted.is_repeated else 201, {"Location": view["links"]["batch"]})
