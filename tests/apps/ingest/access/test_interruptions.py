"""Assemblies when workers die, replies are lost, and services of Merritt's use the same queue."""

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.apps.ingest.access.stored_objects import StoredObjects
from tests.apps.ingest.access.test_assemblies import FILES, TOP, asked_for, read_members
from tests.apps.ingest.ingest_fixture import IngestFixture
from tests.apps.ingest.maintenance.contexts import make_context
from tests.interop.merritt.access import Assembly
from tests.interop.merritt.client import Client
from waybill.apps.ingest.access import tokens
from waybill.apps.ingest.maintenance import AssemblyExpiryRoutine
from waybill.maintenance import run_round
from waybill.objects import DirectoryObjects, ObjectStoreUnavailable


@pytest.fixture
def ingest(tmp_path: Path) -> Iterator[IngestFixture]:
    with IngestFixture(tmp_path) as made:
        yield made


def packs(ingest: IngestFixture) -> list[str]:
    return [info.name for info in ingest.environment.objects.list(tokens.ROOT) if not info.name.endswith("record.json")]


def test_a_lost_reply_of_the_object_store_leaves_one_that_counts(
    ingest: IngestFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    StoredObjects(ingest).add(FILES)
    put: Callable[..., Any] = DirectoryObjects.put
    lost: list[str] = []

    def unheard(self: DirectoryObjects, name: str, data: Any, **more: Any) -> Any:
        info = put(self, name, data, **more)
        if name.endswith(".zip") and not lost:
            lost.append(name)
            raise ObjectStoreUnavailable("the reply was lost")
        return info

    monkeypatch.setattr(DirectoryObjects, "put", unheard)
    request = asked_for(ingest)
    with ingest.workers():
        record = ingest.wait(request.record.kind, request.record.id, "Completed")
    assert record.documents["packed"]["name"] not in lost
    assert sorted(packs(ingest)) == sorted([*lost, record.documents["packed"]["name"]])
    with ingest.engine() as engine:
        engine.act(record.ref, "delete")
    with make_context(ingest) as context:
        assert run_round(AssemblyExpiryRoutine(), context) == 1
    assert packs(ingest) == []


def test_a_killed_worker_leaves_nothing_and_the_next_one_packs_it(ingest: IngestFixture, tmp_path: Path) -> None:
    StoredObjects(ingest).add(FILES)
    request = asked_for(ingest)
    program = textwrap.dedent(
        """
        import sys
        from pathlib import Path
        from tests.apps.ingest.ingest_fixture import IngestFixture
        from waybill.apps.ingest.storage import OcflStorage
        read = OcflStorage.read
        def stuck(self, *args, **more):
            print("reading", flush=True)
            sys.stdin.read()  # for ever: it is killed here
            return read(self, *args, **more)
        OcflStorage.read = stuck
        with IngestFixture(Path(sys.argv[1])) as ingest, ingest.workers(ttl=2.0):
            sys.stdin.read()
        """
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[4])}
    child = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "reading\n"
        assert ingest.get(*request.record.ref).session is not None
    finally:
        child.send_signal(signal.SIGKILL)
        child.communicate()
    with ingest.workers():
        record = ingest.wait(request.record.kind, request.record.id, "Completed")
    assert read_members(ingest, record)[f"{TOP}/producer/a.txt"] == b"hello"
    assert packs(ingest) == [record.documents["packed"]["name"]]


@pytest.fixture
def theirs(zookeeper_url: str) -> Iterator[Client]:
    parts = urlsplit(zookeeper_url)
    client = Client(parts.netloc + parts.path)
    yield client
    client.close()


def test_services_of_merritt_finish_their_own_beside_ours(tmp_path: Path, zookeeper_url: str, theirs: Client) -> None:
    token = {
        "token": "0b1c",
        "delivery-node": 9001,
        "cloud-content-byte": 10,
        "status": "",
        "url": "",
        "anticipated-availability-time": "",
    }
    with IngestFixture(tmp_path, store=zookeeper_url) as ingest:
        StoredObjects(ingest).add(FILES)
        first = Assembly.create(theirs, "small", token)
        with ingest.engine() as engine:  # until it is seen here
            while not engine.store.find("access-small").records:
                engine.store.claim([], engine.store.open_session(host=ingest.environment.host, ttl=30.0, about={}), 1)
                engine.store.maintain_indexes()
                engine.store.watch(0.1)
        ours = asked_for(ingest)
        with ingest.workers():
            record = ingest.wait("access-small", ours.record.id, "Completed")
            assert theirs.optional_json(f"/access/small/{first.id}/token") == token
            assert theirs.optional_json(f"/access/small/{first.id}/status")["status"] == "Pending"
            mine = Assembly.acquire_pending(theirs, "small")  # nothing of ours stands in their way
            assert mine is not None
            assert mine.id == first.id
            mine.set_status("Processing")
            mine.set_status("Completed")
            mine.unlock()
        stored = theirs.optional_json(f"/access/small/{ours.record.id}/token")
        assert (stored["token"], stored["status"], stored["delivery-node"]) == (tokens.token_of(record), "Completed", 0)
        assert theirs.optional_json(f"/access/small/{ours.record.id}/status")["status"] == "Completed"
        with make_context(ingest) as context:
            assert run_round(AssemblyExpiryRoutine(), context) == 0
        assert ingest.get("access-small", first.id).state == "Completed"
        with ingest.engine() as engine:
            assert list(engine.store.check()) == []
