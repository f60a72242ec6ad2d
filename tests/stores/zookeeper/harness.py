"""What the suite needs of a store in ZooKeeper: a chroot of its own, a clock, sessions that can be killed, a proxy that loses answers."""

import time
from contextlib import AbstractContextManager
from typing import Any
from urllib.parse import urlsplit

from kazoo.client import KazooClient

from tests.stores.zookeeper.proxy import Proxy
from waybill.record import Ref, Store
from waybill.stores.conformance import Harness
from waybill.stores.zookeeper import ZookeeperStore
from waybill.stores.zookeeper.layout import layout_of


class ZookeeperHarness(Harness):
    """The generic layout."""

    has_foreign_locks = True
    key_family = "ark"

    def __init__(self, url: str, **options: Any) -> None:
        parts = urlsplit(url)
        self.hosts, self.root = parts.netloc, parts.path
        host, port = self.hosts.split(",")[0].split(":")
        self.proxy = Proxy((host, int(port)))
        self.url = f"zookeeper://127.0.0.1:{self.proxy.port}{self.root}"
        self.options = {"listing": 0, "grace": 0, **options}
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
        # Whoever knows a session's number and password may go on with it, and end it.
        thief = KazooClient(self.hosts, client_id=(number, password), timeout=10)
        thief.start(timeout=10)
        thief.stop()
        thief.close()
        assert session in self.open().reap()

    def outage(self, seconds: float) -> None:
        self.tick(seconds)
        self.proxy.cut()

    def lose_answer(self, store: Store) -> AbstractContextManager[Any]:
        assert isinstance(store, ZookeeperStore)
        return self.proxy.lose_answer(store._link._client._connection._socket.getsockname()[1])

    def stranger(self) -> KazooClient:
        """Somebody else in the same tree."""
        if self._stranger is None:
            self._stranger = KazooClient(self.hosts + self.root, timeout=10)
            self._stranger.start(timeout=10)
        return self._stranger

    def foreign_lock(self, ref: Ref) -> None:
        self.stranger().create(f"{layout_of(ref.kind).home(ref.id)}/lock", ephemeral=True)

    def foreign_unlock(self, ref: Ref) -> None:
        self.stranger().delete(f"{layout_of(ref.kind).home(ref.id)}/lock")

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
