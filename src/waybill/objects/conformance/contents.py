"""Put and get."""

from __future__ import annotations

import io
import os
import threading
from collections.abc import Callable, Iterator

import pytest

from waybill.objects.conformance.looking import content, names, sha256, together
from waybill.objects.protocol import Damaged, NotFound, Objects, Refused, is_not_found, is_permanent, measure


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

    @pytest.mark.parametrize("size", [10, 12 * 1024 * 1024])
    def test_the_data_are_made_in_the_callers_thread_and_may_come_from_the_same_store(
        self, objects: Objects, size: int
    ) -> None:
        objects.put("a", b"x" * size)
        threads = set()

        def read() -> Iterator[bytes]:
            with objects.get("a") as body:
                for portion in body:
                    threads.add(threading.current_thread())
                    objects.head("a")
                    yield portion

        info = objects.put("b", read())
        assert (info.size, info.sha256) == (size, sha256(b"x" * size))
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
