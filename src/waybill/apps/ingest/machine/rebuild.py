"""The machine of rebuilds: some objects are recorded in the inventory again, from storage alone (mode fix).

    engine.submit(make_rebuild([ark], owner=who))    a record of the machine `rebuild`, which any worker runs
    read_object_pages(storage, cursor)               all objects of the storage, page by page, to rebuild everything

While a rebuild reads an object's versions from storage and makes the inventory agree with them, a job could record a
newer version: the rebuild would take it for one too many and remove it. So a rebuild owns the **inventory lock** of each
of its objects, the one that a job owns while Recording and that other services take as /locks/inventory/<ark>. It starts
when none of its objects is being recorded, and jobs wait until it has ended. A job that writes to storage meanwhile does
no harm: its version is recorded when the lock is free, and a version that the rebuild has recorded already is left as it
is.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from waybill.apps.ingest.storage import StorageService
from waybill.machine import Backoff, Document, LockFamily, Machine, action, end, rest, work
from waybill.record import Record
from waybill.rules import ActionRefused
from waybill.step import New

DAY = 86400.0
KIND = "rebuild"
MAX_OBJECTS = 100  # objects of one rebuild: it owns the locks of all of them at once


def build_rebuild_machine() -> Machine:
    return Machine(
        name=KIND,
        plural="rebuilds",
        prefix="rebuild",
        steps="waybill.apps.ingest.steps.rebuild",
        made_by="`waybill ingest rebuild`",
        description="Some objects that are recorded in the inventory again, from storage alone.",
        states=(
            work(
                "Rebuilding",
                to="Completed",
                description="Its objects are recorded again.",
                locks=("inventory",),
                backoff=Backoff(5, 2, 300),
            ),
            rest(
                "Failed",
                description="Some of its objects could not be recorded; the others are.",
                settled=True,
                keep=30 * DAY,
            ),
            end("Completed", description="The inventory agrees with the storage about its objects.", keep=7 * DAY),
            end("Deleted", description="Given up by an operator.", keep=0.0),
        ),
        actions=(
            action("retry", "Failed", "Rebuilding", "Try again."),
            action("delete", "Failed", "Deleted", "Give it up."),
        ),
        locks=(LockFamily("inventory", "One writer for an object in the inventory.", names_of=arks_of),),
        documents=(
            Document("objects", None, "service", "The ARKs of its objects."),
            Document("rebuilt", None, "step", "How many objects and versions were recorded, and which could not be."),
        ),
    )


def arks_of(record: Record) -> list[str]:
    """The objects of a rebuild, each once."""
    document = record.documents.get("objects")
    arks = document.get("arks") if isinstance(document, dict) else None
    return (
        list(dict.fromkeys(ark for ark in arks if isinstance(ark, str) and ark))[:MAX_OBJECTS]
        if isinstance(arks, list)
        else []
    )


def make_rebuild(arks: Sequence[str], *, owner: str = "") -> New:
    """A new rebuild of these objects, to be submitted."""
    if not 1 <= len(arks) <= MAX_OBJECTS:
        raise ActionRefused(f"A rebuild has 1 to {MAX_OBJECTS} objects, not {len(arks)}.")
    return New(KIND, {"objects": {"arks": list(arks)}}, owner=owner)


class StoredObjectsPage(NamedTuple):
    """Some objects of the storage: their ARKs, the places of those too damaged to have one, and where the next page
    starts.
    """

    arks: list[str]
    unnamed: list[str]
    cursor: str  # empty: this was the last page


def read_object_pages(
    storage: StorageService, cursor: str = "", *, page_size: int = MAX_OBJECTS
) -> Iterator[StoredObjectsPage]:
    objects: Iterable[tuple[str, str]] = storage.list_objects(cursor)
    while True:
        page = list(itertools.islice(objects, page_size))
        is_last = len(page) < page_size
        yield StoredObjectsPage(
            [ark for _, ark in page if ark], [at for at, ark in page if not ark], "" if is_last else page[-1][0]
        )
        if is_last:
            return
