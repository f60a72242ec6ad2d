"""Documents are kept as the bytes that were written, each under its name, and a change names those it writes."""

from __future__ import annotations

import pytest

from waybill.stores.conformance.suite import Suite
from waybill.stores.conformance.yard import Yard

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


class Documents(Suite):
    @pytest.mark.parametrize("body", BODIES.values(), ids=BODIES.keys())
    def test_documents_are_kept_byte_for_byte_b2(self, yard: Yard, body: bytes) -> None:
        name = yard.harness.documents[0]
        made = yard.one(docs={name: body})
        assert made.docs.raw[name] == body
        assert yard.get(made).docs.raw[name] == body
        assert yard.claimed(yard.store, yard.session())[0].docs.raw[name] == body
        assert yard.store.find(made.kind, docs=True).records[0].docs.raw[name] == body

    def test_a_change_writes_replaces_and_removes_those_it_names_b2(self, yard: Yard) -> None:
        first, second, third = yard.harness.documents
        made = yard.one(docs={first: b"1", second: b"2"})
        moved = yard.update(made, docs={second: b"22", third: b"3"})
        assert {name: moved.docs.raw.get(name) for name in yard.harness.documents} == {
            first: b"1",
            second: b"22",
            third: b"3",
        }
        assert yard.get(made).docs == moved.docs
        moved = yard.update(moved, docs={first: None, third: b"33"})
        assert yard.get(made).docs == moved.docs
        assert first not in moved.docs
        assert moved.docs[third] == 33

    def test_a_record_read_without_documents_can_be_changed_b2(self, yard: Yard) -> None:
        """A page does not load documents; a change made from it must neither lose nor trip over those that are
        there.
        """
        first, second, _ = yard.harness.documents
        made = yard.one(docs={first: b"1"})
        (listed,) = yard.store.find(made.kind).records
        assert dict(listed.docs.raw) == {}
        yard.update(listed, docs={first: b"11", second: b"2"})
        assert yard.get(made).docs.raw == {**yard.harness.required, first: b"11", second: b"2"}

    def test_removing_a_document_that_is_not_there_is_no_mistake(self, yard: Yard) -> None:
        made = yard.one()
        moved = yard.update(made, docs={yard.harness.documents[1]: None})
        assert yard.get(made) == moved

    def test_saves_write_documents_under_the_claim(self, yard: Yard) -> None:
        name = yard.harness.documents[0]
        yard.one()
        (mine,) = yard.claimed(yard.store, yard.session())
        saved = yard.save(mine, docs={name: b'{"part":1}'})
        assert yard.get(mine).docs == saved.docs
        assert saved.docs[name] == {"part": 1}
