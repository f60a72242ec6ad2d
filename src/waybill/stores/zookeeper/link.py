"""A link: one connection to the ensemble, kept up by kazoo, which reconnects by itself and, when its session
expired, opens a new one.

    start -> (connected <-> suspended) -> lost -> (a new session of ZooKeeper, which inherits nothing) ... -> stop

What a lost connection means depends on the moment. Before the request was sent nothing was written: Unavailable.
Afterwards it may have been: Unknown. A reading that fails is repeated once, then Unavailable. Calls wait `patience`
seconds for a connection that is being made again.
"""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, cast

from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionClosedError, KazooException, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.states import KazooState

from waybill.record import StoreError, Unavailable, Unknown
from waybill.stores.zookeeper.wire import Ask, Failure, Node, Op, Read, Write, create, data, names

MAX_REQUEST = 1_000_000  # bytes: a server hangs up on a request of more than 1,048,575 (jute.maxbuffer)
_READS = 4000  # readings in one request
_RETRY = {"max_tries": -1, "delay": 0.05, "backoff": 2, "max_jitter": 0.2, "max_delay": 1.0}
_KAZOO = logging.getLogger("kazoo")
# where nobody set up a log, kazoo's warnings would stand on stderr before our one sentence
_KAZOO.addHandler(logging.NullHandler())

Written = list[int | None]


class Pending:
    """A transaction under way."""

    def __init__(self, request: Write, result: Any, within: float) -> None:
        self._request = request
        self._result = result
        self._within = within

    def get(self) -> Written | Failure | StoreError:
        """What became of it, waited for."""
        if isinstance(self._result, StoreError):
            return self._result
        try:
            answer = self._result.get(timeout=self._within)
        except (KazooException, KazooTimeoutError) as error:
            # what is queued still may be sent, on a later connection
            if self._request.sent or isinstance(error, KazooTimeoutError):
                return Unknown(
                    f"The connection to ZooKeeper was lost while writing ({type(error).__name__}); it may have been written."
                )
            return Unavailable(
                f"The connection to ZooKeeper was lost before anything was sent ({type(error).__name__}). Try again."
            )
        if answer and isinstance(answer[0], Failure):
            return answer[0]
        return cast(Written, answer)


