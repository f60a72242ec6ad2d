"""Uploads in parts, and writes under a condition."""

from __future__ import annotations

import pytest

from waybill.objects.conformance.helpers import names_of, read_content, run_together, sha256_of
from waybill.objects.protocol import (
    MIN_PART_SIZE,
    ObjectExists,
    ObjectInfo,
    ObjectNotFound,
    ObjectRequestRefused,
    Objects,
    PreconditionFailed,
    UnsupportedObjectOperation,
    is_permanent,
    measure,
)


class UploadSuite:
    """An object is sent in parts: in any order, repeatedly, by several processes."""

    FIRST, SECOND = b"1" * MIN_PART_SIZE, b"2" * (MIN_PART_SIZE + 3)

    def test_parts_are_joined_in_order(self, objects: Objects) -> None:
        with objects.upload("a/b") as upload:
            upload.put_part(3, b"three")
            upload.put_part(1, b"wrong")
            upload.put_part(1, self.FIRST)
            upload.put_part(2, self.SECOND)
            assert {number: part.size for number, part in upload.list_parts().items()} == {
                1: MIN_PART_SIZE,
                2: MIN_PART_SIZE + 3,
                3: 5,
            }
            assert names_of(objects.list()) == []
            info = upload.complete()
        whole = self.FIRST + self.SECOND + b"three"
        assert (info.name, info.size) == ("a/b", len(whole))
        assert info.sha256 in (None, sha256_of(whole))
        assert measure(objects, "a/b") == (len(whole), sha256_of(whole))
        assert names_of(objects.list()) == ["a/b"]

    def test_one_that_is_left_without_completing_is_aborted(self, objects: Objects) -> None:
        with objects.upload("a") as upload:
            upload.put_part(1, b"x")
        with pytest.raises(ObjectNotFound):
            objects.upload("a", resume=upload.id)
        upload.abort()
        broken = self._break_off(objects, keep=False)
        with pytest.raises(ObjectNotFound):
            objects.upload("a", resume=broken)
        assert names_of(objects.list()) == []

    def test_one_that_is_kept_is_resumed(self, objects: Objects) -> None:
        broken = self._break_off(objects, keep=True)
        with objects.upload("a", resume=broken) as again:
            assert list(again.list_parts()) == [1]
            again.put_part(2, b"end")
            again.complete(sha256=None)
        assert read_content(objects, "a") == self.FIRST + b"end"
        with pytest.raises(ObjectNotFound):
            objects.upload("a", resume=broken)

    def _break_off(self, objects: Objects, *, keep: bool) -> str:
        """Start an upload of `a` that fails after its first part; return its id."""
        begun = objects.upload("a", keep=keep)
        try:
            with begun as upload:
                upload.put_part(1, self.FIRST)
                raise EOFError
        except EOFError:
            return begun.id

    def test_an_upload_belongs_to_its_name(self, objects: Objects) -> None:
        with objects.upload("a") as upload:
            upload.put_part(1, b"x")
            for name, known in [("b", upload.id), ("a", "unknown"), ("a", "../a"), ("a", "")]:
                with pytest.raises(ObjectNotFound):
                    objects.upload(name, resume=known)

    def test_what_s3_would_refuse_is_refused(self, objects: Objects) -> None:
        with objects.upload("a") as upload:
            for number, data in [(0, b"x"), (10_001, b"x"), (1, b"")]:
                with pytest.raises(ObjectRequestRefused):
                    upload.put_part(number, data)
            with pytest.raises(ObjectRequestRefused):
                upload.complete()
            upload.put_part(1, b"too small")
            upload.put_part(2, b"last")
            with pytest.raises(ObjectRequestRefused, match="Part 1"):
                upload.complete()
        assert names_of(objects.list()) == []

    def test_conditions_at_the_end(self, objects: Objects) -> None:
        objects.put("a", b"old")
        with objects.upload("a") as upload:
            upload.put_part(1, b"new")
            if objects.capabilities.complete != "atomic":
                with pytest.raises(UnsupportedObjectOperation):
                    upload.complete(if_absent=True)
                return
            with pytest.raises(ObjectExists):
                upload.complete(if_absent=True)
            with pytest.raises(PreconditionFailed):
                upload.complete(if_match="another")
            assert read_content(objects, "a") == b"old"
            upload.complete(if_match=objects.head("a").etag)
        assert read_content(objects, "a") == b"new"

    def test_sweep_removes_what_was_left_behind_and_no_object(self, objects: Objects) -> None:
        objects.put("a", b"stays")
        with objects.upload("b", keep=True) as upload:
            upload.put_part(1, b"x")
        assert objects.sweep(older_than=3600).uploads == 0
        assert list(objects.upload("b", resume=upload.id, keep=True).list_parts()) == [1]
        assert objects.sweep(older_than=-3600).uploads == 1
        with pytest.raises(ObjectNotFound):
            objects.upload("b", resume=upload.id)
        assert names_of(objects.list()) == ["a"]


