"""Expiry: assemblies whose time is over are deleted, and of those that are deleted first the files go, then the record.

    Completed, expired -> Deleted            Failed for as long -> Deleted            Deleted -> files removed -> record removed

Only assemblies that were asked for here, and those imported from old queues, which have no files here and no time of
their own: they go when they are as old as others may be. Those of other services are theirs to remove. What a worker
that was thought dead wrote after its assembly was removed lies at a place to which no record belongs, and is removed
when it is a day old.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from waybill.apps.ingest.access import tokens
from waybill.apps.ingest.access.order import is_imported, order_of
from waybill.apps.ingest.outfit import Outfit
from waybill.duties import Hand
from waybill.duties.duty import ref_of
from waybill.objects import Objects
from waybill.record import Conflict, Finding, NotFound, Record
from waybill.rules import Refused

DAY = 86400.0
OVER, DELETED, STRAY = "assembly expired", "assembly deleted", "assembly without a record"


@dataclass(frozen=True)
class Expiry:
    age: float = DAY  # seconds after which what belongs to no record is removed
    portion: int = 1000  # places that are looked at in one round
    name: str = "ingest-expiry"
    doc: str = "Removes assemblies that have expired or were deleted, and their files."
    every: float = 300.0
    per_host: bool = False
    routine: bool = True

    def check(self, hand: Hand) -> Iterator[Finding]:
        keep = _outfit(hand).settings.access.keep
        for kind in tokens.KINDS:
            for state in ("Deleted", "Completed", "Failed"):
                for record in _each(hand, kind, state):
                    if state == "Deleted":
                        yield Finding(
                            DELETED,
                            str(record.ref),
                            f"{record.ref} is deleted.",
                            "remove it and its files",
                            ref=record.ref,
                        )
                    elif _is_over(record, hand.store.now(), keep):
                        yield Finding(OVER, str(record.ref), f"{record.ref} has expired.", "delete it", ref=record.ref)
        yield from self._strays(hand)

    def mend(self, hand: Hand, finding: Finding) -> bool:
        objects = _outfit(hand).objects
        if finding.rule == STRAY:
            return _is_stray(hand, finding.where) and tokens.remove_all(objects, finding.where) > 0
        try:
            record = hand.store.get(*ref_of(finding))
            if not _is_ours(record):
                return False
            if finding.rule == OVER:
                # Looked at again: it may have been packed anew meanwhile. Safe to repeat: a second time it is Deleted
                # already.
                if not _is_over(record, hand.store.now(), _outfit(hand).settings.access.keep):
                    return False
                hand.engine.act(record.ref, "delete", who=hand.who, why="expired")
                record = hand.store.get(*record.ref)
            if record.state != "Deleted":
                return False
            if not is_imported(record):
                # safe to repeat: what is gone stays gone
                tokens.remove_all(objects, tokens.place_of(tokens.token_of(record)))
            # last, so that a crash before leaves it to the next round
            hand.engine.remove(record.ref, who=hand.who, why="expired")
        except (NotFound, Refused, Conflict):
            return False
        return True

    def _strays(self, hand: Hand) -> Iterator[Finding]:
        objects, after = _outfit(hand).objects, str(hand.memory.get("cursor", ""))
        before = datetime.fromtimestamp(hand.store.now() - self.age, UTC)
        places = list(itertools.islice(_places(objects, after), self.portion))
        for place, modified in places:
            if modified < before and _is_stray(hand, place):
                yield Finding(STRAY, place, f"{place} belongs to no assembly.", "remove it")
        hand.memory["cursor"] = places[-1][0] if len(places) == self.portion else ""


def _outfit(hand: Hand) -> Outfit:
    outfit: Outfit = hand.outfit("job")
    return outfit


def _each(hand: Hand, kind: str, state: str) -> Iterator[Record]:
    """Ours in that state, page by page."""
    after: int | None = None
    while True:
        page = hand.store.find(kind, state=state, after=after, limit=200, docs=True)
        yield from (record for record in page.records if _is_ours(record))
        if page.after is None:
            return
        after = page.after


def _is_ours(record: Record) -> bool:
    return is_imported(record) or (order_of(record) is not None and bool(tokens.token_of(record)))


def _is_over(record: Record, now: float, keep: float) -> bool:
    if record.state == "Completed" and not is_imported(record):
        packed = record.docs.get("packed")
        return isinstance(packed, dict) and packed.get("expires", now) < now
    return record.state in ("Completed", "Failed") and record.updated + keep < now


def _places(objects: Objects, after: str) -> Iterator[tuple[str, datetime]]:
    """The places of assemblies, from the one after a cursor on, each with the time of its first object."""
    at = f"{after}/~" if after else ""
    while (found := next(iter(objects.list(tokens.ROOT, after=at, limit=1)), None)) is not None:
        name = found.name.removeprefix(f"{tokens.ROOT}/").partition("/")[0]
        place = f"{tokens.ROOT}/{name}"
        if tokens.is_place(name):
            yield place, found.modified
        at = f"{place}/~"  # every name at a place begins with a digit or a letter


def _is_stray(hand: Hand, place: str) -> bool:
    ref = tokens.pointed(_outfit(hand).objects, place)
    if ref is None:
        return True
    try:
        record = hand.store.get(*ref)
    except NotFound:
        return True
    token = tokens.token_of(record)
    return not token or tokens.place_of(token) != place
