"""Merritt's form for deposits, so that its clients need not change.

    POST /poster/submit | add | update [/scheme/shoulder/objectid]      GET /poster/state      GET /poster/help

    curl -u ann:wb_... -F file=@example.checkm -F type=container-batch-manifest -F profile=sample -F responseForm=xml
    .../poster/submit

The fields of the form may come in any order, also after the file; unknown fields are ignored with a warning. `submit`
and `add` are the same; `update` adds to an existing object. The response is the state of the batch in Merritt's form:
in the format of the field `responseForm`, else of the header Accept, else XML. A token is required; programs that only
know user names and passwords send it as the password. The request is authenticated before any of the form is read, so
an authentication error has the format of the header Accept.

The routes come first, then the fields (`MerrittFields`) and the state documents.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from typing import Annotated, Any, Literal, cast, get_args
from xml.sax.saxutils import escape, quoteattr

import msgspec
from fastapi import APIRouter, Path, Query, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import Response
from fastapi.routing import APIRoute

from waybill.apps.ingest import service
from waybill.apps.ingest.formats import anvl
from waybill.apps.ingest.routes.context import IngestRequest, IngestRequestContext
from waybill.apps.ingest.submission import DC_ELEMENTS, PayloadType, Submission, parse_local_ids, payload_type_of
from waybill.digests import normalize_algorithm
from waybill.errors import FormatError, InputError
from waybill.files import names
from waybill.files.names import find_fault
from waybill.http import errors
from waybill.http.errors import HttpProblem
from waybill.http.request_context import declare_role, make_foreign_router
from waybill.http.uploads import UploadSlots, read_form

ResponseForm = Literal["xml", "json"]
StatePairs = Iterable[tuple[str, str]]

MAX_WARNINGS = 20

FIELD_DESCRIPTIONS: Mapping[str, str] = {
    "file": "The payload.",
    "type": f"What the payload is: {', '.join(PayloadType)}. By default guessed from its name and its first bytes.",
    "profile": "The profile whose rules apply. Required.",
    "submitter": "Who submits; by default the owner of the token.",
    "filename": "The name of the payload; by default that of the file.",
    "size": "Its size in bytes; a payload of another size is refused.",
    "digestType": "Such as SHA-256 or MD5.",
    "digestValue": "The digest of the payload, in hex.",
    "primaryIdentifier": "The object's ARK.",
    "object": "The same as primaryIdentifier.",
    "localIdentifier": "Local ids, separated by semicolons.",
    "creator": "Who made it.",
    "title": "Its title.",
    "date": "When it was made.",
    "erc": "who, what, when and where, as ANVL; the fields above override it.",
    "note": "A note for the curators.",
    "notification": "Mail addresses, instead of those of the profile.",
    "notificationFormat": "The format of mail.",
    "responseForm": "xml or json; by default that of the header Accept.",
    "DataCite.resourceType": "DataCite's resource type.",
    "retainTargetURL": "true: keep the current target of the ARK.",
    "batchID": "Submitting twice with one batchID makes one batch. Must come before the file.",
    **{f"DC.{word}": f"Dublin Core: {word}." for word in DC_ELEMENTS},
}
_REPEATABLE_FIELDS = ("localIdentifier", *(f"DC.{word}" for word in DC_ELEMENTS))  # repeated values are joined
_UNFIT_IN_XML = re.compile("[^\\t\\n\\x20-\\ud7ff\\ue000-\\ufffd\\U00010000-\\U0010ffff]")
_NAMESPACE = "http://uc3.cdlib.org/ontology/mrt/"
_BATCH, _SERVICE, _EXCEPTION = (
    ("bat", f"{_NAMESPACE}ingest/batch"),
    ("ing", f"{_NAMESPACE}ingest/service"),
    ("exc", f"{_NAMESPACE}core/exception"),
)

PathSegment = Annotated[str, Path(max_length=200)]
FormParameter = Annotated[str, Query(max_length=20, description="xml or json; by default that of the header Accept.")]
FormVerb = Literal["submit", "add", "update"]

_MERRITT_FORM_SCHEMA = {
    "type": "object",
    "required": ["file", "profile"],
    "properties": {
        name: {"type": "string", "description": description} for name, description in FIELD_DESCRIPTIONS.items()
    }
    | {"file": {"type": "string", "format": "binary", "description": "The payload."}},
}
_METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]
_ROUTES_HINT = "POST a form to /poster/submit, /poster/add or /poster/update; GET /poster/help lists its fields."
_STATE_RESPONSE = {
    "content": {"application/xml": {}, "application/json": {}},
    "description": "In the requested format.",
}


def build_merritt_router(upload_slots: UploadSlots) -> APIRouter:
    router = make_foreign_router("/poster", "merritt")
    router.route_class = make_merritt_route(router.route_class)
    refused = {**_STATE_RESPONSE, "description": "Why it was refused."}
    submit_options = {
        "responses": {
            200: _STATE_RESPONSE,
            **dict.fromkeys((400, 401, 403, 404, 408, 409, 413, 422, 503, 504), refused),
        },
        "response_class": Response,
        **declare_role(
            "submitter",
            requestBody={"required": True, "content": {"multipart/form-data": {"schema": _MERRITT_FORM_SCHEMA}}},
        ),
    }

    async def submit_form(context: IngestRequestContext, verb: str, primary_id: str) -> Response:
        fields = MerrittFields()
        try:
            accepted = await upload_slots.take(
                context.request, lambda chunks: _receive_form(context, chunks, fields, verb == "update", primary_id)
            )
        except Exception as error:  # noqa: BLE001 - answered in the format that the form has asked for
            return _respond_refused(context.request, _choose_form(context.request, fields), error)
        context.notify_change()
        return batch_state_response(_choose_form(context.request, fields), accepted, fields.warnings)

    # Before the verbs: these paths exist, with another method.
    @router.post("/state", include_in_schema=False, **declare_role("reader"))
    @router.post("/help", include_in_schema=False, **declare_role("reader"))
    async def refuse_post(context: IngestRequest) -> Response:
        raise _refuse_method(context.request, "GET")

    @router.post("/{verb}", summary="Submit a deposit by Merritt's form", **submit_options)
    async def post_form(context: IngestRequest, verb: FormVerb) -> Response:
        return await submit_form(context, verb, "")

    @router.post(
        "/{verb}/{scheme}/{shoulder}/{objectid}",
        summary="Submit a version of a known object by Merritt's form",
        **submit_options,
    )
    async def post_object(
        context: IngestRequest, verb: FormVerb, scheme: PathSegment, shoulder: PathSegment, objectid: PathSegment
    ) -> Response:
        return await submit_form(context, verb, f"{scheme.rstrip(':')}:/{shoulder}/{objectid}")

    read_responses: dict[int | str, dict[str, Any]] = {
        200: _STATE_RESPONSE,
        **dict.fromkeys((401, 403, 422, 503), refused),
    }

    @router.get(
        "/state",
        summary="The state of the service, as Merritt's document",
        response_class=Response,
        responses=read_responses,
        **declare_role("reader"),
    )
    async def show_state(context: IngestRequest, t: FormParameter = "") -> Response:
        holds = await run_in_threadpool(_list_holds, context)
        return service_state_response(_choose_form_by_request(context.request, t), holds)

    @router.get(
        "/help",
        summary="The fields of Merritt's form",
        response_class=Response,
        responses=read_responses,
        **declare_role("reader"),
    )
    async def show_help(context: IngestRequest, t: FormParameter = "") -> Response:
        return help_response(_choose_form_by_request(context.request, t), FIELD_DESCRIPTIONS)

    # Last: paths and methods that no other route takes.
    @router.api_route("/{rest:path}", methods=_METHODS, include_in_schema=False, **declare_role("reader"))
    async def refuse_other(context: IngestRequest, rest: str) -> Response:
        allowed = "POST" if rest.partition("/")[0] in get_args(FormVerb) else "GET" if rest in ("state", "help") else ""
        if not allowed or (allowed == "POST" and rest.count("/") not in (0, 3)):
            raise HttpProblem("no-route", "There is no such route.", _ROUTES_HINT)
        raise _refuse_method(context.request, allowed)

    return router


def _refuse_method(request: Request, allowed: str) -> HttpProblem:
    message = f"{request.url.path[:107]} takes only {allowed}, not {request.method}."
    return HttpProblem("no-method", message, _ROUTES_HINT, {"Allow": allowed})


def make_merritt_route(route_class: type[APIRoute]) -> type[APIRoute]:
    """Return a route class whose errors are Merritt's documents, including errors of authentication, path and parameters."""

    class MerrittRoute(route_class):  # type: ignore[misc, valid-type]
        def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
            handle = super().get_route_handler()

            async def handle_request(request: Request) -> Response:
                try:
                    return cast(Response, await handle(request))
                except Exception as error:  # noqa: BLE001 - Merritt's clients expect every error in this form
                    return _respond_refused(
                        request, _choose_form_by_request(request, request.query_params.get("t", "")), error
                    )

            return handle_request

    return MerrittRoute


