"""The storage root: an OCFL 1.1 root below a prefix of the objects, and where each object lies in it.

    <prefix>/0=ocfl_1.1                                                  written last: then it is a storage root
    <prefix>/ocfl_layout.json                                            names the layout
    <prefix>/extensions/0004-hashed-n-tuple-storage-layout/config.json   and how it is used here
    <prefix>/3f/a2/3fa2...                                               an object, by the SHA-256 of its id

The layout is a registered one (extension 0004), and its paths are hex digits only, so that every driver writes them as
they are. The prefix cannot be empty: beside the objects a driver keeps things of its own, and nothing else may lie in a
storage root.

Some tools refuse every root whose layout they do not know, though they need not know it in order to read. For them the
layout may go undeclared: OCFL does not ask for it, objects lie where they would, and such tools walk through the
folders.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator

import msgspec

from waybill.apps.ingest.storage.protocol import NotStorable, Unsound
from waybill.objects import NotFound, Objects, check_prefix

LAYOUT = "0004-hashed-n-tuple-storage-layout"
TUPLE, TUPLES = 2, 2  # 65,536 folders at most, and few of them new when an object comes
DECLARATION = ("0=ocfl_1.1", b"ocfl_1.1\n")
CONFIG = {
    "extensionName": LAYOUT,
    "digestAlgorithm": "sha256",
    "tupleSize": TUPLE,
    "numberOfTuples": TUPLES,
    "shortObjectRoot": False,
}
DESCRIPTION = (
    "Objects lie in folders named by the SHA-256 of their identifier, below two folders of two of its digits each"
)

_OBJECT = re.compile(r"(?P<root>[0-9a-f]{2}/[0-9a-f]{2}/[0-9a-f]{64})/.+")


class Root:
    def __init__(self, objects: Objects, prefix: str, *, declare_layout: bool = True) -> None:
        if not prefix:
            raise NotStorable(
                "A storage root needs a prefix of its own, such as ocfl: beside it lie things that are no part of it."
            )
        self._objects = objects
        self.prefix = check_prefix(prefix)
        self._declare_layout = declare_layout
        self._made = False

    def place(self, object_id: str) -> str:
        """The root of an object, as a prefix of names."""
        try:
            digest = hashlib.sha256(object_id.encode()).hexdigest()
        except UnicodeEncodeError:
            raise NotStorable(f"{object_id!a} is no identifier: it holds half of a surrogate pair.") from None
        tuples = [digest[at : at + TUPLE] for at in range(0, TUPLE * TUPLES, TUPLE)]
        return "/".join([self.prefix, *tuples, digest])

    def make(self) -> None:
        """Declare the storage root, once; or see that it is one of ours."""
        if self._made:
            return
        declaration, words = DECLARATION
        layout = (
            msgspec.json.format(msgspec.json.encode({"extension": LAYOUT, "description": DESCRIPTION}), indent=2)
            + b"\n"
        )
        config = msgspec.json.format(msgspec.json.encode(CONFIG), indent=2) + b"\n"
        files = (
            [(f"extensions/{LAYOUT}/config.json", config), ("ocfl_layout.json", layout)] if self._declare_layout else []
        )
        for name, data in (*files, (declaration, words)):
            there = self._there(name)
            if there is None:
                self._objects.put(f"{self.prefix}/{name}", data)
                there = self._there(name)
            if there is None or _meaning(there) != _meaning(data):
                raise Unsound(
                    f"{self.prefix}/{name} is not what this version of Waybill writes: the storage root is left alone."
                )
        self._made = True

    def walk(self, after: str = "") -> Iterator[str]:
        """The roots of all objects, finished or not, in the order of the listing, from the one after a cursor on.

        What lies inside an object is jumped over: one short listing for each object, however many files it has.
        """
        at = f"{self.prefix}/{after}/~" if after else ""
        while True:
            found = next(iter(self._objects.list(self.prefix, after=at, limit=1)), None)
            if found is None:
                return
            inside = _OBJECT.fullmatch(found.name.removeprefix(f"{self.prefix}/"))
            if inside is None:
                at = found.name
                continue
            root = f"{self.prefix}/{inside['root']}"
            yield root
            at = f"{root}/~"  # every name in an object's root begins with a digit or a letter

    def cursor(self, root: str) -> str:
        return root.removeprefix(f"{self.prefix}/")

    def _there(self, name: str) -> bytes | None:
        try:
            with self._objects.get(f"{self.prefix}/{name}", end=100_000) as body:
                return body.read()
        except NotFound:
            return None


def _meaning(data: bytes) -> object:
    try:
        found = msgspec.json.decode(data)
    except msgspec.DecodeError:
        return data
    if isinstance(found, dict):
        found.pop("description", None)
    return found
