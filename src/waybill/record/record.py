"""The record: its name and its fields.

A `Record` is an immutable value, as one read of the store returned it. It is changed only by a commit
(`waybill.record.commits`). `document` and `find_document` read its documents (`waybill.record.documents`).
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple, TypeVar

import msgspec

from waybill.record.documents import DOCUMENT_ERRORS, NO_DOCUMENTS, RecordDocuments, document_of
from waybill.record.errors import DocumentError

T = TypeVar("T", bound=msgspec.Struct)

BlockedBy = str  # why a record cannot be claimed now: "wait", "children", "lock NAME" or "hold NAME"


class Ref(NamedTuple):
    """The name of a record."""

    kind: str
    id: str

    def __str__(self) -> str:
        return f"{self.kind} {self.id}"


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
    scope: str = ""  # APPLICATION/TYPE/NAME: the workspace, collection or dataset that it belongs to; whoever may read that sees it
    priority: int = 5  # 0..99, lower first
    # the last state whose step succeeded; resume goes on after it. "before STATE": resume goes on in that state
    last_done: str | None = None
    resume_count: int = 0  # how often an operator resumed it
    error_count: int = 0  # transient errors of the present state's step, in a row
    message: str = ""  # the latest reason, a sentence for people
    session: str | None = None  # the session that has claimed it; None: unclaimed
    # the locks that it asks for, as waybill.record.locks writes them. It owns them from its claim on, until a commit
    # drops them
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

    def document(self, type: type[T]) -> T:
        """Return the document of that type. Raises DocumentError when there is none, or when it cannot be read."""
        if (body := self.find_document(type)) is None:
            raise DocumentError(
                f"{self.ref} has no document {document_of(type).name}, which its state needs. "
                f"`waybill show {self.kind} {self.id}` shows what it has."
            )
        return body

    def find_document(self, type: type[T]) -> T | None:
        """Return the document of that type, None when there is none. Raises DocumentError when it cannot be read."""
        documents = self.documents
        if (body := documents.decoded.get(type)) is None:
            declared = document_of(type)
            if (raw := documents.raw.get(declared.name)) is None:
                return None
            try:
                body = documents.decoded[type] = declared.decode(raw)
            except DOCUMENT_ERRORS as error:
                raise DocumentError(
                    f"The document {declared.name} of {self.ref} cannot be read: {error}. Its writer ({declared.writer}) "
                    f"must write it again, or the workers must be upgraded; then resume it."
                ) from error
        found: T = body
        return found


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
