"""The poster: Merritt's form for deposits, so that its clients need not change.

    POST /poster/submit | add | update [/scheme/shoulder/objectid]      GET /poster/state      GET /poster/help

    curl -u ann:wb_... -F file=@example.checkm -F type=container-batch-manifest -F profile=sample -F responseForm=xml
    .../poster/submit

The form's fields may come in any order, also after the file; what is not known among them is left out, with a warning.
`submit` and `add` are the same; `update` adds to an object that is there. The answer is the state of the batch in
Merritt's form (stateforms.py), as the field `responseForm` wants it, else as the header Accept does, else XML. A token
is needed as everywhere; programs that know only names and passwords send it as the password. Nothing of the form is
read before the token is known: what is wrong with the token is answered as the header Accept wants it.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from typing import Annotated, Any, Literal, cast, get_args

from fastapi import APIRouter, Path, Query, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import Response
from fastapi.routing import APIRoute

from waybill.apps.ingest import service
from waybill.apps.ingest.names import fault
from waybill.apps.ingest.routes import stateforms
from waybill.apps.ingest.routes.arriving import Berth
from waybill.apps.ingest.routes.counter import At, Counter, foreign_router, refusals, role
from waybill.apps.ingest.routes.fields import FIELDS, Fields
from waybill.apps.ingest.routes.form import BadForm, read_form
from waybill.apps.ingest.routes.stateforms import Form
from waybill.http import errors
from waybill.http.errors import Problem

Segment = Annotated[str, Path(max_length=200)]
Asked = Annotated[str, Query(max_length=20, description="xml or json; without it, as the header Accept says.")]
Verb = Literal["submit", "add", "update"]

_SCHEMA = {
    "type": "object",
    "required": ["file", "profile"],
    "properties": {name: {"type": "string", "description": words} for name, words in FIELDS.items()}
    | {"file": {"type": "string", "format": "binary", "description": "The payload."}},
}
_METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]
_WAYS = "POST a form to /poster/submit, /poster/add or /poster/update; GET /poster/help tells its fields."
_STATE = {"content": {"application/xml": {}, "application/json": {}}, "description": "In the form that was asked for."}


def routes(berth: Berth) -> APIRouter:
    made = foreign_router("merritt", "/poster")
    made.route_class = merritts(made.route_class)
    why_not = {**_STATE, "description": "Why not."}
    described = {
        "responses": {200: _STATE, **dict.fromkeys((400, 401, 403, 404, 408, 409, 413, 422, 503, 504), why_not)},
        "response_class": Response,
        **role("submitter", requestBody={"required": True, "content": {"multipart/form-data": {"schema": _SCHEMA}}}),
    }

    async def posted(at: Counter, verb: str, primary_id: str) -> Response:
        fields = Fields()
        try:
            accepted = await berth.take(
                at.request, lambda chunks: _deposited(at, chunks, fields, verb == "update", primary_id)
            )
        except Exception as error:  # noqa: BLE001 - the form has said in which form it is to be answered
            return _refused(at.request, _form(at.request, fields), error)
        at.changed()
        return stateforms.batch(_form(at.request, fields), accepted, fields.warnings)

    # First: it is no verb that is misspelt.
    @made.post("/state", include_in_schema=False, **role("reader"))
    @made.post("/help", include_in_schema=False, **role("reader"))
    async def only_read(at: At) -> Response:
        raise _not_taken(at.request, "GET")

    @made.post("/{verb}", summary="Submit a deposit by Merritt's form", **described)
    async def post(at: At, verb: Verb) -> Response:
        return await posted(at, verb, "")

    @made.post(
        "/{verb}/{scheme}/{shoulder}/{objectid}",
        summary="Submit a version of a known object by Merritt's form",
        **described,
    )
    async def post_object(at: At, verb: Verb, scheme: Segment, shoulder: Segment, objectid: Segment) -> Response:
        return await posted(at, verb, f"{scheme.rstrip(':')}:/{shoulder}/{objectid}")

    known: dict[int | str, dict[str, Any]] = {200: _STATE, **dict.fromkeys((401, 403, 422, 503), why_not)}

    @made.get(
        "/state",
        summary="The state of the service, in Merritt's form",
        response_class=Response,
        responses=known,
        **role("reader"),
    )
    async def state(at: At, t: Asked = "") -> Response:
        marks = await run_in_threadpool(_marks, at)
        return stateforms.service_state(_asked(at.request, t), marks)

    @made.get(
        "/help", summary="The fields of Merritt's form", response_class=Response, responses=known, **role("reader")
    )
    async def help(at: At, t: Asked = "") -> Response:
        return stateforms.help(_asked(at.request, t), FIELDS)

    # Last: what none of the routes above takes, by its path or its method.
    @made.api_route("/{rest:path}", methods=_METHODS, include_in_schema=False, **role("reader"))
    async def other(at: At, rest: str) -> Response:
        allowed = "POST" if rest.partition("/")[0] in get_args(Verb) else "GET" if rest in ("state", "help") else ""
        if not allowed or (allowed == "POST" and rest.count("/") not in (0, 3)):
            raise Problem(404, "no-route", "There is no such route.", _WAYS)
        raise _not_taken(at.request, allowed)

    return made


def _not_taken(request: Request, allowed: str) -> Problem:
    said = f"{request.url.path[:107]} takes {allowed} alone, not {request.method}."
    return Problem(405, "no-method", said, _WAYS, {"Allow": allowed})


def merritts(route_class: type[APIRoute]) -> type[APIRoute]:
    """Routes whose refusals have Merritt's form, also those of a token, a path or a parameter that is not right."""

    class MerrittRoute(route_class):  # type: ignore[misc, valid-type]
        def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
            handle = super().get_route_handler()

            async def handled(request: Request) -> Response:
                try:
                    return cast(Response, await handle(request))
                except Exception as error:  # noqa: BLE001 - whatever it is, Merritt's clients read it in Merritt's form
                    return _refused(request, _asked(request, request.query_params.get("t", "")), error)

            return handled

    return MerrittRoute


