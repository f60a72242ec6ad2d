"""An order: what a user asks to get back, of which object, in which form. It is the document `order` of an assembly.

    {"object": "ark:/99999/fk4x", "version": 2, "form": "zip", "content": "full", "files": {"count": 1, "rows":
    ["producer/a.txt"]}}

`version` 0 means all versions, each in a folder of its own (v1, v2 ...). With `files` only these of the version are
packed.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

import msgspec

from waybill.apps.ingest import lists
from waybill.apps.ingest.access.naming import file_name
from waybill.objects import Objects
from waybill.record import Record

Form = Literal["zip", "zip-stored", "tar", "tar.gz"]
Content = Literal["full", "producer"]
MOST_FILES = 1000  # that can be named in one order
ALL = 0
IMPORTED = "legacy/"  # how the requests of imported assemblies begin
ASK_AGAIN = "It was asked for in the old system, which kept elsewhere what was wanted: ask for it again."

_ENDINGS = {
    "zip": (".zip", "application/zip"),
    "zip-stored": (".zip", "application/zip"),
    "tar": (".tar", "application/x-tar"),
    "tar.gz": (".tar.gz", "application/gzip"),
}


class Order(msgspec.Struct, frozen=True, kw_only=True):
    object: str
    version: int  # ALL: every one
    form: Form = "zip"  # zip: deflated; zip-stored: faster, and as large as its content
    content: Content = "full"  # producer: without what ingest added
    files: dict[str, Any] | None = None  # as lists.keep answers; None: all
    lifted: bool = False  # an operator has asked for it: its URL works in spite of an embargo

    @property
    def top(self) -> str:
        """The one folder of the archive."""
        return file_name(self.object)

    @property
    def file_name(self) -> str:
        """What the archive is called when it is saved."""
        return self.top + (f"_v{self.version}" if self.version != ALL else "") + _ENDINGS[self.form][0]

    @property
    def mime(self) -> str:
        return _ENDINGS[self.form][1]

    def again(self) -> str:
        """What is sent to ask for the same once more; of files that were named, all."""
        told = {"object": self.object, "version": self.version, "form": self.form, "content": self.content}
        return msgspec.json.encode(told).decode()

    def wants(self, path: str) -> bool:
        return self.content == "full" or path.startswith("producer/")

    def named(self, objects: Objects) -> frozenset[str] | None:
        """The files that were asked for by name; None: all are wanted."""
        return None if self.files is None else frozenset(lists.each(objects, self.files, str))


def order_of(record: Record) -> Order | None:
    """What was asked for here; None for an assembly of another service, which says in its own way what it is."""
    try:
        return msgspec.convert(record.docs["order"], Order)
    except (KeyError, msgspec.ValidationError):
        return None


def is_imported(record: Record) -> bool:
    """Whether it comes from an old queue of Merritt's: nobody else looks after it, and nobody here knows what was
    wanted.
    """
    return (record.request or "").startswith(IMPORTED) and order_of(record) is None


def bytes_said(record: Record) -> int:
    """How much content an assembly says that it has, whoever made it."""
    token = record.docs.get("token")
    said = token.get("cloud-content-byte") if isinstance(token, dict) else 0
    return said if isinstance(said, int) and said > 0 else 0


def kept(objects: Objects, place: str, files: Iterable[str]) -> dict[str, Any]:
    """The names of files, in the order's document or beside it."""
    return lists.keep(objects, f"{place}/files.jsonl", files)
