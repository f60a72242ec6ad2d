"""Paths: the node of every record, queue entry, lock, hold and note, as pure functions of what it stands for.

    node names     ids, states, owners and locks may hold characters that a node name may not; `quote_name` encodes
                   them, and `unquote_name` gets the text back
    kind layouts   where the records of a kind lie: Merritt's kinds in its own tree, all others below /waybill/kinds
    notes          where the store's own notes about records lie, below /waybill

A record's *home* is the node that is named by its id; its status, its lock and its documents are children of the home.

Merritt's lock nodes are named by its own rule, `:?/` becomes `_`, so that "ark:/99999/fk4" is "ark_99999_fk4" for every
service. That rule makes no valid node name of "." and "..", nor of a name with characters that ZooKeeper refuses, such
as an emoji: those are percent-encoded. By that rule two names can have the same node; then they are the same lock.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import NamedTuple
from urllib.parse import quote as percent_encode
from urllib.parse import unquote

from waybill.record import Ref

_SAFE_CHARACTERS = "-_.:@+=,()!$&'*;"
_MERRITT_LOCK_FAMILIES = frozenset({"storage", "inventory", "localid"})  # lock families that Merritt's services share
_MERRITT_QUEUES = frozenset({"ingest", "accessSmall", "accessLarge"})
_SLASH_PATTERN = re.compile(":?/")
# characters that ZooKeeper refuses in a node name
_REFUSED_PATTERN = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff\U00010000-\U0010ffff]")
_DOT_NAMES = {".": "%2E", "..": "%2E%2E"}  # in a path they mean this folder and the one above
_EMPTY_NAME = "%"  # no other text is encoded so: a record without an id is not found, as in other stores
HOLD_FOLDERS = {"collections": "/locks/collections", "queue": "/locks/queue"}


@lru_cache(100_000)
def quote_name(name: str) -> str:
    """Return a node name for any text. No two texts share one, and none contains "~" or "/"."""
    if not name:
        return _EMPTY_NAME
    if name in _DOT_NAMES:
        return _DOT_NAMES[name]
    return percent_encode(name, safe=_SAFE_CHARACTERS).replace("~", "%7E")


def unquote_name(node: str) -> str:
    """Return the text from which `quote_name` made this node name."""
    return "" if node == _EMPTY_NAME else unquote(node)


def _is_forbidden(name: str) -> bool:
    return name in _DOT_NAMES or _REFUSED_PATTERN.search(name) is not None


def mangle_lock_name(name: str) -> str:
    """Return the node name that Merritt's services give to this lock, or a valid one where theirs is not."""
    if name in _DOT_NAMES:
        return _DOT_NAMES[name]
    return _REFUSED_PATTERN.sub(
        lambda match: percent_encode(match[0], errors="surrogatepass"), _SLASH_PATTERN.sub("_", name)
    )


def lock_path_of(lock: str) -> str:
    """Return the node of an exclusive lock, "family/name"."""
    family, _, name = lock.partition("/")
    if family in _MERRITT_LOCK_FAMILIES and name:
        return f"/locks/{family}/{mangle_lock_name(name)}"
    return f"/waybill/locks/{quote_name(lock)}"


def shared_hold_path_of(hold: str) -> str | None:
    """Return the node by which Merritt's services know the hold too. None when they do not, and when ZooKeeper refuses
    the name.
    """
    family, _, name = hold.partition("/")
    if family == "queue" and name in _MERRITT_QUEUES:
        return f"/locks/queue/{name}"
    if family == "collections" and name and "/" not in name and not _is_forbidden(name):
        return f"/locks/collections/{name}"
    return None


def hold_path_of(hold: str) -> str:
    """Return the node that says who set the hold and why."""
    return f"/waybill/holds/{quote_name(hold)}"


def checksum_of(text: str | bytes) -> int:
    return zlib.crc32(text if isinstance(text, bytes) else text.encode())


# --- kind layouts

ID_DIGITS = 10  # digits of the number that ZooKeeper appends to a sequential name


