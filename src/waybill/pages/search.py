"""Search over all applications from one box.

an id                  of a record of any kind, or the key with which it was created
a part of an id, an owner, a message     among the newest records of each kind, MAX_LOOKED_AT of them
what applications find                   ARKs, titles, paths: `ApplicationPages.search`
"""

from __future__ import annotations

from typing import Annotated, NamedTuple

from fastapi import APIRouter, Query, Response

from waybill.http.request_context import declare_role
from waybill.pages.figures import tone_of
from waybill.pages.formats import record_url
from waybill.pages.lists import RecordFilter
from waybill.pages.page_context import PageContext, PageRequest
from waybill.pages.page_routes import make_page_router
from waybill.record import Record, RecordNotFound, Store
from waybill.rules import find_id_problem
from waybill.sign_in import PRIVATE_KINDS

MAX_LOOKED_AT = 500  # records of a kind
MAX_FOUND = 20  # of a kind, and of an application
MAX_QUERY = 200  # characters


class FoundRecord(NamedTuple):
    record: Record
    tone: str


def build_router() -> APIRouter:
    routes = make_page_router()

    @routes.get("/search", **declare_role("reader", somewhere=True))
    def show_results(context: PageRequest, q: Annotated[str, Query(max_length=MAX_QUERY)] = "") -> Response:
        text = q.strip()
        with context.open_store() as store:
            exact = find_exact(context, store, text) if text else []
            refs = {record.ref for record in exact}
            similar = [r for r in find_similar(context, store, text) if r.ref not in refs] if text else []
        links = {
            name: found
            for name, pages in context.site.pages.items()
            if text
            and pages.search is not None
            and (pages.is_search_scoped or context.can("reader"))
            and (found := pages.search(context, text)[:MAX_FOUND])
        }
        if len(exact) == 1 and not similar and not links:
            return context.redirect(record_url(*exact[0].ref))
        return context.render(
            "search.html",
            query=text,
            exact=[to_found(context, record) for record in exact],
            similar=[to_found(context, record) for record in similar],
            links=links,
            looked_at=MAX_LOOKED_AT,
        )

    return routes


def to_found(context: PageContext, record: Record) -> FoundRecord:
    return FoundRecord(record, tone_of(context.machines[record.kind], record.state))


def find_exact(context: PageContext, store: Store, text: str) -> list[Record]:
    """The records of this id, whatever their kind; "KIND ID" names one."""
    kind, blank, id = text.rpartition(" ")
    wanted = id if blank and kind in context.machines else text
    if find_id_problem(wanted):
        return []
    found: list[Record] = []
    for machine in context.machines.values():
        if machine.name in PRIVATE_KINDS or (blank and kind in context.machines and machine.name != kind):
            continue
        for read in (store.get, store.get_by_idempotency_key):
            try:
                record = read(machine.name, wanted)
            except RecordNotFound:
                continue
            if record.ref not in {each.ref for each in found}:
                found.append(record)
    return found


def find_similar(context: PageContext, store: Store, text: str) -> list[Record]:
    now, found = store.now(), list[Record]()
    chosen = RecordFilter(text)
    for machine in context.machines.values():
        if machine.name not in PRIVATE_KINDS:
            records = store.find(machine.name, newest=True, limit=MAX_LOOKED_AT).records
            found += [record for record in records if chosen.matches(record, now)][:MAX_FOUND]
    return found
