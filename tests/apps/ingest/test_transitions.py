"""Every transition of the design, by its name, on all three stores: one step at a time, with what must be true after
it.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.apps.ingest.site import PATIENCE, Site
from waybill.apps.ingest.profile import Callback, Mail, Profile, to_document
from waybill.apps.ingest.submission import Submission, Type
from waybill.duties.duty import Hand, a_round
from waybill.duties.retention import Retention
from waybill.engine import Engine
from waybill.record import Change, Committed, Group, NotFound, Record, Ref, encode
from waybill.rules import Refused
from waybill.step import New

STORES = {"sqlite": "", "postgres": "fast_postgres_url", "zookeeper": "zookeeper_url"}


@pytest.fixture(params=sorted(STORES))
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    fixture = STORES[request.param]
    with Site(tmp_path, store=request.getfixturevalue(fixture) if fixture else "") as site:
        with site.engine() as engine:
            profile = Profile(name="p", owner="ark:/99999/owner", mail=Mail(to=("depositor@example.org",)))
            engine.submit(New("profile", {"profile": to_document(profile)}, id="p"))
            called = Profile(name="called", callback=Callback(url=f"{site.web.url}/callback"))
            engine.submit(New("profile", {"profile": to_document(called)}, id="called"))
        yield site
        with site.engine() as engine:
            assert list(engine.store.check()) == []


def deposit(site: Site, data: bytes = b"hello", *, held: bool = False, **said: Any) -> Record:
    """A batch of one file."""
    url = said.pop("url", None) or site.web.put("a.txt", data)
    asked = Submission(
        **{"profile": "p", "url": url, "type": Type.FILE, "filename": "a.txt", "batch_id": "bid-1", **said}
    )
    with site.engine() as engine:
        if held:
            engine.hold("collections/p")
        return engine.submit(New("batch", {"submission": asked.document()}, request="bid-1"))


def only_job(site: Site, batch: Record) -> Record:
    with site.engine() as engine:
        found = engine.store.find("job", parent=batch.ref, limit=10, docs=True).records
    assert len(found) == 1
    return found[0]


def job_in(site: Site, state: str, **said: Any) -> Record:
    """The job of a new batch, led to this state."""
    batch = deposit(site, **said)
    site.lead(batch.ref, "Processing")
    site.step(batch.ref)
    return site.lead(only_job(site, batch).ref, state)


def act(site: Site, ref: Ref, name: str, **options: Any) -> Record:
    with site.engine() as engine:
        return engine.act(ref, name, who="operator", **options).record


def arrow(site: Site, ref: Ref) -> tuple[str, str]:
    """The one step of this record that is due, as (before, after)."""
    taken = site.step(ref)
    assert taken is not None
    return taken.before, taken.after


def batch_in(site: Site, state: str, **said: Any) -> Record:
    """A batch of one job, with the job done, led to this state."""
    batch = deposit(site, **said)
    site.lead(batch.ref, "Processing")
    site.step(batch.ref)
    site.lead(only_job(site, batch).ref, "Completed", "Failed")
    return site.lead(batch.ref, state)


# --- batch


def test_a_submission_makes_a_pending_batch(site: Site) -> None:
    batch = deposit(site)
    assert (batch.state, batch.docs["submission"]["payload_url"].startswith("http://")) == ("Pending", True)


def test_batch_pending_to_held(site: Site) -> None:
    batch = deposit(site, held=True)
    assert arrow(site, batch.ref) == ("Pending", "Held")


def test_batch_pending_to_processing(site: Site) -> None:
    batch = deposit(site)
    assert arrow(site, batch.ref) == ("Pending", "Processing")
    site.step(batch.ref)
    job = only_job(site, batch)
    assert (job.state, job.parent, job.docs["configuration"]["profile_name"]) == ("Pending", batch.ref, "p")


def test_batch_held_to_pending(site: Site) -> None:
    batch = deposit(site, held=True)
    site.step(batch.ref)
    with pytest.raises(Refused, match="still on hold"):
        act(site, batch.ref, "release")
    with site.engine() as engine:
        engine.release("collections/p")
    assert act(site, batch.ref, "release").state == "Pending"
    assert arrow(site, batch.ref) == ("Pending", "Processing")


def test_batch_processing_to_reporting_when_every_job_has_settled(site: Site) -> None:
    batch = deposit(site)
    site.lead(batch.ref, "Processing")
    site.step(batch.ref)
    job = only_job(site, batch)
    site.lead(job.ref, "Notify")
    assert site.get(*batch.ref).state == "Processing"
    site.lead(job.ref, "Completed")
    assert arrow(site, batch.ref) == ("Processing", "Reporting")


def test_batch_reporting_to_completed(site: Site) -> None:
    batch = batch_in(site, "Reporting")
    assert arrow(site, batch.ref) == ("Reporting", "Completed")
    report = site.get(*batch.ref).docs["status-report"]
    assert (report["failed_jobs"], report["successful_jobs"]) == ([], [only_job(site, batch).id])


def test_batch_reporting_to_failed(site: Site) -> None:
    batch = batch_in(site, "Reporting", url=f"{site.web.url}/not-there.txt")
    assert arrow(site, batch.ref) == ("Reporting", "Failed")
    report = site.get(*batch.ref).docs["status-report"]
    assert (report["failed_jobs"], report["successful_jobs"]) == ([only_job(site, batch).id], [])


def failed_batch(site: Site) -> tuple[Record, Record]:
    """A batch that failed because its file is not there, and its job."""
    url = f"{site.web.url}/late.txt"
    batch = batch_in(site, "Failed", url=url)
    return batch, only_job(site, batch)


def test_batch_failed_to_updatereporting(site: Site) -> None:
    batch, _ = failed_batch(site)
    assert act(site, batch.ref, "report").state == "UpdateReporting"


def test_batch_updatereporting_to_completed(site: Site) -> None:
    batch, job = failed_batch(site)
    site.web.put("late.txt", b"here now")
    act(site, job.ref, "resume")
    site.lead(job.ref, "Completed")
    act(site, batch.ref, "report")
    assert arrow(site, batch.ref) == ("UpdateReporting", "Completed")
    report = site.get(*batch.ref).docs["status-report"]
    assert (report["failed_jobs"], report["successful_jobs"]) == ([], [job.id])


def test_batch_updatereporting_to_failed(site: Site) -> None:
    batch, job = failed_batch(site)
    act(site, batch.ref, "report")
    assert arrow(site, batch.ref) == ("UpdateReporting", "Failed")
    assert site.get(*batch.ref).docs["status-report"]["failed_jobs"] == [job.id]


def removed(site: Site, batch: Record, job: Record | None, keep: float = 0.0) -> None:
    """The duty takes away what is done with, and nothing of it is left."""
    with site.engine() as engine:
        hand = Hand(
            engine.store,
            engine.machines,
            "testhost",
            site.root,
            retention={"batch.Completed": keep, "batch.Deleted": 0.0},
        )
        a_round(Retention(), hand)
        for ref in [batch.ref, *([job.ref] if job else [])]:
            with pytest.raises(NotFound):
                engine.store.get(*ref)
    assert not list((site.root / "queue").glob("bid-1/*")) if (site.root / "queue").exists() else True


def test_batch_failed_to_deleted(site: Site) -> None:
    batch, job = failed_batch(site)
    with pytest.raises(Refused, match="will not be told"):
        act(site, batch.ref, "delete")
    assert act(site, batch.ref, "delete", confirmed=True).state == "Deleted"
    for action in ("resume", "restart"):  # it would be stored, and nobody hear of it
        with pytest.raises(Refused, match="Its batch was deleted"):
            act(site, job.ref, action)
    removed(site, batch, job)


def test_what_an_operator_deletes_goes_with_its_working_folders_long_before_the_duties_next_round(site: Site) -> None:
    batch, job = failed_batch(site)
    folder = site.root / "queue" / "bid-1"
    job_folder = next(folder.glob("jid-*"))
    with site.workers(roles=["duty"], duties=True), site.engine() as engine:
        for name in ("retention", f"folders@{site.depot.host}"):
            # its first round is over
            until(engine, lambda: "memory" in engine.store.get("duty", name).docs)  # noqa: B023
        assert job_folder.exists()
        act(site, job.ref, "delete", confirmed=True)
        until(engine, lambda: not job_folder.exists())
        act(site, batch.ref, "delete", confirmed=True)
        until(engine, lambda: not engine.store.find("batch").records and not folder.exists())


def until(engine: Engine, holds: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < end
        engine.store.watch(0.1)


def test_batch_held_to_deleted(site: Site) -> None:
    batch = deposit(site, held=True)
    site.step(batch.ref)
    assert act(site, batch.ref, "delete", confirmed=True).state == "Deleted"
    removed(site, batch, None)


def test_batch_completed_to_automatic_cleanup(site: Site) -> None:
    batch = batch_in(site, "Completed")
    job = only_job(site, batch)
    removed(site, batch, job, keep=-1.0)


# --- job


def test_job_pending_to_failed_when_the_digest_does_not_match(site: Site) -> None:
    name = "ingest/payloads/u1/a.txt"
    site.depot.objects.put(name, b"hello")
    received = {"md5": hashlib.md5(b"hello").hexdigest(), "sha256": hashlib.sha256(b"hello").hexdigest()}
    job = job_in(
        site, "Pending", url=f"waybill:{name}", digest_type="md5", digest_value="0" * 32, received=received, size=5
    )
    assert arrow(site, job.ref) == ("Pending", "Failed")
    with pytest.raises(Refused, match="submit it again"):
        act(site, job.ref, "resume")
    assert site.get(*job.ref).last_done is None


def test_job_pending_to_failed_when_the_manifest_is_corrupt(site: Site) -> None:
    url = site.web.put(
        "m.checkm",
        b"#%checkm_0.7\n#%profile | http://uc3.cdlib.org/registry/ingest/manifest/mrt-ingest-manifest\nnonsense\n",
    )
    job = job_in(site, "Pending", url=url, type=Type.OBJECT, filename="m.checkm")
    assert arrow(site, job.ref) == ("Pending", "Failed")
    failed = site.get(*job.ref)
    assert "Line 3" in json.dumps(failed.docs["refusal"])
    with pytest.raises(Refused, match="submit it again"):
        act(site, job.ref, "resume")


def test_job_pending_to_held(site: Site) -> None:
    job = job_in(site, "Pending")
    with site.engine() as engine:
        engine.hold("collections/p")
    assert arrow(site, job.ref) == ("Pending", "Held")


def test_job_pending_to_estimating(site: Site) -> None:
    job = job_in(site, "Pending")
    assert arrow(site, job.ref) == ("Pending", "Estimating")
    assert site.get(*job.ref).last_done == "Pending"


def test_job_held_to_pending(site: Site) -> None:
    job = job_in(site, "Pending")
    assert act(site, job.ref, "hold").state == "Held"
    assert act(site, job.ref, "release").state == "Pending"


def test_job_estimating_to_provisioning(site: Site) -> None:
    job = job_in(site, "Estimating", data=b"x" * 1234)
    assert arrow(site, job.ref) == ("Estimating", "Provisioning")
    after = site.get(*job.ref)
    assert (after.docs["space_needed"] >= 1234, after.last_done) == (True, "Estimating")


def test_job_provisioning_to_downloading(site: Site) -> None:
    job = job_in(site, "Provisioning")
    assert arrow(site, job.ref) == ("Provisioning", "Downloading")


def test_job_downloading_to_processing(site: Site) -> None:
    job = job_in(site, "Downloading")
    assert arrow(site, job.ref) == ("Downloading", "Processing")
    folder = next((site.root / "queue" / "bid-1").iterdir())
    assert (folder / "producer" / "a.txt").read_bytes() == b"hello"


def test_job_downloading_to_failed(site: Site) -> None:
    job = job_in(site, "Downloading", url=f"{site.web.url}/not-there.txt")
    assert arrow(site, job.ref) == ("Downloading", "Failed")
    assert site.get(*job.ref).last_done == "Provisioning"


def test_job_processing_to_recording(site: Site) -> None:
    job = job_in(site, "Processing")
    assert arrow(site, job.ref) == ("Processing", "Recording")
    after = site.get(*job.ref)
    assert after.docs["identifiers"]["primary_id"].startswith("ark:/99999/fk4")
    assert after.docs["inventory"]["manifest_url"]


def taken_local_id(site: Site) -> Record:
    """A job whose ARK is not the one that its local id has."""
    first = job_in(site, "Completed", local_ids=("loc1",))
    assert first.docs["identifiers"]["local_id"] == ["loc1"]
    url = site.web.put("b.txt", b"other")
    said = Submission(
        profile="p",
        url=url,
        type=Type.FILE,
        filename="b.txt",
        batch_id="bid-2",
        primary_id="ark:/99999/fk4other",
        local_ids=("loc1",),
    )
    with site.engine() as engine:
        batch = engine.submit(New("batch", {"submission": said.document()}, request="bid-2"))
    site.lead(batch.ref, "Processing")
    site.step(batch.ref)
    return site.lead(only_job(site, batch).ref, "Processing")


def test_job_processing_to_failed(site: Site) -> None:
    job = taken_local_id(site)
    assert arrow(site, job.ref) == ("Processing", "Failed")
    after = site.get(*job.ref)
    assert ("loc1" in after.message, after.last_done) == (True, "Downloading")


def test_job_recording_to_notify(site: Site) -> None:
    job = job_in(site, "Recording")
    assert arrow(site, job.ref) == ("Recording", "Notify")
    ark = job.docs["identifiers"]["primary_id"]
    assert site.depot.outfit("job").inventory.object(ark) is not None


def test_job_recording_to_failed(site: Site) -> None:
    job = job_in(site, "Recording")
    url = site.web.put("no-manifest", b"this is no manifest")
    with site.engine() as engine:  # another storage service has stored it, and its manifest is none
        record = engine.store.get(*job.ref)
        docs = {"stored": None, "inventory": encode({"manifest_url": url, "mode": "add"})}
        answer = engine.store.commit([Group((Change(record, record, "spoil", docs=docs),))])[0]
        assert isinstance(answer, Committed)
    site.lead(job.ref, "Failed")
    assert site.get(*job.ref).last_done == "Processing"


def test_job_notify_to_completed(site: Site) -> None:
    job = job_in(site, "Notify")
    folder = next((site.root / "queue" / "bid-1").iterdir())
    assert arrow(site, job.ref) == ("Notify", "Completed")
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


def failed_callback(site: Site) -> Record:
    job = job_in(site, "Notify", profile="called")
    path = f"/callback/mc/{job.docs['configuration']['jobID']}"
    site.web.answers[path] = refuse
    site.lead(job.ref, "Failed")
    site.web.answers[path] = accept
    return site.get(*job.ref)


def test_job_notify_to_failed(site: Site) -> None:
    assert failed_callback(site).last_done == "Recording"


def test_job_failed_to_downloading(site: Site) -> None:
    job = job_in(site, "Failed", url=f"{site.web.url}/late.txt")
    assert job.last_done == "Provisioning"
    resumed = act(site, job.ref, "resume")
    assert (resumed.state, resumed.retries) == ("Downloading", 1)


def test_job_failed_to_processing(site: Site) -> None:
    job = taken_local_id(site)
    site.lead(job.ref, "Failed")
    resumed = act(site, job.ref, "resume")
    assert (resumed.state, resumed.retries) == ("Processing", 1)


def test_job_failed_to_recording(site: Site) -> None:
    job = job_in(site, "Recording")
    act(site, job.ref, "fail", confirmed=True)
    resumed = act(site, job.ref, "resume")
    assert (resumed.state, resumed.retries) == ("Recording", 1)


def test_job_failed_to_notify(site: Site) -> None:
    job = failed_callback(site)
    resumed = act(site, job.ref, "resume")
    assert (resumed.state, resumed.retries) == ("Notify", 1)
    assert arrow(site, job.ref) == ("Notify", "Completed")


def test_job_completed_to_deleted_by_the_automated_task(site: Site) -> None:
    batch = batch_in(site, "Completed")
    job = only_job(site, batch)
    assert not list((site.root / "queue").glob("bid-1/jid-*"))
    removed(site, batch, job, keep=-1.0)


def test_job_failed_to_deleted(site: Site) -> None:
    job = job_in(site, "Failed", url=f"{site.web.url}/late.txt")
    with pytest.raises(Refused, match="will not hear"):
        act(site, job.ref, "delete")
    assert act(site, job.ref, "delete", confirmed=True).state == "Deleted"
    assert job.parent is not None
    done = site.lead(job.parent, "Completed")
    assert done.docs["status-report"]["counts"]["deleted"] == 1


def test_a_job_of_a_failed_batch_is_deleted_only_when_that_is_confirmed(site: Site) -> None:
    batch, job = failed_batch(site)
    with pytest.raises(Refused, match="Its batch is not completed"):
        act(site, job.ref, "delete")
    assert act(site, job.ref, "delete", confirmed=True).state == "Deleted"
    act(site, batch.ref, "report")
    assert site.lead(batch.ref, "Completed").docs["status-report"]["counts"]["deleted"] == 1


def test_job_held_to_deleted(site: Site) -> None:
    job = job_in(site, "Pending")
    act(site, job.ref, "hold")
    assert act(site, job.ref, "delete", confirmed=True).state == "Deleted"
    assert job.parent is not None
    assert site.lead(job.parent, "Completed").docs["status-report"]["counts"]["deleted"] == 1


def test_what_is_restarted_after_it_was_stored_is_another_version(site: Site) -> None:
    job = failed_callback(site)
    site.web.put("a.txt", b"hello again")
    assert act(site, job.ref, "restart").state == "Estimating"
    done = site.lead(job.ref, "Completed")
    assert done.docs["stored"]["version"] == 2
    with site.depot.outfit("job").storage.open(done.docs["stored"]["object"], "producer/a.txt") as body:
        assert body.read() == b"hello again"


def test_an_update_keeps_what_it_does_not_say(site: Site) -> None:
    first = job_in(site, "Completed", local_ids=("loc1",), title="Big Hunt", creator="Tracy", date="2009")
    ark = first.docs["identifiers"]["primary_id"]
    url = site.web.put("b.txt", b"more")
    said = Submission(
        profile="p",
        url=url,
        type=Type.FILE,
        filename="b.txt",
        batch_id="bid-2",
        primary_id=ark,
        update=True,
        date="2010",
    )
    with site.engine() as engine:
        batch = engine.submit(New("batch", {"submission": said.document()}, request="bid-2"))
    site.lead(batch.ref, "Processing")
    site.step(batch.ref)
    job = only_job(site, batch)
    system = site.lead(job.ref, "Recording") and next((site.root / "queue" / "bid-2").iterdir()) / "system"
    assert b"what: Big Hunt" in (system / "mrt-erc.txt").read_bytes()
    site.lead(job.ref, "Completed")
    outfit = site.depot.outfit("job")
    row = outfit.inventory.object(ark)
    assert (row["title"], row["creator"], row["date"]) == ("Big Hunt", "Tracy", "2010")
    with outfit.storage.manifest(outfit.storage.stored(ark)) as reader:
        assert {"producer/a.txt", "producer/b.txt"} <= {entry.uri for entry in reader}


def test_an_object_stays_with_its_owner(site: Site) -> None:
    ark = job_in(site, "Completed").docs["identifiers"]["primary_id"]
    with site.engine() as engine:
        engine.submit(
            New("profile", {"profile": to_document(Profile(name="other", owner="ark:/99999/somebody"))}, id="other")
        )
        url = site.web.put("b.txt", b"x")
        said = Submission(profile="other", url=url, type=Type.FILE, filename="b.txt", batch_id="bid-2", primary_id=ark)
        batch = engine.submit(New("batch", {"submission": said.document()}, request="bid-2"))
    site.lead(batch.ref, "Processing")
    site.step(batch.ref)
    job = site.lead(only_job(site, batch).ref, "Failed")
    assert f"{ark} belongs to ark:/99999/owner" in job.message
    assert len(site.depot.outfit("job").storage.versions(ark)) == 1


def test_a_profile_that_is_gone_fails_the_job_and_not_in_silence(site: Site) -> None:
    """It was there when the deposit was taken in: without it nobody would be called, and EZID told of nothing."""
    job = job_in(site, "Processing", profile="called", checked=True)
    with site.engine() as engine:
        record = engine.store.get("profile", "called")
        answer = engine.store.commit([Group((Change(record, None, "remove"),))])[0]
        assert isinstance(answer, Committed)
    site.depot.outfit("job").close()
    site.depot.outfit("job")._profiles.clear()
    failed = site.lead(job.ref, "Failed")
    assert "The profile called is gone" in failed.message
    with site.engine() as engine:
        engine.submit(New("profile", {"profile": to_document(Profile(name="called"))}, id="called"))
    act(site, job.ref, "resume")
    assert site.lead(job.ref, "Completed").docs["stored"]["version"] == 1
