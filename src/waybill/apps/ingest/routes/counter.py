"""The counter: what every route of ingest's API stands at. Who asks is known before anything of the body is read.

    routes = counter.router("ingest batches")
    @routes.get("/batches/{name}", **counter.role("reader"))
    def one(at: At, name: ...): with at.engine() as engine: ...

The service's refusals become those of the API: Unfit 400, Missing 404, TooLarge 413, everything else that is Refused
409.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Annotated, Any, cast

from fastapi import APIRouter, Depends, Request

from waybill.apps.ingest import service
from waybill.apps.ingest.outfit import Outfit
from waybill.engine import Engine
from waybill.http.errors import Problem, responses
from waybill.http.wire import check_parameters, json_route
from waybill.objects import ObjectsError, is_permanent
from waybill.tokens import Identity
from waybill.views import PageTokens

if TYPE_CHECKING:
    from waybill.http.front import Front
    from waybill.record import Store

PREFIX = "/api/v1/ingest"


class Counter:
    """What one request works with."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self._front = cast("Front", request.app.state.front)

    @property
    def who(self) -> str:
        identity: Identity = self.request.state.identity
        return identity.name

    @property
    def outfit(self) -> Outfit:
        return cast(Outfit, self._front.depot.outfit("batch"))

    def connection(self) -> AbstractContextManager[Engine]:
        """Short: nothing that waits for the other side of the network belongs inside.

        The service's refusals come as they are.
        """
        return self._front.connections.engine()

    @contextmanager
    def engine(self) -> Iterator[Engine]:
        """The same, and refusals as the API says them."""
        with refusals(), self.connection() as engine:
            yield engine

    def pages(self, store: Store) -> PageTokens:
        return self._front.pages(store)

    def changed(self) -> None:
        """Something was written: whoever watches looks again."""
        self._front.hub.hint()


At = Annotated[Counter, Depends(Counter)]


async def _check_parameters(request: Request) -> None:
    check_parameters(request)


STRICT = [Depends(_check_parameters)]  # no route of such a router takes a parameter that it does not know


def router(tag: str) -> APIRouter:
    return APIRouter(
        prefix=PREFIX, tags=[tag], route_class=json_route(_known), dependencies=STRICT, responses=responses(400)
    )


def foreign_router(tag: str, prefix: str) -> APIRouter:
    """Of a protocol that is not ours, whose clients may send parameters that mean nothing here."""
    return APIRouter(prefix=prefix, tags=[tag], route_class=json_route(_known))


async def _known(request: Request) -> None:
    await request.app.state.front.guard.check(request)


def role(name: str, **described: Any) -> dict[str, Any]:
    """Which role a route needs; the guard of all applications' routes reads it. `described`: more for the
    description of the API.
    """
    return {"openapi_extra": {"x-role": name, **described}}


@contextmanager
def refusals() -> Iterator[None]:
    """What the service and the objects refuse, as the API says it."""
    try:
        yield
    except service.NotKept as error:
        raise Problem(
            404, "not-found", str(error), f"GET {PREFIX}/{error.kind}s lists those that there are."
        ) from error
    except service.Missing as error:
        raise Problem(404, "not-found", str(error), "Look at the name, or list what there is.") from error
    except service.TooLarge as error:
        raise Problem(413, "too-large", str(error), "Split it, or let it be fetched from a URL.") from error
    except service.Unfit as error:
        raise Problem(400, "unfit", str(error), "Correct what was sent, and send it again.") from error
    except ObjectsError as error:
        if is_permanent(error):
            raise
        raise Problem(
            503, "unavailable", str(error), "Nothing was submitted; try again in a moment.", {"Retry-After": "10"}
        ) from error
