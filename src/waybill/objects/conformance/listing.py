"""Lists in order and in pages, deletions, copies."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from waybill.objects.conformance.looking import content, names
from waybill.objects.protocol import AlreadyThere, Objects


class ListDeleteCopy:
    TREE = ("a/b", "a/b/c", "a/b/d", "a/bc", "a/d/e", "a0", "b", "z/y/x")

    def fill(self, objects: Objects) -> None:
        for name in self.TREE:
            objects.put(name, name.encode())

    def test_in_order(self, objects: Objects) -> None:
        tree = [*self.TREE, "a!b", "a-", "a b/c", "é", "A"]
        for name in tree:
            objects.put(name, name.encode())
        key: Callable[[str], object] = (
            str.encode if objects.conditions.order == "bytes" else lambda name: name.encode().split(b"/")
        )
        assert names(objects.list()) == sorted(tree, key=key)  # type: ignore[arg-type]
        assert [info.size for info in objects.list("a/b")] == [5, 5]

    @pytest.mark.parametrize("prefix", ["a/b", "a/b/", "a", "z", "z/y", "b", "missing", "a/b/c"])
    def test_a_prefix_is_made_of_whole_segments(self, objects: Objects, prefix: str) -> None:
        self.fill(objects)
        assert sorted(names(objects.list(prefix))) == [
            name for name in self.TREE if name.startswith(prefix.rstrip("/") + "/")
        ]

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
