"""JSON in and out.

Bodies are read up to a limit and decoded strictly: no NaN, no lone surrogates, so that what is stored is what was
sent. A JSON route checks the token before it reads the body.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Coroutine, Mapping
from typing import Annotated, Any

import msgspec
from fastapi import Request, Response
from fastapi.routing import APIRoute
from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from waybill.http.errors import HttpProblem
from waybill.rules import inputs

MAX_BODY = 1024 * 1024
MAX_TEXT = 1000


def _check_prose(text: str) -> str:
    if not all(c.isprintable() or c in "\n\t\u00a0" for c in text):
        raise ValueError("it holds a control character or something else that cannot be printed")
    return text


Text = Annotated[str, AfterValidator(_check_prose), Field(max_length=MAX_TEXT)]  # prose
Name = Annotated[str, AfterValidator(inputs.check_printable), Field(min_length=1, max_length=inputs.MAX_NAME_LENGTH)]


class RequestBody(BaseModel):
    """Every field of a body is declared: a misspelt one is refused, never ignored."""

    model_config = ConfigDict(extra="forbid")


class JsonRequest(Request):
    async def body(self) -> bytes:
        if not hasattr(self, "_body"):
            self._body = await read_body(self, MAX_BODY)
            if self._body and "json" not in self.headers.get("content-type", ""):
                raise HttpProblem(
                    "not-json", "The body is not JSON.", "Send the header Content-Type: application/json."
                )
        return self._body

    async def json(self) -> Any:
        try:
            return msgspec.json.decode(await self.body())
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            # msgspec's ValidationError (a number out of range) is a DecodeError too.
            message = f"The body is not JSON that can be stored: {_describe_decode_error(error)}."
            raise HttpProblem("bad-json", message, "Send one JSON value in UTF-8.") from error


async def read_body(
    request: Request, max_bytes: int, hint: str = "Put bulk into a manifest in object storage and name that instead."
) -> bytes:
    """Read a whole body; raise 413 if it is larger than `max_bytes`."""
    too_large = HttpProblem("too-large", f"The body has more than {max_bytes:,} bytes.", hint)
    stated = request.headers.get("content-length", "")
    if stated.isdigit() and int(stated) > max_bytes:
        raise too_large
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > max_bytes:
            raise too_large
        parts.append(part)
    return b"".join(parts)


def check_parameters(request: Request) -> None:
    """Raise for an unknown parameter: if a misspelt filter were ignored, the response would be wrong."""
    known = [parameter.alias for parameter in request.scope["route"].dependant.query_params]
    if unknown := sorted(set(request.query_params) - set(known)):
        message = f"This route has no parameter {unknown[0][:100]!r}; it has {', '.join(known) or 'none'}."
        raise HttpProblem("bad-query", message, "Leave it out, or correct its spelling.")


def _describe_decode_error(error: Exception) -> str:
    return "it is nested too deeply" if isinstance(error, RecursionError) else str(error)


RequestCheck = Callable[[Request], Coroutine[Any, Any, None]]


def make_json_route(check: RequestCheck) -> type[APIRoute]:
    """A route class that first runs `check` (authentication), then reads JSON."""

    class JsonRoute(APIRoute):
        def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
            handle = super().get_route_handler()

            async def check_and_handle(request: Request) -> Response:
                await check(request)
                return _add_tag(request, await handle(JsonRequest(request.scope, request.receive)))

            return check_and_handle

    return JsonRoute


def _add_tag(request: Request, response: Response) -> Response:
    """Give a JSON answer its ETag, and answer 304 to a client that has it already."""
    is_whole = response.status_code == 200 and type(response) is Response and response.media_type == "application/json"
    if request.method != "GET" or not is_whole or "etag" in response.headers:
        return response
    tag = f'W/"{hashlib.sha256(response.body).hexdigest()[:32]}"'
    known = [each.strip().removeprefix("W/") for each in request.headers.get("if-none-match", "").split(",")]
    if tag.removeprefix("W/") in known:
        return Response(status_code=304, headers={"ETag": tag})
    response.headers["ETag"] = tag
    return response


def to_json_response(view: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(msgspec.json.encode(view), status, headers, media_type="application/json")