def _receive_form(
    context: IngestRequestContext, chunks: Iterator[bytes], fields: MerrittFields, update: bool, primary_id: str
) -> service.AcceptedDeposit:
    """Read the form, then make the batch. A profile that comes before the file is checked before the file is stored."""
    batch_id = ""
    with service.remove_uploads_on_refusal(context.resources) as keep:
        received = None
        for part in read_form(chunks, context.request.headers.get("content-type", "")):
            if part.name != "file":
                fields.add(part.name, part.read_text())
                continue
            if part.filename is None:  # a text field, as `curl -F file=http://...` sends it
                raise InputError(
                    "The field `file` came as text, not as a file: curl sends a file with -F file=@NAME. "
                    "A URL is submitted to POST /api/v1/ingest/batches, as `url`."
                )
            if received is not None:
                raise InputError("The form has two files; a deposit has one payload.")
            _check_profile(context, fields)
            batch_id = fields.get("batchID") or service.new_batch_id()
            fields.set_file_name(part.filename or "")
            received = service.receive_upload(
                context.resources, batch_id, _to_plain_name(part.filename), part.data, digests=fields.choose_digests()
            )
            keep(received)
        if received is None:
            raise InputError("There is no file in the form: send the payload as the field `file`.")
        submission = fields.to_submission(batch_id, update=update, primary_id=primary_id)
        with context.open_engine() as engine:
            submission, profile = service.complete_submission(engine, context.resources, submission, who=context.who)
        submission = service.add_upload_payload(context.resources, submission, received)
        with context.open_engine() as engine:
            accepted = service.make_batch(engine, submission, profile, who=context.who)
        return service.remove_unused_upload(context.resources, accepted, received)


