"""A connection to the ensemble, and the change signal that all connections share.

kazoo keeps the connection up: it reconnects by itself and, when its session has expired, opens a new one.

    start -> (connected <-> suspended) -> lost -> (a new session of ZooKeeper, which inherits nothing) ... -> stop

What a lost connection means depends on the moment. Before the request was sent, nothing was written:
StoreUnavailable. Afterwards it may have been: CommitOutcomeUnknown. A read that fails is repeated once, then it is
StoreUnavailable. Calls wait `reconnect_wait` seconds for a connection that is being restored.

The change signal is a hint to all workers that something may be claimable. Whoever made something claimable writes the
node /waybill/change_signal, at most every 20 ms; workers watch that node. Other services do not write it: what they do
is found by a poll of the folders' stats.
"""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, cast

from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionClosedError, KazooException, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.states import KazooState

from waybill.record import CommitOutcomeUnknown, StoreError, StoreUnavailable
from waybill.stores.thread_signal import ThreadSignal
from waybill.stores.zookeeper import operations, paths
from waybill.stores.zookeeper.operations import (
    MultiRead,
    NodeRead,
    Operation,
    OperationFailure,
    WriteTransaction,
    Znode,
    create,
    list_names,
    read_data,
)
from waybill.stores.zookeeper.paths import ACCESS_LAYOUTS, BATCH_LAYOUT, JOB_LAYOUT

MAX_REQUEST = 1_000_000  # bytes: a server closes the connection on a request of more than 1,048,575 (jute.maxbuffer)
_READS_PER_REQUEST = 4000
_CONNECTION_RETRY = {"max_tries": -1, "delay": 0.05, "backoff": 2, "max_jitter": 0.2, "max_delay": 1.0}
_KAZOO_LOGGER = logging.getLogger("kazoo")
# without a configured log, kazoo's warnings would appear on stderr before our error message
_KAZOO_LOGGER.addHandler(logging.NullHandler())

NodeVersions = list[int | None]  # for each operation: the new version of the node that it wrote, None for others


class PendingTransaction:
    """A transaction that was sent and is not answered yet."""

    def __init__(self, request: WriteTransaction, result: Any, timeout: float) -> None:
        self._request = request
        self._result = result
        self._timeout = timeout

    def get(self) -> NodeVersions | OperationFailure | StoreError:
        """Wait for the outcome and return it."""
        if isinstance(self._result, StoreError):
            return self._result
        try:
            answer = self._result.get(timeout=self._timeout)
        except (KazooException, KazooTimeoutError) as error:
            # a request that is still queued may be sent on a later connection
            if self._request.is_sent or isinstance(error, KazooTimeoutError):
                return CommitOutcomeUnknown(
                    f"The connection to ZooKeeper was lost while writing ({type(error).__name__}); it may have been written."
                )
            return StoreUnavailable(
                f"The connection to ZooKeeper was lost before anything was sent ({type(error).__name__}). Try again."
            )
        if answer and isinstance(answer[0], OperationFailure):
            return answer[0]
        return cast(NodeVersions, answer)