@dataclass(frozen=True)
class KindLayout:
    """Where the records of one kind lie in the tree, and what the other services expect there."""

    kind: str
    records_folder: str  # the folder of the homes
    states_folder: str  # the folder that has one folder, the queue, for each state
    engine_folder: str = ""  # the folder of the engine nodes; "": the engine node is a child of the home
    # ids are this prefix and ten digits, minted by counting the nodes made in `records_folder`; "": the caller may
    # choose them
    id_prefix: str = ""
    states: tuple[str, ...] = ()  # the only states that the other services can read; (): any
    # documents that have a node of their own below the home, which other services read and write
    documents: frozenset[str] = frozenset()
    # the contents of those document nodes that must exist, while nobody has written them
    default_documents: Mapping[str, bytes] = field(default_factory=dict)
    numeric_documents: frozenset[str] = frozenset()  # documents that are a raw decimal
    has_brief_status: bool = False  # the status node has no field for the last state done and the resume count
    # queue entries are Merritt's: PP-ID in a folder in lower case; priority and parent are nodes below the home
    has_merritt_entries: bool = False
    parent_kind: str = ""  # the kind of the required parent, whose folders list the children; "": no parent is required
    # state -> the parent's folder that lists a child in that state; all other states are open
    settled_buckets: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def document_names(self) -> tuple[str, ...]:
        return tuple(sorted(self.documents))

    # --- nodes of a record

    def home_path_of(self, id: str) -> str:
        return f"{self.records_folder}/{id}" if self.id_prefix else f"{self.records_folder}/{quote_name(id)}"

    def engine_path_of(self, id: str) -> str:
        return f"{self.engine_folder}/{id}" if self.engine_folder else f"{self.home_path_of(id)}/engine"

    def id_of(self, node: str) -> str | None:
        """Return the id of the home with this node name. None for a node that is no record."""
        if not self.id_prefix:
            return unquote_name(node)
        digits = node[len(self.id_prefix) :]
        return node if node.startswith(self.id_prefix) and len(digits) == ID_DIGITS and digits.isdecimal() else None

    def number_of(self, id: str) -> int:
        """Return the record's number in the order of creation, where the id contains it."""
        return int(id[len(self.id_prefix) :]) + 1

    # --- queues

    def folder_of(self, state: str) -> str:
        return f"{self.states_folder}/{state.lower() if self.has_merritt_entries else quote_name(state)}"

    def state_of(self, folder: str) -> str | None:
        """Return the state whose folder has this name. None for a folder of no known state."""
        if not self.has_merritt_entries:
            return unquote_name(folder)
        return _states_by_folder(self.states).get(folder)

    def entry_name_of(self, priority: int, queue_position: int, seq: int, id: str) -> str:
        return (
            f"{priority:02d}-{id}"
            if self.has_merritt_entries
            else f"{priority:02d}-{queue_position:012d}-{seq:012d}-{quote_name(id)}"
        )

    def parse_entry(self, entry: str) -> QueueEntry | None:
        """Parse the name of a queue entry. None for a node that is no entry."""
        try:
            if self.has_merritt_entries:
                priority, _, id = entry.rpartition("-")  # other services write negative priorities too
                seq = self.number_of(id) if self.id_of(id) else 0
                return QueueEntry(int(priority), seq, seq, id, entry) if seq else None
            priority, queue_position, seq_, id = entry.split("-", 3)
            return QueueEntry(int(priority), int(queue_position), int(seq_), unquote_name(id), entry)
        except ValueError:
            return None

    def bucket_of(self, state: str) -> str:
        """Return the folder of the parent that lists a child in this state."""
        return self.settled_buckets.get(state, "batch-processing")

    def has_state(self, state: str) -> bool:
        return not self.states or state in self.states


@dataclass(frozen=True, slots=True, order=True)
class QueueEntry:
    """An entry of a queue. Entries sort in the order in which they are claimed."""

    priority: int
    queue_position: int
    seq: int
    id: str
    name: str


@lru_cache(8)
def _states_by_folder(states: tuple[str, ...]) -> Mapping[str, str]:
    return {state.lower(): state for state in states}


