"""Conformance: the suite that every driver of objects passes. A driver's author runs it with pytest, in a test file as short as this:

    import pytest
    pytest.register_assert_rewrite("waybill.objects.conformance")
    from waybill.objects.conformance import ObjectsSuite

    class TestMine(ObjectsSuite):
        @pytest.fixture
        def objects(self):
            with MyObjects(...) as objects:
                yield objects          # empty, and this test's own

What a driver cannot do is asked of it (`objects.conditions`), and then the refusal is tested in its place.
"""

from __future__ import annotations

import hashlib
import io
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from waybill.objects.names import LONGEST
from waybill.objects.protocol import (
    PART_LEAST,
    AlreadyThere,
    Damaged,
    NotFound,
    ObjectInfo,
    Objects,
    Precondition,
    Refused,
    Unsupported,
    is_not_found,
    is_permanent,
    measure,
)

ODD_NAMES = [
    "a b", " lead", "trail ", "a+b", "a%b", "a%41", "%2e%2e/x", "%o", "a%+", "a#b?c=d&e", "a*b", "a~", "a'b\"c", "a<b>|c", "a[b]{c}^`",
    "a:b;c,d", ".hidden", "...", "..a/b..", "a.", "A", "é", "e\u0301", "\U0001f600/\u65e5\u672c", "\ufeffx", "z\u200d", "a\u2028b", "x.tmp",
    "x.part", "~x", "-rf", "name", "nul", "con.txt",
]  # fmt: skip

BAD_NAMES = [
    "", "/", "/a", "a/", "a//b", ".", "..", "a/.", "a/../b", "../a", "./a", "a\0b", "a\nb", "a\x7fb", "a\\b", "\ufffe", "a\uffff", "\ud800",
    "x" * (LONGEST + 1), "é" * (LONGEST // 2 + 1), ".waybill", ".waybill/x",
]  # fmt: skip


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def content(objects: Objects, name: str) -> bytes:
    with objects.get(name) as body:
        return body.read()


def names(found: Iterator[ObjectInfo]) -> list[str]:
    return [info.name for info in found]


def together(count: int, work: Callable[[int], object]) -> list[object]:
    """Run `count` threads that begin at the same moment; what each returned or raised."""
    gate = threading.Barrier(count)

    def run(number: int) -> object:
        gate.wait(30)
        try:
            return work(number)
        except Exception as error:  # noqa: BLE001 - the caller looks at it
            return error

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(run, range(count)))


