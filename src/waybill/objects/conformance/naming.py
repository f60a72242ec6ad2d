"""Names, odd, bad and long."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from waybill.objects.conformance.looking import content, names
from waybill.objects.names import LONGEST
from waybill.objects.protocol import Objects, Refused, is_permanent

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
    "x" * (LONGEST + 1),
    "é" * (LONGEST // 2 + 1),
    ".waybill",
    ".waybill/x",
]


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
