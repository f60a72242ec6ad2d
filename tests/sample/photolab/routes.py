"""POST /api/v1/photolab/rolls, GET /api/v1/photolab/photos"""

from __future__ import annotations

from typing import Annotated

from fastapi import Query
from pydantic import BaseModel, Field

from photolab.machine import Film
from waybill import New
from waybill.http.request_context import RouteContext, declare_role, make_router
from waybill.index import Row

router = make_router("/api/v1/photolab", "photolab")


class NewRoll(BaseModel):
    captions: list[Annotated[str, Field(max_length=200)]] = Field(min_length=1)


@router.post("/rolls", summary="Bring a roll", status_code=201, **declare_role("submitter"))
def bring_roll(context: RouteContext, body: NewRoll) -> dict[str, str]:
    with context.open_engine() as engine:
        roll = engine.submit(New("roll", (Film(tuple(body.captions)),), owner=context.who), who=context.who)
    context.notify_change()
    return {"id": roll.id}


@router.get("/photos", summary="Photos by caption", **declare_role("reader"))
def find_photos(context: RouteContext, text: Annotated[str, Query(max_length=200)]) -> list[Row]:
    with context.environment.resources_of("photolab").open_catalogue() as tables:
        rows: list[Row] = tables.query("find", text=text)
    return rows
