"""Every transition of the design, by its name: one step at a time, with what must be true after it.

All of them on SQLite. On PostgreSQL and ZooKeeper in `make test` those in which a store has most to do: a whole life, a
repair, holds, and removal with everything below (`every_store`). What a driver must do is in the conformance suite.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import budget
from tests.apps.ingest.ingest_fixture import PATIENCE, IngestFixture
from waybill.apps.ingest.profile import Profile, ProfileCallback, ProfileMail, to_document
from waybill.apps.ingest.submission import PayloadType, Submission
from waybill.engine import Engine
from waybill.maintenance.retention import RetentionRoutine
from waybill.maintenance.routine import MaintenanceContext, run_round
from waybill.record import Change, CommitGroup, CommitResult, Record, RecordNotFound, Ref, encode_document
from waybill.rules import ActionRefused
from waybill.step import New

STORES = {"sqlite": "", "postgres": "fast_postgres_url", "zookeeper": "zookeeper_url"}


every_store = pytest.mark.parametrize("ingest", sorted(STORES), indirect=True)


@pytest.fixture(params=budget.from_environment().pick(small=["sqlite"], long=sorted(STORES)))
def ingest(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[IngestFixture]:
    fixture = STORES[request.param]
    with IngestFixture(tmp_path, store=request.getfixturevalue(fixture) if fixture else "") as ingest:
        with ingest.engine() as engine:
            profile = Profile(name="p", owner="ark:/99999/owner", mail=ProfileMail(to=("depositor@example.org",)))
            engine.submit(New("profile", {"profile": to_document(profile)}, id="p"))
            called = Profile(name="called", callback=ProfileCallback(url=f"{ingest.web.url}/callback"))
            engine.submit(New("profile", {"profile": to_document(called)}, id="called"))
        yield ingest
        with ingest.engine() as engine:
            assert list(engine.store.check()) == []


def deposit(ingest: IngestFixture, data: bytes = b"hello", *, held: bool = False, **said: Any) -> Record:
    """A batch of one file."""
    url = said.pop("url", None) or ingest.web.put("a.txt", data)
    asked = Submission(
        **{"profile": "p", "url": url, "type": PayloadType.FILE, "filename": "a.txt", "batch_id": "bid-1", **said}
    )
    with ingest.engine() as engine:
        if held:
            engine.set_hold("collections/p")
        return engine.submit(New("batch", {"submission": asked.to_document()}, idempotency_key="bid-1"))


def only_job(ingest: IngestFixture, batch: Record) -> Record:
    with ingest.engine() as engine:
        found = engine.store.find("job", parent=batch.ref, limit=10, documents=True).records
    assert len(found) == 1
    return found[0]


def job_in(ingest: IngestFixture, state: str, **said: Any) -> Record:
    """The job of a new batch, led to this state."""
    batch = deposit(ingest, **said)
    ingest.step_until(batch.ref, "Processing")
    ingest.step(batch.ref)
    return ingest.step_until(only_job(ingest, batch).ref, state)


def act(ingest: IngestFixture, ref: Ref, name: str, **options: Any) -> Record:
    with ingest.engine() as engine:
        return engine.act(ref, name, who="operator", **options).record


def arrow(ingest: IngestFixture, ref: Ref) -> tuple[str, str]:
    """The one step of this record that is due, as (before, after)."""
    taken = ingest.step(ref)
    assert taken is not None
    return taken.before, taken.after


def batch_in(ingest: IngestFixture, state: str, **said: Any) -> Record:
    """A batch of one job, with the job done, led to this state."""
    batch = deposit(ingest, **said)
    ingest.step_until(batch.ref, "Processing")
    ingest.step(batch.ref)
    ingest.step_until(only_job(ingest, batch).ref, "Completed", "Failed")
    return ingest.step_until(batch.ref, state)


# --- batch


def test_a_submission_makes_a_pending_batch(ingest: IngestFixture) -> None:
    batch = deposit(ingest)
    assert (batch.state, batch.documents["submission"]["payload_url"].startswith("http://")) == ("Pending", True)


def test_batch_pending_to_held(ingest: IngestFixture) -> None:
    batch = deposit(ingest, held=True)
    assert arrow(ingest, batch.ref) == ("Pending", "Held")


def test_batch_pending_to_processing(ingest: IngestFixture) -> None:
    batch = deposit(ingest)
    assert arrow(ingest, batch.ref) == ("Pending", "Processing")
    ingest.step(batch.ref)
    job = only_job(ingest, batch)
    assert (job.state, job.parent, job.documents["configuration"]["profile_name"]) == ("Pending", batch.ref, "p")


@every_store
def test_batch_held_to_pending(ingest: IngestFixture) -> None:
    batch = deposit(ingest, held=True)
    ingest.step(batch.ref)
    with pytest.raises(ActionRefused, match="still on hold"):
        act(ingest, batch.ref, "release")
    with ingest.engine() as engine:
        engine.clear_hold("collections/p")
    assert act(ingest, batch.ref, "release").state == "Pending"
    assert arrow(ingest, batch.ref) == ("Pending", "Processing")


def test_batch_processing_to_reporting_when_every_job_has_settled(ingest: IngestFixture) -> None:
    batch = deposit(ingest)
    ingest.step_until(batch.ref, "Processing")
    ingest.step(batch.ref)
    job = only_job(ingest, batch)
    ingest.step_until(job.ref, "Notify")
    assert ingest.get(*batch.ref).state == "Processing"
    ingest.step_until(job.ref, "Completed")
    assert arrow(ingest, batch.ref) == ("Processing", "Reporting")


@every_store
def test_batch_reporting_to_completed(ingest: IngestFixture) -> None:
    batch = batch_in(ingest, "Reporting")
    assert arrow(ingest, batch.ref) == ("Reporting", "Completed")
    report = ingest.get(*batch.ref).documents["status-report"]
    assert (report["failed_jobs"], report["successful_jobs"]) == ([], [only_job(ingest, batch).id])


def test_batch_reporting_to_failed(ingest: IngestFixture) -> None:
    batch = batch_in(ingest, "Reporting", url=f"{ingest.web.url}/not-there.txt")
    assert arrow(ingest, batch.ref) == ("Reporting", "Failed")
    report = ingest.get(*batch.ref).documents["status-report"]
    assert (report["failed_jobs"], report["successful_jobs"]) == ([only_job(ingest, batch).id], [])


def failed_batch(ingest: IngestFixture) -> tuple[Record, Record]:
    """A batch that failed because its file is not there, and its job."""
    url = f"{ingest.web.url}/late.txt"
    batch = batch_in(ingest, "Failed", url=url)
    return batch, only_job(ingest, batch)


def test_batch_failed_to_updatereporting(ingest: IngestFixture) -> None:
    batch, _ = failed_batch(ingest)
    assert act(ingest, batch.ref, "report").state == "UpdateReporting"


@every_store
def test_batch_updatereporting_to_completed(ingest: IngestFixture) -> None:
    batch, job = failed_batch(ingest)
    ingest.web.put("late.txt", b"here now")
    act(ingest, job.ref, "resume")
    ingest.step_until(job.ref, "Completed")
    act(ingest, batch.ref, "report")
    assert arrow(ingest, batch.ref) == ("UpdateReporting", "Completed")
    report = ingest.get(*batch.ref).documents["status-report"]
    assert (report["failed_jobs"], report["successful_jobs"]) == ([], [job.id])


def test_batch_updatereporting_to_failed(ingest: IngestFixture) -> None:
    batch, job = failed_batch(ingest)
    act(ingest, batch.ref, "report")
    assert arrow(ingest, batch.ref) == ("UpdateReporting", "Failed")
    assert ingest.get(*batch.ref).documents["status-report"]["failed_jobs"] == [job.id]


def removed(ingest: IngestFixture, batch: Record, job: Record | None, keep: float = 0.0) -> None:
    """The duty takes away what is done with, and nothing of it is left."""
    with ingest.engine() as engine:
        hand = MaintenanceContext(
            engine.store,
            engine.machines,
            "testhost",
            ingest.root,
            retention={"batch.Completed": keep, "batch.Deleted": 0.0},
        )
        run_round(RetentionRoutine(), hand)
        for ref in [batch.ref, *([job.ref] if job else [])]:
            with pytest.raises(RecordNotFound):
                engine.store.get(*ref)
    assert not list((ingest.root / "queue").glob("bid-1/*")) if (ingest.root / "queue").exists() else True


@every_store
def test_batch_failed_to_deleted(ingest: IngestFixture) -> None:
    batch, job = failed_batch(ingest)
    with pytest.raises(ActionRefused, match="gets no report"):
        act(ingest, batch.ref, "delete")
    assert act(ingest, batch.ref, "delete", confirmed=True).state == "Deleted"
    for action in ("resume", "restart"):  # it would be stored, and nobody hear of it
        with pytest.raises(ActionRefused, match="Its batch was deleted"):
            act(ingest, job.ref, action)
    removed(ingest, batch, job)


@every_store
def test_working_folders_of_deleted_records_are_removed_long_before_the_next_maintenance_round(
    ingest: IngestFixture,
) -> None:
    batch, job = failed_batch(ingest)
    folder = ingest.root / "queue" / "bid-1"
    job_folder = next(folder.glob("jid-*"))
    with ingest.workers(queues=["maintenance"], maintenance=True), ingest.engine() as engine:
        for name in ("retention", f"working-folders@{ingest.environment.host}"):
            # its first round is over
            until(engine, lambda: "memory" in engine.store.get("maintenance", name).documents)  # noqa: B023
        assert job_folder.exists()
        act(ingest, job.ref, "delete", confirmed=True)
        until(engine, lambda: not job_folder.exists())
        act(ingest, batch.ref, "delete", confirmed=True)
        until(engine, lambda: not engine.store.find("batch").records and not folder.exists())


def until(engine: Engine, holds: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < end
        engine.store.watch(0.1)


def test_batch_held_to_deleted(ingest: IngestFixture) -> None:
    batch = deposit(ingest, held=True)
    ingest.step(batch.ref)
    assert act(ingest, batch.ref, "delete", confirmed=True).state == "Deleted"
    removed(ingest, batch, None)


def test_batch_completed_to_automatic_cleanup(ingest: IngestFixture) -> None:
    batch = batch_in(ingest, "Completed")
    job = only_job(ingest, batch)
    removed(ingest, batch, job, keep=-1.0)


# --- job


def test_job_pending_to_failed_when_the_digest_does_not_match(ingest: IngestFixture) -> None:
    name = "ingest/payloads/u1/a.txt"
    ingest.environment.objects.put(name, b"hello")
    received = {"md5": hashlib.md5(b"hello").hexdigest(), "sha256": hashlib.sha256(b"hello").hexdigest()}
    job = job_in(
        ingest,
        "Pending",
        url=f"waybill:{name}",
        digest_type="md5",
        digest_value="0" * 32,
        received_digests=received,
        size=5,
    )
    assert arrow(ingest, job.ref) == ("Pending", "Failed")
    with pytest.raises(ActionRefused, match="submit it again"):
        act(ingest, job.ref, "resume")
    assert ingest.get(*job.ref).last_done is None


def test_job_pending_to_failed_when_the_manifest_is_corrupt(ingest: IngestFixture) -> None:
    url = ingest.web.put(
        "m.checkm",
        b"#%checkm_0.7\n#%profile | http://uc3.cdlib.org/registry/ingest/manifest/mrt-ingest-manifest\nnonsense\n",
    )
    job = job_in(ingest, "Pending", url=url, type=PayloadType.OBJECT, filename="m.checkm")
    assert arrow(ingest, job.ref) == ("Pending", "Failed")
    failed = ingest.get(*job.ref)
    assert "Line 3" in json.dumps(failed.documents["refusal"])
    with pytest.raises(ActionRefused, match="submit it again"):
        act(ingest, job.ref, "resume")


def test_job_pending_to_held(ingest: IngestFixture) -> None:
    job = job_in(ingest, "Pending")
    with ingest.engine() as engine:
        engine.set_hold("collections/p")
    assert arrow(ingest, job.ref) == ("Pending", "Held")


def test_job_pending_to_estimating(ingest: IngestFixture) -> None:
    job = job_in(ingest, "Pending")
    assert arrow(ingest, job.ref) == ("Pending", "Estimating")
    assert ingest.get(*job.ref).last_done == "Pending"


@every_store
def test_job_held_to_pending(ingest: IngestFixture) -> None:
    job = job_in(ingest, "Pending")
    assert act(ingest, job.ref, "hold").state == "Held"
    assert act(ingest, job.ref, "release").state == "Pending"


def test_job_estimating_to_provisioning(ingest: IngestFixture) -> None:
    job = job_in(ingest, "Estimating", data=b"x" * 1234)
    assert arrow(ingest, job.ref) == ("Estimating", "Provisioning")
    after = ingest.get(*job.ref)
    assert (after.documents["space_needed"] >= 1234, after.last_done) == (True, "Estimating")


def test_job_provisioning_to_downloading(ingest: IngestFixture) -> None:
    job = job_in(ingest, "Provisioning")
    assert arrow(ingest, job.ref) == ("Provisioning", "Downloading")


def test_job_downloading_to_processing(ingest: IngestFixture) -> None:
    job = job_in(ingest, "Downloading")
    assert arrow(ingest, job.ref) == ("Downloading", "Processing")
    folder = next((ingest.root / "queue" / "bid-1").iterdir())
    assert (folder / "producer" / "a.txt").read_bytes() == b"hello"


def test_job_downloading_to_failed(ingest: IngestFixture) -> None:
    job = job_in(ingest, "Downloading", url=f"{ingest.web.url}/not-there.txt")
    assert arrow(ingest, job.ref) == ("Downloading", "Failed")
    assert ingest.get(*job.ref).last_done == "Provisioning"


def test_job_processing_to_recording(ingest: IngestFixture) -> None:
    job = job_in(ingest, "Processing")
    assert arrow(ingest, job.ref) == ("Processing", "Recording")
    after = ingest.get(*job.ref)
    assert after.documents["identifiers"]["primary_id"].startswith("ark:/99999/fk4")
    assert after.documents["inventory"]["manifest_url"]


def taken_local_id(ingest: IngestFixture) -> Record:
    """A job whose ARK is not the one that its local id has."""
    first = job_in(ingest, "Completed", local_ids=("loc1",))
    assert first.documents["identifiers"]["local_id"] == ["loc1"]
    url = ingest.web.put("b.txt", b"other")
    said = Submission(
        profile="p",
        url=url,
        type=PayloadType.FILE,
        filename="b.txt",
        batch_id="bid-2",
        primary_id="ark:/99999/fk4other",
        local_ids=("loc1",),
    )
    with ingest.engine() as engine:
        batch = engine.submit(New("batch", {"submission": said.to_document()}, idempotency_key="bid-2"))
    ingest.step_until(batch.ref, "Processing")
    ingest.step(batch.ref)
    return ingest.step_until(only_job(ingest, batch).ref, "Processing")


def test_job_processing_to_failed(ingest: IngestFixture) -> None:
    job = taken_local_id(ingest)
    assert arrow(ingest, job.ref) == ("Processing", "Failed")
    after = ingest.get(*job.ref)
    assert ("loc1" in after.message, after.last_done) == (True, "Downloading")


def test_job_recording_to_notify(ingest: IngestFixture) -> None:
    job = job_in(ingest, "Recording")
    assert arrow(ingest, job.ref) == ("Recording", "Notify")
    ark = job.documents["identifiers"]["primary_id"]
    assert ingest.resources.inventory.get_object(ark) is not None


def test_job_recording_to_failed(ingest: IngestFixture) -> None:
    job = job_in(ingest, "Recording")
    url = ingest.web.put("no-manifest", b"this is no manifest")
    with ingest.engine() as engine:  # another storage service has stored it, and its manifest is none
        record = engine.store.get(*job.ref)
        docs = {"stored": None, "inventory": encode_document({"manifest_url": url, "mode": "add"})}
        answer = engine.store.commit([CommitGroup((Change(record, record, "spoil", documents=docs),))])[0]
        assert isinstance(answer, CommitResult)
    ingest.step_until(job.ref, "Failed")
    assert ingest.get(*job.ref).last_done == "Processing"


def test_job_notify_to_completed(ingest: IngestFixture) -> None:
    job = job_in(ingest, "Notify")
    folder = next((ingest.root / "queue" / "bid-1").iterdir())
    assert arrow(ingest, job.ref) == ("Notify", "Completed")
    assert not folder.exists()


def refuse(handler: Any) -> None:
    handler.rfile.read(int(handler.headers.get("Content-Length", 0)))
    handler.send_response(403)
    handler.send_header("Content-Length", "0")
    handler.end_headers()


def accept(handler: Any) -> None:
    handler.rfile.read(int(handler.headers.get("Content-Length", 0)))
    handler.send_response(200)
    handler.send_header("Content-Length", "0")
    handler.end_headers()


def failed_callback(ingest: IngestFixture) -> Record:
    job = job_in(ingest, "Notify", profile="called")
    path = f"/callback/mc/{job.documents['configuration']['jobID']}"
    ingest.web.answers[path] = refuse
    ingest.step_until(job.ref, "Failed")
    ingest.web.answers[path] = accept
    return ingest.get(*job.ref)


def test_job_notify_to_failed(ingest: IngestFixture) -> None:
    assert failed_callback(ingest).last_done == "Recording"


def test_job_failed_to_downloading(ingest: IngestFixture) -> None:
    job = job_in(ingest, "Failed", url=f"{ingest.web.url}/late.txt")
    assert job.last_done == "Provisioning"
    resumed = act(ingest, job.ref, "resume")
    assert (resumed.state, resumed.resume_count) == ("Downloading", 1)


@every_store
def test_job_failed_to_processing(ingest: IngestFixture) -> None:
    job = taken_local_id(ingest)
    ingest.step_until(job.ref, "Failed")
    resumed = act(ingest, job.ref, "resume")
    assert (resumed.state, resumed.resume_count) == ("Processing", 1)


def test_job_failed_to_recording(ingest: IngestFixture) -> None:
    job = job_in(ingest, "Recording")
    act(ingest, job.ref, "fail", confirmed=True)
    resumed = act(ingest, job.ref, "resume")
    assert (resumed.state, resumed.resume_count) == ("Recording", 1)


def test_job_failed_to_notify(ingest: IngestFixture) -> None:
    job = failed_callback(ingest)
    resumed = act(ingest, job.ref, "resume")
    assert (resumed.state, resumed.resume_count) == ("Notify", 1)
    assert arrow(ingest, job.ref) == ("Notify", "Completed")


@every_store
def test_job_completed_to_deleted_by_the_automated_task(ingest: IngestFixture) -> None:
    batch = batch_in(ingest, "Completed")
    job = only_job(ingest, batch)
    assert not list((ingest.root / "queue").glob("bid-1/jid-*"))
    removed(ingest, batch, job, keep=-1.0)


def test_job_failed_to_deleted(ingest: IngestFixture) -> None:
    job = job_in(ingest, "Failed", url=f"{ingest.web.url}/late.txt")
    with pytest.raises(ActionRefused, match="no report will name this job"):
        act(ingest, job.ref, "delete")
    assert act(ingest, job.ref, "delete", confirmed=True).state == "Deleted"
    assert job.parent is not None
    done = ingest.step_until(job.parent, "Completed")
    assert done.documents["status-report"]["counts"]["deleted"] == 1


def test_a_job_of_a_failed_batch_is_deleted_only_when_that_is_confirmed(ingest: IngestFixture) -> None:
    batch, job = failed_batch(ingest)
    with pytest.raises(ActionRefused, match="Its batch is not completed"):
        act(ingest, job.ref, "delete")
    assert act(ingest, job.ref, "delete", confirmed=True).state == "Deleted"
    act(ingest, batch.ref, "report")
    assert ingest.step_until(batch.ref, "Completed").documents["status-report"]["counts"]["deleted"] == 1


def test_job_held_to_deleted(ingest: IngestFixture) -> None:
    job = job_in(ingest, "Pending")
    act(ingest, job.ref, "hold")
    assert act(ingest, job.ref, "delete", confirmed=True).state == "Deleted"
    assert job.parent is not None
    assert ingest.step_until(job.parent, "Completed").documents["status-report"]["counts"]["deleted"] == 1


@every_store
def test_what_is_restarted_after_it_was_stored_is_another_version(ingest: IngestFixture) -> None:
    job = failed_callback(ingest)
    ingest.web.put("a.txt", b"hello again")
    assert act(ingest, job.ref, "restart").state == "Estimating"
    done = ingest.step_until(job.ref, "Completed")
    assert done.documents["stored"]["version"] == 2
    with ingest.resources.storage.open_file(done.documents["stored"]["object"], "producer/a.txt") as body:
        assert body.read() == b"hello again"


def test_an_update_keeps_what_it_does_not_say(ingest: IngestFixture) -> None:
    first = job_in(ingest, "Completed", local_ids=("loc1",), title="Big Hunt", creator="Tracy", date="2009")
    ark = first.documents["identifiers"]["primary_id"]
    url = ingest.web.put("b.txt", b"more")
    said = Submission(
        profile="p",
        url=url,
        type=PayloadType.FILE,
        filename="b.txt",
        batch_id="bid-2",
        primary_id=ark,
        update=True,
        date="2010",
    )
    with ingest.engine() as engine:
        batch = engine.submit(New("batch", {"submission": said.to_document()}, idempotency_key="bid-2"))
    ingest.step_until(batch.ref, "Processing")
    ingest.step(batch.ref)
    job = only_job(ingest, batch)
    ingest.step_until(job.ref, "Recording")
    system = next((ingest.root / "queue" / "bid-2").iterdir()) / "system"
    assert b"what: Big Hunt" in (system / "mrt-erc.txt").read_bytes()
    ingest.step_until(job.ref, "Completed")
    resources = ingest.resources
    row = resources.inventory.get_object(ark)
    assert row is not None
    assert (row["title"], row["creator"], row["date"]) == ("Big Hunt", "Tracy", "2010")
    with resources.storage.open_manifest(resources.storage.get_version(ark)) as reader:
        assert {"producer/a.txt", "producer/b.txt"} <= {entry.uri for entry in reader}


def test_an_object_stays_with_its_owner(ingest: IngestFixture) -> None:
    ark = job_in(ingest, "Completed").documents["identifiers"]["primary_id"]
    with ingest.engine() as engine:
        engine.submit(
            New("profile", {"profile": to_document(Profile(name="other", owner="ark:/99999/somebody"))}, id="other")
        )
        url = ingest.web.put("b.txt", b"x")
        said = Submission(
            profile="other", url=url, type=PayloadType.FILE, filename="b.txt", batch_id="bid-2", primary_id=ark
        )
        batch = engine.submit(New("batch", {"submission": said.to_document()}, idempotency_key="bid-2"))
    ingest.step_until(batch.ref, "Processing")
    ingest.step(batch.ref)
    job = ingest.step_until(only_job(ingest, batch).ref, "Failed")
    assert f"{ark} belongs to ark:/99999/owner" in job.message
    assert len(ingest.resources.storage.list_versions(ark)) == 1


def test_a_profile_that_is_gone_fails_the_job_and_not_in_silence(ingest: IngestFixture) -> None:
    """It was there when the deposit was taken in: without it nobody would be called, and EZID told of nothing."""
    job = job_in(ingest, "Processing", profile="called", is_profile_checked=True)
    with ingest.engine() as engine:
        record = engine.store.get("profile", "called")
        answer = engine.store.commit([CommitGroup((Change(record, None, "remove"),))])[0]
        assert isinstance(answer, CommitResult)
    ingest.resources.close()
    ingest.resources._profiles.clear()
    failed = ingest.step_until(job.ref, "Failed")
    assert "The profile called no longer exists" in failed.message
    with ingest.engine() as engine:
        engine.submit(New("profile", {"profile": to_document(Profile(name="called"))}, id="called"))
    act(ingest, job.ref, "resume")
    assert ingest.step_until(job.ref, "Completed").documents["stored"]["version"] == 1
