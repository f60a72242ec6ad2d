"""get, find, tally, history, remember: what a store answers to those who only look."""

from __future__ import annotations

from typing import Any

import pytest

from waybill.record import Ask, Line, NotFound, Page, Record, Ref, Store
from waybill.stores.conformance.suite import Suite
from waybill.stores.conformance.yard import HOUR, SLACK, Yard, bare, change


def pages(store: Store, kind: str, limit: int, **query: Any) -> list[list[Record]]:
    """All pages of a query, one after the other."""
    found, after = [], None
    while True:
        page = store.find(kind, after=after, limit=limit, **query)
        assert len(page.records) <= limit
        found.append(page.records)
        if page.after is None:
            return found
        assert page.after == page.records[-1].seq
        after = page.after


class Reading(Suite):
    def test_no_such_record(self, yard: Yard) -> None:
        with pytest.raises(NotFound):
            yard.store.get(yard.harness.kind, f"{yard.harness.prefix}9999999999")
        assert yard.store.history(yard.harness.kind, f"{yard.harness.prefix}9999999999") == []
        with pytest.raises(NotFound):
            yard.store.get(yard.harness.kind, "")

    def test_no_record_has_an_empty_id(self, yard: Yard) -> None:
        yard.one()
        session, kinds = yard.session(), {yard.harness.kind, yard.harness.parent_kind, "nothing"}
        for kind in sorted(kinds):
            with pytest.raises(NotFound):
                yard.store.get(kind, "")
            with pytest.raises(NotFound):
                yard.store.requested(kind, "")
            with pytest.raises(NotFound):
                yard.store.ask(Ask(Ref(kind, ""), "cancel", "ann", ""))
            with pytest.raises(NotFound):
                yard.store.take(kind, "", session)
            assert yard.store.history(kind, "") == []
            assert yard.store.find(yard.harness.kind, parent=Ref(kind, "")).records == []
            assert yard.store.tally(yard.harness.kind, parent=Ref(kind, "")) == {}
            assert yard.store.open_parents([Ref(kind, "")]) == set()

    def test_find_goes_through_all_in_creation_order_both_ways_b6(self, yard: Yard) -> None:
        made = yard.make(3) + yard.make(4)
        yard.update(made[2], state=yard.harness.states[1])
        ids = yard.ids(made)
        assert [yard.ids(page) for page in pages(yard.store, yard.harness.kind, 3)] == [ids[:3], ids[3:6], ids[6:]]
        assert [yard.ids(page) for page in pages(yard.store, yard.harness.kind, 3, newest=True)] == [
            ids[:3:-1],
            ids[3:0:-1],
            ids[:1],
        ]
        assert [yard.ids(page) for page in pages(yard.store, yard.harness.kind, 7)] == [ids]
        seqs = [record.seq for record in yard.store.find(yard.harness.kind).records]
        assert seqs == sorted(set(seqs))

    def test_find_by_one_filter_d3(self, yard: Yard) -> None:
        h = yard.harness
        crate, other = yard.crate(), yard.crate()
        mine = yard.make(5, parent=crate, owner="ann")
        theirs = yard.make(3, parent=other, owner="bob")
        moved = yard.update(mine[1], state=h.states[1])
        for query, expected in (
            ({"state": h.states[0]}, [mine[0], *mine[2:], *theirs]),
            ({"state": h.states[1]}, [moved]),
            ({"state": h.states[2]}, []),
            ({"parent": crate.ref}, mine),
            ({"parent": other.ref}, theirs),
            ({"parent": Ref(h.parent_kind, f"{h.parent_prefix}9999999999")}, []),
            ({"owner": "bob"}, theirs),
            ({"owner": "eve"}, []),
        ):
            ids = yard.ids(expected)
            assert [name for page in pages(yard.store, h.kind, 2, **query) for name in yard.ids(page)] == ids, query
            assert [
                name for page in pages(yard.store, h.kind, 2, newest=True, **query) for name in yard.ids(page)
            ] == ids[::-1], query

    def test_find_by_two_filters_is_refused_d3(self, yard: Yard) -> None:
        h = yard.harness
        for query in (
            {"state": h.states[0], "owner": "ann"},
            {"state": h.states[0], "parent": Ref(h.parent_kind, "x")},
        ):
            with pytest.raises(ValueError):
                yard.store.find(h.kind, **query)

    def test_find_loads_documents_only_when_asked(self, yard: Yard) -> None:
        name = yard.harness.documents[0]
        first, second = yard.one(docs={name: b"1"}), yard.one(docs={name: b"2"})
        assert yard.store.find(first.kind) == Page([bare(first), bare(second)], None)
        assert yard.store.find(first.kind, docs=True) == Page([first, second], None)

    def test_find_knows_kinds_apart(self, yard: Yard) -> None:
        crate = yard.crate()
        parcel = yard.one(parent=crate)
        assert yard.ids(yard.store.find(yard.harness.kind).records) == [parcel.id]
        assert crate.id in yard.ids(yard.store.find(yard.harness.parent_kind).records)

    def test_tally_counts_each_state_b5(self, yard: Yard) -> None:
        h = yard.harness
        crate, other = yard.crate(), yard.crate()
        mine = yard.make(4, parent=crate)
        yard.make(2, parent=other, state=h.rest)
        session = yard.session()
        assert yard.store.tally(h.kind) == {h.states[0]: 4, h.rest: 2}
        yard.update(mine[0], state=h.states[1])
        yard.write(change(mine[1], state=h.end, open=False), change(mine[2], state=h.end, open=False))
        (last,) = yard.claimed(yard.store, session)
        yard.save(last, message="still the same state")
        assert yard.store.tally(h.kind) == {h.states[0]: 1, h.states[1]: 1, h.end: 2, h.rest: 2}
        assert yard.store.tally(h.kind, parent=crate.ref) == {h.states[0]: 1, h.states[1]: 1, h.end: 2}
        assert yard.store.tally(h.kind, parent=other.ref) == {h.rest: 2}
        assert yard.store.tally(h.kind, parent=Ref(h.parent_kind, f"{h.parent_prefix}9999999999")) == {}
        yard.write(*[change(each, state=h.rest) for each in yard.store.find(h.kind, state=h.end).records])
        assert yard.store.tally(h.kind) == {h.states[0]: 1, h.states[1]: 1, h.rest: 4}
        assert yard.store.tally("nothing") == {}

    def test_tally_is_the_same_after_a_fold_b5(self, yard: Yard) -> None:
        h = yard.harness
        crate = yard.crate()
        for record in yard.make(6, parent=crate)[:4]:
            yard.update(record, state=h.states[1])
        before = (yard.store.tally(h.kind), yard.store.tally(h.kind, parent=crate.ref))
        yard.store.sweep()
        assert (yard.store.tally(h.kind), yard.store.tally(h.kind, parent=crate.ref)) == before
        assert before == ({h.states[0]: 2, h.states[1]: 4},) * 2

    def test_history_has_a_line_per_commit_and_none_for_saves_and_claims_b13(self, yard: Yard) -> None:
        h = yard.harness
        made = yard.one()
        session = yard.session()
        (mine,) = yard.claimed(yard.store, session)
        mine = yard.save(mine, message="half way")
        yard.harness.tick(HOUR)
        mine = yard.update(mine, event="done", state=h.states[1], who="worker", why="all there")
        freed = yard.release(mine, event="", message="no event")
        failed = yard.update(freed, event="fail", state=h.rest, who="ann", why="no room")
        lines = yard.store.history(made.kind, made.id)
        assert [line._replace(at=0) for line in lines] == [
            Line(made.version, 0, "suite", "create", None, h.states[0], ""),
            Line(mine.version, 0, "worker", "done", h.states[0], h.states[1], "all there"),
            Line(failed.version, 0, "ann", "fail", h.states[1], h.rest, "no room"),
        ]
        assert lines[1].at - lines[0].at == pytest.approx(HOUR, abs=SLACK)

    def test_remember_keeps_the_first(self, yard: Yard) -> None:
        other = yard.harness.open()
        assert yard.store.remember("secret", "one") == "one"
        assert other.remember("secret", "two") == "one"
        assert other.remember("colour", "blue ü") == "blue ü"
        assert yard.store.remember("secret", "three") == "one"

    def test_the_stores_clock_moves(self, yard: Yard) -> None:
        before = yard.store.now()
        yard.harness.tick(HOUR)
        assert yard.store.now() - before == pytest.approx(HOUR, abs=SLACK)
