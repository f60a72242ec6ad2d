"""Old queues imported on each of the three stores: every status, queue and form; what cannot be used; twice; broken
off; on hold.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
import pytest
from kazoo.client import KazooClient

from tests.apps.ingest.ingest_fixture import IngestFixture
from tests.apps.ingest.test_queue_entries import STREAM, TEXT, XML
from tests.stores.zookeeper import nodedump
from waybill.apps.ingest import service
from waybill.apps.ingest.access.orders import ASK_AGAIN
from waybill.apps.ingest.merritt import queue_import, queue_sources
from waybill.apps.ingest.merritt.queue_entries import LegacyQueue, LegacyStatus
from waybill.apps.ingest.merritt.queue_import import QueueImportReport, import_entries
from waybill.apps.ingest.merritt.queue_sources import FolderQueueSource, LegacyQueueSource, open_source
from waybill.engine import Engine
from waybill.errors import FormatError
from waybill.record import Record, Ref, StoreUnavailable
from waybill.step import New

STORES = {"sqlite": "", "postgresql": "fast_postgres_url", "zookeeper": "zookeeper_url"}
SECONDS, MILLISECONDS = 1_600_000_000, 1_600_000_000_000


@pytest.fixture(params=sorted(STORES))
def ingest(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[IngestFixture]:
    fixture = STORES[request.param]
    with IngestFixture(tmp_path, store=request.getfixturevalue(fixture) if fixture else "") as ingest:
        yield ingest
        with ingest.engine() as engine:
            assert list(engine.store.check()) == []
        if fixture == "zookeeper_url":
            client = KazooClient(_hosts(ingest.environment.config.store))
            client.start()
            assert nodedump.faults(client) == []
            client.stop()
            client.close()


def _hosts(url: str) -> str:
    parts = urlsplit(url)
    return parts.netloc + parts.path


class Old:
    """Old queues in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.number = 0
        folder.mkdir()

    def put(
        self,
        said: Mapping[str, object] | bytes,
        status: LegacyStatus = LegacyStatus.Pending,
        queue: LegacyQueue = LegacyQueue.INGEST,
        *,
        time: int = SECONDS,
    ) -> str:
        payload = said if isinstance(said, bytes) else msgspec.json.encode(said)
        place = self.folder / queue[1:]
        place.mkdir(exist_ok=True)
        name = f"mrtQ-021{self.number:010d}"
        self.number += 1
        (place / name).write_bytes(struct.pack(">Bq", status.value, time) + payload)
        return f"{queue}/{name}"

    def source(self) -> LegacyQueueSource:
        return FolderQueueSource(self.folder)


@pytest.fixture
def old(tmp_path: Path) -> Old:
    return Old(tmp_path / "old")


def run(ingest: IngestFixture, old: Old, *, dry_run: bool = False) -> QueueImportReport:
    with ingest.engine() as engine:
        return import_entries(engine, old.source(), who="ann", dry_run=dry_run)


def made_by(engine: Engine, path: str, kind: str = "job") -> Record:
    return engine.store.get(*engine.store.get_by_idempotency_key(kind, f"legacy{path}").ref)


# --- statuses and queues


def test_every_status_of_an_ingest_entry_becomes_the_job_that_the_mapping_says(ingest: IngestFixture, old: Old) -> None:
    paths = {
        status: old.put({"batchID": "bid-1", "profile": "p", "title": status.name}, status) for status in LegacyStatus
    }
    report = run(ingest, old)
    assert (report.entries, report.created, report.refusal_count) == (6, {"batch": 1, "job": 6}, 0)
    with ingest.engine() as engine:
        jobs = {status: made_by(engine, path) for status, path in paths.items()}
        assert {status.name: (job.state, job.last_done) for status, job in jobs.items()} == {
            "Pending": ("Pending", None),
            "Consumed": ("Estimating", "Pending"),
            "Deleted": ("Deleted", None),
            "Failed": ("Failed", "Pending"),
            "Completed": ("Completed", "Notify"),
            "Held": ("Held", None),
        }
        assert {status.name: job.message for status, job in jobs.items() if job.message} == {
            "Failed": f"It had failed in the old queue, entry {paths[LegacyStatus.Failed]}.",
            "Held": f"It was held in the old queue, entry {paths[LegacyStatus.Held]}.",
        }
        batch = engine.store.get_by_idempotency_key("batch", "bid-1")
        assert {job.parent for job in jobs.values()} == {batch.ref}
        assert (batch.state, engine.store.parents_with_open_children([batch.ref])) == ("Pending", {batch.ref})
        assert engine.act(jobs[LegacyStatus.Failed].ref, "resume").record.state == "Estimating"
        assert [line.cause for line in engine.store.history("batch", batch.id)] == ["submit", "release"]


