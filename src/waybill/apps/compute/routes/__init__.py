"""Where requests of Manta's protocol arrive in the server, and who sends them.

Manta's paths begin with the name of an account and have one of Manta's areas as their second segment. The first segments of
the server's own routes are no names of accounts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, cast

import msgspec
from fastapi.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Scope

from waybill.accounts import SshKey, find_account, find_key, identity_of_user
from waybill.apps.compute.access import ANONYMOUS, Caller, caller_of
from waybill.apps.compute.errors import MantaError
from waybill.apps.compute.jobs import Jobs
from waybill.apps.compute.paths import KNOWN_AREAS, StoragePath
from waybill.apps.compute.protocol.app import Call, MantaApp
from waybill.apps.compute.protocol.job_calls import JobCalls
from waybill.apps.compute.protocol.requests import StorageRequest
from waybill.apps.compute.protocol.signatures import KeyId, SignatureVerifier
from waybill.apps.compute.protocol.storage_calls import StorageCalls
from waybill.apps.compute.routes.native_api import build_api
from waybill.http.errors import ErrorView, HttpProblem
from waybill.http.foreign_protocol import ForeignProtocol, Segments
from waybill.http.request_context import RequestContext
from waybill.record import Store

if TYPE_CHECKING:
    from waybill.apps.compute.resources import ComputeResources
    from waybill.environment import Environment


def build_routes(environment: Environment) -> list[Any]:
    apps: list[MantaApp] = []

    async def handle(request: Request, segments: Segments) -> Response:
        if not apps:
            apps.append(build_manta_app(environment, RequestContext(request)))
        return cast(Response, apps[0])  # like a response, it is called with scope, receive and send

    return [build_api(), ForeignProtocol(owns=is_manta_path, to_error_response=to_manta_response, handle=handle)]


def is_manta_path(segments: Segments) -> bool:
    names = [segment for segment in segments[:8] if segment]
    return len(names) >= 2 and names[1] in KNOWN_AREAS


def to_manta_response(request: Request, status: int, view: ErrorView, headers: Mapping[str, str]) -> Response:
    """A refusal of the server itself, in Manta's shape."""
    codes = {400: "InvalidResource", 401: "AuthorizationRequired", 403: "AuthorizationFailed", 404: "ResourceNotFound",
             405: "MethodNotAllowed", 413: "RequestEntityTooLarge", 503: "ServiceUnavailable"}  # fmt: skip
    body = msgspec.json.encode({"code": codes.get(status, "InternalError"), "message": view["message"]})
    return Response(body, status, {**headers, "Content-Type": "application/json", "Server": "Manta"})


def build_manta_app(environment: Environment, context: RequestContext) -> MantaApp:
    resources: ComputeResources = environment.resources_of("compute")
    storage = StorageCalls(resources.storage)
    jobs = JobCalls(resources, Jobs(resources, context.open_engine), storage)
    return MantaApp(Authenticator(), _make_dispatcher(storage, jobs))


def _make_dispatcher(storage: StorageCalls, jobs: JobCalls) -> Callable[[StorageRequest], Call]:
    calls: dict[str, Call] = {"PUT": storage.put, "GET": storage.get, "HEAD": storage.get, "DELETE": storage.delete}

    def find_call(request: StorageRequest) -> Call:
        if request.path.area == "uploads":
            raise MantaError("NotImplemented", "Uploads in parts are not supported: send the object with one PUT.")
        if request.path.area == "medusa":
            raise MantaError("NotImplemented", "Terminals are not supported: run a job.")
        if request.path.area == "jobs" and (call := jobs.find_call(request)) is not None:
            return call
        if request.method not in calls:
            allowed = ", ".join(calls)
            raise MantaError("MethodNotAllowed", f"{request.method} is not allowed", headers={"Allow": allowed})
        return calls[request.method]

    return find_call


class Authenticator:
    """Who sends a request: whoever has signed it or its URL, a Waybill token or sign-in, or nobody; on a server that asks
    nobody who they are, whoever the path names.
    """

    async def __call__(self, scope: Scope, path: StoragePath) -> Caller:
        request = Request(scope)
        authorization = request.headers.get("authorization", "")
        if authorization.lower().startswith("signature "):
            return await run_in_threadpool(_verify, request, lambda verifier, target, query: verifier.verify_request(
                scope["method"], f"{target}?{query}" if query else target, request.headers, authorization, time.time()
            ))  # fmt: skip
        if not authorization and {"signature", "keyId"} <= request.query_params.keys():
            host = request.headers.get("host", "")
            return await run_in_threadpool(_verify, request, lambda verifier, target, query: verifier.verify_url(
                scope["method"], host, target.partition("?")[0], query, time.time()
            ))  # fmt: skip
        return await _authenticate_token(request, path)


def _verify(request: Request, verify: Callable[[SignatureVerifier, str, str], KeyId]) -> Caller:
    """In a thread: the caller, with the rights that it has now. Raises MantaError."""
    scope = request.scope
    target, query = scope["raw_path"].decode("latin-1"), scope["query_string"].decode("latin-1")
    with RequestContext(request).open_engine() as engine:
        signed = verify(SignatureVerifier(lambda key_id: find_account_key(engine.store, key_id)), target, query)
        identity = identity_of_user(engine.store, signed.user)
    if identity is None:
        raise MantaError("AccountDoesNotExist", f"{signed.user} does not exist")
    return caller_of(identity)._replace(account=signed.account)


def find_account_key(store: Store, key_id: KeyId) -> SshKey:
    """A key that is accepted now, of the user that signs. Raises MantaError."""
    found = find_key(store, key_id.fingerprint)
    if found is None or found.user != key_id.user:
        if find_account(store, "user", key_id.user) is None:
            kind = "UserDoesNotExist" if key_id.subuser else "AccountDoesNotExist"
            raise MantaError(kind, f"{key_id.user} does not exist")
        raise MantaError("KeyDoesNotExist", f"/{key_id.user}/keys/{key_id.fingerprint} does not exist")
    if key_id.subuser:
        identity = identity_of_user(store, key_id.subuser)
        if identity is None or key_id.account not in identity.owners:
            raise MantaError("UserDoesNotExist", f"{key_id.subuser} is no user of {key_id.account}")
    return found.key


async def _authenticate_token(request: Request, path: StoragePath) -> Caller:
    context = RequestContext(request)
    try:
        await context.authenticate_somewhere("reader")
    except HttpProblem as error:
        if error.code == "no-token" and "authorization" not in request.headers:
            return ANONYMOUS
        codes = {"bad-token": "InvalidSignature", "forbidden": "AuthorizationFailed"}
        raise MantaError(codes.get(error.code, "AuthorizationRequired"), str(error)) from None
    identity = request.state.identity
    if identity.token is None and identity.sign_in is None:
        return Caller(path.account, is_operator=True)
    return caller_of(identity)