class PutAndGet:
    """What was put is what is got, and nothing else ever is."""

    @pytest.mark.parametrize("size", [0, 1, 1000, 1024 * 1024, 1024 * 1024 + 1, 9 * 1024 * 1024 + 5])
    def test_bytes_come_back(self, objects: Objects, size: int) -> None:
        data = os.urandom(size)
        info = objects.put("a/b", data)
        assert (info.name, info.size, info.sha256) == ("a/b", size, sha256(data))
        assert content(objects, "a/b") == data
        assert measure(objects, "a/b") == (size, sha256(data))

    def test_a_file_or_an_iterable_is_stored_whole(self, objects: Objects) -> None:
        objects.put("file", io.BytesIO(b"from a file"))
        objects.put("iterable", (piece for piece in [b"from ", b"", b"an iterable"]))
        objects.put("view", memoryview(b"from a view"))
        assert content(objects, "file") == b"from a file"
        assert content(objects, "iterable") == b"from an iterable"
        assert content(objects, "view") == b"from a view"

    def test_head_knows_what_put_said(self, objects: Objects) -> None:
        put = objects.put("a", b"data", sha256=sha256(b"data"), size=4)
        head = objects.head("a")
        assert (head.name, head.size, head.etag) == ("a", 4, put.etag)
        assert head.sha256 in (None, sha256(b"data"))
        assert head.modified.tzinfo is not None

    def test_a_second_put_takes_the_place_of_the_first(self, objects: Objects) -> None:
        first = objects.put("a", b"one")
        second = objects.put("a", b"other")
        assert content(objects, "a") == b"other"
        assert first.etag != second.etag
        assert names(objects.list()) == ["a"]

    def test_text_is_refused(self, objects: Objects) -> None:
        with pytest.raises(Refused):
            objects.put("a", "text")  # type: ignore[arg-type]

    @pytest.mark.parametrize("large", [False, True])
    @pytest.mark.parametrize("promise", ["sha256", "too small", "too large"])
    def test_a_broken_promise_stores_nothing(self, objects: Objects, promise: str, large: bool) -> None:
        data = b"x" * (12 * 1024 * 1024 if large else 12)
        wrong: dict[str, object] = {
            "sha256": {"sha256": sha256(b"other")},
            "too small": {"size": len(data) - 1},
            "too large": {"size": len(data) + 1},
        }[promise]  # type: ignore[assignment]
        objects.put("old", b"old")
        for name in ("old", "new"):
            with pytest.raises(Damaged) as raised:
                objects.put(name, iter([data[:7], data[7:]]), **wrong)  # type: ignore[arg-type]
            assert is_permanent(raised.value)
        assert content(objects, "old") == b"old"
        assert names(objects.list()) == ["old"]

    @pytest.mark.parametrize("size", [10, 12 * 1024 * 1024])
    def test_what_the_data_raise_passes_and_stores_nothing(self, objects: Objects, size: int) -> None:
        class Cut(OSError):
            pass

        def cut() -> Iterator[bytes]:
            yield b"x" * size
            raise Cut("the source broke")

        objects.put("old", b"old")
        for name in ("old", "new"):
            with pytest.raises(Cut):
                objects.put(name, cut())
        assert content(objects, "old") == b"old"
        assert names(objects.list()) == ["old"]

    @pytest.mark.parametrize(
        ("start", "end"), [(0, None), (0, 0), (3, 7), (5, None), (9, 10), (10, None), (12, None), (5, 100), (7, 3), (11, 20)]
    )
    def test_a_range_is_a_slice(self, objects: Objects, start: int, end: int | None) -> None:
        objects.put("a", b"0123456789")
        with objects.get("a", start=start, end=end) as body:
            assert body.info.size == 10
            assert body.read() == b"0123456789"[start:end]

    def test_a_range_of_nothing_and_a_negative_one(self, objects: Objects) -> None:
        objects.put("empty", b"")
        with objects.get("empty", start=0) as body:
            assert body.read() == b""
        for start, end in [(-1, None), (0, -1)]:
            with pytest.raises(Refused):
                objects.get("empty", start=start, end=end)

    def test_a_large_object_comes_in_portions(self, objects: Objects) -> None:
        data = os.urandom(11 * 1024 * 1024)
        objects.put("large", data)
        with objects.get("large") as body:
            portions = list(body)
        with objects.get("large", start=5) as body:
            beginning = body.read(10) + body.read(0) + body.read(7)
            for portion in body:
                beginning += portion
                if len(beginning) > 4 * 1024 * 1024:
                    break
            assert beginning + body.read() == data[5:]
        assert b"".join(portions) == data
        assert max(len(portion) for portion in portions) <= 8 * 1024 * 1024

    def test_what_is_not_there_is_not_found(self, objects: Objects) -> None:
        objects.put("a/b", b"")
        asked: list[Callable[[], object]] = [
            lambda: objects.head("missing"),
            lambda: objects.get("missing"),
            lambda: objects.head("a"),
            lambda: objects.get("a/b/c"),
            lambda: objects.copy("missing", "other"),
        ]
        for ask in asked:
            with pytest.raises(NotFound) as raised:
                ask()
            assert is_not_found(raised.value)
            assert is_permanent(raised.value)

    def test_readers_see_one_version_whole(self, objects: Objects) -> None:
        versions = [bytes([65 + number]) * 300_000 for number in range(6)]
        objects.put("a", versions[0])
        done = threading.Event()

        def work(number: int) -> object:
            if number == 0:
                for version in versions * 4:
                    objects.put("a", version)
                done.set()
                return set()
            seen = set()
            while not done.is_set():
                seen.add(content(objects, "a"))
            return seen

        for seen in together(3, work):
            assert isinstance(seen, set), seen
            assert seen <= set(versions)