@pytest.mark.parametrize("storing", [False, True])
def test_an_inventory_entry_goes_on_with_recording(tmp_path: Path, old: Old, storing: bool) -> None:
    xml = b"<inventory><manifestURL>http://store.example.org/manifest/1</manifestURL></inventory>"
    paths = {status: old.put(xml, status, LegacyQueue.INVENTORY, time=MILLISECONDS) for status in LegacyStatus}
    with IngestFixture(tmp_path, settings={"storing_state": storing}) as ingest, ingest.engine() as engine:
        report = import_entries(engine, old.source(), who="ann")
        jobs = {status: made_by(engine, path) for status, path in paths.items()}
        assert [jobs[status].state for status in LegacyStatus] == [
            "Recording",
            "Recording",
            "Deleted",
            "Failed",
            "Completed",
            "Failed",
        ]
        assert jobs[LegacyStatus.Pending].documents["inventory"] == {
            "manifest_url": "http://store.example.org/manifest/1",
            "mode": "add",
        }
        assert engine.act(jobs[LegacyStatus.Failed].ref, "resume").record.state == "Recording", (
            "whatever comes before it in the table"
        )
        assert report.created == {"batch": 6, "job": 6}, "each is a batch of its own"
        assert "resume it" in " ".join(note.text for note in report.remarks)


def test_assemblies_go_into_the_queue_of_their_size(ingest: IngestFixture, old: Old) -> None:
    token = {"token": "t1", "delivery-node": 9001, "cloud-content-byte": 12, "status": 202}
    small = {status: old.put(token, status, LegacyQueue.ACCESS_SMALL) for status in LegacyStatus}
    large = old.put({**token, "token": "t2"}, LegacyStatus.Pending, LegacyQueue.ACCESS_LARGE)
    assert run(ingest, old).created == {"access-small": 6, "access-large": 1}
    with ingest.engine() as engine:
        states = [made_by(engine, small[status], "access-small").state for status in LegacyStatus]
        assert states == ["Failed", "Failed", "Deleted", "Failed", "Completed", "Failed"], (
            "none of them can be packed here"
        )
        failed = made_by(engine, large, "access-large")
        assert (failed.documents["token"]["token"], failed.message) == ("t2", ASK_AGAIN)
        engine.act(failed.ref, "requeue", who="op")
    again = ingest.step_until(failed.ref, "Failed")
    assert again.message == ASK_AGAIN, "and does not wait for ever"


@pytest.mark.parametrize("payload", [XML, TEXT, STREAM], ids=["xml", "properties", "java"])
@pytest.mark.parametrize("time", [SECONDS, MILLISECONDS], ids=["seconds", "milliseconds"])
def test_every_form_and_both_kinds_of_time(tmp_path: Path, old: Old, payload: bytes, time: int) -> None:
    path = old.put(payload, time=time)
    with IngestFixture(tmp_path) as ingest, ingest.engine() as engine:
        assert import_entries(engine, old.source(), who="ann").created == {"batch": 1, "job": 1}
        said = made_by(engine, path).documents["configuration"]
        assert (said["batchID"], said["jobID"], said["submissionDate"]) == (
            "bid-1",
            "jid-1",
            "2020-09-13T12:26:40+00:00",
        )
        assert (said["title"], said["erc_what"]) == ("Grüße 😀 & <x>", "Grüße 😀 & <x>"), "in both vocabularies"


# --- batches