class Link:
    def __init__(self, hosts: str, root: str, timeout: float, patience: float = 2.0) -> None:
        self.root = root
        self.patience = patience
        self.timeout = timeout  # what was asked for; the server may have cut it
        self._hosts = hosts
        self._log = logging.Logger("kazoo.client")  # one for each link, so that `abandon` silences no other
        self._log.parent = _KAZOO
        self._client = KazooClient(hosts=hosts, timeout=timeout, connection_retry=dict(_RETRY), logger=self._log)
        self._answer_within = 3 * timeout + 10
        self._lost = threading.Event()
        self._client.add_listener(self._heard)
        try:
            self._client.start(timeout=max(timeout, 10.0))
        except KazooTimeoutError as error:
            raise Unavailable(
                f"No ZooKeeper server answers at {hosts}. Is it running, and is that its client port?"
            ) from error

    @property
    def number(self) -> int:
        """The number of the present session of ZooKeeper; 0 while there is none."""
        client_id = self._client.client_id
        return client_id[0] & 0xFFFFFFFFFFFFFFFF if client_id else 0

    @property
    def lost(self) -> bool:
        """Whether the session that this link began with has ended."""
        return self._lost.is_set()

    def _heard(self, state: str) -> None:
        if state == KazooState.LOST:
            self._lost.set()

    def read(self, asks: Sequence[Ask]) -> list[Any]:
        """A Node, a list of names or None for each, in order. A lost connection is waited for once: a reading may be
        repeated.
        """
        self._await_connection()
        try:
            return self._read(asks)
        except Unavailable:
            return self._read(asks)

    def _read(self, asks: Sequence[Ask]) -> list[Any]:
        portions = self._portions(asks)
        sent = [self._send(Read(self.root, portion)) for portion in portions]
        found: list[Any] = []
        for portion, result in zip(portions, sent, strict=True):
            try:
                answer = result.get(timeout=self._answer_within)
            except (KazooException, KazooTimeoutError) as error:
                raise Unavailable(
                    f"The connection to ZooKeeper was lost while reading ({type(error).__name__}). Try again."
                ) from error
            if answer and isinstance(answer[0], Failure):
                place = portion[answer[0].place][1]
                raise StoreError(
                    f"ZooKeeper refuses to read {self.root}{place} (error {answer[0].code}); its nodes must be open to all."
                )
            found += answer
        return found

    def _portions(self, asks: Sequence[Ask]) -> list[Sequence[Ask]]:
        """As many readings in a request as the server takes."""
        portions: list[Sequence[Ask]] = []
        start = size = 0
        for place, (_, path) in enumerate(asks):
            size += len(path) + len(self.root) + 14
            if place - start >= _READS or size > MAX_REQUEST:
                portions.append(asks[start:place])
                start, size = place, len(path) + len(self.root) + 14
        return [*portions, asks[start:]] if asks else []

    def size(self, ops: Sequence[Op]) -> int:
        """About as many bytes as these operations take in a request."""
        return sum(len(op.path) + len(op.data) for op in ops) + len(ops) * (len(self.root) + 50)

    def nodes(self, paths: Sequence[str]) -> list[Node | None]:
        return cast(list[Node | None], self.read([data(path) for path in paths]))

    def node(self, path: str) -> Node | None:
        return self.nodes([path])[0]

    def names(self, path: str) -> list[str]:
        """The names in a folder; none if there is no such folder."""
        return self.read([names(path)])[0] or []

    def write(self, ops: Sequence[Op]) -> Written | Failure:
        """One transaction; Unknown or Unavailable are raised."""
        answer = self.post(ops).get()
        if isinstance(answer, StoreError):
            raise answer
        return answer

    def post(self, ops: Sequence[Op]) -> Pending:
        """Send a transaction without waiting for what becomes of it."""
        request = Write(self.root, ops)
        try:
            return Pending(request, self._send(request), self._answer_within)
        except Unavailable as error:
            return Pending(request, error, 0.0)

    def make_root(self) -> None:
        """Make the chroot, name by name; those that are there stay."""
        parts = self.root.split("/")[1:]
        for end in range(1, len(parts) + 1):
            request = Write("", [create("/" + "/".join(parts[:end]))])
            outcome = Pending(request, self._send(request), self._answer_within).get()
            if isinstance(outcome, StoreError):
                raise outcome

    def tell(self, ops: Sequence[Op]) -> None:
        """Send a transaction whose outcome does not matter."""
        if self._client.connected:
            self._client._call(Write(self.root, ops), self._client.handler.async_result())

    def sync(self) -> None:
        """What the leader has committed by now is seen by the next reading of this link."""
        self._await_connection()
        try:
            self._client.sync_async(self.root or "/").get(timeout=self._answer_within)
        except (KazooException, KazooTimeoutError) as error:
            raise Unavailable(f"The connection to ZooKeeper was lost ({type(error).__name__}). Try again.") from error

    def watch(self, path: str, call: Callable[[Any], None]) -> None:
        """Call once, from kazoo's own thread, when the node's data next change, or the connection does."""
        self._await_connection()
        try:
            self._client.get_async(self.root + path, watch=call).get(timeout=self._answer_within)
        except NoNodeError:
            call(None)
        except (KazooException, KazooTimeoutError) as error:
            raise Unavailable(f"The connection to ZooKeeper was lost ({type(error).__name__}). Try again.") from error

    def _await_connection(self) -> None:
        """kazoo itself would keep a request until there is one, however long that takes."""
        if not self._client.connected and not self._client._live.wait(self.patience):
            raise Unavailable(
                f"No ZooKeeper server of {self._hosts} can be reached now; nothing was written. Try again."
            )

    def _send(self, request: Read | Write) -> Any:
        self._await_connection()
        client = self._client
        result = client.handler.async_result()
        # The only way in for a request of our own; kazoo sends whatever has a type and serialises itself.
        client._call(request, result)
        return result

    def abandon(self) -> None:
        """Let go of the connection and leave the session of ZooKeeper to its timeout: somebody may still be at work
        under it.
        """
        client = self._client
        self._log.disabled = True  # it would warn of a lost connection
        client._stopped.set()  # kazoo has no word for it: its loop ends here without saying goodbye to the server
        connection = client._connection._socket
        if connection is not None:
            with suppress(OSError):  # gone already
                connection.shutdown(socket.SHUT_RDWR)
        client._safe_close()
        client.close()

    def stop(self) -> None:
        """End the session of ZooKeeper; its ephemeral nodes go at once, if the server can be told."""
        if not self._lost.is_set():
            self._client._live.wait(self.patience)
        try:
            self._client.stop()
        except (KazooException, ConnectionClosedError, OSError):
            self._lost.set()  # already gone; the server ends the session when it hears nothing more
        self._client.close()