# states of a batch that must not look finished to Merritt's services when it has no jobs
STATES_WITHOUT_JOBS = ("Held", "Processing", "Deleted")
BUCKETS = ("batch-processing", "batch-completed", "batch-failed", "batch-deleted")

JOB_LAYOUT = KindLayout(
    kind="job",
    records_folder="/jobs",
    states_folder="/jobs/states",
    engine_folder="/waybill/records/job",
    id_prefix="jid",
    states=(
        *("Pending", "Held", "Estimating", "Provisioning", "Downloading", "Processing"),
        *("Storing", "Recording", "Notify", "Failed", "Completed", "Deleted"),
    ),
    documents=frozenset({"configuration", "identifiers", "metadata", "inventory", "store", "space_needed"}),
    default_documents={"configuration": b"{}", "space_needed": b"0"},
    numeric_documents=frozenset({"space_needed"}),
    has_merritt_entries=True,
    parent_kind="batch",
    settled_buckets={"Failed": "batch-failed", "Completed": "batch-completed", "Deleted": "batch-deleted"},
)
BATCH_LAYOUT = KindLayout(
    kind="batch",
    records_folder="/batches",
    states_folder="/waybill/kinds/batch/states",
    engine_folder="/waybill/records/batch",
    id_prefix="bid",
    states=("Pending", "Held", "Processing", "Reporting", "UpdateReporting", "Failed", "Completed", "Deleted"),
    documents=frozenset({"submission", "status-report"}),
    default_documents={"submission": b"{}"},
    has_brief_status=True,
)
ACCESS_LAYOUTS = tuple(
    KindLayout(
        kind=f"access-{size}",
        records_folder=f"/access/{size}",
        states_folder=f"/waybill/kinds/access-{size}/states",
        engine_folder=f"/waybill/records/access-{size}",
        id_prefix="qid",
        states=("Pending", "Processing", "Completed", "Failed", "Deleted"),
        documents=frozenset({"token"}),
        default_documents={"token": b"{}"},
        has_brief_status=True,
    )
    for size in ("small", "large")
)
MERRITT_LAYOUTS = {layout.kind: layout for layout in (JOB_LAYOUT, BATCH_LAYOUT, *ACCESS_LAYOUTS)}

# As initNodes and initLocks of Merritt's library create them, in an order that makes the first job jid0000000001.
MERRITT_FOLDERS = (
    *(
        "/batches",
        "/batch-uuids",
        "/jobs",
        "/jobs/states",
        *(JOB_LAYOUT.folder_of(state) for state in JOB_LAYOUT.states),
    ),
    *("/access", "/access/small", "/access/large"),
    *("/locks", "/locks/queue", "/locks/storage", "/locks/inventory", "/locks/collections", "/locks/localid"),
)
WAYBILL_FOLDERS = (
    "/waybill",
    *(
        f"/waybill/{name}"
        for name in (
            "action_requests",
            "children",
            "holds",
            "idempotency_keys",
            "kinds",
            "locks",
            "memory",
            "owners",
            "parked",
            "scopes",
        )
    ),
    *(f"/waybill/{name}" for name in ("records", "sessions", "waiting", "workers")),
    *(layout.engine_folder for layout in MERRITT_LAYOUTS.values()),
)


@lru_cache(1000)
def layout_of(kind: str) -> KindLayout:
    if kind in MERRITT_LAYOUTS:
        return MERRITT_LAYOUTS[kind]
    base = f"/waybill/kinds/{quote_name(kind)}"
    return KindLayout(kind=kind, records_folder=f"{base}/records", states_folder=f"{base}/states")


# --- notes

PARKED, WAITING, ACTION_REQUESTS, CHILDREN, SESSIONS, WORKERS = (
    f"/waybill/{name}" for name in ("parked", "waiting", "action_requests", "children", "sessions", "workers")
)
CHANGE_SIGNAL, SEQ_PATH, LAYOUT_PATH = "/waybill/change_signal", "/waybill/seq", "/waybill/layout"