def _check_profile(context: IngestRequestContext, fields: MerrittFields) -> None:
    """Refuse an unknown profile before the file is uploaded."""
    if name := fields.get("profile"):
        with context.open_engine() as engine:
            service.PROFILES.require_active(engine, name)


def _to_plain_name(filename: str | None) -> str:
    """Return the name to store the upload under until the fields give its real name."""
    last = (filename or "").replace("\\", "/").rpartition("/")[2]
    return last if last and find_fault(last) is None else "payload"


def _list_holds(context: IngestRequestContext) -> list[service.ActiveHold]:
    with context.open_engine() as engine:
        return service.list_active_holds(engine)


def _respond_refused(request: Request, form: ResponseForm, error: Exception) -> Response:
    status, body, headers = errors.describe_for_client(
        error, is_authenticated=getattr(request.state, "identity", None) is not None
    )
    return exception_state_response(form, status, body["message"], body["hint"], headers)


def _choose_form(request: Request, fields: MerrittFields) -> ResponseForm:
    """By the field `responseForm`, else by Accept."""
    wanted = fields.get("responseForm").lower()
    if wanted in ("xml", "json"):
        return "json" if wanted == "json" else "xml"
    if wanted:
        fields.warn(f"responseForm {wanted[:20]!r} is not known here; it is xml or json.")
    return _choose_form_by_request(request, "")


