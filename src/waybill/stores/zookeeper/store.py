"""The store in ZooKeeper: one connection, the methods of a store, and the module that implements each.

    commit                                        commit.py, which plans with commit_planner.py
    claim, claim_one                              claims.py
    get, find, count_by_state                     RecordFinder, below
    children                                      children.py
    sessions                                      sessions.py
    action requests, holds, locks                 operator_controls.py
    watch                                         connection.py
    release_due_waits, maintain_indexes           parked_notes.py, foreign_records.py
    check, repair                                 consistency_check.py

URL: zookeeper://host:port,host:port/chroot. The chroot is created when it is missing. Options, also as ?name=value in
the URL:

    timeout         seconds after which the servers give up this connection; a worker's session has its own (its ttl)
    connect_timeout seconds for which a new connection waits for a server before the store is unavailable
    reconnect_wait  seconds for which a call waits for a connection that is being restored before it is unavailable
    listing_ttl     seconds for which a listing of a queue serves claims
    max_names       records of a kind: what clients of ZooKeeper can still list in one answer
    grace_period    seconds within which another service has written all nodes of a record that it creates
    lock_age        seconds after which `check` reports another service's lock
    fail_after      seconds after which a violation that `check` found is no longer a warning
    unfinished_age  seconds after which a record without a status is completed or removed: its creator died
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from waybill.record import (
    MAX_PAGE,
    ActionRequest,
    BadStore,
    Change,
    ClaimedRecord,
    CommitAnswer,
    CommitGroup,
    DueWaits,
    Finding,
    HistoryEntry,
    IdleParents,
    OwnedLock,
    Page,
    Record,
    RecordNotFound,
    Ref,
    SessionInfo,
    SessionRenewal,
    Store,
    Visibility,
    WorkQueue,
)
from waybill.stores.group_validation import check_count_filters
from waybill.stores.zookeeper import operations, paths
from waybill.stores.zookeeper.children import INCOMPLETE_JOB_AGE, ZookeeperChildren
from waybill.stores.zookeeper.claim_queues import ListedQueues
from waybill.stores.zookeeper.claims import ZookeeperClaims
from waybill.stores.zookeeper.commit import ZookeeperCommitter
from waybill.stores.zookeeper.connection import ZookeeperChangeSignal, ZookeeperConnection
from waybill.stores.zookeeper.consistency_check import ConsistencyChecker
from waybill.stores.zookeeper.consistency_rules import ViolationAges
from waybill.stores.zookeeper.foreign_records import ForeignRecords
from waybill.stores.zookeeper.operations import NODE_EXISTS, OperationFailure, list_names
from waybill.stores.zookeeper.operator_controls import ZookeeperActionRequests, ZookeeperHolds, ZookeeperLocks
from waybill.stores.zookeeper.parked_notes import ParkedNotes
from waybill.stores.zookeeper.paths import (
    JOB_LAYOUT,
    MERRITT_FOLDERS,
    WAYBILL_FOLDERS,
    KindLayout,
    layout_of,
    quote_name,
    unquote_name,
)
from waybill.stores.zookeeper.record_snapshot import RecordSnapshot, read_snapshot, read_snapshots
from waybill.stores.zookeeper.sessions import ZookeeperSessions
from waybill.stores.zookeeper.write_plan import ZookeeperTree

LAYOUT_VERSION = b"1"  # of the nodes below /waybill; the node /waybill/layout holds it
DEFAULT_OPTIONS = {
    "timeout": 10.0,
    "connect_timeout": 10.0,
    "reconnect_wait": 2.0,
    "listing_ttl": 2.0,
    "max_names": 50_000.0,
    "grace_period": 10.0,
    "lock_age": 120.0,
    "fail_after": 3600.0,
    "unfinished_age": INCOMPLETE_JOB_AGE,
}


class ZookeeperStore(Store):
    """A store in ZooKeeper: one connection, used by one thread at a time."""

    def __init__(
        self, url: str, clock: Callable[[], float] | None = None, migrate: bool = True, **options: Any
    ) -> None:
        self.url = url
        hosts, root, settings = _parse_url(url, options)
        self._reconnect_wait, self._connect_timeout = settings["reconnect_wait"], settings["connect_timeout"]
        self._hosts, self._root = hosts, root
        self._connection = self._connect(settings["timeout"])
        try:
            _set_up(self._connection, root, migrate)
        except BaseException:
            self._connection.stop()
            raise
        self._tree = ZookeeperTree(self._connection, clock or time.time, int(settings["max_names"]))
        self._change_signal = ZookeeperChangeSignal(self._connection)
        self._tree.signal_change = self._change_signal.signal
        self._children = ZookeeperChildren(self._connection)
        self._holds = ZookeeperHolds(self._connection)
        self._action_requests = ZookeeperActionRequests(self._connection)
        self._parked_notes = ParkedNotes(self._tree)
        self._locks = ZookeeperLocks(self._connection, self._parked_notes)
        self._foreign_records = ForeignRecords(self._tree, settings["grace_period"])
        self._foreign_records.remove_orphaned_jobs = self._remove_orphaned_jobs
        self._finder = RecordFinder(self._connection, self._children)
        self._sessions = ZookeeperSessions(self._tree, self._connect, self._action_requests)
        self._committer = ZookeeperCommitter(
            self._tree, self._children, self._holds, self._parked_notes, self._action_requests
        )
        self._claims = ZookeeperClaims(
            self._tree,
            ListedQueues(self._tree, settings["listing_ttl"]),
            self._holds,
            self._parked_notes,
            self._action_requests,
            self._foreign_records,
        )

        self._checker = ConsistencyChecker(
            self._tree, ViolationAges(settings["lock_age"], settings["fail_after"]), settings["unfinished_age"]
        )
        self._foreign_records.repair_unfinished = self._checker.repair_unfinished

    def _connect(self, timeout: float) -> ZookeeperConnection:
        return ZookeeperConnection(self._hosts, self._root, timeout, self._reconnect_wait, self._connect_timeout)

    def now(self) -> float:
        return self._tree.now()

    def commit(self, groups: Sequence[CommitGroup]) -> list[CommitAnswer]:
        return self._committer.commit(groups)

    # --- reading

    def get(self, kind: str, id: str) -> Record:
        return self._finder.read_record(Ref(kind, id), documents=True).to_record()

    def get_many(self, refs: Sequence[Ref]) -> dict[Ref, Record]:
        return {snapshot.ref: snapshot.to_record() for snapshot in self._finder.read_existing(refs)}

    def get_by_idempotency_key(self, kind: str, idempotency_key: str) -> Record:
        return self._finder.get_by_idempotency_key(kind, idempotency_key).to_record()

    def find(
        self,
        kind: str,
        *,
        state: str | None = None,
        parent: Ref | None = None,
        owner: str | None = None,
        visibility: Visibility | None = None,
        after: int | None = None,
        newest: bool = False,
        limit: int = 100,
        documents: bool = False,
    ) -> Page:
        filters = {
            name: value for name, value in (("state", state), ("parent", parent), ("owner", owner)) if value is not None
        }
        if len(filters) > 1:
            raise ValueError(f"find by one of {', '.join(filters)}, not by several")
        return self._finder.find(kind, state, parent, owner, visibility, after, newest, limit, documents)

    def count_by_state(
        self, kind: str, *, parent: Ref | None = None, visibility: Visibility | None = None
    ) -> dict[str, int]:
        check_count_filters(parent, visibility)
        if visibility is not None:
            return self._finder.count_seen_by_state(kind, visibility)
        return (
            self._finder.count_by_state(kind) if parent is None else dict(self._children.count_by_state(kind, parent))
        )

    def parents_with_open_children(self, refs: Sequence[Ref]) -> set[Ref]:
        return self._children.parents_with_open_children(refs)

    def history(self, kind: str, id: str) -> list[HistoryEntry]:
        snapshot = read_snapshot(self._connection, Ref(kind, id))
        return list(snapshot.build_history()) if snapshot is not None else []

    # --- sessions and claims

    def open_session(self, *, host: str, ttl: float, about: Mapping[str, Any]) -> str:
        return self._sessions.open(host, ttl, about)

    def renew_session(self, session: str, progress: Mapping[str, Any] | None = None) -> SessionRenewal:
        return self._sessions.renew(session, progress)

    def close_session(self, session: str) -> None:
        self._sessions.close(session)

    def list_sessions(self) -> list[SessionInfo]:
        return self._sessions.list_all()

    def claim(self, queues: Sequence[WorkQueue], session: str, limit: int) -> list[ClaimedRecord]:
        return self._claims.claim(queues, self._sessions.get_live(session), limit)

    def claim_one(self, kind: str, id: str, session: str) -> ClaimedRecord:
        return self._claims.claim_one(Ref(kind, id), self._sessions.get_live(session))

    def request_action(self, request: ActionRequest) -> bool:
        return self._action_requests.add(request)

    def list_action_requests(self, limit: int = 100) -> list[ActionRequest]:
        return self._action_requests.list_unclaimed(limit)

    # --- holds, locks, waits

    def set_hold(self, name: str, who: str = "", why: str = "") -> None:
        self._holds.set(name, who, why)

    def clear_hold(self, name: str) -> None:
        self._holds.clear(name)
        self._parked_notes.unblock_hold(name)

    def list_holds(self) -> dict[str, str]:
        return self._holds.list_all()

    def list_locks(self, *, after: str = "", limit: int = MAX_PAGE) -> list[OwnedLock]:
        return self._locks.list_page(after, max(1, min(limit, MAX_PAGE)))

    def remove_foreign_lock(self, name: str) -> bool:
        return self._locks.remove_foreign(name)

    # --- change signal and maintenance

    def watch(self, timeout: float) -> bool:
        return self._change_signal.watch(timeout)

    def interrupt_watch(self) -> None:
        self._change_signal.interrupt()

    def release_due_waits(self, limit: int = MAX_PAGE) -> DueWaits:
        return self._parked_notes.release_due_waits(limit)

    def reap_sessions(self) -> list[str]:
        return self._sessions.reap()

    def maintain_indexes(self, limit: int = MAX_PAGE) -> int:
        repaired_count = self._parked_notes.sweep_locks(limit)
        repaired_count += self._parked_notes.sweep_holds(self._holds.read_active(), limit)
        repaired_count += self._parked_notes.sweep_notes(limit)
        return repaired_count + self._foreign_records.repair_next_page(limit)

    def _remove_orphaned_jobs(self, batch: str) -> None:
        """Remove the jobs of a batch that another service removed, if they have settled and nobody claims them."""
        self._children.members.refresh()
        found = read_snapshots(
            self._connection, [Ref(JOB_LAYOUT.kind, id) for id in self._children.members.jobs_of(batch)[:MAX_PAGE]]
        )
        left = [
            snapshot.to_record()
            for snapshot in found
            if snapshot is not None and snapshot.session is None and not snapshot.open
        ]
        if left:
            self._committer.commit(
                [
                    CommitGroup((Change(record, None, "remove", why="its batch was removed by another service"),))
                    for record in left
                ]
            )

    def find_idle_parents(self, *, after: str = "", limit: int = MAX_PAGE) -> IdleParents:
        waiting, end = self._parked_notes.list_waiting_parents(after, limit)
        busy = self._children.parents_with_open_children(waiting) if waiting else set()
        return IdleParents([ref for ref in waiting if ref not in busy], end)

    def remember(self, name: str, value: str) -> str:
        path = f"/waybill/memory/{quote_name(name)}"
        outcome = self._connection.write([operations.create(path, value.encode())])
        if not isinstance(outcome, OperationFailure):
            return value
        node = self._connection.read_node(path)
        if node is None:
            raise RecordNotFound(f"The value of {name} was removed just now. Try again.")
        return node.data.decode()

    def check(self) -> Iterator[Finding]:
        return self._checker.check()

    def repair(self, finding: Finding) -> bool:
        return self._checker.repair(finding)

    def close(self) -> None:
        self._change_signal.stop()
        self._sessions.abandon_all()
        self._connection.stop()


class RecordFinder:
    """Reads single records, and pages of records in creation order."""

    def __init__(self, connection: ZookeeperConnection, children: ZookeeperChildren) -> None:
        self._connection = connection
        self._children = children

    def read_record(self, ref: Ref, documents: bool) -> RecordSnapshot:
        """Read a record. Raises RecordNotFound only when the leader does not know it either."""
        if not ref.id:  # no node has an empty name
            raise RecordNotFound(f"There is no {ref.kind} without an id.")
        snapshot = read_snapshot(self._connection, ref, documents)
        if snapshot is None:
            self._connection.sync()
            snapshot = read_snapshot(self._connection, ref, documents)
        if snapshot is None:
            raise RecordNotFound(f"There is no {ref}.")
        return snapshot

    def read_existing(self, refs: Sequence[Ref]) -> list[RecordSnapshot]:
        """Read those of these records that exist, with their documents."""
        wanted = [ref for ref in dict.fromkeys(refs) if ref.id]
        found = read_snapshots(self._connection, wanted, documents=True) if wanted else []
        if None in found:
            self._connection.sync()  # the leader may know those that our server does not
            found = read_snapshots(self._connection, wanted, documents=True)
        return [snapshot for snapshot in found if snapshot is not None]

    def get_by_idempotency_key(self, kind: str, idempotency_key: str) -> RecordSnapshot:
        """Read the record that was created with this key; a batch also by its batchID, which another service may have
        written.
        """
        node_paths = [paths.idempotency_path_of(kind, idempotency_key)] if idempotency_key else []
        if kind == "batch" and idempotency_key and "/" not in idempotency_key and idempotency_key not in (".", ".."):
            node_paths.append(f"/batch-uuids/{idempotency_key}")
        for is_retry in (False, True):
            if is_retry:
                self._connection.sync()  # what another connection just created may not have reached our server yet
            for node in self._connection.read_nodes(node_paths) if node_paths else ():
                id = node.data.decode(errors="replace") if node is not None else ""
                if layout_of(kind).id_of(quote_name(id)):  # other services may have written anything
                    snapshot = read_snapshot(self._connection, Ref(kind, id), documents=True)
                    if snapshot is not None:
                        return snapshot
        raise RecordNotFound(f"No {kind} was created with the idempotency key {idempotency_key}.")

    def find(
        self,
        kind: str,
        state: str | None,
        parent: Ref | None,
        owner: str | None,
        visibility: Visibility | None,
        after: int | None,
        newest: bool,
        limit: int,
        documents: bool,
    ) -> Page:
        layout, limit = layout_of(kind), max(1, min(limit, MAX_PAGE))
        if parent is not None:
            order = self._children.list_children(kind, parent)
        elif owner is not None:
            order = self._list_noted(paths.owner_folder_of(owner, kind)) if owner else []
        elif state is not None:
            order = self._list_queued(layout, [state])
            if visibility is not None:
                seen = set(self._list_seen(kind, visibility))
                order = [entry for entry in order if entry in seen]
        elif visibility is not None:
            order = self._list_seen(kind, visibility)
        else:
            order = self._list_all(layout)
        if after is not None:
            order = [entry for entry in order if (entry[0] < after if newest else entry[0] > after)]
        if newest:
            order.reverse()
        records: list[Record] = []
        position = 0
        # one more than the limit tells whether there is another page
        while position < len(order) and len(records) <= limit:
            part = order[position : position + limit + 1 - len(records)]
            position += len(part)
            for snapshot in read_snapshots(self._connection, [Ref(kind, id) for _, id in part], documents):
                if snapshot is None or (state is not None and snapshot.state != state):
                    continue
                record = snapshot.to_record()
                if visibility is None or visibility.includes(record):
                    records.append(record)
        return Page(records[:limit], records[limit - 1].seq if len(records) > limit else None)

    def count_by_state(self, kind: str) -> dict[str, int]:
        layout = layout_of(kind)
        folders = sorted(self._connection.list_names(layout.states_folder))
        nodes = (
            self._connection.read_nodes([f"{layout.states_folder}/{folder}" for folder in folders]) if folders else []
        )
        counts = {
            layout.state_of(folder): node.children
            for folder, node in zip(folders, nodes, strict=True)
            if node is not None
        }
        return {state: count for state, count in counts.items() if state is not None and count}

    def count_seen_by_state(self, kind: str, visibility: Visibility) -> dict[str, int]:
        """Compare the names below the owners and scopes with those in the folder of each state."""
        layout, seen = layout_of(kind), set(self._list_seen(kind, visibility))
        if not seen:
            return {}
        folders = sorted(self._connection.list_names(layout.states_folder))
        counts: dict[str, int] = {}
        for folder in folders:
            if (state := layout.state_of(folder)) is not None:
                counts[state] = len(seen.intersection(self._list_queued(layout, [state])))
        return {state: count for state, count in counts.items() if count}

    def _list_all(self, layout: KindLayout) -> list[tuple[int, str]]:
        """Return (seq, id) of all records of a kind.

        Their homes are listed in one read, so that none is missed which moves meanwhile.
        """
        if layout.id_prefix:
            return sorted(
                (layout.number_of(name), name)
                for name in self._connection.list_names(layout.records_folder)
                if layout.id_of(name)
            )
        homes, folders = self._connection.read([list_names(layout.records_folder), list_names(layout.states_folder)])
        ids = [unquote_name(name) for name in homes or ()]
        known = {id: seq for seq, id in self._list_queued(layout, [unquote_name(folder) for folder in folders or ()])}
        missing = [id for id in ids if id not in known]
        known.update(
            (snapshot.ref.id, snapshot.seq)
            for snapshot in read_snapshots(self._connection, [Ref(layout.kind, id) for id in missing])
            if snapshot is not None
        )
        return sorted((known[id], id) for id in ids if id in known)

    def _list_queued(self, layout: KindLayout, states: Iterable[str]) -> list[tuple[int, str]]:
        listed = self._connection.read([list_names(layout.folder_of(state)) for state in states])
        entries = (layout.parse_entry(name) for found in listed for name in found or ())
        return sorted({(entry.seq, entry.id) for entry in entries if entry is not None})

    def _list_noted(self, folder: str) -> list[tuple[int, str]]:
        """Return (seq, id) of the records that are listed below their owner or their scope."""
        pairs = (name.partition("~") for name in self._connection.list_names(folder))
        return sorted((int(seq), unquote_name(id)) for seq, _, id in pairs)

    def _list_seen(self, kind: str, visibility: Visibility) -> list[tuple[int, str]]:
        folders = [paths.owner_folder_of(owner, kind) for owner in visibility.owners if owner]
        folders += [paths.scope_folder_of(scope, kind) for scope in visibility.scopes if scope]
        return sorted({entry for folder in folders for entry in self._list_noted(folder)})


def _parse_url(url: str, options: Mapping[str, Any]) -> tuple[str, str, dict[str, float]]:
    parts = urlsplit(url)
    if not parts.netloc:
        raise BadStore(f"{url} names no server; a store in ZooKeeper is zookeeper://host:port,host:port/chroot.")
    for server in parts.netloc.split(","):
        # an IPv6 address without a port ends with a bracket
        _, colon, port = server.rpartition(":") if not server.endswith("]") else (server, "", "")
        if colon and not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
            raise BadStore(
                f"{server} is no server: {port or 'nothing'} is not a port; a store in ZooKeeper is zookeeper://host:port/chroot."
            )
    root = parts.path.rstrip("/")
    names = root.split("/")[1:]
    if "" in names:
        raise BadStore(f"{parts.path} is no chroot: it contains an empty name.")
    if "." in names or ".." in names or names[:1] == ["zookeeper"]:
        raise BadStore(
            f"{parts.path} is no chroot: ZooKeeper has no nodes named . or .., and keeps /zookeeper for itself."
        )
    given = {**dict(parse_qsl(parts.query)), **options}
    if unknown := given.keys() - DEFAULT_OPTIONS.keys():
        raise BadStore(
            f"{', '.join(sorted(unknown))}: a store in ZooKeeper has no such option; it has {', '.join(DEFAULT_OPTIONS)}."
        )
    try:
        return parts.netloc, root, {**DEFAULT_OPTIONS, **{name: float(value) for name, value in given.items()}}
    except ValueError as error:
        raise BadStore(f"The options of a store in ZooKeeper are numbers: {error}.") from error


def _set_up(connection: ZookeeperConnection, root: str, migrate: bool) -> None:
    """Create the chroot and the folders that all records share. Raises BadStore for a tree that this release does not
    know.
    """
    wanted = [(path, b"") for path in (*MERRITT_FOLDERS, *WAYBILL_FOLDERS)]
    wanted += [(paths.SEQ_PATH, b"{}"), (paths.CHANGE_SIGNAL, b""), (paths.LAYOUT_PATH, LAYOUT_VERSION)]
    for _ in range(10):
        found = connection.read_nodes([path for path, _ in wanted])
        layout = found[-1]
        if layout is not None and layout.data != LAYOUT_VERSION:
            version = layout.data.decode(errors="replace")
            raise BadStore(
                f"The tree below {root or '/'} has layout {version} and this release knows {LAYOUT_VERSION.decode()}. Upgrade Waybill."
            )
        missing = [
            operations.create(path, body) for (path, body), node in zip(wanted, found, strict=True) if node is None
        ]
        if not missing:
            return
        if layout is None and not migrate:
            raise BadStore(f"There is no store below {root or '/'} yet; `waybill up` or `waybill migrate` makes one.")
        connection.make_root()
        outcome = connection.write(missing)
        # it exists when somebody else sets the tree up at the same time
        if isinstance(outcome, OperationFailure) and outcome.code != NODE_EXISTS:
            path = missing[outcome.position].path
            raise BadStore(
                f"ZooKeeper refuses to create {root}{path} (error {outcome.code}); its nodes must be open to all."
            )
    raise BadStore(f"The tree below {root or '/'} could not be set up: others keep changing it.")
