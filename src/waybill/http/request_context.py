"""What the routes of an application share: routers, roles, and the context that a route receives.

    router = make_router("/api/v1/parcels", "parcels")

    @router.put("/{name}", summary="Send a parcel", responses=describe_responses(*WRITE_STATUSES), **declare_role("operator"))
    def send(context: RouteContext, name: str) -> Response:
        with context.open_engine() as engine: ...

A request is authenticated, and its query parameters are checked, before any of its body is read. An application whose
routes need its resources subclasses `RequestContext`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Annotated, Any, cast

from fastapi import APIRouter, Depends, Request
from fastapi.concurrency import run_in_threadpool

from waybill.accounts import RecordAccess, is_role_sufficient
from waybill.engine import Engine
from waybill.http.authentication import check_role, make_forbidden_problem
from waybill.http.errors import READ_STATUSES, HttpProblem, describe_responses
from waybill.http.json_io import check_parameters, make_json_route
from waybill.record import Page, Store
from waybill.signed_urls import UrlSigner
from waybill.tokens import Identity
from waybill.views import ListQuery, find_page

if TYPE_CHECKING:
    from waybill.environment import Environment
    from waybill.http.api_services import ApiServices

OPEN_ROLE = "open"  # of a route that authenticates its callers itself


class RequestContext:
    def __init__(self, request: Request) -> None:
        self.request = request
        self._services = cast("ApiServices", request.app.state.services)

    @property
    def environment(self) -> Environment:
        return self._services.environment

    @property
    def identity(self) -> Identity | None:
        """The caller; None on an open route, unless its caller was authenticated."""
        return getattr(self.request.state, "identity", None)

    @property
    def who(self) -> str:
        """The caller's name, for histories."""
        identity: Identity = self.request.state.identity
        return identity.name

    @property
    def access(self) -> RecordAccess:
        """What the caller may see and do; on routes that need a role."""
        identity: Identity = self.request.state.identity
        return self._services.get_access(identity)

    def open_store(self) -> AbstractContextManager[Store]:
        """Open a store connection that shows what the caller may see."""
        identity: Identity = self.request.state.identity
        return self._services.open_store(identity)

    @contextmanager
    def open_reading_engine(self) -> Iterator[Engine]:
        """An engine on a connection that shows what the caller may see. It only reads."""
        with self.open_store() as store:
            yield self.environment.make_engine(store)

    def check_may_submit(self, owner: str, scope: str, application: str) -> None:
        """Raise unless the caller may submit what would have this owner and scope."""
        identity = self.access.identity
        if not is_role_sufficient(identity.role_of(owner, scope, application), "submitter"):
            where = f"within {scope}" if scope else "outside of all scopes"
            raise make_forbidden_problem(identity, f"You may not submit for {owner!r} {where}", "submitter")

    async def authenticate(self, role: str) -> None:
        """Authenticate the caller of an open route; raise unless it has the role."""
        await self._services.authenticator.authenticate(self.request)
        check_role(self.request.state.identity, role)

    async def authenticate_somewhere(self, role: str) -> None:
        """The same where the role for some records is enough: which, the route says."""
        await self._services.authenticator.authenticate(self.request)
        check_role(self.request.state.identity, role, somewhere=True)

    def open_engine(self) -> AbstractContextManager[Engine]:
        """Open a connection to the whole store, for a short time: nothing that waits for the client belongs inside. What the
        caller may see of a record, and do to it, `access` says.
        """
        return self._services.connections.open_engine()

    def find_page(
        self, store: Store, requested: ListQuery, page_token: str | None, *, limit: int, is_order_given: bool = False
    ) -> tuple[Page, str | None]:
        """Return a page of records with their documents, and the token of the next one."""
        return find_page(
            store,
            requested,
            page_token,
            limit=limit,
            documents=True,
            is_order_given=is_order_given,
            tokens_of=self._services.get_page_tokens,
        )

    def notify_change(self) -> None:
        """Tell the change feed that records have changed."""
        self._services.change_feed.notify_changed()


RouteContext = Annotated[RequestContext, Depends(RequestContext)]


def make_router(prefix: str, tag: str, dependencies: Sequence[Any] = ()) -> APIRouter:
    return APIRouter(
        prefix=prefix,
        tags=[tag],
        route_class=make_json_route(_check_request),
        dependencies=dependencies,
        responses=describe_responses(400, *READ_STATUSES),
    )


def make_foreign_router(prefix: str, tag: str) -> APIRouter:
    """Return a router for a foreign protocol, whose clients may send unknown query parameters."""
    return APIRouter(prefix=prefix, tags=[tag], route_class=make_json_route(_authenticate))


def declare_role(role: str, *, somewhere: Any = False, **openapi: Any) -> dict[str, Any]:
    """Declare the role that a route needs everywhere; the authenticator reads it. `somewhere`: a caller is let in who has it for
    some records, and the route reads by `open_store` and checks by `access`. `openapi`: more for the description of the API.
    """
    return {"openapi_extra": {"x-role": role, **({"x-somewhere": True} if somewhere else {}), **openapi}}


def allow_signed_urls(
    role: str, signer_of: Callable[[RequestContext, Store], UrlSigner], parts: Sequence[str]
) -> dict[str, Any]:
    """Declare that a route is open to signed URLs, and needs the role without one. `parts`: the parameters of its path
    that are signed.
    """

    def is_signed(context: RequestContext) -> bool:
        query, path = context.request.query_params, context.request.path_params
        if not query.get("signature"):
            return False
        with context.open_engine() as engine:
            signer, now = signer_of(context, engine.store), engine.store.now()
        return signer.is_valid([str(path[name]) for name in parts], query, now)

    async def check(context: RouteContext) -> None:
        if await run_in_threadpool(is_signed, context):
            return
        try:
            await context.authenticate(role)
        except HttpProblem as error:
            if error.code == "no-token" and context.request.query_params.get("signature"):
                message = "This URL was not signed here, was changed, or has expired."
                raise HttpProblem("bad-signature", message, "Send a token, or get a new URL.") from error
            raise

    return {"dependencies": [Depends(check)], **declare_role(OPEN_ROLE)}


async def _check_request(request: Request) -> None:
    await _authenticate(request)
    check_parameters(request)


async def _authenticate(request: Request) -> None:
    """Check the token, and the role that the route declares, before any of the body is read and before a client is told
    to send it.
    """
    extra = getattr(request.scope.get("route"), "openapi_extra", None) or {}
    role = extra.get("x-role")
    if role != OPEN_ROLE:
        await request.app.state.services.authenticator.authenticate(request)
        if role is not None:
            check_role(request.state.identity, role, somewhere=bool(extra.get("x-somewhere")))