def _deposited(at: Counter, chunks: Iterator[bytes], fields: Fields, update: bool, primary_id: str) -> service.Accepted:
    """The whole form, then the batch. What was told before the file is looked at before the file is kept."""
    batch_id = ""
    with refusals(), service.uploading(at.outfit) as keep:
        received = None
        for part in read_form(chunks, at.request.headers.get("content-type", "")):
            if part.name != "file":
                fields.take(part.name, part.text())
                continue
            if part.filename is None:  # a field, as `curl -F file=http://...` sends it; its text is no payload
                raise BadForm(
                    "The field `file` came as text, not as a file: curl sends a file with -F file=@NAME. "
                    "What lies at a URL is submitted to POST /api/v1/ingest/batches, as `url`."
                )
            if received is not None:
                raise BadForm("The form has two files; a deposit has one payload.")
            _look_ahead(at, fields)
            batch_id = fields.one("batchID") or service.new_batch_id()
            fields.sent_as(part.filename or "")
            received = service.receive(
                at.outfit, batch_id, _plain_name(part.filename), part.data, digests=fields.digests()
            )
            keep(received)
        if received is None:
            raise BadForm("There is no file in the form: send the payload as the field `file`.")
        said = fields.said(batch_id, update=update, primary_id=primary_id)
        with at.connection() as engine:
            complete, profile = service.ready(engine, at.outfit, said, who=at.who)
        whole = service.arrived(at.outfit, complete, received)
        with at.connection() as engine:
            accepted = service.enter(engine, whole, profile, who=at.who)
        return service.settle(at.outfit, accepted, received)


def _look_ahead(at: Counter, fields: Fields) -> None:
    """Nobody waits for gigabytes to hear that there is no such profile."""
    if name := fields.one("profile"):
        with at.connection() as engine:
            service.PROFILES.usable(engine, name)


def _plain_name(filename: str | None) -> str:
    """Under which the upload lies, until its fields tell its real name."""
    last = (filename or "").replace("\\", "/").rpartition("/")[2]
    return last if last and fault(last) is None else "payload"


def _marks(at: Counter) -> list[service.Mark]:
    with at.engine() as engine:
        return service.marks(engine)


def _refused(request: Request, form: Form, error: Exception) -> Response:
    status, words, headers = errors.said(error, known=getattr(request.state, "identity", None) is not None)
    return stateforms.refusal(form, status, words["message"], words["hint"], headers)


def _form(request: Request, fields: Fields) -> Form:
    """`responseForm` over Accept."""
    wanted = fields.one("responseForm").lower()
    if wanted in ("xml", "json"):
        return "json" if wanted == "json" else "xml"
    if wanted:
        fields.warn(f"responseForm {wanted[:20]!r} is not known here; it is xml or json.")
    return _asked(request, "")


def _asked(request: Request, t: str) -> Form:
    """By the parameter `t`, else by Accept; XML if neither says something that is known."""
    if t.lower() in ("xml", "json"):
        return "json" if t.lower() == "json" else "xml"
    for part in request.headers.get("accept", "").lower().split(","):
        kind = part.partition(";")[0].strip()
        if kind in ("application/json", "text/json"):
            return "json"
        if kind in ("application/xml", "text/xml"):
            return "xml"
    return "xml"
