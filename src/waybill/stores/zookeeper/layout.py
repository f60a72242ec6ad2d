"""Where each kind of record lies in the tree, as data.

Most kinds have the generic layout:

    /waybill/kinds/KIND/records/ID            ""     its home; the version of this node counts the nudges
    /waybill/kinds/KIND/records/ID/status     JSON   state, last state done, retries, message; its version moves with every write
    /waybill/kinds/KIND/records/ID/side       JSON   all the rest: see side.py
    /waybill/kinds/KIND/records/ID/lock       ""     ephemeral: whose session made it, holds the record
    /waybill/kinds/KIND/states/STATE/ENTRY    ""     one for each record; ENTRY = PP-TURN-SEQ-ID

Merritt's kinds lie where its services look for them, byte for byte. What their nodes have no room for lies in a side
node apart:

    kind           home                 entry
    job            /jobs/JID            /jobs/states/STATE/PP-JID, STATE in lower case; and /batches/BID/states/batch-BUCKET/JID
    batch          /batches/BID         /waybill/kinds/batch/states/STATE/ENTRY
    access-small   /access/small/QID    /waybill/kinds/access-small/states/STATE/ENTRY
    access-large   /access/large/QID    /waybill/kinds/access-large/states/STATE/ENTRY
    all            the side node is /waybill/records/KIND/ID

docs/reference/stores-zookeeper.md says what is in each node.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

from waybill.stores.zookeeper.names import plain, quote

DIGITS = 10  # of a number that ZooKeeper puts behind a name


@dataclass(frozen=True)
class Layout:
    kind: str
    homes: str  # the folder of the records
    queue: str  # the folder of the states' folders
    sides: str = ""  # the folder of the side nodes; "": a child of the home
    # ids are this and ten digits, minted by counting what was made in `homes`; "": the caller may name them
    prefix: str = ""
    states: tuple[str, ...] = ()  # the only ones that the other services can read; (): any
    # have a node of their own under the home, which other services read and write
    documents: frozenset[str] = frozenset()
    # what those nodes hold that must not be absent, when nobody wrote them
    fillers: Mapping[str, bytes] = field(default_factory=dict)
    numbers: frozenset[str] = frozenset()  # documents that are a raw decimal
    brief: bool = False  # the status node has no place for the last state done and the retries
    # entries are Merritt's: PP-ID in a folder in lower case; priority and parent are nodes of the home
    native: bool = False
    parent: str = ""  # the kind of the parent that every record must have; its folders say which children are settled
    # state -> folder of the parent's where a child in it is listed
    settled: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def own(self) -> tuple[str, ...]:
        return tuple(sorted(self.documents))

    # --- nodes of a record

    def home(self, id: str) -> str:
        return f"{self.homes}/{id}" if self.prefix else f"{self.homes}/{quote(id)}"

    def side(self, id: str) -> str:
        return f"{self.sides}/{id}" if self.sides else f"{self.home(id)}/side"

    def id_of(self, node: str) -> str | None:
        """The id of a home by its node's name; None for a node that is no record."""
        if not self.prefix:
            return plain(node)
        digits = node[len(self.prefix) :]
        return node if node.startswith(self.prefix) and len(digits) == DIGITS and digits.isdecimal() else None

    def number(self, id: str) -> int:
        """Its place in the order of creation, where that is in the id."""
        return int(id[len(self.prefix) :]) + 1

    # --- the queue

    def folder(self, state: str) -> str:
        return f"{self.queue}/{state.lower() if self.native else quote(state)}"

    def state_of(self, folder: str) -> str | None:
        """The state whose folder has this name."""
        if not self.native:
            return plain(folder)
        return _by_folder(self).get(folder)

    def entry(self, priority: int, turn: int, seq: int, id: str) -> str:
        return f"{priority:02d}-{id}" if self.native else f"{priority:02d}-{turn:012d}-{seq:012d}-{quote(id)}"

    def parse(self, entry: str) -> Entry | None:
        """What an entry's name says; None for a node that is none."""
        try:
            if self.native:
                priority, _, id = entry.rpartition("-")  # others write a minus too
                seq = self.number(id) if self.id_of(id) else 0
                return Entry(int(priority), seq, seq, id, entry) if seq else None
            priority, turn, seq_, id = entry.split("-", 3)
            return Entry(int(priority), int(turn), int(seq_), plain(id), entry)
        except ValueError:
            return None

    # --- the parent's folders

    def bucket(self, state: str) -> str:
        return self.settled.get(state, "batch-processing")

    def known(self, state: str) -> bool:
        return not self.states or state in self.states


