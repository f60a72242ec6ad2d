"""Sealed: a route that is open to a token, or to whoever comes by a URL that was signed here
(waybill.apps.ingest.sealing).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, cast

from fastapi import Depends, Request
from fastapi.concurrency import run_in_threadpool

from waybill.apps.ingest.outfit import Outfit
from waybill.http.errors import Problem
from waybill.http.guard import demand

if TYPE_CHECKING:
    from waybill.http.front import Front
    from waybill.record import Store

T = TypeVar("T")
OVER = "This URL was not signed here, or it was changed, or its time is over."


def signed_or(role: str) -> dict[str, Any]:
    """What a route with `ark` and `number` in its path says to be so; without a signature it needs the role."""

    async def check(request: Request) -> None:
        signature = request.query_params.get("signature", "")
        fits: bool = bool(signature) and await run_in_threadpool(lambda: _fits(request, signature))
        if fits:
            return
        front = cast("Front", request.app.state.front)
        try:
            await front.guard.check(request)
        except Problem as error:
            if signature and error.code == "no-token":
                raise Problem(403, "bad-signature", OVER, "Ask with a token, or for a new URL.") from error
            raise
        demand(request.state.identity, role)

    return {"dependencies": [Depends(check)], "openapi_extra": {"x-role": "open"}}


def _fits(request: Request, signature: str) -> bool:
    front = cast("Front", request.app.state.front)
    outfit = cast(Outfit, front.depot.outfit("job"))
    told, expires = request.path_params, request.query_params.get("expires", "")

    def call(question: Callable[[Store], T]) -> T:
        with front.connections.store() as store:
            return question(store)

    seal, now = outfit.seal(call), call(lambda store: store.now())
    return seal.fits(str(told["ark"]), str(told["number"]), expires, signature, now)
