"""The two nodes that hold a record: the status node, which Merritt's services read and write too, and the engine node.

The status node says in which state the record is. The engine node holds everything else that is known of the record;
there is one for each record, rewritten with every commit.

An engine node remembers which status it belongs to (`status_checksum`, and `status_version`, the version of the status
node). A service that does not know Waybill writes the status alone: then the checksum differs, the engine node is
stale, and the next writer of the record adds "changed by another service" to its history. A claim rewrites the status
with the same bytes, so it makes nothing stale.

Documents that have no node of their own are kept inside the engine node up to MAX_INLINE_DOCUMENT bytes; larger ones
are its children.
"""

from __future__ import annotations

from datetime import datetime
from functools import lru_cache
from time import gmtime, strftime

import msgspec

from waybill.record import HistoryEntry

MAX_MESSAGE = 4096  # characters of a message
MAX_INLINE_DOCUMENT = 4096  # bytes of a document inside the engine node
MAX_HISTORY = 50  # history entries: the node is rewritten whole, so it must stay small
FOREIGN_CAUSE = "changed by another service"  # the cause of a history entry about a foreign write


# --- the status node, in Merritt's format


class StatusNode(msgspec.Struct, frozen=True):
    """The status of a record. Its fields are Merritt's."""

    status: str
    last_successful_status: str | None = None
    retry_count: int = 0
    last_modified: str = ""
    message: str = ""

    @property
    def modified_time(self) -> float | None:
        """When the status was last written, to the second. None if the node does not say."""
        try:
            return datetime.strptime(self.last_modified, "%Y-%m-%d %H:%M:%S %z").timestamp()
        except ValueError:
            return None


class BriefStatusNode(msgspec.Struct, frozen=True):
    """The status of a batch or an assembly."""

    status: str
    last_modified: str
    message: str


_status_decoder = msgspec.json.Decoder(StatusNode, strict=False)
_encode_status_json = msgspec.json.Encoder().encode


@lru_cache(16)
def _format_time(second: int) -> str:
    return strftime("%Y-%m-%d %H:%M:%S +0000", gmtime(second))


def encode_status(state: str, last_done: str | None, resume_count: int, message: str, now: float, brief: bool) -> bytes:
    when = _format_time(int(now))
    return (
        _encode_status_json(BriefStatusNode(state, when, message))
        if brief
        else _encode_status_json(StatusNode(state, last_done, resume_count, when, message))
    )


def decode_status(data: bytes) -> StatusNode | None:
    """Decode a status node. None for a node that names no state.

    Other services may have written fields of the wrong type: those get their default, and the state is still read.
    """
    try:
        status = _status_decoder.decode(data)
    except msgspec.DecodeError:
        pass
    else:
        message = _clean_message(status.message)
        return status if message == status.message else msgspec.structs.replace(status, message=message)
    try:
        fields = msgspec.json.decode(data)
    except msgspec.DecodeError:
        return None
    if not isinstance(fields, dict) or not isinstance(fields.get("status"), str) or not fields["status"]:
        return None
    last_successful, retry_count = fields.get("last_successful_status"), fields.get("retry_count")
    return StatusNode(
        fields["status"],
        last_successful if isinstance(last_successful, str) else None,
        retry_count if isinstance(retry_count, int) else 0,
        str(fields.get("last_modified") or ""),
        _clean_message(str(fields.get("message") or "")),
    )


def _clean_message(message: str) -> str:
    """Return as much of a message of another service as can be written again: a commit copies it into the new status."""
    return message[:MAX_MESSAGE].replace("\0", "")


# --- the engine node


class EngineNode(msgspec.Struct, omit_defaults=True, kw_only=True):
    """All that is known of a record beyond its status. The names of the fields are the keys of the node's JSON."""

    seq: int = 0
    queue_position: int = 0
    # how far the record's version is ahead of seq + the status node's version: one for each worker that died and for
    # each write by another service
    version_offset: int = 0
    status_version: int = 0  # the version of the status node when this was written
    status_checksum: int = 0  # the checksum of that status
    state: str = ""  # the state in that status
    session: str | None = None  # who claimed the record when this was written
    parent: tuple[str, str] | None = None
    owner: str = ""
    scope: str = ""
    priority: int = 5
    last_done: str | None = None
    resume_count: int = 0
    error_count: int = 0
    locks: tuple[str, ...] = ()
    owned_locks: tuple[str, ...] = ()  # those of `locks` whose nodes name this record
    hold_names: tuple[str, ...] = ()
    blocked_by: str | None = None
    wake_at: float = 0.0
    waiting_name: str = ""  # of a record that is blocked by a lock: the name of its note among the waiters
    open: bool = True
    host: str = ""
    idempotency_key: str | None = None
    created: float = 0.0
    updated: float = 0.0
    documents: dict[str, str] = {}
    separate_documents: tuple[str, ...] = ()  # documents that are children of this node
    # another service created it or moved it into its state: the locks and holds that it needs there are not known yet
    needs_recompute: bool = False
    default_documents: tuple[str, ...] = ()  # document nodes that nobody wrote yet: they hold the layout's default
    history: list[HistoryEntry] = []


_engine_node_decoder = msgspec.json.Decoder(EngineNode)
_encode_engine_json = msgspec.json.Encoder().encode


def encode_engine_node(engine_node: EngineNode) -> bytes:
    return _encode_engine_json(engine_node)


def decode_engine_node(data: bytes) -> EngineNode | None:
    """Decode an engine node. None for a node that is none."""
    try:
        return _engine_node_decoder.decode(data)
    except msgspec.DecodeError:
        return None