@dataclass(frozen=True, slots=True, order=True)
class Entry:
    """A place in a queue; entries sort as they are handed out."""

    priority: int
    turn: int
    seq: int
    id: str
    name: str


@lru_cache(8)
def _folders(states: tuple[str, ...]) -> Mapping[str, str]:
    return {state.lower(): state for state in states}


def _by_folder(layout: Layout) -> Mapping[str, str]:
    return _folders(layout.states)


# states of a batch that is not finished when it has no jobs, or not to be reported
NO_JOBS_YET = ("Held", "Processing", "Deleted")
BUCKETS = ("batch-processing", "batch-completed", "batch-failed", "batch-deleted")

JOB = Layout(
    kind="job",
    homes="/jobs",
    queue="/jobs/states",
    sides="/waybill/records/job",
    prefix="jid",
    states=(
        *("Pending", "Held", "Estimating", "Provisioning", "Downloading", "Processing"),
        *("Storing", "Recording", "Notify", "Failed", "Completed", "Deleted"),
    ),
    documents=frozenset({"configuration", "identifiers", "metadata", "inventory", "store", "space_needed"}),
    fillers={"configuration": b"{}", "space_needed": b"0"},
    numbers=frozenset({"space_needed"}),
    native=True,
    parent="batch",
    settled={"Failed": "batch-failed", "Completed": "batch-completed", "Deleted": "batch-deleted"},
)
BATCH = Layout(
    kind="batch",
    homes="/batches",
    queue="/waybill/kinds/batch/states",
    sides="/waybill/records/batch",
    prefix="bid",
    states=("Pending", "Held", "Processing", "Reporting", "UpdateReporting", "Failed", "Completed", "Deleted"),
    documents=frozenset({"submission", "status-report"}),
    fillers={"submission": b"{}"},
    brief=True,
)
ACCESS = tuple(
    Layout(
        kind=f"access-{size}",
        homes=f"/access/{size}",
        queue=f"/waybill/kinds/access-{size}/states",
        sides=f"/waybill/records/access-{size}",
        prefix="qid",
        states=("Pending", "Processing", "Completed", "Failed", "Deleted"),
        documents=frozenset({"token"}),
        fillers={"token": b"{}"},
        brief=True,
    )
    for size in ("small", "large")
)
MERRITT = {layout.kind: layout for layout in (JOB, BATCH, *ACCESS)}

# As initNodes and initLocks of Merritt's library make them, and in an order that makes the first job jid0000000001.
MERRITT_FOLDERS = (
    *("/batches", "/batch-uuids", "/jobs", "/jobs/states", *(JOB.folder(state) for state in JOB.states)),
    *("/access", "/access/small", "/access/large"),
    *("/locks", "/locks/queue", "/locks/storage", "/locks/inventory", "/locks/collections", "/locks/localid"),
)
WAYBILL_FOLDERS = (
    "/waybill",
    *(
        f"/waybill/{name}"
        for name in ("asks", "keys", "kin", "kinds", "marks", "memory", "owners", "parked", "records", "requests")
    ),
    *(f"/waybill/{name}" for name in ("sessions", "waiting", "workers")),
    *(layout.sides for layout in MERRITT.values()),
)


@lru_cache(1000)
def layout_of(kind: str) -> Layout:
    if kind in MERRITT:
        return MERRITT[kind]
    base = f"/waybill/kinds/{quote(kind)}"
    return Layout(kind=kind, homes=f"{base}/records", queue=f"{base}/states")