def _choose_form_by_request(request: Request, t: str) -> ResponseForm:
    """By the parameter `t`, else by Accept, else XML."""
    if t.lower() in ("xml", "json"):
        return "json" if t.lower() == "json" else "xml"
    for part in request.headers.get("accept", "").lower().split(","):
        kind = part.partition(";")[0].strip()
        if kind in ("application/json", "text/json"):
            return "json"
        if kind in ("application/xml", "text/xml"):
            return "xml"
    return "xml"


class MerrittFields:
    def __init__(self) -> None:
        self.warnings: list[str] = []
        self._values: dict[str, str] = {}
        self._file_name = ""

    def add(self, name: str, value: str) -> None:
        value = value.strip()
        if name not in FIELD_DESCRIPTIONS:
            self.warn(f"The field {names.quote_text(name)} is not known and was ignored.")
        elif name in self._values and name in _REPEATABLE_FIELDS:
            self._values[name] += f"; {value}"
        else:
            if self._values.get(name, value) != value:
                self.warn(f"The field {name} occurs more than once; the last value is used.")
            self._values[name] = value

    def warn(self, text: str) -> None:
        if len(self.warnings) < MAX_WARNINGS and text not in self.warnings:
            self.warnings.append(text)

    def get(self, name: str) -> str:
        return self._values.get(name, "")

    def set_file_name(self, filename: str) -> None:
        """Set the file name that the client sent."""
        self._file_name = filename.replace("\\", "/").rpartition("/")[2]

    def choose_digests(self) -> list[str]:
        """Return the digest to compute, if its type is known before the file."""
        try:
            return [normalize_algorithm(self.get("digestType"))]
        except InputError:
            return []  # not sent yet, or wrong: refused when the form is complete

    def to_submission(self, batch_id: str, *, update: bool, primary_id: str) -> Submission:
        """Build the submission; raise InputError for fields that contradict each other."""
        if self.get("batchID") not in ("", batch_id):
            raise InputError("The field batchID must come before the file.")
        erc = self._parse_erc()
        identifiers = {each for each in (primary_id, self.get("primaryIdentifier"), self.get("object")) if each}
        if len(identifiers) > 1:
            raise InputError(
                f"The form has two identifiers, {' and '.join(names.quote_text(each) for each in sorted(identifiers))}: send one."
            )
        arks = [place for place in erc.where if place.startswith("ark:")]
        return Submission(
            profile=self.get("profile"),
            url="",
            type=self._parse_type(),
            filename=self.get("filename") or self._file_name,
            size=self._parse_size(),
            digest_type=self.get("digestType"),
            digest_value=self.get("digestValue"),
            update=update,
            submitter=self.get("submitter"),
            creator=self.get("creator") or erc.who,
            title=self.get("title") or erc.what,
            date=self.get("date") or erc.when,
            primary_id=next(iter([*identifiers, *arks]), ""),
            local_ids=parse_local_ids(self.get("localIdentifier"))
            or tuple(place for place in erc.where if place not in arks),
            notification=self.get("notification"),
            notification_format=self.get("notificationFormat"),
            response_form=self.get("responseForm"),
            note=self.get("note"),
            datacite_type=self.get("DataCite.resourceType"),
            dc={word: self.get(f"DC.{word}") for word in DC_ELEMENTS if self.get(f"DC.{word}")},
            batch_id=batch_id,
            retain_target=self.get("retainTargetURL").lower() in ("true", "yes", "1"),
        )

    def _parse_type(self) -> PayloadType | None:
        text = self.get("type")
        if text and payload_type_of(text) is None:
            raise InputError(
                f"{names.quote_text(text)} is not a type of payload; the types are {', '.join(PayloadType)}."
            )
        return payload_type_of(text) if text else None

    def _parse_size(self) -> int | None:
        text = self.get("size")
        if text and not re.fullmatch("[0-9]{1,18}", text):
            raise InputError(f"{names.quote_text(text)} is not a size: write the number of bytes in digits.")
        return int(text) if text else None

    def _parse_erc(self) -> anvl.Erc:
        try:
            return anvl.read_erc(self.get("erc").encode()) if self.get("erc") else anvl.Erc()
        except FormatError as error:
            raise InputError(f"The field erc cannot be read: {error}") from None


