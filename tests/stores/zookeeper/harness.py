"""What the suite needs of a store in ZooKeeper: a chroot of its own, a clock, sessions that can be killed, a proxy
that loses answers.
"""

import time
from contextlib import AbstractContextManager
from typing import Any
from urllib.parse import urlsplit

from kazoo.client import KazooClient

from tests.servers.process import wait_until
from tests.stores.zookeeper.proxy import Proxy
from waybill.record import Ref, Role, Store
from waybill.stores.conformance import Harness
from waybill.stores.zookeeper import ZookeeperStore, places
from waybill.stores.zookeeper.layout import layout_of
from waybill.stores.zookeeper.names import key_path, mark_path, shared_mark_path

# seconds: of sessions that a process which stands still for a while must not lose; a server for tests allows up to 60
TTL = 50.0


class ZookeeperHarness(Harness):
    """The generic layout."""

    has_foreign_locks = True
    names_stranded = False
    key_family = "ark"
    ttl = TTL  # by the server's clock, and nobody waits for it: `expire` ends a session

    def __init__(self, url: str, **options: Any) -> None:
        parts = urlsplit(url)
        self.hosts, self.root = parts.netloc, parts.path
        host, port = self.hosts.split(",")[0].split(":")
        self.proxy = Proxy((host, int(port)))
        self.url = f"zookeeper://127.0.0.1:{self.proxy.port}{self.root}"
        self.options = {"listing": 0, "grace": 0, "timeout": TTL, "patience": 30, **options}
        self._clock = float(int(time.time()))
        self._open: list[ZookeeperStore] = []
        self._stranger: KazooClient | None = None

    def open(self) -> ZookeeperStore:
        store = ZookeeperStore(self.url, clock=lambda: self._clock, **self.options)
        self._open.append(store)
        return store

    def tick(self, seconds: float) -> None:
        self._clock += seconds

    def expire(self, store: Store, session: str) -> None:
        assert isinstance(store, ZookeeperStore)
        held = store._sessions._open[session].link._client
        number, password = held._session_id, held._session_passwd
        # Whoever knows a session's number and password may go on with it, and end it; unless the worker, who is cut off
        # by that and comes again at once, cuts off the thief before.
        while self.stranger().exists(places.session(session)) is not None:
            thief = KazooClient(self.hosts, client_id=(number, password), timeout=TTL)
            thief.start(timeout=60)
            thief.stop()
            thief.close()
        # From here on its calls meet the end of the session, and not that of the connection, of which nobody can know
        # what it was for.
        wait_until(
            lambda: not held.connected or held._session_id != number, "the worker to be disconnected", seconds=60
        )
        assert session in self.open().reap()

    def outage(self, seconds: float) -> None:
        self.tick(seconds)
        heartbeats = [session.link._client for store in self._open for session in store._sessions._open.values()]
        cut = {client: client._connection._socket for client in heartbeats}
        self.proxy.cut()
        # A heartbeat on a connection that is not known to be lost may be Unavailable; what is asked is who lives on
        # afterwards.
        wait_until(
            lambda: all(client._connection._socket is not cut[client] for client in heartbeats),
            "the loss to be seen",
            seconds=60,
        )

    def lose_answer(self, store: Store) -> AbstractContextManager[Any]:
        assert isinstance(store, ZookeeperStore)
        return self.proxy.lose_answer(store._link._client._connection._socket.getsockname()[1])

    def stranger(self) -> KazooClient:
        """Somebody else in the same tree."""
        if self._stranger is None:
            self._stranger = KazooClient(self.hosts + self.root, timeout=TTL)
            self._stranger.start(timeout=60)
        return self._stranger

    def foreign_lock(self, ref: Ref) -> None:
        self.stranger().create(f"{layout_of(ref.kind).home(ref.id)}/lock", ephemeral=True)

    def foreign_unlock(self, ref: Ref) -> None:
        self.stranger().delete(f"{layout_of(ref.kind).home(ref.id)}/lock")

    def strand(self, ref: Ref, reason: str) -> bool:
        """As another service does it: it takes a lock or sets a mark, Waybill waits for it, and it goes without a
        word.
        """
        what, _, name = reason.partition(" ")
        paths = (
            [key_path(name)] if what == "key" else [path for path in (shared_mark_path(name), mark_path(name)) if path]
        )
        store, zk = self.open(), self.stranger()
        for path in paths:
            zk.create(path, b"" if path != mark_path(name) else b'["another",""]')
        session = store.open_session(host="here", ttl=TTL, about={})
        store.claim([Role(ref.kind, self.states[0])], session, 10)
        store.close_session(session)
        for path in paths:
            zk.delete(path)
        return True

    def close(self) -> None:
        for store in self._open:
            for session in list(store._sessions._open):
                store.close_session(session)  # else the server would keep them until their ttl is over
            store.close()
        if self._stranger is not None:
            self._stranger.stop()
            self._stranger.close()
        self.proxy.close()


class MerrittHarness(ZookeeperHarness):
    """Merritt's layout: jobs and their batches."""

    kind, prefix = "job", "jid"
    parent_kind, parent_prefix = "batch", "bid"
    states = ("Pending", "Estimating", "Provisioning")
    rest, end = "Held", "Completed"
    parent_states, parent_end = ("Pending", "Processing"), "Completed"
    documents = ("configuration", "identifiers", "metadata")
    key_family = "storage"
    needs_parent = True
    own_ids = False
    has_turns = False
    keeps_open = False
