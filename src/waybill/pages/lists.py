"""Lists of records by kind and state: filters, pages with tokens, a selection for actions on many.

    /records/{kind}?state=&owner=&parent=&order=      one filter of the store, which has an index for it
                   &text=&retrying=&older=            looked for among what that filter finds, MAX_LOOKED_AT records at a time

The address reproduces the view. The token of the next page goes on where the last record that was looked at is.
"""

from __future__ import annotations

from typing import Annotated, Literal, NamedTuple
from urllib.parse import urlencode

from fastapi import APIRouter, Path, Query, Response

from waybill import views
from waybill.http.api_services import ApiServices, KindText
from waybill.http.errors import HttpProblem
from waybill.http.records import check_state
from waybill.http.request_context import declare_role
from waybill.machine import Action, Machine
from waybill.pages.figures import tone_of
from waybill.pages.home import build_figure
from waybill.pages.page_context import PageContext, PageRequest
from waybill.pages.page_routes import make_page_router
from waybill.record import Page, Record, Store
from waybill.views import ListQuery
from waybill.views.view_types import RecordView

PAGE_LENGTH = 50
MAX_LOOKED_AT = 5_000  # records of one page that are looked at for a filter which no index has
FilterText = Annotated[str, Query(max_length=200)]


class RecordFilter(NamedTuple):
    """What a list shows of the records that the store's own filter finds."""

    text: str = ""  # in the id, the message or the owner
    retrying: bool = False
    older: float = 0.0  # seconds in its state, at least

    @classmethod
    def from_fields(cls, text: str = "", retrying: str = "", older: str = "", **others: str) -> RecordFilter:
        """From the fields of a form: an empty one says nothing."""
        if older and not (older.isdecimal() and len(older) < 10):
            raise HttpProblem(
                "bad-query", f"{older[:20]!r} is no number of seconds.", "Write a whole number, or leave it empty."
            )
        return cls(text.strip(), bool(retrying), float(older or 0))

    def is_set(self) -> bool:
        return self != RecordFilter()

    def matches(self, record: Record, now: float) -> bool:
        if self.retrying and not record.error_count:
            return False
        if self.older and now - record.updated < self.older:
            return False
        wanted = self.text.casefold()
        return not wanted or any(wanted in part.casefold() for part in (record.id, record.message, record.owner))


class FoundPage(NamedTuple):
    records: list[Record]
    next: str | None
    looked_at: int  # 0: all that the store found match


def build_router() -> APIRouter:
    routes = make_page_router()

    @routes.get("/records/{kind}", **declare_role("reader", somewhere=True))
    def show_list(
        context: PageRequest,
        kind: Annotated[KindText, Path()],
        state: FilterText = "",
        owner: FilterText = "",
        parent: Annotated[str, Query(max_length=800)] = "",
        text: FilterText = "",
        retrying: FilterText = "",
        older: FilterText = "",
        order: Literal["oldest", "newest"] = "newest",
        page_token: str | None = None,
    ) -> Response:
        machine = context.get_machine(kind)
        query = make_query(context.services, machine, state, owner, parent, order)
        chosen = RecordFilter.from_fields(text, retrying, older)
        with context.open_store() as store:
            if state and page_token is None:
                check_state(machine, state, store)
            found = find_matching(context, store, query, page_token, chosen)
            progress = views.progress_of(store.list_sessions()) if any(r.session for r in found.records) else {}
            page = views.to_page_view(Page(found.records, None), context.machines, store, found.next, progress=progress)
            figure = build_figure(store, machine)
        given = {
            "state": state, "owner": owner, "parent": parent, "text": text, "retrying": retrying, "older": older,
            "order": order if order != "newest" else "",
        }  # fmt: skip
        filters = {name: value for name, value in given.items() if value}
        return context.render(
            "list.html",
            machine=machine,
            figure=figure,
            rows=page["records"],
            filters=given,
            is_filtered=bool(filters),
            query_text=urlencode(filters),
            next_query=urlencode({**filters, "page_token": found.next}) if found.next else None,
            is_first=page_token is None,
            counted=figure.count(state) if state else figure.total,
            looked_at=found.looked_at,
            actions=list_bulk_actions(context, machine, state, page["records"]),
            tone=lambda name: tone_of(machine, name),
            is_one_filter=sum(map(bool, (state, owner, parent))) <= 1,
        )

    return routes


def make_query(services: ApiServices, machine: Machine, state: str, owner: str, parent: str, order: str) -> ListQuery:
    if sum(map(bool, (state, owner, parent))) > 1:
        raise HttpProblem("bad-query", "A list has at most one of state, owner and parent.", "Leave two of them empty.")
    ref = services.parse_ref(parent) if parent else None
    return ListQuery(machine.name, state or None, ref, owner or None, order == "newest")


def find_matching(
    context: PageContext, store: Store, query: ListQuery, page_token: str | None, chosen: RecordFilter
) -> FoundPage:
    """Return a page of the records that match. With a filter that no index has, it ends after MAX_LOOKED_AT records, full or not."""
    now, matching, looked_at = store.now(), list[Record](), 0
    token = page_token
    while True:
        wanted = PAGE_LENGTH - len(matching)
        limit = min(500, MAX_LOOKED_AT - looked_at) if chosen.is_set() else PAGE_LENGTH
        page, next_token = views.find_page(store, query, token, limit=limit, tokens_of=context.services.get_page_tokens)
        looked_at += len(page.records)
        fitting = [record for record in page.records if chosen.matches(record, now)]
        if len(fitting) > wanted:  # the next page begins after the last one shown
            fitting = fitting[:wanted]
            next_token = context.services.get_page_tokens(store).sign(query, fitting[-1].seq)
        matching += fitting
        is_full = len(matching) >= PAGE_LENGTH or not chosen.is_set()
        if next_token is None or is_full or looked_at >= MAX_LOOKED_AT:
            return FoundPage(matching, next_token, looked_at if chosen.is_set() else 0)
        token = next_token


def list_bulk_actions(context: PageContext, machine: Machine, state: str, rows: list[RecordView]) -> list[Action]:
    """The actions that may be taken on a selection: of the state that is shown, or of the states in the list."""
    states = {state} if state else {row["state"] for row in rows}
    return [
        action
        for action in machine.actions
        if states & set(action.sources) and action.writes is None and context.can_somewhere(action.role)
    ]
