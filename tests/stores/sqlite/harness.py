"""SQLite for the suite: one file, an injected clock, and a disk that fails after it has written."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw

from waybill.record import Ref, Store
from waybill.stores.conformance import StoreHarness
from waybill.stores.sqlite import SqliteStore


class SqliteHarness(StoreHarness):
    allows_many_hosts = False

    def __init__(self, path: Path) -> None:
        self.path = path
        self.now = 1_700_000_000.0
        self.opened: list[SqliteStore] = []

    def open(self) -> SqliteStore:
        self.opened.append(SqliteStore(f"sqlite:///{self.path}", clock=lambda: self.now))
        return self.opened[-1]

    def tick(self, seconds: float) -> None:
        self.now += seconds

    simulate_outage = tick  # nobody calls meanwhile; connections to a file do not break

    def expire_session(self, store: Store, session: str) -> None:
        reaper = self.open()
        while session not in reaper.reap_sessions():
            self.tick(self.ttl / 2)

    @contextmanager
    def lose_answer(self, store: Store) -> Iterator[None]:
        """SQLite calls this hook when the commit is in the log; its error is then all that the caller hears."""
        assert isinstance(store, SqliteStore)
        store._db.db.set_wal_hook(lambda *_: apsw.SQLITE_IOERR)
        yield
        store._db.db.set_wal_hook(store._db.note_log_pages)

    def block_record(self, ref: Ref, blocked_by: str) -> bool:
        self.open()._db.execute("update record set blocked_by = ? where kind = ? and id = ?", (blocked_by, *ref))
        return True

    def close(self) -> None:
        for store in self.opened:
            store.close()