class ConditionalWriteSuite:
    """Of any number of writers with a condition one wins and the others get an error; or the driver refuses the
    condition.
    """

    def test_create_only(self, objects: Objects) -> None:
        if objects.capabilities.create != "atomic":
            with pytest.raises(UnsupportedObjectOperation) as refusal:
                objects.put("a", b"one", if_absent=True)
            assert is_permanent(refusal.value)
            return
        objects.put("a", b"one", if_absent=True)
        with pytest.raises(ObjectExists) as raised:
            objects.put("a", b"two", if_absent=True)
        assert is_permanent(raised.value)
        assert read_content(objects, "a") == b"one"
        objects.delete("a")
        objects.put("a", b"three", if_absent=True)
        assert read_content(objects, "a") == b"three"

    def test_swap(self, objects: Objects) -> None:
        if objects.capabilities.swap != "atomic":
            with pytest.raises(UnsupportedObjectOperation):
                objects.put("a", b"two", if_match=objects.put("a", b"one").etag)
            return
        first = objects.put("a", b"one")
        second = objects.put("a", b"two", if_match=first.etag)
        assert second.etag == objects.head("a").etag != first.etag
        with pytest.raises(PreconditionFailed) as raised:
            objects.put("a", b"three", if_match=first.etag)
        assert is_permanent(raised.value)
        assert read_content(objects, "a") == b"two"
        objects.delete("a")
        with pytest.raises(PreconditionFailed):
            objects.put("a", b"four", if_match=second.etag)
        assert names_of(objects.list()) == []

    def test_both_conditions_are_refused(self, objects: Objects) -> None:
        with pytest.raises(ObjectRequestRefused):
            objects.put("a", b"", if_absent=True, if_match="x")

    def test_large_objects_too(self, objects: Objects) -> None:
        large = b"x" * (12 * 1024 * 1024)
        if objects.capabilities.create == objects.capabilities.swap == "atomic":
            first = objects.put("a", iter([large, b"1"]), if_absent=True)
            with pytest.raises(ObjectExists):
                objects.put("a", iter([large, b"2"]), if_absent=True)
            objects.put("a", iter([large, b"3"]), if_match=objects.head("a").etag)
            with pytest.raises(PreconditionFailed):
                objects.put("a", iter([large, b"4"]), if_match=first.etag)
            with objects.get("a", start=len(large)) as body:
                assert body.read() == b"3"

    def test_one_of_many_creators_wins(self, objects: Objects) -> None:
        if objects.capabilities.create == "atomic":
            for turn in range(3):

                def put(number: int, name: str = f"a{turn}") -> ObjectInfo:
                    return objects.put(name, b"%d" % number, if_absent=True)

                answers = run_together(6, put)
                won = [number for number, answer in enumerate(answers) if isinstance(answer, ObjectInfo)]
                assert len(won) == 1, answers
                assert all(isinstance(answer, ObjectInfo | ObjectExists) for answer in answers), answers
                assert read_content(objects, f"a{turn}") == b"%d" % won[0]

    def test_no_swap_is_lost(self, objects: Objects) -> None:
        if objects.capabilities.swap != "atomic":
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
                    except PreconditionFailed:
                        continue

        assert run_together(4, add) == [None] * 4
        assert read_content(objects, "count") == b"12"
