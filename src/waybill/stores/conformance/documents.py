"""Documents are kept as the bytes that were written, each under its name, and a change names those it writes."""

from __future__ import annotations

import pytest

from waybill.stores.conformance.fixtures import StoreTestBase
from waybill.stores.conformance.tester import StoreTester

BODIES = {
    "a null character": b'{"a":"\\u0000"}',
    "a lone surrogate": b'"\\ud800"',
    "the order of keys": b'{"b":1,"a":2,"aa":3}',
    "a key twice": b'{"a":1,"a":2}',
    "spaces and forms of numbers": b'{ "x" : 1.0, "y":1e2,\n"z": 100000000000000000000001 }',
    "letters of many scripts": '{"n":"Žluťoučký 木 \N{WAFFLE}"}'.encode(),
    "an empty list": b"[]",
    "a bare null": b"null",
}


class DocumentTests(StoreTestBase):
    @pytest.mark.parametrize("body", BODIES.values(), ids=BODIES.keys())
    def test_documents_are_kept_byte_for_byte_b2(self, tester: StoreTester, body: bytes) -> None:
        name = tester.harness.document_names[0]
        made = tester.make_parcel(documents={name: body})
        assert made.documents.raw[name] == body
        assert tester.get(made).documents.raw[name] == body
        assert tester.claim_records(tester.store, tester.open_session())[0].documents.raw[name] == body
        assert tester.store.find(made.kind, documents=True).records[0].documents.raw[name] == body

    def test_a_change_writes_replaces_and_removes_those_it_names_b2(self, tester: StoreTester) -> None:
        first, second, third = tester.harness.document_names
        made = tester.make_parcel(documents={first: b"1", second: b"2"})
        moved = tester.update(made, documents={second: b"22", third: b"3"})
        assert {name: moved.documents.raw.get(name) for name in tester.harness.document_names} == {
            first: b"1",
            second: b"22",
            third: b"3",
        }
        assert tester.get(made).documents == moved.documents
        moved = tester.update(moved, documents={first: None, third: b"33"})
        assert tester.get(made).documents == moved.documents
        assert first not in moved.documents
        assert moved.documents[third] == 33

    def test_a_record_read_without_documents_can_be_changed_b2(self, tester: StoreTester) -> None:
        """A page does not load documents; a change made from it must neither lose nor trip over those that are
        there.
        """
        first, second, _ = tester.harness.document_names
        made = tester.make_parcel(documents={first: b"1"})
        (listed,) = tester.store.find(made.kind).records
        assert dict(listed.documents.raw) == {}
        tester.update(listed, documents={first: b"11", second: b"2"})
        assert tester.get(made).documents.raw == {**tester.harness.required_documents, first: b"11", second: b"2"}

    def test_removing_a_document_that_is_not_there_is_no_error(self, tester: StoreTester) -> None:
        made = tester.make_parcel()
        moved = tester.update(made, documents={tester.harness.document_names[1]: None})
        assert tester.get(made) == moved

    def test_saves_write_documents_under_the_claim(self, tester: StoreTester) -> None:
        name = tester.harness.document_names[0]
        tester.make_parcel()
        (mine,) = tester.claim_records(tester.store, tester.open_session())
        saved = tester.save(mine, documents={name: b'{"part":1}'})
        assert tester.get(mine).documents == saved.documents
        assert saved.documents[name] == {"part": 1}
