"""/photolab/photos: the developed photos, and the photo itself on the page of its record."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import Query, Response

from photolab.machine import Picture
from waybill import Record, Store
from waybill.http.request_context import declare_role
from waybill.pages import (
    ApplicationPages,
    FoundLink,
    NavigationEntry,
    PageContext,
    PageRequest,
    RecordPart,
    make_page_router,
)

router = make_page_router("/photolab")


@router.get("/photos", **declare_role("reader"))
def show_photos(context: PageRequest, text: Annotated[str, Query(max_length=200)] = "") -> Response:
    with context.environment.resources_of("photolab").open_catalogue() as tables:
        photos = tables.query("find", text=text)
    return context.render("photolab/photos.html", photos=photos, text=text)


def read_picture(context: PageContext, store: Store, photo: Record) -> Mapping[str, Any]:
    return {"picture": photo.document(Picture)}


def find_photos(context: PageContext, text: str) -> list[FoundLink]:
    with context.environment.resources_of("photolab").open_catalogue() as tables:
        return [FoundLink(row["caption"], f"/records/photo/{row['id']}") for row in tables.query("find", text=text)]


PAGES = ApplicationPages(
    router,
    navigation=(NavigationEntry("Photos", "/photolab/photos"),),
    package="photolab.pages",
    record_parts=(RecordPart("photo", "photolab/picture.html", read_picture),),
    search=find_photos,
)
