"""A server that is down for longer than a session lasts: the claims of a worker have ended afterwards, and its work is
done again.
"""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.servers.zookeeper import ZooKeeperServer
from tests.stores.zookeeper.harness import MerrittHarness
from tests.stores.zookeeper.records import claim, make_batch, make_job
from tests.worker.worker_fixture import WorkerFixture
from waybill.record import Record
from waybill.step import Done, New, Outcome, StepContext
from waybill.stores.zookeeper import ZookeeperStore


@pytest.fixture
def server() -> Iterator[ZooKeeperServer]:
    with ZooKeeperServer(fast=True) as server:
        yield server


def test_work_goes_on_after_an_outage_longer_than_a_session(server: ZooKeeperServer, tmp_path: Path) -> None:
    """A server that comes back still knows the old session, and the worker has another by then."""
    url = server.create_chroot()
    begun, lost, runs = threading.Event(), threading.Event(), list[int]()

    def pack(record: Record, ctx: StepContext) -> Outcome:
        runs.append(record.version)
        begun.set()
        assert lost.wait(120)
        return Done()

    with WorkerFixture(lambda: ZookeeperStore(url, timeout=10), tmp_path).closing() as fixture:
        fixture.set_steps(Packing=pack)
        parcel = fixture.engine.submit(New("parcel"))
        worker = fixture.start_worker(ttl=4.0)
        assert begun.wait(120)
        server.stop()
        fixture.wait_until(lambda: worker.core.lease.session is None, "the worker to give up its session")
        lost.set()
        server.start()
        assert fixture.wait_for_state(parcel, "Sent").session is None
        assert len(runs) == 2


def test_a_session_that_nobody_renewed_for_its_ttl_ends_when_another_is_opened_or_renewed(
    merritt: MerrittHarness,
) -> None:
    store, now = merritt.open(), [100.0]
    store._sessions._clock = lambda: now[0]
    first, second = make_job(store, make_batch(store)), make_job(store, make_batch(store))
    sessions = [store.open_session(host="h", ttl=10, about={}) for _ in range(2)]
    held = {record.id: session for session in sessions for record in claim(store, session, limit=1)}
    assert set(held) == {first.id, second.id}
    now[0] += 9
    assert store.renew_session(sessions[1]).alive
    now[0] += 9
    third = store.open_session(host="h", ttl=10, about={})
    assert {info.name for info in store.list_sessions()} == {sessions[1], third}
    (free,) = claim(store, third)
    assert held[free.id] == sessions[0]
    now[0] += 9
    assert store.renew_session(third).alive
    assert [info.name for info in store.list_sessions()] == [third]
    assert not store.renew_session(sessions[1]).alive