class ZookeeperConnection:
    def __init__(
        self, hosts: str, root: str, timeout: float, reconnect_wait: float = 2.0, connect_timeout: float = 10.0
    ) -> None:
        self.root = root
        self.reconnect_wait = reconnect_wait
        self.timeout = timeout  # as requested; the server may have shortened it
        self._hosts = hosts
        self._log = logging.Logger("kazoo.client")  # one for each connection, so that `abandon` silences no other
        self._log.parent = _KAZOO_LOGGER
        self._client = KazooClient(
            hosts=hosts, timeout=timeout, connection_retry=dict(_CONNECTION_RETRY), logger=self._log
        )
        self._answer_timeout = 3 * timeout + 10
        self._session_lost = threading.Event()
        self._client.add_listener(self._handle_state)
        try:
            self._client.start(timeout=connect_timeout)
        except KazooTimeoutError as error:
            raise StoreUnavailable(
                f"No ZooKeeper server answers at {hosts}. Is it running, and is that its client port?"
            ) from error

    @property
    def session_number(self) -> int:
        """The number of the current session of ZooKeeper; 0 while there is none."""
        client_id = self._client.client_id
        return client_id[0] & 0xFFFFFFFFFFFFFFFF if client_id else 0

    @property
    def is_lost(self) -> bool:
        """Whether the session that this connection began with has ended."""
        return self._session_lost.is_set()

    def _handle_state(self, state: str) -> None:
        if state == KazooState.LOST:
            self._session_lost.set()

    def read(self, reads: Sequence[NodeRead]) -> list[Any]:
        """Return a Znode, a list of names or None for each read, in order. After a lost connection the reads are
        repeated once, which is safe.
        """
        self._await_connection()
        try:
            return self._read_once(reads)
        except StoreUnavailable:
            return self._read_once(reads)

    def _read_once(self, reads: Sequence[NodeRead]) -> list[Any]:
        chunks = self._split_reads(reads)
        pending = [self._send(MultiRead(self.root, chunk)) for chunk in chunks]
        found: list[Any] = []
        for chunk, result in zip(chunks, pending, strict=True):
            try:
                answer = result.get(timeout=self._answer_timeout)
            except (KazooException, KazooTimeoutError) as error:
                raise StoreUnavailable(
                    f"The connection to ZooKeeper was lost while reading ({type(error).__name__}). Try again."
                ) from error
            if answer and isinstance(answer[0], OperationFailure):
                path = chunk[answer[0].position][1]
                raise StoreError(
                    f"ZooKeeper refuses to read {self.root}{path} (error {answer[0].code}); its nodes must be open to all."
                )
            found += answer
        return found

    def _split_reads(self, reads: Sequence[NodeRead]) -> list[Sequence[NodeRead]]:
        """Split reads into chunks of as many as the server takes in a request."""
        chunks: list[Sequence[NodeRead]] = []
        start = size = 0
        for index, (_, path) in enumerate(reads):
            size += len(path) + len(self.root) + 14
            if index - start >= _READS_PER_REQUEST or size > MAX_REQUEST:
                chunks.append(reads[start:index])
                start, size = index, len(path) + len(self.root) + 14
        return [*chunks, reads[start:]] if reads else []

    def estimate_size(self, ops: Sequence[Operation]) -> int:
        """Return about how many bytes these operations take in a request."""
        return sum(len(op.path) + len(op.data) for op in ops) + len(ops) * (len(self.root) + 50)

    def read_nodes(self, paths: Sequence[str]) -> list[Znode | None]:
        return cast(list[Znode | None], self.read([read_data(path) for path in paths]))

    def read_node(self, path: str) -> Znode | None:
        return self.read_nodes([path])[0]

    def list_names(self, path: str) -> list[str]:
        """Return the names in a folder; none if there is no such folder."""
        return self.read([list_names(path)])[0] or []

    def write(self, ops: Sequence[Operation]) -> NodeVersions | OperationFailure:
        """Write one transaction. Raises CommitOutcomeUnknown or StoreUnavailable."""
        answer = self.submit(ops).get()
        if isinstance(answer, StoreError):
            raise answer
        return answer

    def submit(self, ops: Sequence[Operation]) -> PendingTransaction:
        """Send a transaction without waiting for its outcome."""
        request = WriteTransaction(self.root, ops)
        try:
            return PendingTransaction(request, self._send(request), self._answer_timeout)
        except StoreUnavailable as error:
            return PendingTransaction(request, error, 0.0)

    def make_root(self) -> None:
        """Create the chroot, level by level; what exists stays."""
        parts = self.root.split("/")[1:]
        for end in range(1, len(parts) + 1):
            request = WriteTransaction("", [create("/" + "/".join(parts[:end]))])
            outcome = PendingTransaction(request, self._send(request), self._answer_timeout).get()
            if isinstance(outcome, StoreError):
                raise outcome

    def send_unconfirmed(self, ops: Sequence[Operation]) -> None:
        """Send a transaction whose outcome does not matter."""
        if self._client.connected:
            self._client._call(WriteTransaction(self.root, ops), self._client.handler.async_result())

    def sync(self) -> None:
        """Make the next read of this connection see all that the leader has committed by now."""
        self._await_connection()
        try:
            self._client.sync_async(self.root or "/").get(timeout=self._answer_timeout)
        except (KazooException, KazooTimeoutError) as error:
            raise StoreUnavailable(
                f"The connection to ZooKeeper was lost ({type(error).__name__}). Try again."
            ) from error

    def watch(self, path: str, callback: Callable[[Any], None]) -> None:
        """Call `callback` once, from kazoo's own thread, when the node's data or the connection change next."""
        self._await_connection()
        try:
            self._client.get_async(self.root + path, watch=callback).get(timeout=self._answer_timeout)
        except NoNodeError:
            callback(None)
        except (KazooException, KazooTimeoutError) as error:
            raise StoreUnavailable(
                f"The connection to ZooKeeper was lost ({type(error).__name__}). Try again."
            ) from error

    def _await_connection(self) -> None:
        """Wait for a connection. kazoo itself would queue a request until there is one, however long that takes."""
        if not self._client.connected and not self._client._live.wait(self.reconnect_wait):
            raise StoreUnavailable(
                f"No ZooKeeper server of {self._hosts} can be reached now; nothing was written. Try again."
            )

    def _send(self, request: MultiRead | WriteTransaction) -> Any:
        self._await_connection()
        client = self._client
        result = client.handler.async_result()
        # The only way to send a request of our own; kazoo sends whatever has a `type` and a `serialize`.
        client._call(request, result)
        return result

    def abandon(self) -> None:
        """Drop the connection and let the session of ZooKeeper time out: a step may still run under it."""
        client = self._client
        self._log.disabled = True  # kazoo would warn of a lost connection
        client._stopped.set()  # kazoo has no method for it: this ends its loop without closing the session
        sock = client._connection._socket
        if sock is not None:
            with suppress(OSError):  # it is closed already
                sock.shutdown(socket.SHUT_RDWR)
        client._safe_close()
        client.close()

    def stop(self) -> None:
        """End the session of ZooKeeper. Its ephemeral nodes are removed at once, if a server can be reached."""
        if not self._session_lost.is_set():
            self._client._live.wait(self.reconnect_wait)
        try:
            self._client.stop()
        except (KazooException, ConnectionClosedError, OSError):
            self._session_lost.set()  # the connection is lost; the server ends the session at its timeout
        self._client.close()


