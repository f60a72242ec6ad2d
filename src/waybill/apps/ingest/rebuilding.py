"""A rebuild: some objects are recorded in the inventory again, from storage alone (mode fix).

    engine.submit(order([ark], who))    a record of the machine `rebuild`, which any worker does
    portions(storage, cursor)           all objects of the storage, some at a time, for rebuilding everything

While a rebuild reads the storage's list of an object's versions and lets the inventory agree with it, a job could
record a newer version: the rebuild would take that for one too many and forget it. So a rebuild holds the **inventory
key** of each of its objects, the one that a job holds while Recording and that other services take as
/locks/inventory/<ark>: it begins when none of them is being recorded, and jobs wait until it has ended. A job that is
still writing to storage meanwhile disturbs nothing: its version is recorded when the key is free, and a version that
the rebuild has recorded already is left as it is.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from waybill.apps.ingest.storage import StorageService
from waybill.machine import Backoff, Document, Keys, Machine, action, end, rest, work
from waybill.record import Record
from waybill.rules import Refused
from waybill.step import New

DAY = 86400.0
KIND = "rebuild"
MOST = 100  # objects of one rebuild: their keys are held together


def rebuild_machine() -> Machine:
    return Machine(
        name=KIND,
        plural="rebuilds",
        prefix="rebuild",
        made_by="`waybill ingest rebuild`",
        doc="Some objects on their way into the inventory again, from storage alone.",
        states=(
            work(
                "Rebuilding",
                "Completed",
                "Its objects are recorded again.",
                needs=("inventory",),
                backoff=Backoff(5, 2, 300),
            ),
            rest("Failed", "Some of its objects could not be recorded; the others are.", settled=True, keep=30 * DAY),
            end("Completed", "The inventory says of its objects what the storage says.", keep=7 * DAY),
            end("Deleted", "Given up by an operator.", keep=0.0),
        ),
        actions=(
            action("retry", "Failed", "Rebuilding", "Try again."),
            action("delete", "Failed", "Deleted", "Give it up."),
        ),
        keys=(Keys("inventory", "One writer for an object in the inventory.", of=arks_of),),
        documents=(
            Document("objects", "service", "The ARKs of its objects."),
            Document("rebuilt", "step", "How many objects and versions were recorded, and what could not be."),
        ),
    )


def arks_of(record: Record) -> list[str]:
    """The objects of a rebuild, each once."""
    said = record.docs.get("objects")
    arks = said.get("arks") if isinstance(said, dict) else None
    return (
        list(dict.fromkeys(ark for ark in arks if isinstance(ark, str) and ark))[:MOST]
        if isinstance(arks, list)
        else []
    )


def order(arks: Sequence[str], *, owner: str = "") -> New:
    """A rebuild of these objects, to be submitted."""
    if not 1 <= len(arks) <= MOST:
        raise Refused(f"A rebuild has 1 to {MOST} objects, not {len(arks)}.")
    return New(KIND, {"objects": {"arks": list(arks)}}, owner=owner)


class Portion(NamedTuple):
    """Some objects of the storage: their ARKs, those that are too damaged to have one, and where the next portion
    begins.
    """

    arks: list[str]
    nameless: list[str]
    cursor: str  # empty: this was the last


def portions(storage: StorageService, cursor: str = "", *, most: int = MOST) -> Iterator[Portion]:
    found: Iterable[tuple[str, str]] = storage.objects(cursor)
    while True:
        page = list(itertools.islice(found, most))
        last = len(page) < most
        yield Portion([ark for _, ark in page if ark], [at for at, ark in page if not ark], "" if last else page[-1][0])
        if last:
            return
