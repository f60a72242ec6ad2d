"""The record: its name, its documents and its fields.

A `Record` is an immutable value, as one read of the store returned it. It is changed only by a commit
(`waybill.record.commits`). Its documents are stored as the bytes that were written and decoded when they are read, so
no store ever changes them.
"""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

import msgspec

BlockedBy = str  # why a record cannot be claimed now: "wait", "children", "lock NAME" or "hold NAME"


class Ref(NamedTuple):
    """The name of a record."""

    kind: str
    id: str

    def __str__(self) -> str:
        return f"{self.kind} {self.id}"


class RecordDocuments(Mapping[str, Any]):
    """The documents of a record by name: stored as the bytes that were written, decoded when read."""

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
        return isinstance(other, RecordDocuments) and self.raw == other.raw

    def __hash__(self) -> int:
        return hash(frozenset(self.raw.items()))

    def __repr__(self) -> str:
        return f"RecordDocuments({', '.join(self.raw)})"

    def with_changes(self, changes: Mapping[str, bytes | None]) -> RecordDocuments:
        """Return these documents after a change that writes some of them and removes those given as None."""
        if not changes:
            return self
        merged = {name: body for name, body in {**self.raw, **changes}.items() if body is not None}
        return RecordDocuments(merged)


NO_DOCUMENTS = RecordDocuments()


def is_json(body: bytes) -> bool:
    """Return whether the bytes are JSON. Lone surrogates and numbers of any size are accepted, although not every
    reader can decode them.
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


def encode_document(body: Any) -> bytes:
    """Encode a document as every writer does. Raises ValueError for NaN and infinity, which JSON does not have."""
    written = msgspec.json.encode(body)
    if b"null" in written:
        _refuse_non_finite_numbers(body)
    return written


def _refuse_non_finite_numbers(body: Any) -> None:
    """Raise ValueError for NaN and infinity: the encoder would silently write them as null."""
    if isinstance(body, float) and not math.isfinite(body):
        raise ValueError(f"JSON has no number {body}; write it as a text, or leave it out")
    if isinstance(body, msgspec.Struct):
        body = msgspec.structs.asdict(body)
    for each in (
        body.values() if isinstance(body, Mapping) else body if isinstance(body, (list, tuple, set, frozenset)) else ()
    ):
        _refuse_non_finite_numbers(each)


# gc=False, here and in the modules beside: an immutable struct whose parts existed before it cannot be part of a
# reference cycle, so the garbage collector need not track it.
class Record(msgspec.Struct, frozen=True, gc=False):
    """One record, as one read of the store returned it.

    The engine sets the fields up to `queue_position`; the store sets the rest.
    """

    kind: str
    id: str
    state: str
    parent: Ref | None = None
    owner: str = ""  # a depositor, a project, an account
    priority: int = 5  # 0..99, lower first
    last_done: str | None = None  # the last state whose step succeeded; resume goes on after it
    resume_count: int = 0  # how often an operator resumed it
    error_count: int = 0  # transient errors of the present state's step, in a row
    message: str = ""  # the latest reason, a sentence for people
    session: str | None = None  # the session that has claimed it; None: unclaimed
    # "family/name": the exclusive names that it needs. It owns them from its claim on, until a commit drops them
    locks: tuple[str, ...] = ()
    # the holds that stop it before it is worked on; of a record that a hold sent to a rest state, that hold
    hold_names: tuple[str, ...] = ()
    blocked_by: BlockedBy | None = None  # None: it can be claimed
    open: bool = True  # its parent waits for it
    host: str = ""  # the only host that has its working files; "": any host can work on it
    idempotency_key: str | None = None  # the caller's key: a second creation with the same key returns this record
    queue_position: int | None = None  # order inside a priority; None at creation: the store assigns one
    # --- written by the store
    seq: int = 0  # creation order over the whole store
    version: int = 0  # increases with every write; starts from seq
    wake_count: int = 0  # how often it was woken, by a child for example; not versioned
    wake_at: float = 0.0  # when blocked by "wait": until when
    created: float = 0.0
    updated: float = 0.0
    documents: RecordDocuments = NO_DOCUMENTS  # as loaded; a Change names what it writes in its own `documents`

    @property
    def ref(self) -> Ref:
        return Ref(self.kind, self.id)


_prepare_lock = threading.Lock()
_prepared_types: set[type[msgspec.Struct]] = set()


def prepare_decoders() -> None:
    """Build the JSON decoder of every struct type defined so far. Call it before the process starts threads.

    msgspec inspects the fields of a type when the type is first used. A second thread that uses the type meanwhile
    finds it half inspected, and the process crashes (seen as SIGSEGV in workers under load). So one thread inspects all
    types before there are others. Safe to repeat: a prepared type costs nothing.
    """
    with _prepare_lock:
        for each in _iter_subclasses(msgspec.Struct):
            if each not in _prepared_types:
                with suppress(TypeError, NameError):  # never decoded: some type of its fields cannot be
                    msgspec.json.Decoder(each)
                _prepared_types.add(each)


def _iter_subclasses(parent: type[msgspec.Struct]) -> Iterator[type[msgspec.Struct]]:
    for each in parent.__subclasses__():
        yield each
        yield from _iter_subclasses(each)
