"""What the conformance suite needs of a store in ZooKeeper: a chroot of its own, a clock, sessions that can be ended, a
proxy that loses answers.
"""

import time
from contextlib import AbstractContextManager
from typing import Any
from urllib.parse import urlsplit

from kazoo.client import KazooClient

from tests.servers.process import wait_until
from tests.stores.zookeeper.proxy import Proxy
from waybill.record import Ref, Store, WorkQueue
from waybill.stores.conformance import StoreHarness
from waybill.stores.zookeeper import ZookeeperStore, paths
from waybill.stores.zookeeper.paths import hold_path_of, layout_of, lock_path_of, shared_hold_path_of

# seconds: a process that is paused for a while must not lose its sessions; a server for tests allows up to 60
TTL = 50.0


class ZookeeperHarness(StoreHarness):
    """The generic layout."""

    has_foreign_locks = True
    check_finds_stale_blocks = False
    has_shared_locks = False
    lock_family = "ark"
    ttl = TTL  # by the server's clock, and no test waits for it: `expire_session` ends a session

    def __init__(self, url: str, **options: Any) -> None:
        parts = urlsplit(url)
        self.hosts, self.root = parts.netloc, parts.path
        host, port = self.hosts.split(",")[0].split(":")
        self.proxy = Proxy((host, int(port)))
        self.url = f"zookeeper://127.0.0.1:{self.proxy.port}{self.root}"
        self.options = {"listing_ttl": 0, "grace_period": 0, "timeout": TTL, "reconnect_wait": 30, **options}
        self._clock = float(int(time.time()))
        self._open: list[ZookeeperStore] = []
        self._foreign_client: KazooClient | None = None

    def open(self) -> ZookeeperStore:
        store = ZookeeperStore(self.url, clock=lambda: self._clock, **self.options)
        self._open.append(store)
        return store

    def tick(self, seconds: float) -> None:
        self._clock += seconds

    def expire_session(self, store: Store, session: str) -> None:
        assert isinstance(store, ZookeeperStore)
        client = store._sessions._open_sessions[session].connection._client
        number, password = client._session_id, client._session_passwd
        # Whoever knows a session's number and password may resume it, and end it; unless the worker, which is
        # disconnected by that and reconnects at once, disconnects the thief first.
        while self.foreign_client().exists(paths.session_path_of(session)) is not None:
            thief = KazooClient(self.hosts, client_id=(number, password), timeout=TTL)
            thief.start(timeout=60)
            thief.stop()
            thief.close()
        # From here on its calls fail on the end of the session, and not on the end of the connection, whose reason
        # cannot be known.
        wait_until(
            lambda: not client.connected or client._session_id != number, "the worker to be disconnected", seconds=60
        )
        assert session in self.open().reap_sessions()

    def simulate_outage(self, seconds: float) -> None:
        self.tick(seconds)
        heartbeats = [
            session.connection._client for store in self._open for session in store._sessions._open_sessions.values()
        ]
        cut = {client: client._connection._socket for client in heartbeats}
        self.proxy.cut()
        # A heartbeat on a connection that is not yet known to be lost may raise StoreUnavailable; the test asks which
        # sessions live on afterwards.
        wait_until(
            lambda: all(client._connection._socket is not cut[client] for client in heartbeats),
            "the loss to be seen",
            seconds=60,
        )

    def lose_answer(self, store: Store) -> AbstractContextManager[Any]:
        assert isinstance(store, ZookeeperStore)
        return self.proxy.lose_answer(store._connection._client._connection._socket.getsockname()[1])

    def foreign_client(self) -> KazooClient:
        """Return a plain client in the same tree, which stands for another service."""
        if self._foreign_client is None:
            self._foreign_client = KazooClient(self.hosts + self.root, timeout=TTL)
            self._foreign_client.start(timeout=60)
        return self._foreign_client

    def take_foreign_lock(self, ref: Ref) -> None:
        self.foreign_client().create(f"{layout_of(ref.kind).home_path_of(ref.id)}/lock", ephemeral=True)

    def release_foreign_lock(self, ref: Ref) -> None:
        self.foreign_client().delete(f"{layout_of(ref.kind).home_path_of(ref.id)}/lock")

    def block_record(self, ref: Ref, blocked_by: str) -> bool:
        """Block the record as another service does: it takes a lock or sets a hold, Waybill waits for it, and it is
        removed without a signal.
        """
        reason, _, name = blocked_by.partition(" ")
        paths = (
            [lock_path_of(name)]
            if reason == "lock"
            else [path for path in (shared_hold_path_of(name), hold_path_of(name)) if path]
        )
        store, zk = self.open(), self.foreign_client()
        for path in paths:
            zk.create(path, b"" if path != hold_path_of(name) else b'["another",""]')
        session = store.open_session(host="here", ttl=TTL, about={})
        store.claim([WorkQueue(ref.kind, self.states[0])], session, 10)
        store.close_session(session)
        for path in paths:
            zk.delete(path)
        return True

    def close(self) -> None:
        for store in self._open:
            for session in list(store._sessions._open_sessions):
                store.close_session(session)  # or the server would keep them until their ttl is over
            store.close()
        if self._foreign_client is not None:
            self._foreign_client.stop()
            self._foreign_client.close()
        self.proxy.close()


class MerrittHarness(ZookeeperHarness):
    """Merritt's layout: jobs and their batches."""

    kind, id_prefix = "job", "jid"
    parent_kind, parent_id_prefix = "batch", "bid"
    states = ("Pending", "Estimating", "Provisioning")
    rest_state, end_state = "Held", "Completed"
    parent_states, parent_end_state = ("Pending", "Processing"), "Completed"
    document_names = ("configuration", "identifiers", "metadata")
    lock_family = "storage"
    needs_parent = True
    accepts_ids = False
    has_queue_positions = False
    stores_open = False
