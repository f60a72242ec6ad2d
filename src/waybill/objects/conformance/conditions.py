"""Writes that depend on what is there."""

from __future__ import annotations

import pytest

from waybill.objects.conformance.looking import content, names, together
from waybill.objects.protocol import AlreadyThere, ObjectInfo, Objects, Precondition, Refused, Unsupported, is_permanent


class Conditional:
    """Of any number of writers with a condition, one wins and the others are told; or the driver says that it
    cannot.
    """

    def test_create_only(self, objects: Objects) -> None:
        if objects.conditions.create != "atomic":
            with pytest.raises(Unsupported) as refusal:
                objects.put("a", b"one", if_absent=True)
            assert is_permanent(refusal.value)
            return
        objects.put("a", b"one", if_absent=True)
        with pytest.raises(AlreadyThere) as raised:
            objects.put("a", b"two", if_absent=True)
        assert is_permanent(raised.value)
        assert content(objects, "a") == b"one"
        objects.delete("a")
        objects.put("a", b"three", if_absent=True)
        assert content(objects, "a") == b"three"

    def test_swap(self, objects: Objects) -> None:
        if objects.conditions.swap != "atomic":
            with pytest.raises(Unsupported):
                objects.put("a", b"two", if_match=objects.put("a", b"one").etag)
            return
        first = objects.put("a", b"one")
        second = objects.put("a", b"two", if_match=first.etag)
        assert second.etag == objects.head("a").etag != first.etag
        with pytest.raises(Precondition) as raised:
            objects.put("a", b"three", if_match=first.etag)
        assert is_permanent(raised.value)
        assert content(objects, "a") == b"two"
        objects.delete("a")
        with pytest.raises(Precondition):
            objects.put("a", b"four", if_match=second.etag)
        assert names(objects.list()) == []

    def test_both_conditions_are_refused(self, objects: Objects) -> None:
        with pytest.raises(Refused):
            objects.put("a", b"", if_absent=True, if_match="x")

    def test_large_objects_too(self, objects: Objects) -> None:
        large = b"x" * (12 * 1024 * 1024)
        if objects.conditions.create == objects.conditions.swap == "atomic":
            first = objects.put("a", iter([large, b"1"]), if_absent=True)
            with pytest.raises(AlreadyThere):
                objects.put("a", iter([large, b"2"]), if_absent=True)
            objects.put("a", iter([large, b"3"]), if_match=objects.head("a").etag)
            with pytest.raises(Precondition):
                objects.put("a", iter([large, b"4"]), if_match=first.etag)
            with objects.get("a", start=len(large)) as body:
                assert body.read() == b"3"

    def test_one_of_many_creators_wins(self, objects: Objects) -> None:
        if objects.conditions.create == "atomic":
            for turn in range(3):
                answers = together(6, lambda number, name=f"a{turn}": objects.put(name, b"%d" % number, if_absent=True))  # type: ignore[misc]
                won = [number for number, answer in enumerate(answers) if isinstance(answer, ObjectInfo)]
                assert len(won) == 1, answers
                assert all(isinstance(answer, ObjectInfo | AlreadyThere) for answer in answers), answers
                assert content(objects, f"a{turn}") == b"%d" % won[0]

    def test_no_swap_is_lost(self, objects: Objects) -> None:
        if objects.conditions.swap != "atomic":
            return
        objects.put("count", b"0")

        def add(number: int) -> None:
            for _ in range(3):
                while True:
                    with objects.get("count") as body:
                        seen, etag = int(body.read()), body.info.etag
                    try:
                        objects.put("count", str(seen + 1).encode(), if_match=etag)
                        break
                    except Precondition:
                        continue

        assert together(4, add) == [None] * 4
        assert content(objects, "count") == b"12"
