"""Deposits of other services, which name only a profile, are held by the mnemonics of its collections."""

from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.apps.ingest.ingest_fixture import IngestFixture
from tests.apps.ingest.service.service_caller import ServiceCaller
from tests.interop.merritt.batches import Batch
from tests.interop.merritt.client import Client
from tests.interop.merritt.jobs import Job
from waybill.apps.ingest import service
from waybill.apps.ingest.resources import IngestResources
from waybill.record import Record
from waybill.step import New

THEIRS = {
    "profile": "demo",
    "submitter": "jane",
    "type": "file",
    "payload_url": "http://127.0.0.1:9/a.txt",
    "filename": "a.txt",
}
DOCUMENT = {"batch": "submission", "job": "configuration"}


def foreign(caller: ServiceCaller, kind: str, **fields: Any) -> Record:
    """As another service writes it: the profile is all that tells of its collections."""
    parent = (
        caller.engine.submit(New("batch", {"submission": THEIRS}, state="Processing")).ref if kind == "job" else None
    )
    return caller.engine.submit(New(kind, {DOCUMENT[kind]: {**THEIRS, **fields}}, parent=parent))


def begun(caller: ServiceCaller, record: Record) -> Record:
    """After at most a few steps it has begun, or rests."""
    return caller.ingest.step_until(record.ref, "Held", "Processing", "Estimating", steps=4)


@pytest.mark.parametrize("kind", ["batch", "job"])
def test_a_hold_by_mnemonic_stops_a_deposit_of_others_until_it_is_released(anywhere: ServiceCaller, kind: str) -> None:
    service.hold_collection(anywhere.engine, "maps", who="op")
    held = begun(anywhere, foreign(anywhere, kind))
    assert (held.state, held.message, held.last_done) == ("Held", "held by collections/maps", None)
    assert held.documents["collections"]["mnemonics"] == ["maps"]
    assert [line.cause for line in anywhere.engine.store.history(*held.ref)] == ["submit", "hold"], (
        "by the arrow that the table declares"
    )
    assert service.release_collection(anywhere.engine, "maps", who="op").done == 1, "and it rests for that collection"
    assert begun(anywhere, held).state != "Held"


def test_without_a_hold_it_begins_at_once_and_is_known_by_its_collections(anywhere: ServiceCaller) -> None:
    batch = begun(anywhere, foreign(anywhere, "batch"))
    assert (batch.state, batch.documents["collections"]["mnemonics"]) == ("Processing", ["maps"])
    assert [line.cause for line in anywhere.engine.store.history(*batch.ref)] == ["submit", "done"]
    anywhere.ingest.step(batch.ref)
    (job,) = anywhere.engine.store.find("job", documents=True).records
    assert job.documents["configuration"]["collections"] == ["maps"], "so that its jobs are held without another look"
    assert "collections/maps" in job.hold_names


def test_what_nobody_knows_here_begins_as_before(anywhere: ServiceCaller) -> None:
    service.hold_collection(anywhere.engine, "maps", who="op")
    assert "collections" not in begun(anywhere, foreign(anywhere, "batch", profile="elsewhere")).documents
    service.PROFILES.put(anywhere.engine, {"name": "other", "collections": ["ark:/13030/m5none"]}, who="admin")
    assert begun(anywhere, foreign(anywhere, "batch", profile="other")).state == "Processing"


def test_our_own_submissions_ask_for_nothing_more(anywhere: ServiceCaller, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(IngestResources, "get_mnemonics", lambda *args: pytest.fail("it was asked"))
    assert "collections" not in begun(anywhere, anywhere.submit(b"x").batch).documents


@pytest.mark.parametrize("ruby", [False, True], ids=["java", "ruby"])
def test_what_merritts_own_services_have_put_into_the_tree_is_held_too(
    tmp_path: Path, zookeeper_url: str, ruby: bool
) -> None:
    parts = urlsplit(zookeeper_url)
    client = Client(parts.netloc + parts.path, ruby=ruby)
    with IngestFixture(tmp_path, store=zookeeper_url) as ingest, ServiceCaller.at(ingest) as caller, closing(client):
        caller.furnish()
        service.hold_collection(caller.engine, "maps", who="op")
        batch = Batch.create(client, {**THEIRS, "batchID": "bid-theirs"})
        job = Job.create(client, batch.id, {**THEIRS, "batchID": "bid-theirs"})
        if not ruby:
            job.unlock()
        with ingest.workers():
            for kind, id in (("batch", batch.id), ("job", job.id)):
                assert ingest.wait(kind, id, "Held").documents["collections"]["mnemonics"] == ["maps"]