def test_the_batch_waits_for_its_jobs_and_is_reported_when_they_have_settled(ingest: IngestFixture, old: Old) -> None:
    url = ingest.web.put("a.txt", b"hello")
    said = {
        "batchID": "bid-1",
        "profile": "p",
        "type": "file",
        "payload_url": url,
        "filename": "a.txt",
        "submitter": "jane",
    }
    paths = [
        old.put({**said, "jobID": f"jid-{n}"}, LegacyStatus.Consumed if n else LegacyStatus.Pending) for n in range(2)
    ]
    old.put({**said, "jobID": "jid-2"}, LegacyStatus.Completed)
    run(ingest, old)
    with ingest.workers(), ingest.engine() as engine:
        batch = engine.store.get_by_idempotency_key("batch", "bid-1")
        assert (batch.owner, batch.documents["submission"]["migrated"]) == ("jane", True)
        ingest.wait("batch", batch.id, "Completed")
        assert [made_by(engine, path).state for path in paths] == ["Completed", "Completed"]
        assert engine.store.count_by_state("job", parent=batch.ref) == {"Completed": 3}, (
            "no job is made a second time from the payload"
        )


def test_a_batch_of_which_nothing_is_left_to_be_done_has_ended_and_is_not_reported_again(
    ingest: IngestFixture, old: Old
) -> None:
    for status in (LegacyStatus.Completed, LegacyStatus.Deleted):
        old.put({"batchID": "bid-1", "profile": "p"}, status)
    run(ingest, old)
    with ingest.engine() as engine:
        batch = engine.store.get_by_idempotency_key("batch", "bid-1")
        assert (batch.state, engine.store.count_by_state("job", parent=batch.ref)) == (
            "Completed",
            {"Completed": 1, "Deleted": 1},
        )


def test_entries_of_a_batch_that_is_here_already_become_jobs_of_it(ingest: IngestFixture, old: Old) -> None:
    with ingest.engine() as engine:
        first = engine.submit(
            New(
                "batch",
                {"submission": {"batchID": "bid-1", "profile": "p"}},
                idempotency_key="bid-1",
                state="Processing",
            )
        )
    path = old.put({"batchID": "bid-1", "profile": "p"})
    assert run(ingest, old).created == {"job": 1}
    with ingest.engine() as engine:
        assert made_by(engine, path).parent == first.ref
        assert engine.store.get(*first.ref).state == "Processing"


def test_a_batch_whose_collection_is_on_hold_stays_held(ingest: IngestFixture, old: Old) -> None:
    old.put({"batchID": "bid-1", "profile": "p"})
    with ingest.engine() as engine:
        engine.set_hold("collections/p", who="ann")
        report = import_entries(engine, old.source(), who="ann")
        assert "stays held" in report.remarks[-1].text
        batch = engine.store.get_by_idempotency_key("batch", "bid-1")
        assert (batch.state, batch.message) == ("Held", queue_import.HELD_MESSAGE)


def test_a_hold_by_the_mnemonic_of_a_collection_stops_what_is_imported(ingest: IngestFixture, old: Old) -> None:
    path = old.put({"batchID": "bid-1", "profile": "p"})
    with ingest.engine() as engine:
        service.COLLECTIONS.put(engine, {"mnemonic": "maps", "ark": "ark:/13030/m5maps"}, who="admin")
        service.PROFILES.put(
            engine, {"name": "p", "collections": ["ark:/13030/m5maps", "ark:/13030/m5none"]}, who="admin"
        )
        engine.set_hold("collections/maps", who="ann")
        report = import_entries(engine, old.source(), who="ann")
        assert "stays held: It is still on hold: collections/maps" in report.remarks[-1].text
        batch, job = engine.store.get(*engine.store.get_by_idempotency_key("batch", "bid-1").ref), made_by(engine, path)
        assert (batch.state, batch.documents["submission"]["collections"]) == ("Held", ["maps"])
        assert job.documents["configuration"]["collections"] == ["maps"]
        assert "collections/maps" in job.hold_names


# --- twice, broken off, dry


