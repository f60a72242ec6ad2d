"""Children are made in portions, however long their documents are: an application need not know how much a store
takes at once.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.worker.yard import Yard
from waybill.record import MAX_DOCUMENT, Record, TooLarge
from waybill.step import Context, Done, New, Outcome

LONG = 20_000  # bytes of a document: a hundred are more than a store takes at once


def children(lengths: Iterator[int] | list[int]) -> Iterator[New]:
    return (New("parcel", {"label": {"n": n, "text": "x" * length}}) for n, length in enumerate(lengths))


def test_a_portion_that_is_too_large_is_made_in_smaller_ones(yard: Yard) -> None:
    lengths = [10] * 150 + [LONG] * 120 + [10] * 31

    def fill(record: Record, ctx: Context) -> Outcome:
        return Done({"made": {"n": ctx.spawn_each(children(lengths), portion=100)}})

    yard.steps(Filling=fill)
    crate = yard.engine.submit(New("crate"))
    yard.once(target=crate.ref)
    after = yard.get(crate)
    assert (after.state, after.docs["made"]["n"]) == ("Waiting", 301), after.message
    assert after.docs["spawned"] == {"count": 301, "whole": True}
    page = yard.store.find("parcel", parent=crate.ref, limit=1000, docs=True)
    assert [record.docs["label"]["n"] for record in page.records] == list(range(301))


def test_what_is_too_large_alone_is_told_and_the_rest_is_there(yard: Yard) -> None:
    told: list[str] = []

    def fill(record: Record, ctx: Context) -> Outcome:
        with pytest.raises(TooLarge) as refusal:
            ctx.spawn_each(children([10, 10, 10, MAX_DOCUMENT + 1, 10]))
        told.append(str(refusal.value))
        return Done()

    yard.steps(Filling=fill)
    crate = yard.engine.submit(New("crate"))
    yard.once(target=crate.ref)
    after = yard.get(crate)
    assert (after.state, after.docs["spawned"]) == ("Waiting", {"count": 3, "whole": False})
    assert "document label" in told[0]
    assert sum(yard.store.tally("parcel", parent=crate.ref).values()) == 3
