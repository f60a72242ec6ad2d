"""Answers of ingest's routes: JSON, refusals in the house's shape, and small bodies read in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import msgspec
from fastapi import Request, Response

from waybill.record import TooLarge

MOST = 1024 * 1024  # bytes of a body of JSON


def answer(view: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(msgspec.json.encode(view), status, dict(headers or {}), media_type="application/json")


def refusal(status: int, code: str, message: str, hint: str = "", headers: Mapping[str, str] | None = None) -> Response:
    clean = message.encode("utf-8", "replace").decode()
    return answer({"error": {"code": code, "message": clean, "hint": hint}}, status, headers)


async def small_body(request: Request) -> bytes:
    """The body, if it is not too large."""
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > MOST:
            raise TooLarge(f"The body has more than {MOST} bytes.")
        parts.append(part)
    return b"".join(parts)


def object_path(ark: str) -> str:
    """The path of an object's own routes."""
    return f"/api/v1/ingest/objects/{quote(ark, safe='')}"


def version_path(ark: str, number: int) -> str:
    return f"{object_path(ark)}/versions/{number}"


def file_path(ark: str, number: int, path: str) -> str:
    return f"{version_path(ark, number)}/files/{quote(path)}"
