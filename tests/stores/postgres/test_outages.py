"""The server stops in the middle of the work and starts again: what was answered is true, and the store continues by
itself.
"""

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from msgspec.structs import replace

from tests.budget import Budget
from tests.servers.postgres import PostgresServer
from tests.servers.process import wait_until
from waybill.record import (
    Change,
    CommitGroup,
    CommitOutcomeUnknown,
    CommitResult,
    Record,
    StoreError,
    StoreUnavailable,
    WorkQueue,
)
from waybill.stores.postgres import PostgresStore


@pytest.fixture(scope="module")
def own_server() -> Iterator[PostgresServer]:
    with PostgresServer() as server:
        yield server


@pytest.fixture
def url(own_server: PostgresServer) -> str:
    return own_server.create_database()


def create(store: PostgresStore, **fields: Any) -> Record:
    (answer,) = store.commit([CommitGroup((Change(None, Record("parcel", "pcl*", "Packing", **fields), "create"),))])
    assert isinstance(answer, CommitResult)
    assert answer.records[0] is not None
    return answer.records[0]


class Writer:
    """Counts up in one record, one commit after the other, whatever happens to the server, and records the errors."""

    def __init__(self, url: str) -> None:
        self.store = PostgresStore(url)
        self.record = create(self.store, message="0")
        self.errors: list[str] = []
        self.lost = threading.Event()  # one was refused or unknown
        self.again = threading.Event()  # one was written after that
        self.stop = threading.Event()
        self.unknown: set[int] = set()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self) -> None:
        while not self.stop.is_set():
            number = int(self.record.message) + 1
            try:
                (answer,) = self.store.commit(
                    [CommitGroup((Change(self.record, replace(self.record, message=str(number)), "count"),))]
                )
                if isinstance(answer, CommitResult):
                    assert answer.records[0] is not None
                    self.record = answer.records[0]
                    if self.lost.is_set():
                        self.again.set()
                    continue
                self.errors.append(answer.code)
                self.lost.set()
                self.look()
            except StoreUnavailable as refusal:
                self.errors.append(refusal.code)
                self.lost.set()

    def look(self) -> None:
        """The truth is in the store."""
        while not self.stop.is_set():
            try:
                self.record = self.store.get("parcel", self.record.id)
                return
            except StoreUnavailable as refusal:
                self.errors.append(refusal.code)


def test_a_restart_in_the_middle_of_commits_loses_nothing_that_was_answered(
    own_server: PostgresServer, url: str, budget: Budget
) -> None:
    writers = [Writer(url) for _ in range(3)]
    for restart in range(budget.pick(small=2, long=10)):
        for writer in writers:
            writer.lost.clear()
            writer.again.clear()
        own_server.restart(immediate=restart % 2 == 0)
        for writer in writers:
            assert writer.lost.wait(60), "it noticed"
            assert writer.again.wait(60), "it continues by itself"
    checker = PostgresStore(url)
    for writer in writers:
        writer.stop.set()
        writer.thread.join(60)
        assert not writer.thread.is_alive()
        assert set(writer.errors) <= {"outcome-unknown", "unavailable"}
        assert checker.get("parcel", writer.record.id) == writer.record
        lines = checker.history("parcel", writer.record.id)
        assert len(lines) == int(writer.record.message) + 1, "one line for each that was written, and none twice"
        writer.store.close()
    assert list(checker.check()) == []
    checker.close()


def test_sessions_and_claims_survive_a_restart(own_server: PostgresServer, url: str) -> None:
    store = PostgresStore(url)
    made = create(store)
    session = store.open_session(host="here", ttl=60, about={})
    ((mine),) = store.claim([WorkQueue("parcel", "Packing")], session, 1)
    own_server.restart(immediate=True)
    assert store.renew_session(session).alive is True
    (answer,) = store.commit(
        [CommitGroup((Change(mine.record, replace(mine.record, session=None, state="Sent"), "done"),))]
    )
    assert isinstance(answer, CommitResult)
    assert store.get("parcel", made.id).state == "Sent"
    store.close()


def test_while_the_server_is_down_every_verb_says_so_and_afterwards_all_is_well(
    own_server: PostgresServer, url: str
) -> None:
    store, watcher = PostgresStore(url), PostgresStore(url)
    made = create(store)
    watcher.watch(0)

    def watch() -> None:
        while watcher.watch(5):  # a notification from before the server stopped is still seen
            pass

    own_server.stop()
    try:
        for call in (
            lambda: store.get("parcel", made.id),
            lambda: store.commit([CommitGroup((Change(made, replace(made, message="x"), "note"),))]),
            lambda: store.claim([WorkQueue("parcel", "Packing")], "nobody", 1),
            lambda: store.reap_sessions(),
            watch,
            lambda: list(store.check()),
        ):
            with pytest.raises(StoreUnavailable) as refusal:
                call()
            assert str(refusal.value).endswith(".")
    finally:
        own_server.start()
    assert store.get("parcel", made.id) == made
    assert isinstance(store.commit([CommitGroup((Change(made, replace(made, message="x"), "note"),))])[0], CommitResult)
    assert watcher.watch(60) is True, "it may have missed something"
    while watcher.watch(0):
        pass
    create(store)
    assert watcher.watch(60) is True
    store.close()
    watcher.close()


def test_a_killed_server_keeps_what_it_answered(own_server: PostgresServer, url: str) -> None:
    """SIGKILL to all its processes in the middle of commits; the start is a recovery."""
    store = PostgresStore(url)
    made: list[str] = []
    unknown: list[StoreError] = []

    def fill() -> None:
        while not unknown:
            try:
                draft = Change(None, Record("parcel", "pcl*", "Packing"), "create")
                for answer in store.commit([CommitGroup((draft,)) for _ in range(5)]):
                    if isinstance(answer, CommitResult):
                        made.extend(record.id for record in answer.records if record is not None)
                    else:
                        unknown.append(answer)
            except StoreUnavailable as refusal:
                unknown.append(refusal)

    filling = threading.Thread(target=fill, daemon=True)
    filling.start()
    wait_until(lambda: len(made) > 100, "some to be made")
    own_server.kill()
    filling.join(60)
    assert not filling.is_alive()
    assert all(isinstance(error, (CommitOutcomeUnknown, StoreUnavailable)) for error in unknown)
    own_server.start()
    there = {record.id for record in store.each("parcel")}
    assert set(made) <= there
    assert len(there) - len(set(made)) in (0, 5), "the call that was cut off is written whole or not at all"
    store.close()
