"""What a record of a machine has beside its state: documents, exclusive keys, a working folder."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal

from waybill.record import Record


@dataclass(frozen=True, slots=True)
class Document:
    """A named piece of JSON on a record. Whoever creates the record may write it; after that only its writer."""

    name: str
    writer: Literal["step", "service", "foreign"]
    doc: str
    # the number in its "v"; readers take this one and the one before. None: a foreign format without one
    v: int | None = 1
    secret: tuple[str, ...] = ()  # fields that nobody is shown: "hash", or "callback.password" for one inside another
    # what people are shown in its place, if it may hold something secret anywhere
    shown: Callable[[Any], Any] | None = None


@dataclass(frozen=True, slots=True)
class Keys:
    """A family of exclusive names, and which of them a record needs: known from its documents, or asked for by its
    step.
    """

    family: str
    doc: str
    of: Callable[[Record], Iterable[str]] | None = None


@dataclass(frozen=True, slots=True)
class Folder:
    """Where the working folders of a machine's records lie below the working root, if not under <kind>/<id>."""

    top: str  # the first folder; no other machine's
    of: Callable[[Record], tuple[str, ...]]  # the folders below it, one record's own being the last
