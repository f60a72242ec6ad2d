"""Uploads in parts."""

from __future__ import annotations

import pytest

from waybill.objects.conformance.looking import content, names, sha256
from waybill.objects.protocol import (
    PART_LEAST,
    AlreadyThere,
    NotFound,
    Objects,
    Precondition,
    Refused,
    Unsupported,
    measure,
)


class Uploads:
    """An object arrives in parts: in any order, more than once, in more than one process."""

    FIRST, SECOND = b"1" * PART_LEAST, b"2" * (PART_LEAST + 3)

    def test_parts_are_joined_in_order(self, objects: Objects) -> None:
        with objects.upload("a/b") as upload:
            upload.part(3, b"three")
            upload.part(1, b"wrong")
            upload.part(1, self.FIRST)
            upload.part(2, self.SECOND)
            assert {number: part.size for number, part in upload.parts().items()} == {
                1: PART_LEAST,
                2: PART_LEAST + 3,
                3: 5,
            }
            assert names(objects.list()) == []
            info = upload.complete()
        whole = self.FIRST + self.SECOND + b"three"
        assert (info.name, info.size) == ("a/b", len(whole))
        assert info.sha256 in (None, sha256(whole))
        assert measure(objects, "a/b") == (len(whole), sha256(whole))
        assert names(objects.list()) == ["a/b"]

    def test_one_that_is_left_without_completing_is_aborted(self, objects: Objects) -> None:
        with objects.upload("a") as upload:
            upload.part(1, b"x")
        with pytest.raises(NotFound):
            objects.upload("a", resume=upload.id)
        upload.abort()
        broken = self._break_off(objects, keep=False)
        with pytest.raises(NotFound):
            objects.upload("a", resume=broken)
        assert names(objects.list()) == []

    def test_one_that_is_kept_is_resumed(self, objects: Objects) -> None:
        broken = self._break_off(objects, keep=True)
        with objects.upload("a", resume=broken) as again:
            assert list(again.parts()) == [1]
            again.part(2, b"end")
            again.complete(sha256=None)
        assert content(objects, "a") == self.FIRST + b"end"
        with pytest.raises(NotFound):
            objects.upload("a", resume=broken)

    def _break_off(self, objects: Objects, *, keep: bool) -> str:
        """An upload of `a` that fails after its first part; its id."""
        begun = objects.upload("a", keep=keep)
        try:
            with begun as upload:
                upload.part(1, self.FIRST)
                raise EOFError
        except EOFError:
            return begun.id

    def test_an_upload_belongs_to_its_name(self, objects: Objects) -> None:
        with objects.upload("a") as upload:
            upload.part(1, b"x")
            for name, known in [("b", upload.id), ("a", "unknown"), ("a", "../a"), ("a", "")]:
                with pytest.raises(NotFound):
                    objects.upload(name, resume=known)

    def test_what_s3_would_refuse_is_refused(self, objects: Objects) -> None:
        with objects.upload("a") as upload:
            for number, data in [(0, b"x"), (10_001, b"x"), (1, b"")]:
                with pytest.raises(Refused):
                    upload.part(number, data)
            with pytest.raises(Refused):
                upload.complete()
            upload.part(1, b"too small")
            upload.part(2, b"last")
            with pytest.raises(Refused, match="Part 1"):
                upload.complete()
        assert names(objects.list()) == []

    def test_conditions_at_the_end(self, objects: Objects) -> None:
        objects.put("a", b"old")
        with objects.upload("a") as upload:
            upload.part(1, b"new")
            if objects.conditions.complete != "atomic":
                with pytest.raises(Unsupported):
                    upload.complete(if_absent=True)
                return
            with pytest.raises(AlreadyThere):
                upload.complete(if_absent=True)
            with pytest.raises(Precondition):
                upload.complete(if_match="another")
            assert content(objects, "a") == b"old"
            upload.complete(if_match=objects.head("a").etag)
        assert content(objects, "a") == b"new"

    def test_sweep_removes_what_was_left_behind_and_no_object(self, objects: Objects) -> None:
        objects.put("a", b"stays")
        with objects.upload("b", keep=True) as upload:
            upload.part(1, b"x")
        assert objects.sweep(older_than=3600).uploads == 0
        assert list(objects.upload("b", resume=upload.id, keep=True).parts()) == [1]
        assert objects.sweep(older_than=-3600).uploads == 1
        with pytest.raises(NotFound):
            objects.upload("b", resume=upload.id)
        assert names(objects.list()) == ["a"]
