"""The form for deposits.

    files       each becomes a deposit of its own; with JavaScript they are sent in pieces and go on after a lost connection or a reload
    a URL       the payload is fetched by a worker
    a manifest  pasted or dropped; its complaints are shown line by line, and nothing is sent while it has any

Without JavaScript the browser sends the same form at once; static/deposit.js does the rest with the routes of the API.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlencode

from fastapi import APIRouter, Request, Response

from waybill.apps.ingest import service
from waybill.apps.ingest.pages.context import checker_of, deposit_url, resources_of
from waybill.apps.ingest.resources import IngestResources
from waybill.apps.ingest.service import AcceptedDeposit, PayloadCheckReport
from waybill.apps.ingest.submission import PayloadType, Submission, parse_local_ids
from waybill.errors import InputError
from waybill.http.authentication import check_csrf_token
from waybill.http.request_context import declare_role
from waybill.http.uploads import UploadSlots, read_form
from waybill.pages import PageContext, PageRequest
from waybill.record import MAX_PAGE

MAX_MANIFEST = 16 * 1024 * 1024  # bytes of one that is pasted; a larger one is a file
MAX_FILES = 100  # of one form; with JavaScript each is sent by itself
MANIFEST_NAME = "manifest.checkm"
FIELDS = ("profile", "title", "creator", "date", "local_id", "primary_id", "notification", "note", "type", "url", "way")


class FormAnswer(NamedTuple):
    """What became of a form: deposits, or a manifest with complaints."""

    fields: Mapping[str, str]
    accepted: tuple[AcceptedDeposit, ...] = ()
    report: PayloadCheckReport | None = None
    manifest: str = ""


def add_routes(router: APIRouter, upload_slots: UploadSlots) -> None:
    @router.get("/deposit", **declare_role("submitter", somewhere=True))
    def show_form(context: PageRequest) -> Response:
        return render_form(context, FormAnswer({"way": "files"}))

    @router.post("/deposit", **declare_role("submitter", somewhere=True, **{"x-body": "multipart/form-data"}))
    async def send_form(context: PageRequest, request: Request) -> Response:
        answer = await upload_slots.take(request, lambda chunks: receive_form(context, chunks))
        if answer.report is not None:
            return render_form(context, answer, status=422)
        context.notify_change()
        if len(answer.accepted) == 1:
            return context.redirect(deposit_url(answer.accepted[0].batch.id), "your deposit was received")
        return context.redirect("/ingest", f"{len(answer.accepted)} deposits were received", whose="mine")


def render_form(context: PageContext, answer: FormAnswer, *, status: int = 200) -> Response:
    with context.open_engine() as engine:
        page = service.PROFILES.get_page(engine, state="Active", limit=MAX_PAGE)
        profiles = [service.PROFILES.read(record) for record in page.records]
    return context.render(
        "ingest/deposit_form.html",
        status=status,
        profiles=profiles,
        fields={name: answer.fields.get(name, "") for name in FIELDS},
        report=answer.report,
        manifest=answer.manifest,
        types=[each.value for each in PayloadType],
        batch_query=urlencode({"whose": "mine"}),
        max_bytes=resources_of(context).settings.fetch.max_bytes,
    )


def receive_form(context: PageContext, chunks: Iterator[bytes]) -> FormAnswer:
    """Read the form, its fields first, and submit what it holds."""
    resources, fields, accepted = resources_of(context), dict[str, str](), list[AcceptedDeposit]()
    is_checked = False
    for part in read_form(chunks, context.request.headers.get("content-type", "")):
        if part.name == "csrf":
            check_csrf_token(context.request, part.read_text())
            is_checked = True
        elif not is_checked:
            check_csrf_token(context.request, "")  # refused: the token of the page comes before everything else
        elif part.name == "manifest":
            text = read_manifest(part.data)
            if fields.get("way") == "manifest":
                return submit_manifest(context, resources, fields, text)
        elif part.name == "file":
            if fields.get("way", "files") == "files" and part.filename:
                if len(accepted) == MAX_FILES:
                    raise InputError(f"A form sends at most {MAX_FILES} files: send the others with another one.")
                accepted.append(submit_file(context, resources, fields, part.filename, part.data, len(accepted)))
        elif part.name in FIELDS:
            fields[part.name] = part.read_text().strip().replace("\r\n", "\n")
    if fields.get("way") == "url":
        submission = make_submission(fields, url=fields.get("url", ""))
        with context.open_engine() as engine:
            accepted.append(
                service.submit_deposit(engine, resources, submission, who=context.who, check=checker_of(context))
            )
    if not accepted:
        raise InputError("Nothing was sent: choose a file, give a URL, or paste a manifest.")
    return FormAnswer(fields, tuple(accepted))


def make_submission(fields: Mapping[str, str], *, url: str = "", filename: str = "") -> Submission:
    kind = fields.get("type", "")
    if kind and kind not in list(PayloadType):
        raise InputError(f"There is no payload type {kind[:60]!r}.")
    return Submission(
        profile=fields.get("profile", ""),
        url=url,
        filename=filename,
        type=PayloadType(kind) if kind else None,
        title=fields.get("title", ""),
        creator=fields.get("creator", ""),
        date=fields.get("date", ""),
        local_ids=parse_local_ids(fields.get("local_id", "")),
        primary_id=fields.get("primary_id", ""),
        update=bool(fields.get("primary_id")),
        notification=fields.get("notification", ""),
        note=fields.get("note", ""),
    )


def submit_file(
    context: PageContext,
    resources: IngestResources,
    fields: Mapping[str, str],
    filename: str,
    data: Iterator[bytes],
    number: int,
) -> AcceptedDeposit:
    if number and (fields.get("local_id") or fields.get("primary_id")):
        raise InputError("A local id, or the ARK of an object, is of one deposit: send one file with it.")
    with context.open_engine() as engine:
        return service.submit_deposit(
            engine,
            resources,
            make_submission(fields, filename=filename),
            data,
            who=context.who,
            check=checker_of(context),
        )


def read_manifest(data: Iterator[bytes]) -> str:
    parts, size = [], 0
    for chunk in data:
        size += len(chunk)
        if size > MAX_MANIFEST:
            raise InputError(f"The manifest has more than {MAX_MANIFEST:,} bytes: send it as a file.", code="too-large")
        parts.append(chunk)
    try:
        return b"".join(parts).decode()
    except UnicodeDecodeError:
        raise InputError("The manifest is not UTF-8.") from None


def submit_manifest(
    context: PageContext, resources: IngestResources, fields: Mapping[str, str], text: str
) -> FormAnswer:
    """Submit a manifest, or return what is wrong with it: then nothing is stored."""
    body = text.replace("\r\n", "\n").strip().encode() + b"\n"
    submission = make_submission(fields, filename=MANIFEST_NAME)
    report = check_manifest(resources, body, submission.type)
    if not report.is_good:
        return FormAnswer(fields, report=report, manifest=text)
    with context.open_engine() as engine:
        accepted = service.submit_deposit(
            engine, resources, submission, [body], who=context.who, check=checker_of(context)
        )
    return FormAnswer(fields, (accepted,))


def check_manifest(resources: IngestResources, body: bytes, type: PayloadType | None) -> PayloadCheckReport:
    folder = resources.environment.config.work.root / "check"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(prefix="payload-", dir=folder) as file:
        file.write(body)
        file.flush()
        return service.check_payload(
            Path(file.name),
            filename=MANIFEST_NAME,
            payload_type=type,
            scratch=folder,
            address_policy=resources.address_policy,
        )
