"""Checking over HTTP: a manifest, a container or a bag is looked through before it is submitted, and nothing of it
is kept.

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
from waybill.apps.ingest.routes.arriving import Berth
from waybill.apps.ingest.routes.counter import At, Counter, refusals, role, router
from waybill.apps.ingest.routes.shapes import ReportView
from waybill.apps.ingest.submission import Type
from waybill.http.errors import responses
from waybill.http.wire import answer

DAY = 86400.0
MOST = 2**30  # bytes, as they come and unpacked: what is larger is checked where it lies


def routes(berth: Berth) -> APIRouter:
    made = router("ingest batches")
    body = {
        "required": True,
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
    }

    @made.post(
        "/check",
        summary="Check a payload before it is submitted",
        response_model=ReportView,
        responses=responses(400, 401, 403, 408, 413, 422, 503),
        **role("submitter", requestBody=body),
    )
    async def check(
        at: At,
        request: Request,
        filename: Annotated[str, Query(max_length=255, description="As it is to be submitted.")] = "",
        type: Annotated[
            Type | None, Query(description="What it is to be submitted as; otherwise it is guessed.")
        ] = None,
    ) -> Response:
        """Every complaint at once, each with its line or its file. Nothing is fetched, nothing is kept; hosts are
        looked up.
        """
        return answer(await berth.take(request, lambda chunks: _checked(at, chunks, filename, type)))

    return made


def _checked(at: Counter, chunks: Iterator[bytes], filename: str, type: Type | None) -> dict[str, Any]:
    scratch = at.outfit.depot.config.work.root / "check"
    scratch.mkdir(mode=0o700, parents=True, exist_ok=True)
    _sweep(scratch)
    with refusals(), tempfile.NamedTemporaryFile(prefix="payload-", dir=scratch) as file:
        size = 0
        for chunk in chunks:
            size += len(chunk)
            if size > MOST:
                raise service.TooLarge(
                    f"It has more than {MOST:,} bytes, the most that is checked here: check it on your own machine."
                )
            file.write(chunk)
        file.flush()
        report = service.check_payload(
            Path(file.name),
            filename=filename or "payload",
            type=type,
            scratch=scratch,
            came=service.at_most(MOST),
            reach=at.outfit.reach,
        )
    return {
        "good": report.good,
        "sort": report.sort,
        "type": report.type,
        "count": report.count,
        "octets": report.octets,
        "complaints": [_note(each) for each in report.complaints],
        "remarks": [_note(each) for each in report.remarks],
    }


def _note(each: service.Note) -> dict[str, Any]:
    return {"text": each.text, "line": each.line, "file": each.file}


def _sweep(scratch: Path) -> None:
    """What a process left behind that was killed while it checked.

    Safe to repeat, and beside another one that does the same.
    """
    for path in scratch.iterdir():
        with suppress(FileNotFoundError):
            if time.time() - path.lstat().st_mtime > DAY:
                shutil.rmtree(path, ignore_errors=True) if path.is_dir() and not path.is_symlink() else path.unlink()