def test_a_second_import_makes_nothing_and_undoes_nothing(ingest: IngestFixture, old: Old) -> None:
    paths = [old.put({"batchID": f"bid-{n % 2}", "profile": "p"}) for n in range(5)]
    old.put({"token": "t"}, queue=LegacyQueue.ACCESS_SMALL)
    first = run(ingest, old)
    with ingest.engine() as engine:
        held = engine.store.get_by_idempotency_key("batch", "bid-0")
        engine.act(held.ref, "hold", who="ann")
    paths.append(old.put({"batchID": "bid-1", "profile": "p"}))
    second = run(ingest, old)
    assert (first.created, first.already_imported) == ({"batch": 2, "job": 5, "access-small": 1}, 0)
    assert (second.created, second.already_imported) == ({"job": 1}, 8)
    with ingest.engine() as engine:
        assert engine.store.get(*held.ref).state == "Held", "a person held it, and that is respected"
        assert len({made_by(engine, path).id for path in paths}) == 6


@pytest.mark.parametrize("ended", ["Completed", "Deleted"])
def test_what_has_come_since_a_batch_was_reported_becomes_another_batch_and_is_reported(
    ingest: IngestFixture, old: Old, ended: str
) -> None:
    url = ingest.web.put("a.txt", b"hello")
    said = {"batchID": "bid-1", "profile": "p", "type": "file", "payload_url": url, "filename": "a.txt"}
    first = old.put(said, LegacyStatus.Completed if ended == "Completed" else LegacyStatus.Held)
    run(ingest, old)
    with ingest.engine() as engine:
        one = engine.store.get_by_idempotency_key("batch", "bid-1")
        if ended == "Deleted":
            engine.act(one.ref, "hold", who="op")
            engine.act(one.ref, "delete", who="op", confirmed=True)
    new = old.put(said)
    dry, second, third = run(ingest, old, dry_run=True), run(ingest, old), run(ingest, old)
    assert (
        (dry.created, dry.already_imported) == (second.created, second.already_imported) == ({"batch": 1, "job": 1}, 1)
    )
    assert [note.text for note in second.remarks] == [
        f"{one.ref} is {ended} and is not reported again: its new entries become the batch bid-1.2."
    ]
    assert (third.created, third.already_imported, third.remarks) == ({}, 3, [])
    with ingest.workers(), ingest.engine() as engine:
        two = ingest.wait("batch", engine.store.get_by_idempotency_key("batch", "bid-1.2").id, "Completed")
        assert (two.documents["submission"]["batchID"], two.documents["spawned"]["jobs"]) == ("bid-1.2", 1)
        job = made_by(engine, new)
        assert (job.parent, job.state, job.documents["configuration"]["batchID"]) == (two.ref, "Completed", "bid-1.2")
        assert made_by(engine, first).parent == one.ref
    fourth = run(ingest, old)
    assert (fourth.created, fourth.already_imported) == ({}, 3), "nothing is new, and both are over"
    old.put(said, LegacyStatus.Failed)
    assert "the batch bid-1.3" in run(ingest, old).remarks[0].text