def batch_state_response(form: ResponseForm, accepted: service.AcceptedDeposit, warnings: Iterable[str]) -> Response:
    """Return the state of an accepted batch. Its jobs are created later, so none are listed."""
    submission = accepted.submission
    pairs = [
        ("batchID", submission.batch_id),
        ("jobStates", ""),
        ("batchStatus", "QUEUED"),
        ("userAgent", submission.submitter),
        ("submissionDate", submission.submitted_at),
        ("updateFlag", "true" if submission.update else "false"),
        ("queueID", accepted.batch.id),
        ("state", accepted.batch.state),
        *(("warning", each) for each in warnings),
    ]
    return _respond(form, _BATCH, "batchState", pairs)


def service_state_response(form: ResponseForm, holds: Iterable[service.ActiveHold]) -> Response:
    """Return whether deposits are processed, and for which collections they are not."""
    holds = list(holds)
    frozen = any(hold.scope == "queue" and hold.name == "ingest" for hold in holds)
    held_collections = ",".join(hold.name for hold in holds if hold.scope == "collection")
    pairs = [
        ("name", "Waybill ingest"),
        ("submissionState", "frozen" if frozen else "thawed"),
        ("collectionSubmissionState", held_collections),
    ]
    return _respond(form, _SERVICE, "ingestServiceState", pairs)


def help_response(form: ResponseForm, fields: Mapping[str, str]) -> Response:
    return _respond(
        form, _SERVICE, "ingestHelp", [("field", f"{name}: {description}") for name, description in fields.items()]
    )


def exception_state_response(
    form: ResponseForm, status: int, message: str, hint: str, headers: Mapping[str, str]
) -> Response:
    pairs = [("status", str(status)), ("statusDescription", message), ("error", hint or message)]
    return _respond(form, _EXCEPTION, "exceptionState", pairs, status, headers)


def _respond(
    form: ResponseForm,
    space: tuple[str, str],
    name: str,
    pairs: StatePairs,
    status: int = 200,
    headers: Mapping[str, str] | None = None,
) -> Response:
    body, kind = (
        (_to_json(space, name, pairs), "application/json")
        if form == "json"
        else (_to_xml(space, name, pairs), "application/xml")
    )
    return Response(body, status, dict(headers or {}), media_type=kind)


def _to_json(space: tuple[str, str], name: str, pairs: StatePairs) -> bytes:
    """A name that occurs more than once becomes a list."""
    prefix, uri = space
    members: dict[str, str | list[str]] = {f"xmlns:{prefix}": uri}
    for key, value in pairs:
        field = f"{prefix}:{key}"
        before = members.get(field)
        clean = to_xml_text(value)
        members[field] = clean if before is None else [*before, clean] if isinstance(before, list) else [before, clean]
    return msgspec.json.encode({f"{prefix}:{name}": members})


def _to_xml(space: tuple[str, str], name: str, pairs: StatePairs) -> bytes:
    prefix, uri = space
    lines = [
        f"  <{prefix}:{key}>{escape(to_xml_text(value))}</{prefix}:{key}>" if value else f"  <{prefix}:{key}/>"
        for key, value in pairs
    ]
    root = f"{prefix}:{name}"
    text = "\n".join([f"<{root} xmlns:{prefix}={quoteattr(uri)}>", *lines, f"</{root}>"])
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{text}\n'.encode()


def to_xml_text(text: str) -> str:
    """Replace the characters that XML cannot hold."""
    return _UNFIT_IN_XML.sub("?", text)
