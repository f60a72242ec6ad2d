"""What the pages of ingest share: its resources, links to its pages, and what the one search box finds."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast
from urllib.parse import quote

from waybill.apps.ingest.identifiers.noid import is_ark
from waybill.apps.ingest.inventory import MAX_TERMS, words_of
from waybill.apps.ingest.resources import IngestResources
from waybill.apps.ingest.routes.context import check_may_deposit
from waybill.apps.ingest.submission import Submission
from waybill.index import Row
from waybill.pages import FoundLink, PageContext

MAX_FOUND = 20  # objects that a search shows


def resources_of(context: PageContext) -> IngestResources:
    return cast(IngestResources, context.environment.resources_of("ingest"))


def checker_of(context: PageContext) -> Callable[[Submission], None]:
    """What refuses a submission that whoever looks may not submit."""
    return lambda submission: check_may_deposit(context, submission)


def deposit_url(batch_id: str) -> str:
    return f"/ingest/deposits/{quote(batch_id, safe='')}"


def object_url(ark: str, number: int | None = None) -> str:
    return f"/ingest/objects/{quote(ark, safe=':/')}" + (f"?version={number}" if number is not None else "")


def find_links(context: PageContext, text: str) -> list[FoundLink]:
    """Objects by their ARK, by a local id, or by words of title, creator and date."""
    inventory = resources_of(context).inventory
    wanted = text.replace("\0", "")
    rows = [*_find_object(inventory.get_object(wanted))] if is_ark(wanted) else []
    rows = rows or inventory.search(local_id=wanted, limit=MAX_FOUND).rows
    if not rows and 1 <= len(words_of(wanted)) <= MAX_TERMS:
        rows = inventory.search(text=wanted, limit=MAX_FOUND).rows
    return [FoundLink(row["title"] or row["ark"], object_url(row["ark"]), row["ark"]) for row in rows]


def _find_object(row: Row | None) -> list[Row]:
    return [row] if row is not None else []