# --- the change signal

SIGNAL_INTERVAL = 0.02  # seconds between two writes of the signal node
POLL_INTERVAL = 0.2  # seconds between two polls of the folders
WATCHED_FOLDERS = (
    *(JOB_LAYOUT.folder_of(state) for state in JOB_LAYOUT.states),
    BATCH_LAYOUT.records_folder,
    *(layout.records_folder for layout in ACCESS_LAYOUTS),
    paths.SESSIONS,
)


class ZookeeperChangeSignal:
    """Tells all connections that something may be claimable, and waits for that."""

    def __init__(self, connection: ZookeeperConnection) -> None:
        self._connection = connection
        self._thread_signal = ThreadSignal()  # wakes the waiting thread, for whatever reason
        self._is_signalled = False
        self._is_interrupted = False
        self._has_watch = False
        self._folder_pzxids: list[int] | None = None
        self._last_poll = 0.0
        self._last_signal = 0.0
        self._delayed_touch: threading.Timer | None = None
        self._lock = threading.Lock()

    def signal(self) -> None:
        """Write the signal node now, or as soon as 20 ms have passed since the last time."""
        with self._lock:
            if self._delayed_touch is not None:
                return
            left = self._last_signal + SIGNAL_INTERVAL - time.monotonic()
            if left > 0:
                timer = threading.Timer(left, self._touch)
                timer.daemon = True
                timer.start()
                self._delayed_touch = timer  # `_touch` clears it, under this lock
                return
        self._touch()

    def _touch(self) -> None:
        with self._lock:
            self._last_signal = time.monotonic()
            self._delayed_touch = None
        self._connection.send_unconfirmed([operations.put(paths.CHANGE_SIGNAL, b"")])

    def watch(self, timeout: float) -> bool:
        """Wait until something may be claimable, or for `timeout` seconds, or until `interrupt`. True: it may be."""
        deadline = time.monotonic() + timeout
        changed = False
        while True:
            self._thread_signal.clear()
            if not self._has_watch:
                self._set_watch()
            changed = self._has_changed_folders()
            left = deadline - time.monotonic()
            if self._is_signalled or self._is_interrupted or changed or left <= 0:
                break
            self._thread_signal.wait(min(left, POLL_INTERVAL))
        # A thread that sets one of them after it was read here also sets the thread signal after that: the next call
        # returns at once.
        signalled, interrupted = self._is_signalled, self._is_interrupted
        if signalled:
            self._is_signalled = False
        if interrupted:
            self._is_interrupted = False
        return signalled or changed

    def _set_watch(self) -> None:
        self._has_watch = True  # set before the watch: it may fire at once
        try:
            self._connection.watch(paths.CHANGE_SIGNAL, self._handle_watch)
        except BaseException:
            self._has_watch = False  # no server can be reached, so none has the watch
            raise

    def _handle_watch(self, event: Any) -> None:
        """Called by kazoo's thread: the signal node was written, or the connection was lost and with it the watch."""
        self._has_watch = False
        self._is_signalled = True
        self._thread_signal.set()

    def _has_changed_folders(self) -> bool:
        """Return whether the names in a folder have changed since the last poll. It polls at most every 200 ms."""
        now = time.monotonic()
        if self._folder_pzxids is not None and now - self._last_poll < POLL_INTERVAL:
            return False
        self._last_poll = now
        before, self._folder_pzxids = (
            self._folder_pzxids,
            [node.pzxid if node is not None else 0 for node in self._connection.read_nodes(WATCHED_FOLDERS)],
        )
        return before is not None and before != self._folder_pzxids

    def interrupt(self) -> None:
        """Make the current or the next `watch` return at once."""
        self._is_interrupted = True
        self._thread_signal.set()

    def stop(self) -> None:
        with self._lock:
            if self._delayed_touch is not None:
                self._delayed_touch.cancel()
                self._delayed_touch = None
