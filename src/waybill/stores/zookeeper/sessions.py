"""Sessions: a worker's session is a session of ZooKeeper, on a connection of its own, and ends with it.

    open            creates the ephemeral node /waybill/sessions/NAME, which every transaction that claims, or commits
                    under a claim, checks first
    renew           publishes the progress and returns the action requests (kazoo itself sends the heartbeats)
    close, or end   ZooKeeper removes the node and the lock nodes of all claims at once
    overdue         a session that was not renewed for its whole ttl is ended here: its worker has given it up, and
                    ZooKeeper would keep it as long as this process lives

kazoo opens a new session by itself when the old one has expired. It has another number, so another name: it inherits no
claim.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from waybill.record import CommitOutcomeUnknown, SessionInfo, SessionLost, SessionRenewal, StoreUnavailable
from waybill.stores.zookeeper import operations, paths
from waybill.stores.zookeeper.connection import ZookeeperConnection
from waybill.stores.zookeeper.operations import BAD_VERSION, NO_NODE, OperationFailure
from waybill.stores.zookeeper.operator_controls import ZookeeperActionRequests
from waybill.stores.zookeeper.paths import folder_chain_of, parent_of
from waybill.stores.zookeeper.record_snapshot import RecordSnapshot, session_name_of
from waybill.stores.zookeeper.write_plan import ZookeeperTree

STOP_TIMEOUT = 2.0  # seconds to wait until the connection of a lost session has stopped
# seconds; kazoo waits as long for a server that does not answer, and most servers allow less
MAX_TTL = 120.0


class SessionNode(msgspec.Struct):
    """The data of a session's node."""

    host: str
    since: float
    ttl: float
    about: dict[str, Any] = {}
    progress: dict[str, Any] = {}


@dataclass(slots=True)
class ZookeeperSession:
    """A session that this process has opened."""

    name: str
    connection: ZookeeperConnection
    node: SessionNode
    renewed_at: float  # by the monotonic clock of this machine
    published_positions: dict[str, int] = field(
        default_factory=dict
    )  # kind -> the queue position that it last published


