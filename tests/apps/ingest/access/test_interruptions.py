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

from tests.apps.ingest.access.holdings import Holdings
from tests.apps.ingest.access.test_assemblies import FILES, TOP, asked_for, unpacked
from tests.apps.ingest.duties.test_audit import hand_of
from tests.apps.ingest.site import Site
from tests.interop.merritt.access import Assembly
from tests.interop.merritt.client import Client
from waybill.apps.ingest.access import tokens
from waybill.apps.ingest.duties import Expiry
from waybill.duties import a_round
from waybill.objects import Directory, Unavailable


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with Site(tmp_path) as made:
        yield made


def packs(site: Site) -> list[str]:
    return [info.name for info in site.depot.objects.list(tokens.ROOT) if not info.name.endswith("record.json")]


def test_a_lost_reply_of_the_object_store_leaves_one_that_counts(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    Holdings(site).add(FILES)
    put: Callable[..., Any] = Directory.put
    lost: list[str] = []

    def unheard(self: Directory, name: str, data: Any, **more: Any) -> Any:
        info = put(self, name, data, **more)
        if name.endswith(".zip") and not lost:
            lost.append(name)
            raise Unavailable("the reply was lost")
        return info

    monkeypatch.setattr(Directory, "put", unheard)
    asked = asked_for(site)
    with site.workers():
        record = site.wait(asked.record.kind, asked.record.id, "Completed")
    assert record.docs["packed"]["name"] not in lost
    assert sorted(packs(site)) == sorted([*lost, record.docs["packed"]["name"]])
    with site.engine() as engine:
        engine.act(record.ref, "delete")
    with hand_of(site) as hand:
        assert a_round(Expiry(), hand) == 1
    assert packs(site) == []


def test_a_killed_worker_leaves_nothing_and_the_next_one_packs_it(site: Site, tmp_path: Path) -> None:
    Holdings(site).add(FILES)
    asked = asked_for(site)
    program = textwrap.dedent(
        """
        import sys
        from pathlib import Path
        from tests.apps.ingest.site import Site
        from waybill.apps.ingest.storage import OcflStorage
        read = OcflStorage.read
        def stuck(self, *args, **more):
            print("reading", flush=True)
            sys.stdin.read()  # for ever: it is killed here
            return read(self, *args, **more)
        OcflStorage.read = stuck
        with Site(Path(sys.argv[1])) as site, site.workers(ttl=2.0):
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
        assert site.get(*asked.record.ref).session is not None
    finally:
        child.send_signal(signal.SIGKILL)
        child.communicate()
    with site.workers():
        record = site.wait(asked.record.kind, asked.record.id, "Completed")
    assert unpacked(site, record)[f"{TOP}/producer/a.txt"] == b"hello"
    assert packs(site) == [record.docs["packed"]["name"]]


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
    with Site(tmp_path, store=zookeeper_url) as site:
        Holdings(site).add(FILES)
        first = Assembly.create(theirs, "small", token)
        with site.engine() as engine:  # until it is seen here
            while not engine.store.find("access-small").records:
                engine.store.claim([], engine.store.open_session(host=site.depot.host, ttl=30.0, about={}), 1)
                engine.store.sweep()
                engine.store.watch(0.1)
        ours = asked_for(site)
        with site.workers():
            record = site.wait("access-small", ours.record.id, "Completed")
            assert theirs.optional_json(f"/access/small/{first.id}/token") == token
            assert theirs.optional_json(f"/access/small/{first.id}/status")["status"] == "Pending"
            mine = Assembly.acquire_pending(theirs, "small")  # nothing of ours stands in their way
            assert mine is not None
            assert mine.id == first.id
            mine.set_status("Processing")
            mine.set_status("Completed")
            mine.unlock()
        told = theirs.optional_json(f"/access/small/{ours.record.id}/token")
        assert (told["token"], told["status"], told["delivery-node"]) == (tokens.token_of(record), "Completed", 0)
        assert theirs.optional_json(f"/access/small/{ours.record.id}/status")["status"] == "Completed"
        with hand_of(site) as hand:
            assert a_round(Expiry(), hand) == 0
        assert site.get("access-small", first.id).state == "Completed"
        with site.engine() as engine:
            assert list(engine.store.check()) == []
