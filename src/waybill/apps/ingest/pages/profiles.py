"""Profiles and collections, with the holds that stop their deposits, and how many deposits they hold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, NamedTuple

from fastapi import APIRouter, Path, Response

from waybill import views
from waybill.apps.ingest import service
from waybill.apps.ingest.machine.holds import COLLECTION_HOLD_PREFIX
from waybill.apps.ingest.pages.context import resources_of
from waybill.apps.ingest.profile import Collection, Profile
from waybill.engine import Engine
from waybill.http.request_context import declare_role
from waybill.pages import PageContext, PageRequest
from waybill.record import MAX_PAGE, Record

OBJECTS_SHOWN = 20
DocumentName = Annotated[str, Path(max_length=128)]


class HoldableRow(NamedTuple):
    """A profile or a collection, and the hold on it."""

    record: Record
    document: Profile | Collection
    hold: str | None  # who set it, and why


def add_routes(router: APIRouter) -> None:
    @router.get("/profiles", **declare_role("reader"))
    def show_profiles(context: PageRequest) -> Response:
        return context.render("ingest/profiles.html", rows=read_rows(context, service.PROFILES))

    @router.get("/profiles/{name}", **declare_role("reader"))
    def show_profile(context: PageRequest, name: DocumentName) -> Response:
        return show_one(context, service.PROFILES, name)

    @router.get("/collections", **declare_role("reader"))
    def show_collections(context: PageRequest) -> Response:
        rows = read_rows(context, service.COLLECTIONS)
        with context.open_engine() as engine:
            known = {row.record.id for row in rows}
            others = [
                each
                for each in service.list_active_holds(engine)
                if each.scope == "collection" and each.name not in known
            ]
        return context.render("ingest/collections.html", rows=rows, others=others)

    @router.get("/collections/{name}", **declare_role("reader"))
    def show_collection(context: PageRequest, name: DocumentName) -> Response:
        return show_one(context, service.COLLECTIONS, name)

    @router.post("/holds/set", **declare_role("operator"))
    def set_hold(context: PageRequest) -> Response:
        name = context.get_field("name")
        with context.open_engine() as engine:
            service.hold_collection(engine, name, who=context.who, why=context.get_reason())
        context.notify_change()
        return context.redirect(context.get_way_back("/ingest/collections"), f"{name} is on hold")

    @router.post("/holds/clear", **declare_role("operator"))
    def clear_hold(context: PageRequest) -> Response:
        name = context.get_field("name")
        with context.open_engine() as engine:
            result = service.release_collection(engine, name, who=context.who, why=context.get_reason())
        context.notify_change()
        notice = f"{name} is released, with {result.done + result.pending} records that it held"
        if result.refusal_count:
            notice += f"; {result.refusal_count} are still held: {result.refusals[0]['why']}"
        return context.redirect(context.get_way_back("/ingest/collections"), notice)


def read_rows(context: PageContext, documents: Any) -> list[HoldableRow]:
    with context.open_engine() as engine:
        holds = engine.store.list_holds()
        records = documents.get_page(engine, limit=MAX_PAGE).records
        return [to_row(record, documents.read(record), holds) for record in records if record.state != "Deleted"]


def to_row(record: Record, document: Profile | Collection, holds: Mapping[str, str]) -> HoldableRow:
    return HoldableRow(record, document, holds.get(f"{COLLECTION_HOLD_PREFIX}{record.id}"))


def show_one(context: PageContext, documents: Any, name: str) -> Response:
    with context.open_engine() as engine:
        record = documents.get_record(engine, name)
        row = to_row(record, documents.read(record), engine.store.list_holds())
        shown = views.to_public_documents(engine.machines[record.kind], record.documents).get(record.kind)
        actions = views.to_record_view(record, engine.machines, store=engine.store)["actions"]
        collections = _find_collections(engine, row.document) if isinstance(row.document, Profile) else []
    objects = (
        resources_of(context).inventory.search(collection=row.document.ark or name, limit=OBJECTS_SHOWN).rows
        if isinstance(row.document, Collection)
        else []
    )
    return context.render(
        "ingest/profile.html",
        row=row,
        document=shown,
        actions=[each for each in actions if context.can(each["role"]) and each["name"] != "change"],
        collections=collections,
        objects=objects,
        plural=f"{documents.kind}s",
    )


def _find_collections(engine: Engine, profile: Profile) -> list[Record]:
    """The records of the profile's collections, which it names by their ARKs."""
    records = service.COLLECTIONS.get_page(engine, limit=MAX_PAGE).records
    return [record for record in records if service.COLLECTIONS.read(record).ark in profile.collections]