class ZookeeperSessions:
    """The sessions of this connection, and the list of all."""

    def __init__(
        self,
        tree: ZookeeperTree,
        connect: Callable[[float], ZookeeperConnection],
        action_requests: ZookeeperActionRequests,
    ) -> None:
        self._tree = tree
        self._connect = connect
        self._action_requests = action_requests
        self._clock = time.monotonic
        self._open_sessions: dict[str, ZookeeperSession] = {}

    def open(self, host: str, ttl: float, about: Mapping[str, Any]) -> str:
        began = self._clock()
        connection = self._connect(min(ttl, MAX_TTL))
        session_node = SessionNode(host, self._tree.now(), connection.timeout, dict(about))
        name = session_name_of(connection.session_number)
        body = msgspec.json.encode(session_node)
        try:
            outcome = connection.write(
                [
                    operations.create(paths.session_path_of(name), body, ephemeral=True),
                    operations.create(paths.worker_path_of(name), host.encode()),
                ]
            )
        except BaseException:
            connection.stop()
            raise
        if isinstance(outcome, OperationFailure):
            connection.stop()
            raise StoreUnavailable(
                f"The session {name} could not be opened (error {outcome.code} of ZooKeeper). Try again."
            )
        self._open_sessions[name] = ZookeeperSession(name, connection, session_node, began)
        self._end_overdue(name)
        return name

    def get_live(self, name: str) -> ZookeeperSession:
        """Return an open session. Raises SessionLost if it has ended, or belongs to another connection."""
        session = self._open_sessions.get(name)
        if session is None or session.connection.is_lost:
            self._forget(name)
            raise SessionLost(
                f"The session {name} has ended. Open a new one; the claims of the old one have ended with it."
            )
        return session

    def renew(self, name: str, progress: Mapping[str, Any] | None) -> SessionRenewal:
        session = self._open_sessions.get(name)
        if session is None:
            node = self._tree.connection.read_node(paths.session_path_of(name))
            return SessionRenewal(
                node is not None, self._action_requests.list_for_session(name) if node is not None else ()
            )
        if session.connection.is_lost:
            self._forget(name)
            return SessionRenewal(False)
        session_node, began = session.node, self._clock()
        if progress is not None:
            session_node.progress = dict(progress)
        heartbeat = [operations.put(paths.session_path_of(name), msgspec.json.encode(session_node))]
        try:
            outcome = session.connection.write(heartbeat)
        except CommitOutcomeUnknown:
            outcome = session.connection.write(heartbeat)  # it may be written twice
        if isinstance(outcome, OperationFailure):
            self._forget(name)
            return SessionRenewal(False)
        session.renewed_at = began
        self._end_overdue(name)
        self._publish_positions(session)
        return SessionRenewal(True, self._action_requests.list_for_session(name))

    def _end_overdue(self, live_name: str) -> None:
        """End other sessions that were not renewed for their whole ttl.

        A worker that could not reach the store for so long opens another session and never uses the old one again. But
        kazoo reconnects to it, and a server that was down itself has not counted the time.
        """
        now = self._clock()
        for session in [
            each
            for each in self._open_sessions.values()
            if each.name != live_name and now - each.renewed_at > each.node.ttl
        ]:
            self._forget(session.name)

    def _publish_positions(self, session: ZookeeperSession) -> None:
        """Publish the queue position that is being claimed for each kind, so that the children of new parents start
        there and not at the end of the queue.
        """
        connection = self._tree.connection
        for kind, position in self._tree.queue_positions.items():
            if session.published_positions.get(kind, 0) >= position:
                continue
            path = paths.queue_position_path_of(kind)
            while True:
                node = connection.read_node(path)
                if node is not None and int(node.data or b"0") >= position:
                    break
                op = (
                    operations.create(path, b"%d" % position)
                    if node is None
                    else operations.put(path, b"%d" % position, "", node.version)
                )
                outcome = connection.write([op])
                if not isinstance(outcome, OperationFailure):
                    break
                if outcome.code == NO_NODE and node is None:
                    connection.write([operations.create(folder) for folder in folder_chain_of(parent_of(path))])
                elif outcome.code not in (NO_NODE, BAD_VERSION, operations.NODE_EXISTS):
                    break
            session.published_positions[kind] = position

    def close(self, name: str) -> None:
        session = self._open_sessions.pop(name, None)
        if session is None:
            return
        session.connection.stop()
        claimed = self._forget_claims(name)
        connection = self._tree.connection
        connection.sync()  # whoever reads after this sees that the claims have ended
        if connection.read_node(paths.session_path_of(name)) is not None:
            # No server could be reached: what we know of is deleted here, the rest when the ttl is over.
            connection.write([operations.delete(paths.session_path_of(name))])
            for snapshot in claimed:
                connection.write([operations.delete(f"{snapshot.layout.home_path_of(snapshot.ref.id)}/lock")])
        connection.write([operations.delete(paths.worker_path_of(name))])
        self._tree.signal_change()

    def list_all(self) -> list[SessionInfo]:
        connection = self._tree.connection
        names = sorted(connection.list_names(paths.SESSIONS))
        found = []
        for name, node in zip(
            names, connection.read_nodes([paths.session_path_of(name) for name in names]), strict=True
        ):
            if node is not None:
                session_node = msgspec.json.decode(node.data, type=SessionNode)
                found.append(
                    SessionInfo(
                        name,
                        session_node.host,
                        session_node.since,
                        self._tree.now() + session_node.ttl,
                        session_node.about,
                        session_node.progress,
                    )
                )
        return found

    def reap(self) -> list[str]:
        """Return the names of sessions that have ended, each once, and delete what they left. ZooKeeper itself ends
        sessions.
        """
        connection = self._tree.connection
        workers, live = connection.read([operations.list_names(paths.WORKERS), operations.list_names(paths.SESSIONS)])
        ended = sorted(set(workers or ()) - set(live or ()))
        reported = [
            name
            for name in ended
            if not isinstance(connection.write([operations.delete(paths.worker_path_of(name))]), OperationFailure)
        ]
        if reported:
            self._tree.signal_change()
        return reported

    def abandon_all(self) -> None:
        """Drop the connections of all open sessions. They live on until their ttl is over, because a step may still run
        under them.
        """
        for session in self._open_sessions.values():
            session.connection.abandon()
        self._open_sessions.clear()
        self._tree.claimed_snapshots.clear()

    def _forget(self, name: str) -> None:
        """Drop a session that has ended, and stop its connection."""
        session = self._open_sessions.pop(name, None)
        if session is not None:
            # In a thread: a connection that is trying a server which never answers waits for it, perhaps longer than
            # our next session lives.
            stopping = threading.Thread(target=session.connection.stop, name="stop-lost-session", daemon=True)
            stopping.start()
            stopping.join(STOP_TIMEOUT)
        self._forget_claims(name)

    def _forget_claims(self, name: str) -> list[RecordSnapshot]:
        """Forget the snapshots of what the session had claimed, and return them."""
        mine = [snapshot for snapshot in self._tree.claimed_snapshots.values() if snapshot.session == name]
        for snapshot in mine:
            del self._tree.claimed_snapshots[snapshot.ref]
        return mine
