"""Holds, pauses and locks over HTTP.

GET /api/v1/ingest/holds                 all marks in force: collections on hold, queues paused
PUT, DELETE /api/v1/ingest/holds/<collection>     DELETE releases all that rests for it, too
PUT, DELETE /api/v1/ingest/pauses/<ingest|small|large>
GET, POST /api/v1/ingest/locks           DELETE /api/v1/ingest/locks/<key>
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from fastapi import APIRouter, Path, Query
from fastapi.responses import Response

from waybill.apps.ingest import service
from waybill.apps.ingest.routes.counter import At, role, router
from waybill.apps.ingest.routes.shapes import BulkView, HeldView, HoldsView, LockedView, LocksView, NewLock, Why
from waybill.http.errors import responses
from waybill.http.wire import answer

CollectionName = Annotated[str, Path(max_length=200, description="A collection's mnemonic, or a profile's name.")]
Key = Annotated[str, Path(max_length=600, description="storage/ARK, inventory/ARK or localid/LOCALID_OWNER.")]
Reason = Annotated[str, Query(max_length=1000, description="Why.")]


def routes() -> APIRouter:
    made = router("ingest holds")
    _holds(made)
    _pauses(made)
    _locks(made)
    return made


def _holds(made: APIRouter) -> None:
    @made.get(
        "/holds",
        summary="What is on hold or paused",
        response_model=HoldsView,
        responses=responses(401, 403, 503),
        **role("reader"),
    )
    def all_of_them(at: At) -> Response:
        with at.engine() as engine:
            return answer({"holds": msgspec.to_builtins(service.marks(engine))})

    @made.put(
        "/holds/{name}",
        summary="Put a collection on hold",
        response_model=HeldView,
        responses=responses(400, 401, 403, 404, 413, 415, 422, 503, 504),
        **role("operator"),
    )
    def hold(at: At, name: CollectionName, body: Why | None = None) -> Response:
        """What would begin rests in Held. What has begun goes on."""
        with at.engine() as engine:
            known = service.hold(engine, name, who=at.who, why=body.why if body is not None else "")
        at.changed()
        return answer({"name": name, "known": known})

    @made.delete(
        "/holds/{name}",
        summary="End the hold of a collection, and release what rests for it",
        response_model=BulkView,
        responses=responses(400, 401, 403, 404, 422, 503, 504),
        **role("operator"),
    )
    def release(
        at: At,
        name: CollectionName,
        why: Reason = "",
        held: Annotated[bool, Query(description="Release what rests for it, too.")] = True,
    ) -> Response:
        with at.engine() as engine:
            bulk = service.release(engine, name, who=at.who, why=why, also_held=held)
        at.changed()
        return answer(msgspec.to_builtins(bulk))


def _pauses(made: APIRouter) -> None:
    @made.put(
        "/pauses/{queue}",
        summary="Pause a queue: all deposits, small assemblies, large assemblies",
        status_code=204,
        response_class=Response,
        responses=responses(400, 401, 403, 404, 413, 415, 422, 503, 504),
        **role("operator"),
    )
    def pause(at: At, queue: service.Queue, body: Why | None = None) -> Response:
        """Nothing new is begun in it; steps that run now end as usual."""
        with at.engine() as engine:
            service.pause(engine, queue, who=at.who, why=body.why if body is not None else "")
        at.changed()
        return Response(status_code=204)

    @made.delete(
        "/pauses/{queue}",
        summary="Let a queue go on",
        status_code=204,
        response_class=Response,
        responses=responses(401, 403, 404, 422, 503, 504),
        **role("operator"),
    )
    def unpause(at: At, queue: service.Queue, why: Reason = "") -> Response:
        with at.engine() as engine:
            service.unpause(engine, queue, who=at.who, why=why)
        at.changed()
        return Response(status_code=204)


def _locks(made: APIRouter) -> None:
    @made.get(
        "/locks",
        summary="The locks in force: of jobs, of operators, of other services",
        response_model=LocksView,
        responses=responses(401, 403, 422, 503),
        **role("reader"),
    )
    def locks(
        at: At,
        after: Annotated[str, Query(max_length=600, description="The last key of the page before.")] = "",
        limit: Annotated[int, Query(ge=1, le=500)] = 100,
    ) -> Response:
        with at.engine() as engine:
            found = list(service.locks(engine, after=after.replace("\0", ""), limit=limit))
        return answer({"locks": found, "next": found[-1]["key"] if len(found) == limit else None})

    @made.post(
        "/locks",
        summary="Lock an object or a local id",
        status_code=201,
        response_model=LockedView,
        responses=responses(400, 401, 403, 413, 415, 422, 503, 504),
        **role("operator"),
    )
    def lock(at: At, body: NewLock) -> Response:
        """It is in force when its record is Set: whoever holds the key now ends what he does first."""
        with at.engine() as engine:
            record = service.lock(engine, body.key, who=at.who, why=body.why)
        at.changed()
        return answer({"id": record.id, "key": body.key, "state": record.state}, 201)

    @made.delete(
        "/locks/{key:path}",
        summary="End an operator's lock, or free one that another service left behind",
        status_code=204,
        response_class=Response,
        responses=responses(400, 401, 403, 404, 409, 422, 503, 504),
        **role("operator"),
    )
    def unlock(at: At, key: Key, why: Reason = "") -> Response:
        """The lock of a job is not taken from it: fail the job instead."""
        with at.engine() as engine:
            service.unlock(engine, key, who=at.who, why=why)
        at.changed()
        return Response(status_code=204)
