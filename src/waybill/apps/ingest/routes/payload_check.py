"""Checks a manifest, a container or a bag before it is submitted; nothing of it is stored.

POST /api/v1/ingest/check?filename=a.checkm      the body is the payload itself
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from waybill.apps.ingest import service
from waybill.apps.ingest.routes.context import PREFIX, IngestRequest, IngestRequestContext
from waybill.apps.ingest.routes.schemas import CheckReportView
from waybill.apps.ingest.submission import PayloadType
from waybill.errors import InputError
from waybill.http.errors import WRITE_STATUSES, describe_responses
from waybill.http.json_io import to_json_response
from waybill.http.request_context import declare_role, make_router
from waybill.http.uploads import UploadSlots

DAY = 86400.0
MAX_CHECKED_BYTES = 2**30  # bytes, packed or unpacked; larger payloads are checked with the command line


def build_check_router(upload_slots: UploadSlots) -> APIRouter:
    router = make_router(PREFIX, "ingest batches")
    body = {
        "required": True,
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
    }

    @router.post(
        "/check",
        summary="Check a payload before it is submitted",
        response_model=CheckReportView,
        responses=describe_responses(*WRITE_STATUSES, 408),
        **declare_role("submitter", somewhere=True, requestBody=body),
    )
    async def check(
        context: IngestRequest,
        request: Request,
        filename: Annotated[str, Query(max_length=255, description="The name it will be submitted under.")] = "",
        type: Annotated[
            PayloadType | None, Query(description="The type it will be submitted as; by default it is guessed.")
        ] = None,
    ) -> Response:
        """Returns all complaints, each with its line or file. Nothing is fetched or stored; hosts are looked up."""
        return to_json_response(
            await upload_slots.take(request, lambda chunks: _check_upload(context, chunks, filename, type))
        )

    return router


def _check_upload(
    context: IngestRequestContext, chunks: Iterator[bytes], filename: str, type: PayloadType | None
) -> dict[str, Any]:
    scratch = context.resources.environment.config.work.root / "check"
    scratch.mkdir(mode=0o700, parents=True, exist_ok=True)
    _remove_leftovers(scratch)
    with tempfile.NamedTemporaryFile(prefix="payload-", dir=scratch) as file:
        size = 0
        for chunk in chunks:
            size += len(chunk)
            if size > MAX_CHECKED_BYTES:
                raise InputError(
                    f"It has more than {MAX_CHECKED_BYTES:,} bytes, the most that is checked here: check it with `waybill ingest check`.",
                    code="too-large",
                )
            file.write(chunk)
        file.flush()
        report = service.check_payload(
            Path(file.name),
            filename=filename or "payload",
            payload_type=type,
            scratch=scratch,
            on_bytes=service.limit_bytes(MAX_CHECKED_BYTES),
            address_policy=context.resources.address_policy,
        )
    return {
        "is_good": report.is_good,
        "format": report.format,
        "type": report.type,
        "count": report.count,
        "total_bytes": report.total_bytes,
        "complaints": [_to_note_view(each) for each in report.complaints],
        "remarks": [_to_note_view(each) for each in report.remarks],
    }


def _to_note_view(note: service.PayloadRemark) -> dict[str, Any]:
    return {"text": note.text, "line": note.line, "file": note.file}


def _remove_leftovers(scratch: Path) -> None:
    """Remove files of processes that were killed while they checked. Safe to repeat and to run side by side."""
    for path in scratch.iterdir():
        with suppress(FileNotFoundError):
            if time.time() - path.lstat().st_mtime > DAY:
                shutil.rmtree(path, ignore_errors=True) if path.is_dir() and not path.is_symlink() else path.unlink()
