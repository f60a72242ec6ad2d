"""get, find, count_by_state, history, remember, now: what a store returns to readers."""

from __future__ import annotations

from typing import Any

import pytest

from waybill.record import ActionRequest, HistoryEntry, Page, Record, RecordNotFound, Ref, Store, Visibility
from waybill.stores.conformance.fixtures import StoreTestBase
from waybill.stores.conformance.tester import HOUR, SLACK, StoreTester, make_change, without_documents


def list_pages(store: Store, kind: str, limit: int, **query: Any) -> list[list[Record]]:
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


class QueryTests(StoreTestBase):
    def test_no_such_record(self, tester: StoreTester) -> None:
        with pytest.raises(RecordNotFound):
            tester.store.get(tester.harness.kind, f"{tester.harness.id_prefix}9999999999")
        assert tester.store.history(tester.harness.kind, f"{tester.harness.id_prefix}9999999999") == []
        with pytest.raises(RecordNotFound):
            tester.store.get(tester.harness.kind, "")

    def test_no_record_has_an_empty_id(self, tester: StoreTester) -> None:
        tester.make_parcel()
        session, kinds = tester.open_session(), {tester.harness.kind, tester.harness.parent_kind, "nothing"}
        for kind in sorted(kinds):
            with pytest.raises(RecordNotFound):
                tester.store.get(kind, "")
            with pytest.raises(RecordNotFound):
                tester.store.get_by_idempotency_key(kind, "")
            with pytest.raises(RecordNotFound):
                tester.store.request_action(ActionRequest(Ref(kind, ""), "cancel", "ann", ""))
            with pytest.raises(RecordNotFound):
                tester.store.claim_one(kind, "", session)
            assert tester.store.history(kind, "") == []
            assert tester.store.find(tester.harness.kind, parent=Ref(kind, "")).records == []
            assert tester.store.count_by_state(tester.harness.kind, parent=Ref(kind, "")) == {}
            assert tester.store.parents_with_open_children([Ref(kind, "")]) == set()

    def test_find_goes_through_all_in_creation_order_both_ways_b6(self, tester: StoreTester) -> None:
        made = tester.make_parcels(3) + tester.make_parcels(4)
        tester.update(made[2], state=tester.harness.states[1])
        ids = tester.ids_of(made)
        assert [tester.ids_of(page) for page in list_pages(tester.store, tester.harness.kind, 3)] == [
            ids[:3],
            ids[3:6],
            ids[6:],
        ]
        assert [tester.ids_of(page) for page in list_pages(tester.store, tester.harness.kind, 3, newest=True)] == [
            ids[:3:-1],
            ids[3:0:-1],
            ids[:1],
        ]
        assert [tester.ids_of(page) for page in list_pages(tester.store, tester.harness.kind, 7)] == [ids]
        seqs = [record.seq for record in tester.store.find(tester.harness.kind).records]
        assert seqs == sorted(set(seqs))

    def test_find_by_one_filter_d3(self, tester: StoreTester) -> None:
        h = tester.harness
        crate, other = tester.make_crate(), tester.make_crate()
        mine = tester.make_parcels(5, parent=crate, owner="ann")
        theirs = tester.make_parcels(3, parent=other, owner="bob")
        moved = tester.update(mine[1], state=h.states[1])
        for query, expected in (
            ({"state": h.states[0]}, [mine[0], *mine[2:], *theirs]),
            ({"state": h.states[1]}, [moved]),
            ({"state": h.states[2]}, []),
            ({"parent": crate.ref}, mine),
            ({"parent": other.ref}, theirs),
            ({"parent": Ref(h.parent_kind, f"{h.parent_id_prefix}9999999999")}, []),
            ({"owner": "bob"}, theirs),
            ({"owner": "eve"}, []),
        ):
            ids = tester.ids_of(expected)
            assert [
                name for page in list_pages(tester.store, h.kind, 2, **query) for name in tester.ids_of(page)
            ] == ids, query
            assert [
                name
                for page in list_pages(tester.store, h.kind, 2, newest=True, **query)
                for name in tester.ids_of(page)
            ] == ids[::-1], query

    def test_find_by_two_filters_is_refused_d3(self, tester: StoreTester) -> None:
        h = tester.harness
        for query in (
            {"state": h.states[0], "owner": "ann"},
            {"state": h.states[0], "parent": Ref(h.parent_kind, "x")},
        ):
            with pytest.raises(ValueError):
                tester.store.find(h.kind, **query)

    def test_find_and_count_what_somebody_may_see(self, tester: StoreTester) -> None:
        h = tester.harness
        crate, reader = tester.make_crate(), Visibility(("ann",), ("app/collection/red", "app/collection/green"))
        made = [
            tester.make_parcel(parent=crate, owner=owner, scope=scope)
            for owner, scope in (
                ("ann", ""),
                ("bob", "app/collection/red"),
                ("bob", "app/collection/blue"),
                ("ann", "app/collection/red"),
                ("", ""),
                ("ann", "app/collection/blue"),
                ("", "app/collection/green"),
                ("bob", ""),
            )
        ]
        seen = [made[n] for n in (0, 1, 3, 5, 6)]
        seen[1] = tester.update(seen[1], state=h.states[1])
        tester.update(made[2], state=h.states[1])
        for query, expected in (
            ({}, seen),
            ({"state": h.states[0]}, [seen[0], *seen[2:]]),
            ({"state": h.states[1]}, [seen[1]]),
            ({"state": h.states[2]}, []),
            ({"owner": "bob"}, [seen[1]]),
            ({"owner": "ann"}, [seen[n] for n in (0, 2, 3)]),
            ({"parent": crate.ref}, seen),
        ):
            ids = tester.ids_of(expected)
            for limit in (2, 100):
                for newest in (False, True):
                    pages = list_pages(tester.store, h.kind, limit, newest=newest, visibility=reader, **query)
                    found = [name for page in pages for name in tester.ids_of(page)]
                    assert found == (ids[::-1] if newest else ids), (query, limit, newest)
        assert tester.store.count_by_state(h.kind, visibility=reader) == {h.states[0]: 4, h.states[1]: 1}
        # what a record is counted for follows it, and nothing is counted twice or for nobody
        tester.update(seen[0], owner="bob", scope="app/collection/blue")
        tester.update(seen[2], scope="")
        tester.remove(seen[3])
        assert tester.store.count_by_state(h.kind, visibility=reader) == {h.states[0]: 2, h.states[1]: 1}
        tester.store.maintain_indexes()
        assert tester.store.count_by_state(h.kind, visibility=reader) == {h.states[0]: 2, h.states[1]: 1}
        for nobody in (Visibility(), Visibility(("",), ("",)), Visibility(("eve",), ("app/collection/re",))):
            assert tester.store.find(h.kind, visibility=nobody).records == []
            assert tester.store.find(h.kind, state=h.states[0], visibility=nobody).records == []
            assert tester.store.count_by_state(h.kind, visibility=nobody) == {}
        assert list(tester.store.check()) == []
        with pytest.raises(ValueError):
            tester.store.count_by_state(h.kind, parent=crate.ref, visibility=reader)

    def test_find_loads_documents_only_on_request(self, tester: StoreTester) -> None:
        name = tester.harness.document_names[0]
        first, second = tester.make_parcel(documents={name: b"1"}), tester.make_parcel(documents={name: b"2"})
        assert tester.store.find(first.kind) == Page([without_documents(first), without_documents(second)], None)
        assert tester.store.find(first.kind, documents=True) == Page([first, second], None)

    def test_find_knows_kinds_apart(self, tester: StoreTester) -> None:
        crate = tester.make_crate()
        parcel = tester.make_parcel(parent=crate)
        assert tester.ids_of(tester.store.find(tester.harness.kind).records) == [parcel.id]
        assert crate.id in tester.ids_of(tester.store.find(tester.harness.parent_kind).records)

    def test_count_by_state_counts_each_state_b5(self, tester: StoreTester) -> None:
        h = tester.harness
        crate, other = tester.make_crate(), tester.make_crate()
        mine = tester.make_parcels(4, parent=crate)
        tester.make_parcels(2, parent=other, state=h.rest_state)
        session = tester.open_session()
        assert tester.store.count_by_state(h.kind) == {h.states[0]: 4, h.rest_state: 2}
        tester.update(mine[0], state=h.states[1])
        tester.write(
            make_change(mine[1], state=h.end_state, open=False), make_change(mine[2], state=h.end_state, open=False)
        )
        (last,) = tester.claim_records(tester.store, session)
        tester.save(last, message="still the same state")
        assert tester.store.count_by_state(h.kind) == {h.states[0]: 1, h.states[1]: 1, h.end_state: 2, h.rest_state: 2}
        assert tester.store.count_by_state(h.kind, parent=crate.ref) == {h.states[0]: 1, h.states[1]: 1, h.end_state: 2}
        assert tester.store.count_by_state(h.kind, parent=other.ref) == {h.rest_state: 2}
        assert tester.store.count_by_state(h.kind, parent=Ref(h.parent_kind, f"{h.parent_id_prefix}9999999999")) == {}
        tester.write(
            *[make_change(each, state=h.rest_state) for each in tester.store.find(h.kind, state=h.end_state).records]
        )
        assert tester.store.count_by_state(h.kind) == {h.states[0]: 1, h.states[1]: 1, h.rest_state: 4}
        assert tester.store.count_by_state("nothing") == {}

    def test_state_counts_are_the_same_after_a_fold_b5(self, tester: StoreTester) -> None:
        h = tester.harness
        crate = tester.make_crate()
        for record in tester.make_parcels(6, parent=crate)[:4]:
            tester.update(record, state=h.states[1])
        before = (tester.store.count_by_state(h.kind), tester.store.count_by_state(h.kind, parent=crate.ref))
        tester.store.maintain_indexes()
        assert (tester.store.count_by_state(h.kind), tester.store.count_by_state(h.kind, parent=crate.ref)) == before
        assert before == ({h.states[0]: 2, h.states[1]: 4},) * 2

    def test_history_has_a_line_per_commit_and_none_for_saves_and_claims_b13(self, tester: StoreTester) -> None:
        h = tester.harness
        made = tester.make_parcel()
        session = tester.open_session()
        (mine,) = tester.claim_records(tester.store, session)
        mine = tester.save(mine, message="half way")
        tester.harness.tick(HOUR)
        mine = tester.update(mine, cause="done", state=h.states[1], who="worker", why="all there")
        freed = tester.release(mine, cause="", message="no cause")
        failed = tester.update(freed, cause="fail", state=h.rest_state, who="ann", why="no room")
        entries = tester.store.history(made.kind, made.id)
        assert [entry._replace(at=0) for entry in entries] == [
            HistoryEntry(made.version, 0, "suite", "create", None, h.states[0], ""),
            HistoryEntry(mine.version, 0, "worker", "done", h.states[0], h.states[1], "all there"),
            HistoryEntry(failed.version, 0, "ann", "fail", h.states[1], h.rest_state, "no room"),
        ]
        assert entries[1].at - entries[0].at == pytest.approx(HOUR, abs=SLACK)

    def test_remember_keeps_the_first(self, tester: StoreTester) -> None:
        other = tester.harness.open()
        assert tester.store.remember("secret", "one") == "one"
        assert other.remember("secret", "two") == "one"
        assert other.remember("colour", "blue ü") == "blue ü"
        assert tester.store.remember("secret", "three") == "one"

    def test_the_stores_clock_moves(self, tester: StoreTester) -> None:
        before = tester.store.now()
        tester.harness.tick(HOUR)
        assert tester.store.now() - before == pytest.approx(HOUR, abs=SLACK)