def test_an_import_that_was_broken_off_is_finished_by_the_next(
    ingest: IngestFixture, old: Old, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After any round trip: the batch cannot end before its last job is there."""
    monkeypatch.setattr(queue_import, "CHUNK_SIZE", 2)
    for _ in range(6):
        old.put({"batchID": "bid-1", "profile": "p"}, LegacyStatus.Failed)
    for trips in range(4):
        with ingest.engine() as engine:
            left = iter(range(trips))
            each = engine.submit_each

            def broken(
                *args: object, each: Callable[..., object] = each, left: Iterator[int] = left, **more: object
            ) -> object:
                if next(left, None) is None:
                    raise StoreUnavailable
                return each(*args, **more)

            monkeypatch.setattr(engine, "submit_each", broken)
            if trips < 3:
                with pytest.raises(StoreUnavailable):
                    import_entries(engine, old.source(), who="ann")
                batch = engine.store.get_by_idempotency_key("batch", "bid-1")
                assert (batch.state, sum(engine.store.count_by_state("job", parent=batch.ref).values())) == (
                    "Held",
                    2 * trips,
                )
            else:
                import_entries(engine, old.source(), who="ann")
                assert engine.store.get(*batch.ref).state == "Pending"
                assert engine.store.count_by_state("job", parent=batch.ref) == {"Failed": 6}


def test_a_dry_run_says_what_would_be_made_and_makes_nothing(ingest: IngestFixture, old: Old) -> None:
    old.put({"batchID": "bid-1", "profile": "p"})
    run(ingest, old)
    old.put({"batchID": "bid-1", "profile": "p"}, LegacyStatus.Failed)
    old.put({"token": "t"}, queue=LegacyQueue.ACCESS_LARGE)
    steps: list[tuple[int, int]] = []
    with ingest.engine() as engine:
        report = import_entries(
            engine, old.source(), who="ann", dry_run=True, progress=lambda done, total: steps.append((done, total))
        )
        assert (report.dry_run, report.created, report.already_imported) == (True, {"job": 1, "access-large": 1}, 2)
        assert sum("no payload_url" in note.text for note in report.remarks) == 2
        assert report.states == {"job Pending": 1, "job Failed": 1, "access-large Failed": 1}
        assert sum(engine.store.count_by_state("job").values()) == 1
        assert engine.store.count_by_state("access-large") == {}
    assert steps[-1] == (3, 3)


# --- what cannot be used


def test_what_is_no_entry_is_told_of_and_stops_no_other(ingest: IngestFixture, old: Old) -> None:
    good = old.put({"batchID": "bid-1"})
    bad = old.put(b"\x00\x01\x02\xff")
    (old.folder / "ingest" / "mrtQ-02100000000099").write_bytes(b"\x00")
    (old.folder / "ingest" / "notes.txt").write_bytes(b"hello, this is no entry")
    huge = old.put({"batchID": "bid-2", "note": "x" * 600_000})
    report = run(ingest, old)
    assert (report.entries, report.refusal_count, report.created["job"]) == (5, 4, 1)
    assert {note.path for note in report.refusals} == {bad, huge, "/ingest/mrtQ-02100000000099", "/ingest/notes.txt"}
    with ingest.engine() as engine:
        assert made_by(engine, good).state == "Pending"


def test_only_the_first_refusals_are_kept_and_all_are_counted(tmp_path: Path, old: Old) -> None:
    for _ in range(130):
        old.put(b"\x00\x01\x02\xff")
    with IngestFixture(tmp_path) as ingest:
        report = run(ingest, old)
    assert (report.refusal_count, len(report.refusals)) == (130, 100)


# --- from a ZooKeeper


def test_queues_are_read_from_a_zookeeper_that_still_has_them_and_left_as_they_are(
    tmp_path: Path, zookeeper_url: str
) -> None:
    client = KazooClient(_hosts(zookeeper_url))
    client.start()
    for queue in (LegacyQueue.INGEST, LegacyQueue.ACCESS_SMALL):
        client.create(queue)
    body = struct.pack(">Bq", LegacyStatus.Consumed.value, MILLISECONDS) + msgspec.json.encode(
        {"batchID": "bid-1", "token": "t"}
    )
    names = [
        client.create(f"{queue}/mrtQ-021", body, sequence=True)
        for queue in (LegacyQueue.INGEST, LegacyQueue.INGEST, LegacyQueue.ACCESS_SMALL)
    ]
    client.create("/ingest/mrtQ-0210000000009", None)
    with (
        IngestFixture(tmp_path, store=zookeeper_url) as ingest,
        ingest.engine() as engine,
        open_source(zookeeper_url) as source,
    ):
        report = import_entries(engine, source, who="ann")
        assert (report.created, report.refusal_count) == ({"batch": 1, "job": 2, "access-small": 1}, 1)
        assert made_by(engine, names[0]).parent == Ref("batch", "bid0000000000")
    assert [client.get(name)[0] for name in names] == [body] * 3
    assert nodedump.faults(client) == []
    client.stop()
    client.close()


def test_a_source_that_is_none_is_told_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_sources, "CONNECT_TIMEOUT", 0.2)
    with pytest.raises(FormatError, match="is not a folder"), open_source(str(tmp_path / "nowhere")):
        pass
    with pytest.raises(StoreUnavailable, match="no ZooKeeper at"), open_source("zookeeper://127.0.0.1:1/x"):
        pass