def milliseconds_of(time: float) -> int:
    """Return the time in milliseconds, rounded up: a wait is never due too early."""
    return -int(-time * 1000 // 1)


def hash_of(reason: str) -> str:
    """Return the code of "lock NAME" or "hold NAME" in the name of a parked note: its first letter and a checksum."""
    return f"{reason[0]}{checksum_of(reason):08x}"


def parked_folder_of(kind: str, state: str) -> str:
    return f"{PARKED}/{quote_name(kind)}/{quote_name(state)}"


def parked_path_of(kind: str, state: str, id: str, reason: str, wake_at: float) -> str:
    """Return the parked note of a record that is blocked by `reason`."""
    code = f"w{milliseconds_of(wake_at):015d}" if reason == "wait" else "c" if reason == "children" else hash_of(reason)
    return f"{parked_folder_of(kind, state)}/{code}~{quote_name(id)}"


class ParkedNoteName(NamedTuple):
    code: str  # "w" (wait) | "c" (children) | "l" (lock) | "h" (hold)
    until: float  # when a wait is due; 0 for other reasons
    id: str


def parse_parked(name: str) -> ParkedNoteName:
    head, _, id = name.partition("~")
    until = int(head[1:]) / 1000 if head[0] == "w" else 0.0
    return ParkedNoteName(head[0], until, unquote_name(id))


def waiting_folder_of(lock: str) -> str:
    return f"{WAITING}/{quote_name(lock)}"


def waiting_name_of(priority: int, queue_position: int, seq: int, ref: Ref) -> str:
    return f"{priority:02d}-{queue_position:012d}-{seq:012d}~{quote_name(ref.kind)}~{quote_name(ref.id)}"


def action_request_path_of(ref: Ref) -> str:
    return f"{ACTION_REQUESTS}/{quote_name(ref.kind)}~{quote_name(ref.id)}"


def ref_of_name(name: str) -> Ref:
    """Return the record at the end of a node name: ...KIND~ID."""
    *_, kind, id = name.split("~")
    return Ref(unquote_name(kind), unquote_name(id))


def idempotency_path_of(kind: str, idempotency_key: str) -> str:
    return f"/waybill/idempotency_keys/{quote_name(kind)}/{quote_name(idempotency_key)}"


def owner_folder_of(owner: str, kind: str) -> str:
    return f"/waybill/owners/{quote_name(owner)}/{quote_name(kind)}"


def owner_path_of(owner: str, kind: str, seq: int, id: str) -> str:
    return f"{owner_folder_of(owner, kind)}/{seq:012d}~{quote_name(id)}"


def scope_folder_of(scope: str, kind: str) -> str:
    return f"/waybill/scopes/{quote_name(scope)}/{quote_name(kind)}"


def scope_path_of(scope: str, kind: str, seq: int, id: str) -> str:
    return f"{scope_folder_of(scope, kind)}/{seq:012d}~{quote_name(id)}"


def children_folder_of(parent: Ref) -> str:
    return f"{CHILDREN}/{quote_name(parent.kind)}/{quote_name(parent.id)}"


class ChildNoteName(NamedTuple):
    kind: str
    seq: int
    state: str
    id: str


def child_name_of(kind: str, seq: int, state: str, id: str) -> str:
    return f"{quote_name(kind)}~{seq:012d}~{quote_name(state)}~{quote_name(id)}"


def parse_child(name: str) -> ChildNoteName:
    kind, seq, state, id = name.split("~")
    return ChildNoteName(unquote_name(kind), int(seq), unquote_name(state), unquote_name(id))


def session_path_of(name: str) -> str:
    return f"{SESSIONS}/{name}"


def worker_path_of(name: str) -> str:
    return f"{WORKERS}/{name}"


def queue_position_path_of(kind: str) -> str:
    """Return the node that holds the queue position which is being claimed now for this kind."""
    return f"/waybill/kinds/{quote_name(kind)}/queue_position"


def folder_chain_of(folder: str) -> list[str]:
    """Return a folder below /waybill and those above it that may be missing, outermost first. /waybill and its children
    always exist.
    """
    parts = folder.split("/")
    return ["/".join(parts[:n]) for n in range(4, len(parts) + 1)]


def parent_of(path: str) -> str:
    return path.rpartition("/")[0]
