"""Content, names, lists, deletions and copies."""

from __future__ import annotations

import io
import os
import threading
from collections.abc import Callable, Iterator

import pytest

from waybill.objects.conformance.helpers import names_of, read_content, run_together, sha256_of
from waybill.objects.protocol import (
    MAX_NAME_BYTES,
    ContentMismatch,
    ObjectExists,
    ObjectNotFound,
    ObjectRequestRefused,
    Objects,
    is_not_found,
    is_permanent,
    measure,
)

ODD_NAMES = [
    "a b",
    " lead",
    "trail ",
    "a+b",
    "a%b",
    "a%41",
    "%2e%2e/x",
    "%o",
    "a%+",
    "a#b?c=d&e",
    "a*b",
    "a~",
    "a'b\"c",
    "a<b>|c",
    "a[b]{c}^`",
    "a:b;c,d",
    ".hidden",
    "...",
    "..a/b..",
    "a.",
    "A",
    "é",
    "e\u0301",
    "\U0001f600/\u65e5\u672c",
    "\ufeffx",
    "z\u200d",
    "a\u2028b",
    "x.tmp",
    "x.part",
    "~x",
    "-rf",
    "name",
    "nul",
    "con.txt",
]
BAD_NAMES = [
    "",
    "/",
    "/a",
    "a/",
    "a//b",
    ".",
    "..",
    "a/.",
    "a/../b",
    "../a",
    "./a",
    "a\0b",
    "a\nb",
    "a\x7fb",
    "a\\b",
    "\ufffe",
    "a\uffff",
    "\ud800",
    "x" * (MAX_NAME_BYTES + 1),
    "é" * (MAX_NAME_BYTES // 2 + 1),
    ".waybill",
    ".waybill/x",
]


class PutAndGetSuite:
    """An object has the content that was put, and no other."""

    @pytest.mark.parametrize("size", [0, 1, 1000, 1024 * 1024, 1024 * 1024 + 1, 9 * 1024 * 1024 + 5])
    def test_bytes_come_back(self, objects: Objects, size: int) -> None:
        data = os.urandom(size)
        info = objects.put("a/b", data)
        assert (info.name, info.size, info.sha256) == ("a/b", size, sha256_of(data))
        assert read_content(objects, "a/b") == data
        assert measure(objects, "a/b") == (size, sha256_of(data))

    def test_a_file_or_an_iterable_is_stored_whole(self, objects: Objects) -> None:
        objects.put("file", io.BytesIO(b"from a file"))
        objects.put("iterable", (piece for piece in [b"from ", b"", b"an iterable"]))
        objects.put("view", memoryview(b"from a view"))
        assert read_content(objects, "file") == b"from a file"
        assert read_content(objects, "iterable") == b"from an iterable"
        assert read_content(objects, "view") == b"from a view"

    def test_head_returns_what_put_returned(self, objects: Objects) -> None:
        put = objects.put("a", b"data", sha256=sha256_of(b"data"), size=4)
        head = objects.head("a")
        assert (head.name, head.size, head.etag) == ("a", 4, put.etag)
        assert head.sha256 in (None, sha256_of(b"data"))
        assert head.modified.tzinfo is not None

    def test_a_second_put_takes_the_place_of_the_first(self, objects: Objects) -> None:
        first = objects.put("a", b"one")
        second = objects.put("a", b"other")
        assert read_content(objects, "a") == b"other"
        assert first.etag != second.etag
        assert names_of(objects.list()) == ["a"]

    def test_text_is_refused(self, objects: Objects) -> None:
        with pytest.raises(ObjectRequestRefused):
            objects.put("a", "text")  # type: ignore[arg-type]

    @pytest.mark.parametrize("large", [False, True])
    @pytest.mark.parametrize("expectation", ["sha256", "too small", "too large"])
    def test_a_mismatch_stores_nothing(self, objects: Objects, expectation: str, large: bool) -> None:
        data = b"x" * (12 * 1024 * 1024 if large else 12)
        expected: dict[str, object] = {
            "sha256": {"sha256": sha256_of(b"other")},
            "too small": {"size": len(data) - 1},
            "too large": {"size": len(data) + 1},
        }[expectation]  # type: ignore[assignment]
        objects.put("old", b"old")
        for name in ("old", "new"):
            with pytest.raises(ContentMismatch) as raised:
                objects.put(name, iter([data[:7], data[7:]]), **expected)  # type: ignore[arg-type]
            assert is_permanent(raised.value)
        assert read_content(objects, "old") == b"old"
        assert names_of(objects.list()) == ["old"]

    @pytest.mark.parametrize("size", [10, 12 * 1024 * 1024])
    def test_an_exception_of_the_data_passes_and_stores_nothing(self, objects: Objects, size: int) -> None:
        class Cut(OSError):
            pass

        def cut() -> Iterator[bytes]:
            yield b"x" * size
            raise Cut("the source broke")

        objects.put("old", b"old")
        for name in ("old", "new"):
            with pytest.raises(Cut):
                objects.put(name, cut())
        assert read_content(objects, "old") == b"old"
        assert names_of(objects.list()) == ["old"]

    @pytest.mark.parametrize("size", [10, 12 * 1024 * 1024])
    def test_the_data_are_made_in_the_callers_thread_and_may_come_from_the_same_store(
        self, objects: Objects, size: int
    ) -> None:
        objects.put("a", b"x" * size)
        threads = set()

        def read() -> Iterator[bytes]:
            with objects.get("a") as body:
                for chunk in body:
                    threads.add(threading.current_thread())
                    objects.head("a")
                    yield chunk

        info = objects.put("b", read())
        assert (info.size, info.sha256) == (size, sha256_of(b"x" * size))
        assert threads == {threading.current_thread()}

    @pytest.mark.parametrize(
        ("start", "end"),
        [(0, None), (0, 0), (3, 7), (5, None), (9, 10), (10, None), (12, None), (5, 100), (7, 3), (11, 20)],
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
            with pytest.raises(ObjectRequestRefused):
                objects.get("empty", start=start, end=end)

    def test_a_large_object_is_read_in_chunks(self, objects: Objects) -> None:
        data = os.urandom(11 * 1024 * 1024)
        objects.put("large", data)
        with objects.get("large") as body:
            chunks = list(body)
        with objects.get("large", start=5) as body:
            beginning = body.read(10) + body.read(0) + body.read(7)
            for chunk in body:
                beginning += chunk
                if len(beginning) > 4 * 1024 * 1024:
                    break
            assert beginning + body.read() == data[5:]
        assert b"".join(chunks) == data
        assert max(len(chunk) for chunk in chunks) <= 8 * 1024 * 1024

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
            with pytest.raises(ObjectNotFound) as raised:
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
                seen.add(read_content(objects, "a"))
            return seen

        for seen in run_together(3, work):
            assert isinstance(seen, set), seen
            assert seen <= set(versions)


class ObjectNameSuite:
    """Names are stored as they are, or refused with an error that says why."""

    def test_odd_names_are_kept_apart(self, objects: Objects) -> None:
        for name in ODD_NAMES:
            objects.put(name, name.encode())
        for name in ODD_NAMES:
            assert read_content(objects, name) == name.encode()
        assert sorted(names_of(objects.list())) == sorted(ODD_NAMES)
        for name in ODD_NAMES:
            assert objects.delete(name)
        assert names_of(objects.list()) == []

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
            with pytest.raises(ObjectRequestRefused, match="name") as raised:
                ask()
            assert is_permanent(raised.value)

    def test_a_name_may_be_an_object_and_a_prefix(self, objects: Objects) -> None:
        objects.put("a", b"first")
        objects.put("a/b", b"second")
        objects.put("a/b/c/d", b"third")
        objects.put("a/b/c", b"fourth")
        objects.put("a", b"fifth")
        expected = {"a": b"fifth", "a/b": b"second", "a/b/c": b"fourth", "a/b/c/d": b"third"}
        assert {name: read_content(objects, name) for name in names_of(objects.list())} == expected
        assert objects.delete("a/b")
        assert sorted(names_of(objects.list())) == ["a", "a/b/c", "a/b/c/d"]
        assert objects.delete("a/b/c/d")
        assert objects.delete("a")
        assert names_of(objects.list()) == ["a/b/c"]

    def test_long_names(self, objects: Objects) -> None:
        longest = objects.capabilities.longest_segment
        deep = "/".join(["d"] * (MAX_NAME_BYTES // 2))
        for name in [deep, "s" * min(longest, MAX_NAME_BYTES), "é" * (min(longest, MAX_NAME_BYTES) // 2)]:
            objects.put(name, b"long")
            assert read_content(objects, name) == b"long"
            assert name in names_of(objects.list())
            assert objects.delete(name)
        if longest < MAX_NAME_BYTES:
            with pytest.raises(ObjectRequestRefused, match="bytes"):
                objects.put("s" * (longest + 1), b"long")


class ListDeleteCopySuite:
    """Lists in order and in pages, deletions and copies."""

    TREE = ("a/b", "a/b/c", "a/b/d", "a/bc", "a/d/e", "a0", "b", "z/y/x")

    def fill(self, objects: Objects) -> None:
        for name in self.TREE:
            objects.put(name, name.encode())

    def test_in_order(self, objects: Objects) -> None:
        tree = [*self.TREE, "a!b", "a-", "a b/c", "é", "A"]
        for name in tree:
            objects.put(name, name.encode())
        key: Callable[[str], object] = (
            str.encode if objects.capabilities.order == "bytes" else lambda name: name.encode().split(b"/")
        )
        assert names_of(objects.list()) == sorted(tree, key=key)  # type: ignore[arg-type]
        assert [info.size for info in objects.list("a/b")] == [5, 5]

    @pytest.mark.parametrize("prefix", ["a/b", "a/b/", "a", "z", "z/y", "b", "missing", "a/b/c"])
    def test_a_prefix_is_made_of_whole_segments(self, objects: Objects, prefix: str) -> None:
        self.fill(objects)
        assert sorted(names_of(objects.list(prefix))) == [
            name for name in self.TREE if name.startswith(prefix.rstrip("/") + "/")
        ]

    @pytest.mark.parametrize("prefix", ["", "a", "a/b"])
    @pytest.mark.parametrize("limit", [1, 2, 3, 100])
    def test_pages_leave_nothing_out(self, objects: Objects, prefix: str, limit: int) -> None:
        self.fill(objects)
        everything = names_of(objects.list(prefix))
        pages: list[str] = []
        while page := names_of(objects.list(prefix, after=pages[-1] if pages else "", limit=limit)):
            assert len(page) <= limit
            pages += page
        assert pages == everything

    def test_after_a_name_that_is_not_there(self, objects: Objects) -> None:
        self.fill(objects)
        assert names_of(objects.list(after="a/bb")) == ["a/bc", "a/d/e", "a0", "b", "z/y/x"]
        assert names_of(objects.list(after="zz")) == []
        assert names_of(objects.list("a/b", after="a/b/c")) == ["a/b/d"]

    def test_a_listing_agrees_with_head(self, objects: Objects) -> None:
        put = objects.put("a", b"data")
        (info,) = objects.list()
        assert (info.name, info.size, info.etag) == (put.name, put.size, objects.head("a").etag)

    def test_delete_returns_whether_there_was_an_object(self, objects: Objects) -> None:
        self.fill(objects)
        assert objects.delete("a/b/c") is True
        assert objects.delete("a/b/c") is False
        assert objects.delete("a/d") is False
        assert objects.delete("missing/too") is False
        assert sorted(names_of(objects.list())) == [name for name in self.TREE if name != "a/b/c"]

    def test_copy(self, objects: Objects) -> None:
        objects.put("a", b"one")
        info = objects.copy("a", "deep/b")
        assert (info.name, info.size, read_content(objects, "deep/b")) == ("deep/b", 3, b"one")
        objects.put("a", b"two")
        assert read_content(objects, "deep/b") == b"one"
        objects.copy("a", "deep/b")
        assert read_content(objects, "deep/b") == b"two"
        if objects.capabilities.create == "atomic":
            with pytest.raises(ObjectExists):
                objects.copy("a", "deep/b", if_absent=True)
            objects.copy("a", "c", if_absent=True)
            assert read_content(objects, "c") == b"two"
