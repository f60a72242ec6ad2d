"""JSON in and out.

Bodies are read up to a limit and decoded strictly: no NaN, no half surrogates, so that what is written is what was
sent. A route of this class knows who asks before it reads the body.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from typing import Annotated, Any

import msgspec
from fastapi import Request, Response
from fastapi.routing import APIRoute
from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from waybill.http.errors import Problem
from waybill.rules import words

MAX_BODY = 1024 * 1024
MAX_TEXT = 1000


def _prose(text: str) -> str:
    if not all(c.isprintable() or c in "\n\t\u00a0" for c in text):
        raise ValueError("it holds a control character or something else that cannot be printed")
    return text


Text = Annotated[str, AfterValidator(_prose), Field(max_length=MAX_TEXT)]  # what people say
Name = Annotated[str, AfterValidator(words.printable), Field(min_length=1, max_length=words.LONGEST_NAME)]


class Body(BaseModel):
    """A body's fields are all known: a misspelt one is refused, never ignored."""

    model_config = ConfigDict(extra="forbid")


class JsonRequest(Request):
    async def body(self) -> bytes:
        if not hasattr(self, "_body"):
            stated = self.headers.get("content-length", "")
            if stated.isdigit() and int(stated) > MAX_BODY:
                raise too_large()
            parts, size = [], 0
            async for part in self.stream():
                size += len(part)
                if size > MAX_BODY:
                    raise too_large()
                parts.append(part)
            self._body = b"".join(parts)
            if self._body and "json" not in self.headers.get("content-type", ""):
                raise Problem(
                    415, "not-json", "The body is not JSON.", "Send the header Content-Type: application/json."
                )
        return self._body

    async def json(self) -> Any:
        try:
            return msgspec.json.decode(await self.body())
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            # msgspec's ValidationError (a number out of range) is a DecodeError too.
            said = f"The body is not JSON that can be kept: {_reason(error)}."
            raise Problem(400, "bad-json", said, "Send one JSON value in UTF-8.") from error


def check_parameters(request: Request) -> None:
    """A parameter that is misspelt must not be ignored: without the filter that was meant, the answer would be a
    wrong one.
    """
    known = [parameter.alias for parameter in request.scope["route"].dependant.query_params]
    if strays := sorted(set(request.query_params) - set(known)):
        said = f"This route has no parameter {strays[0][:100]!r}; it has {', '.join(known) or 'none'}."
        raise Problem(400, "bad-query", said, "Leave it out, or write it as it is there.")


def _reason(error: Exception) -> str:
    return "it is nested too deeply" if isinstance(error, RecursionError) else str(error)


def too_large() -> Problem:
    return Problem(
        413,
        "too-large",
        f"The body has more than {MAX_BODY} bytes.",
        "Put bulk into a manifest in object storage and name that instead.",
    )


Check = Callable[[Request], Coroutine[Any, Any, None]]


def json_route(check: Check) -> type[APIRoute]:
    """A class of routes that first runs `check` (who asks?), then reads JSON."""

    class JsonRoute(APIRoute):
        def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
            handle = super().get_route_handler()

            async def checked(request: Request) -> Response:
                await check(request)
                return await handle(JsonRequest(request.scope, request.receive))

            return checked

    return JsonRoute


def answer(view: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(msgspec.json.encode(view), status, headers, media_type="application/json")