class Names:
    """Names come back as they were given, or are refused with a sentence."""

    def test_odd_names_are_kept_apart(self, objects: Objects) -> None:
        for name in ODD_NAMES:
            objects.put(name, name.encode())
        for name in ODD_NAMES:
            assert content(objects, name) == name.encode()
        assert sorted(names(objects.list())) == sorted(ODD_NAMES)
        for name in ODD_NAMES:
            assert objects.delete(name)
        assert names(objects.list()) == []

    @pytest.mark.parametrize("name", BAD_NAMES)
    def test_bad_names_are_refused_by_every_verb(self, objects: Objects, name: str) -> None:
        asked: list[Callable[[], object]] = [
            lambda: objects.put(name, b""),
            lambda: objects.get(name),
            lambda: objects.head(name),
            lambda: objects.delete(name),
            lambda: objects.copy("a", name),
            lambda: objects.copy(name, "a"),
            lambda: objects.upload(name),
        ]
        objects.put("a", b"")
        for ask in asked:
            with pytest.raises(Refused, match="name") as raised:
                ask()
            assert is_permanent(raised.value)

    def test_a_name_may_be_an_object_and_a_prefix(self, objects: Objects) -> None:
        objects.put("a", b"first")
        objects.put("a/b", b"second")
        objects.put("a/b/c/d", b"third")
        objects.put("a/b/c", b"fourth")
        objects.put("a", b"fifth")
        expected = {"a": b"fifth", "a/b": b"second", "a/b/c": b"fourth", "a/b/c/d": b"third"}
        assert {name: content(objects, name) for name in names(objects.list())} == expected
        assert objects.delete("a/b")
        assert sorted(names(objects.list())) == ["a", "a/b/c", "a/b/c/d"]
        assert objects.delete("a/b/c/d")
        assert objects.delete("a")
        assert names(objects.list()) == ["a/b/c"]

    def test_long_names(self, objects: Objects) -> None:
        longest = objects.conditions.longest_segment
        deep = "/".join(["d"] * (LONGEST // 2))
        for name in [deep, "s" * min(longest, LONGEST), "é" * (min(longest, LONGEST) // 2)]:
            objects.put(name, b"long")
            assert content(objects, name) == b"long"
            assert name in names(objects.list())
            assert objects.delete(name)
        if longest < LONGEST:
            with pytest.raises(Refused, match="bytes"):
                objects.put("s" * (longest + 1), b"long")


class Conditional:
    """Of any number of writers with a condition, one wins and the others are told; or the driver says that it cannot."""

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


class ListDeleteCopy:
    TREE = ("a/b", "a/b/c", "a/b/d", "a/bc", "a/d/e", "a0", "b", "z/y/x")

    def fill(self, objects: Objects) -> None:
        for name in self.TREE:
            objects.put(name, name.encode())

    def test_in_order(self, objects: Objects) -> None:
        tree = [*self.TREE, "a!b", "a-", "a b/c", "é", "A"]
        for name in tree:
            objects.put(name, name.encode())
        key: Callable[[str], object] = str.encode if objects.conditions.order == "bytes" else lambda name: name.encode().split(b"/")
        assert names(objects.list()) == sorted(tree, key=key)  # type: ignore[arg-type]
        assert [info.size for info in objects.list("a/b")] == [5, 5]

    @pytest.mark.parametrize("prefix", ["a/b", "a/b/", "a", "z", "z/y", "b", "missing", "a/b/c"])
    def test_a_prefix_is_made_of_whole_segments(self, objects: Objects, prefix: str) -> None:
        self.fill(objects)
        assert sorted(names(objects.list(prefix))) == [name for name in self.TREE if name.startswith(prefix.rstrip("/") + "/")]

    @pytest.mark.parametrize("prefix", ["", "a", "a/b"])
    @pytest.mark.parametrize("limit", [1, 2, 3, 100])
    def test_pages_leave_nothing_out(self, objects: Objects, prefix: str, limit: int) -> None:
        self.fill(objects)
        everything = names(objects.list(prefix))
        pages: list[str] = []
        while page := names(objects.list(prefix, after=pages[-1] if pages else "", limit=limit)):
            assert len(page) <= limit
            pages += page
        assert pages == everything

    def test_after_a_name_that_is_not_there(self, objects: Objects) -> None:
        self.fill(objects)
        assert names(objects.list(after="a/bb")) == ["a/bc", "a/d/e", "a0", "b", "z/y/x"]
        assert names(objects.list(after="zz")) == []
        assert names(objects.list("a/b", after="a/b/c")) == ["a/b/d"]

    def test_a_listing_agrees_with_head(self, objects: Objects) -> None:
        put = objects.put("a", b"data")
        (info,) = objects.list()
        assert (info.name, info.size, info.etag) == (put.name, put.size, objects.head("a").etag)

    def test_delete_says_whether_it_was_there(self, objects: Objects) -> None:
        self.fill(objects)
        assert objects.delete("a/b/c") is True
        assert objects.delete("a/b/c") is False
        assert objects.delete("a/d") is False
        assert objects.delete("missing/too") is False
        assert sorted(names(objects.list())) == [name for name in self.TREE if name != "a/b/c"]

    def test_copy(self, objects: Objects) -> None:
        objects.put("a", b"one")
        info = objects.copy("a", "deep/b")
        assert (info.name, info.size, content(objects, "deep/b")) == ("deep/b", 3, b"one")
        objects.put("a", b"two")
        assert content(objects, "deep/b") == b"one"
        objects.copy("a", "deep/b")
        assert content(objects, "deep/b") == b"two"
        if objects.conditions.create == "atomic":
            with pytest.raises(AlreadyThere):
                objects.copy("a", "deep/b", if_absent=True)
            objects.copy("a", "c", if_absent=True)
            assert content(objects, "c") == b"two"


class Uploads:
    """An object arrives in parts: in any order, more than once, in more than one process."""

    FIRST, SECOND = b"1" * PART_LEAST, b"2" * (PART_LEAST + 3)

    def test_parts_are_joined_in_order(self, objects: Objects) -> None:
        with objects.upload("a/b") as upload:
            upload.part(3, b"three")
            upload.part(1, b"wrong")
            upload.part(1, self.FIRST)
            upload.part(2, self.SECOND)
            assert {number: part.size for number, part in upload.parts().items()} == {1: PART_LEAST, 2: PART_LEAST + 3, 3: 5}
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


class ObjectsSuite(PutAndGet, Names, Conditional, ListDeleteCopy, Uploads):
    """All of it. Subclass it, and give it a fixture `objects`."""
