"""A record: one thing in motion, its name and its documents."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

Parked = str  # why a record cannot be claimed now: "wait" | "children" | "key NAME" | "mark NAME"; None: it can


class Ref(NamedTuple):
    """The name of a record."""

    kind: str
    id: str

    def __str__(self) -> str:
        return f"{self.kind} {self.id}"


class Docs(Mapping[str, Any]):
    """Named pieces of JSON, kept as the bytes that were written and decoded when read."""

    __slots__ = ("raw",)

    def __init__(self, raw: Mapping[str, bytes] | None = None) -> None:
        self.raw: dict[str, bytes] = dict(raw) if raw else {}

    def __getitem__(self, name: str) -> Any:
        return msgspec.json.decode(self.raw[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self.raw)

    def __len__(self) -> int:
        return len(self.raw)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Docs) and self.raw == other.raw

    def __hash__(self) -> int:
        return hash(frozenset(self.raw.items()))

    def __repr__(self) -> str:
        return f"Docs({', '.join(self.raw)})"

    def with_changes(self, changes: Mapping[str, bytes | None]) -> Docs:
        """These documents after a change that writes some and removes those given as None."""
        if not changes:
            return self
        merged = {name: body for name, body in {**self.raw, **changes}.items() if body is not None}
        return Docs(merged)


NO_DOCS = Docs()


def is_json(body: bytes) -> bool:
    """Whether a document is one: also one that holds half a character or a number of any size, which not every
    reader can take.
    """
    try:
        msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        try:
            json.loads(body.decode(), parse_constant=_refuse_constant)
        except (ValueError, RecursionError):
            return False
    return True


def _refuse_constant(word: str) -> None:
    raise ValueError(f"JSON has no {word}")


def encode(body: Any) -> bytes:
    """A document's bytes, as every writer makes them; ValueError for a number that JSON does not have."""
    written = msgspec.json.encode(body)
    if b"null" in written:
        _refuse_no_numbers(body)
    return written


def _refuse_no_numbers(body: Any) -> None:
    """What is no number, and infinity, would be written as null without a word."""
    if isinstance(body, float) and not math.isfinite(body):
        raise ValueError(f"JSON has no number {body}; write it as a text, or leave it out")
    if isinstance(body, msgspec.Struct):
        body = msgspec.structs.asdict(body)
    for each in (
        body.values() if isinstance(body, Mapping) else body if isinstance(body, (list, tuple, set, frozenset)) else ()
    ):
        _refuse_no_numbers(each)


# gc=False, here and in the modules beside: what is frozen and made of what was there before cannot be part of a cycle,
# so the collector need not look at it.
class Record(msgspec.Struct, frozen=True, gc=False):
    """One thing in motion. Fields up to `host` are the engine's to set; the rest are the store's."""

    kind: str
    id: str
    state: str
    parent: Ref | None = None
    owner: str = ""  # whose it is: a depositor, a project, an account
    priority: int = 5  # 0..99, lower first
    last_done: str | None = None  # the last state whose step succeeded; resume goes on after it
    retries: int = 0  # how often a person resumed it
    tries: int = 0  # how often the present state's step met trouble
    message: str = ""  # the last reason, a sentence for people
    session: str | None = None  # who holds the claim; None: free
    # "family/name": names that it asks for when free, and holds exclusively from its claim on
    keys: tuple[str, ...] = ()
    gates: tuple[str, ...] = ()  # the marks that stop it now
    parked: Parked | None = None
    open: bool = True  # its parent waits for it
    host: str = ""  # the only host that has its working files; "": any host will do
    request: str | None = None  # the caller's key of its creation: asked twice, made once
    turn: int | None = None  # order inside a priority; None at creation: the store gives one
    # --- written by the store
    seq: int = 0  # creation order over the whole store
    version: int = 0  # moves with every write; starts from seq
    nudges: int = 0  # how often a child called; never versioned
    wake_at: float = 0.0  # when parked on "wait": until when
    created: float = 0.0
    updated: float = 0.0
    docs: Docs = NO_DOCS  # as loaded; a Change names what it writes in its own `docs`

    @property
    def ref(self) -> Ref:
        return Ref(self.kind, self.id)
