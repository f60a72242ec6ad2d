"""Holds, pauses and locks over HTTP.

GET /api/v1/ingest/holds                 collections on hold, paused queues
PUT, DELETE /api/v1/ingest/holds/<collection>     DELETE also releases everything held for it
PUT, DELETE /api/v1/ingest/pauses/<ingest|small|large>
GET, POST /api/v1/ingest/locks           DELETE /api/v1/ingest/locks/<lock>
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from fastapi import APIRouter, Path, Query
from fastapi.responses import Response

from waybill.apps.ingest import service
from waybill.apps.ingest.routes.context import PREFIX, IngestRequest
from waybill.apps.ingest.routes.schemas import BulkView, CollectionHoldView, HoldsView, LocksView, NewLock, NewLockView
from waybill.http.errors import WRITE_STATUSES, describe_responses
from waybill.http.holds_and_sessions import ReasonBody
from waybill.http.json_io import to_json_response
from waybill.http.request_context import declare_role, make_router

CollectionName = Annotated[str, Path(max_length=200, description="A collection's mnemonic, or a profile's name.")]
LockPath = Annotated[str, Path(max_length=600, description="storage/ARK, inventory/ARK or localid/LOCALID_OWNER.")]
Reason = Annotated[str, Query(max_length=1000, description="Why.")]


def build_hold_router() -> APIRouter:
    router = make_router(PREFIX, "ingest holds")
    _add_hold_routes(router)
    _add_pause_routes(router)
    _add_lock_routes(router)
    return router


def _add_hold_routes(router: APIRouter) -> None:
    @router.get("/holds", summary="What is on hold or paused", response_model=HoldsView, **declare_role("reader"))
    def list_holds(context: IngestRequest) -> Response:
        with context.open_engine() as engine:
            return to_json_response({"holds": msgspec.to_builtins(service.list_active_holds(engine))})

    @router.put(
        "/holds/{name}",
        summary="Put a collection on hold",
        response_model=CollectionHoldView,
        responses=describe_responses(*WRITE_STATUSES),
        **declare_role("operator"),
    )
    def hold(context: IngestRequest, name: CollectionName, body: ReasonBody | None = None) -> Response:
        """Deposits that would start stay in Held. Those that have started go on."""
        with context.open_engine() as engine:
            known = service.hold_collection(engine, name, who=context.who, why=body.why if body is not None else "")
        context.notify_change()
        return to_json_response({"name": name, "known": known})

    @router.delete(
        "/holds/{name}",
        summary="End the hold of a collection, and release what is held for it",
        response_model=BulkView,
        responses=describe_responses(*WRITE_STATUSES),
        **declare_role("operator"),
    )
    def release(
        context: IngestRequest,
        name: CollectionName,
        why: Reason = "",
        release_records: Annotated[bool, Query(description="Also release what is held for it.")] = True,
    ) -> Response:
        with context.open_engine() as engine:
            result = service.release_collection(engine, name, who=context.who, why=why, release_records=release_records)
        context.notify_change()
        return to_json_response(msgspec.to_builtins(result))


def _add_pause_routes(router: APIRouter) -> None:
    @router.put(
        "/pauses/{queue}",
        summary="Pause a queue: all deposits, small assemblies, large assemblies",
        status_code=204,
        response_class=Response,
        responses=describe_responses(*WRITE_STATUSES),
        **declare_role("operator"),
    )
    def pause(context: IngestRequest, queue: service.PausableQueue, body: ReasonBody | None = None) -> Response:
        """No new work of the queue is started; running steps finish."""
        with context.open_engine() as engine:
            service.pause_queue(engine, queue, who=context.who, why=body.why if body is not None else "")
        context.notify_change()
        return Response(status_code=204)

    @router.delete(
        "/pauses/{queue}",
        summary="Continue a paused queue",
        status_code=204,
        response_class=Response,
        responses=describe_responses(*WRITE_STATUSES),
        **declare_role("operator"),
    )
    def unpause(context: IngestRequest, queue: service.PausableQueue, why: Reason = "") -> Response:
        with context.open_engine() as engine:
            service.unpause_queue(engine, queue, who=context.who, why=why)
        context.notify_change()
        return Response(status_code=204)


def _add_lock_routes(router: APIRouter) -> None:
    @router.get(
        "/locks",
        summary="The locks in force: of jobs, of operators, of other services",
        response_model=LocksView,
        **declare_role("reader"),
    )
    def list_locks(
        context: IngestRequest,
        after: Annotated[str, Query(max_length=600, description="The last lock of the page before.")] = "",
        limit: Annotated[int, Query(ge=1, le=500)] = 100,
    ) -> Response:
        with context.open_engine() as engine:
            rows = list(service.list_active_locks(engine, after=after.replace("\0", ""), limit=limit))
        return to_json_response({"locks": rows, "next": rows[-1]["lock"] if len(rows) == limit else None})

    @router.post(
        "/locks",
        summary="Lock an object or a local id",
        status_code=201,
        response_model=NewLockView,
        responses=describe_responses(*WRITE_STATUSES),
        **declare_role("operator"),
    )
    def lock(context: IngestRequest, body: NewLock) -> Response:
        """It is in force when its record is Set, that is when its current owner has released it."""
        with context.open_engine() as engine:
            record = service.set_operator_lock(engine, body.lock, who=context.who, why=body.why)
        context.notify_change()
        return to_json_response({"id": record.id, "lock": body.lock, "state": record.state}, 201)

    @router.delete(
        "/locks/{lock:path}",
        summary="Release an operator's lock, or remove one that another service left behind",
        status_code=204,
        response_class=Response,
        responses=describe_responses(*WRITE_STATUSES),
        **declare_role("operator"),
    )
    def unlock(context: IngestRequest, lock: LockPath, why: Reason = "") -> Response:
        """The lock of a job is refused: fail the job instead."""
        with context.open_engine() as engine:
            service.release_operator_lock(engine, lock, who=context.who, why=why)
        context.notify_change()
        return Response(status_code=204)
