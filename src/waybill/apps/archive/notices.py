"""Mail to those who asked for it: when a request is done, and when it failed, with the reason and what to do.

A mail is a record that is made in the commit of what it reports: sent once, whatever crashes.
"""

from __future__ import annotations

from waybill.apps.archive.machine import Notice, RequestDocument, RequestReport
from waybill.apps.archive.machine.quota import format_bytes
from waybill.notify import make_mail
from waybill.record import Record
from waybill.step import New

_WHAT = {"PUT": "storing", "MIGRATE": "migrating", "GET": "restoring", "DELETE": "deleting", "MOVE": "moving"}
_DONE = {
    "PUT": "is on storage", "MIGRATE": "is on storage", "GET": "is restored", "DELETE": "is deleted", "MOVE": "is on the other storage",
}  # fmt: skip


def make_completion_mail(
    request: Record, report: RequestReport, *, at: float, remarks: tuple[str, ...] = ()
) -> tuple[New, ...]:
    notice, asked = request.find_document(Notice), request.document(RequestDocument)
    if notice is None or not notice.to:
        return ()
    lines = [
        f"Migration {asked.migration_number} {_DONE[asked.kind]}.",
        "",
        *_describe(asked),
        *([f"Size:       {format_bytes(report.bytes)}"] if report.bytes else []),
        *([f"Files:      {report.restored} restored"] if report.restored else []),
        *([f"            {report.dropped} of them without their owner or special bits"] if report.dropped else []),
        *([f"Originals:  {report.removed} removed, {report.kept} kept"] if report.removed or report.kept else []),
        *remarks,
    ]
    mail = make_mail(
        to=notice.to,
        subject=f"[Waybill] {asked.kind} of migration {asked.migration_number} is done",
        text="\n".join(lines),
        key=f"{request.ref} done",
        at=at,
    )
    return (mail,)


def make_failure_mail(request: Record, why: str, *, at: float) -> tuple[New, ...]:
    notice, asked = request.find_document(Notice), request.document(RequestDocument)
    if notice is None or not notice.to:
        return ()
    lines = [
        f"Request {asked.number}, {_WHAT[asked.kind]} migration {asked.migration_number}, has failed: {why}",
        "",
        *_describe(asked),
        "",
        "Nothing was removed. When the cause is mended, resume it:",
        f"    waybill act archive-request {request.id} resume",
        "or end it and clean up:",
        f"    waybill archive cancel {asked.number}",
    ]
    mail = make_mail(
        to=notice.to,
        subject=f"[Waybill] {asked.kind} of migration {asked.migration_number} has failed",
        text="\n".join(lines),
        key=f"{request.ref} failed {request.resume_count}",
        at=at,
    )
    return (mail,)


def _describe(asked: RequestDocument) -> list[str]:
    return [
        f"Request:    {asked.number}",
        f"Migration:  {asked.migration_number}",
        f"Workspace:  {asked.workspace}",
        f"Storage:    {asked.storage}",
    ]
