"""A batch that another service acquired and did not finish: none of its objects is lost, and none gets a second job."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.apps.ingest.ingest_fixture import IngestFixture
from tests.interop.merritt.admin import Admin
from tests.interop.merritt.batches import Batch
from tests.interop.merritt.client import Client
from tests.interop.merritt.jobs import Job, delete_deleted_jobs, list_jobs
from tests.servers.process import wait_until
from tests.stores.zookeeper import nodedump
from waybill.apps.ingest import submission
from waybill.apps.ingest.formats.checkm import ManifestRow
from waybill.apps.ingest.merritt import unfinished_batches
from waybill.errors import InputError
from waybill.record import Record, Ref

DIALECTS = pytest.mark.parametrize("ruby", [False, True], ids=["java", "ruby"])
ClientFactory = Callable[..., Client]
HEAD = "#%checkm_0.7\n#%profile | http://uc3.cdlib.org/registry/ingest/manifest/mrt-single-file-batch-manifest\n"


@pytest.fixture
def ingest(zookeeper_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[IngestFixture]:
    monkeypatch.setattr(unfinished_batches, "POLL_SECONDS", 0.05)
    monkeypatch.setattr(unfinished_batches, "PATIENCE_SECONDS", 0.2)
    with IngestFixture(tmp_path, store=f"{zookeeper_url}?grace_period=0&listing_ttl=0.1&unfinished_age=0") as ingest:
        yield ingest


def make_submission(ingest: IngestFixture, count: int, **more: Any) -> dict[str, Any]:
    """The submission of a batch with so many files, as their ingest writes it, with the design's payload_url."""
    rows = "".join(f"{ingest.web.put(f'{n}.txt', b'%d' % n)} | | | | | {n}.txt | | local-{n}\n" for n in range(count))
    url = ingest.web.put("batch.checkm", f"{HEAD}{rows}#%eof\n".encode())
    return {
        "batchID": "bid-1",
        "profile": "p",
        "type": "batchManifestFile",
        "update": False,
        "payload_url": url,
        **more,
    }


def make_configuration(ingest: IngestFixture, n: int, **more: Any) -> dict[str, Any]:
    return {
        "profile": "p",
        "type": "file",
        "update": False,
        "filename": f"{n}.txt",
        "payload_url": f"{ingest.web.url}/{n}.txt",
        "jobID": f"jid-{n}",
        "batchID": "bid-1",
        **more,
    }


def acquire_batch(client: Client, submitted: dict[str, Any], jobs: list[dict[str, Any]]) -> str:
    """Acquire the batch as the batch consumer does, and create these jobs. The caller decides when it dies."""
    batch = Batch.create(client, submitted)
    assert (found := Batch.acquire_pending(client)) is not None
    assert found.id == batch.id
    for each in jobs:
        Job.create(client, batch.id, each)
    return batch.id


def wait_for_end(ingest: IngestFixture, batch: str, *states: str) -> Record:
    def over() -> bool:
        with ingest.engine() as engine:
            engine.store.maintain_indexes()
            engine.wake(engine.store.find_idle_parents().refs)
            found = engine.store.get("batch", batch)
            return found.state in ("Completed", "Failed") and found.session is None

    wait_until(over, f"the end of {batch}")
    return ingest.wait("batch", batch, *states)


def files_of(ingest: IngestFixture, batch: str) -> list[str]:
    with ingest.engine() as engine:
        found = engine.store.find("job", parent=Ref("batch", batch), documents=True).records
    return sorted(submission.Submission.from_job(job).filename for job in found)


@DIALECTS
@pytest.mark.parametrize("made", [0, 1, 3])
def test_the_jobs_that_a_dead_consumer_has_not_created_are_created_here(
    ingest: IngestFixture, make_client: ClientFactory, ruby: bool, made: int
) -> None:
    client = make_client(ruby=ruby)
    batch = acquire_batch(client, make_submission(ingest, 4), [make_configuration(ingest, n) for n in range(made)])
    client.close()
    with ingest.workers():
        done = wait_for_end(ingest, batch, "Completed")
    assert files_of(ingest, batch) == ["0.txt", "1.txt", "2.txt", "3.txt"], "each row once"
    assert done.documents["status-report"]["counts"] == {"completed": 4, "failed": 0, "deleted": 0}
    assert nodedump.faults(make_client().zk) == []


@DIALECTS
def test_nothing_is_created_while_the_consumer_lives_however_slow_it_is(
    ingest: IngestFixture, make_client: ClientFactory, ruby: bool
) -> None:
    slow = make_client(ruby=ruby)
    batch = acquire_batch(slow, make_submission(ingest, 3), [make_configuration(ingest, 0)])
    (job,) = [each.id for each in list_jobs(make_client())]
    with ingest.workers():
        ingest.wait("job", job, "Completed")
        with ingest.engine() as engine:
            for _ in range(10):  # every round that maintenance would run
                engine.store.maintain_indexes()
                engine.wake(engine.store.find_idle_parents().refs)
                engine.store.watch(0.1)
        assert files_of(ingest, batch) == ["0.txt"]
        for n in (1, 2):
            Job.create(slow, batch, make_configuration(ingest, n))
        found = Batch(slow, batch).load()
        found.set_status("Reporting")
        found.unlock()
        wait_for_end(ingest, batch, "Completed")
    assert files_of(ingest, batch) == ["0.txt", "1.txt", "2.txt"]


def test_rows_without_a_job_are_reported_when_it_is_not_clear_what_the_consumer_did(
    ingest: IngestFixture, make_client: ClientFactory
) -> None:
    """They are not the last rows, so the consumer did not just die before it created them."""
    client = make_client()
    batch = acquire_batch(
        client, make_submission(ingest, 4), [make_configuration(ingest, 0), make_configuration(ingest, 2)]
    )
    client.close()
    with ingest.workers():
        failed = wait_for_end(ingest, batch, "Failed")
        assert failed.message.startswith("2 of its 4 objects have no job. They are '1.txt', '3.txt'.")
        assert failed.documents["failure"]["reasons"][0] == "Line 4: no job was made for '1.txt'."
        assert failed.documents["status-report"]["counts"] == {"completed": 2, "failed": 0, "deleted": 0}
        assert failed.documents["status-report"]["status"] == "Failed"
        with ingest.engine() as engine:
            engine.act(failed.ref, "report", who="ann")
        again = wait_for_end(ingest, batch, "Failed")
        assert again.documents["status-report"]["report"] == 2, "and it does not become whole by being reported again"
        other = make_client()
        for n in (1, 3):
            Job.create(other, batch, make_configuration(ingest, n))
        for each in list_jobs(other):
            ingest.wait("job", each.id, "Completed")
        with ingest.engine() as engine:
            engine.act(failed.ref, "report", who="ann")
        done = wait_for_end(ingest, batch, "Completed")
    assert "failure" not in done.documents


def test_a_batch_that_they_report_as_complete_is_compared_too(
    ingest: IngestFixture, make_client: ClientFactory
) -> None:
    client = make_client()
    batch = acquire_batch(client, make_submission(ingest, 3), [make_configuration(ingest, 0)])
    found = Batch(client, batch).load()
    found.set_status("Reporting")
    client.close()
    with ingest.workers():
        failed = wait_for_end(ingest, batch, "Failed")
    assert failed.message.startswith("2 of its 3 objects have no job. They are '1.txt', '2.txt'.")
    assert files_of(ingest, batch) == ["0.txt"], (
        "whoever says that they are all there may have removed some: they are not made again"
    )


def test_a_job_that_was_deleted_and_removed_is_not_missing(ingest: IngestFixture, make_client: ClientFactory) -> None:
    client = make_client()
    batch = acquire_batch(client, make_submission(ingest, 3), [make_configuration(ingest, n) for n in range(3)])
    del ingest.web.files["/2.txt"]
    found = Batch(client, batch).load()
    found.set_status("Reporting")
    found.unlock()
    with ingest.workers():
        failed = wait_for_end(ingest, batch, "Failed")
        (job,) = found.jobs("batch-failed")
        Admin(make_client(ruby=True)).delete(job)
        delete_deleted_jobs(client)
        with ingest.engine() as engine:
            engine.act(failed.ref, "report", who="ann")
        wait_for_end(ingest, batch, "Completed")
    assert files_of(ingest, batch) == ["0.txt", "1.txt"]


@pytest.mark.parametrize("status", ["", "Reporting"])
def test_without_a_readable_manifest_the_existing_jobs_count_and_the_report_says_so(
    ingest: IngestFixture, make_client: ClientFactory, status: str
) -> None:
    client = make_client()
    submitted = {**make_submission(ingest, 3), "payload_url": "", "filename": "batch.checkm"}
    batch = acquire_batch(client, submitted, [make_configuration(ingest, n) for n in range(2)])
    if status:
        Batch(client, batch).load().set_status(status)
    client.close()
    with ingest.workers():
        ended = wait_for_end(ingest, batch, "Completed")
    remark = ended.documents["status-report"].get("remark", "")
    assert ("made 2 jobs and has not confirmed that these are all" in remark) == (not status)
    assert ended.message == f"2 of 2 completed{f'. {remark}' if remark else ''}"


def test_jobs_that_name_no_address_are_known_by_their_files_and_else_counted(
    ingest: IngestFixture, make_client: ClientFactory
) -> None:
    rows = [ManifestRow(line, f"http://x/{line}", f"{line}.txt") for line in range(3, 6)]

    def match(*jobs: tuple[str, str]) -> unfinished_batches.JobComparison:
        submissions = [submission.Submission(profile="p", url=url, filename=name) for url, name in jobs]
        return unfinished_batches._match_jobs(rows, iter(submissions), submission.PayloadType.FILES)

    assert match(("http://x/3", "a"), ("", "4.txt"), ("", "5.txt")).is_complete
    assert match(("", "batch.checkm"), ("", "batch.checkm"), ("", "batch.checkm")).is_complete, "as many jobs as rows"
    fewer = match(("", "batch.checkm"), ("http://x/3", ""))
    assert (fewer.missing_count, [each.line for each in fewer.rows_without_job], fewer.is_interrupted) == (
        1,
        [4, 5],
        False,
    )
    twice = match(("http://x/3", ""), ("http://x/3", ""), ("http://x/4", ""))
    assert (twice.missing_count, [each.line for each in twice.rows_without_job], twice.is_interrupted) == (
        1,
        [5],
        False,
    )


@pytest.mark.parametrize("takes", [True, False])
def test_a_batch_that_is_left_to_them_stays_pending_and_their_consumer_takes_it(
    ingest: IngestFixture, make_client: ClientFactory, takes: bool
) -> None:
    """Their own submissions name no payload; the setting leaves them all their batches."""
    ingest.resources.settings = replace(ingest.resources.settings, takes_batches_of_others=takes)
    submitted = make_submission(ingest, 2)
    if takes:
        del submitted["payload_url"]
    client = make_client()
    batch = Batch.create(client, submitted)
    with ingest.workers():
        with ingest.engine() as engine:

            def is_looked_at() -> bool:
                engine.store.maintain_indexes()
                engine.store.watch(0.05)
                found = engine.store.get("batch", batch.id)
                return found.blocked_by == "wait" and found.session is None

            wait_until(is_looked_at, "a look at it")
            assert engine.store.get("batch", batch.id).state == "Pending"
        assert client.children(batch.home) == ["status", "submission"] or not client.exists(f"{batch.home}/states")
        taken = Batch.acquire_pending(client)
        assert taken is not None, "ours has not taken it"
        for n in range(2):
            Job.create(client, batch.id, make_configuration(ingest, n))
        taken.set_status("Reporting")
        taken.unlock()
        wait_for_end(ingest, batch.id, "Completed")
    assert files_of(ingest, batch.id) == ["0.txt", "1.txt"]


def test_a_shared_tree_is_not_opened_before_it_is_said_who_takes_their_batches(
    zookeeper_url: str, tmp_path: Path
) -> None:
    with IngestFixture(tmp_path, store=zookeeper_url, settings={"takes_batches_of_others": None}) as made:
        with pytest.raises(InputError, match="takes_batches_of_others"):
            made.environment.resources_of("ingest")


def make_half(client: Client, batch: str, nodes: dict[str, Any]) -> str:
    """A job whose creator dies before its status."""
    home = client.create("/jobs/jid", sequence=True)
    for name, body in {"bid": batch, "priority": 5, "space_needed": 0, **nodes}.items():
        client.create(f"{home}/{name}", body)
    return home.rpartition("/")[2]


@DIALECTS
@pytest.mark.parametrize("has_configuration", [True, False])
def test_a_job_whose_creator_died_before_its_status_is_its_rows_job(
    ingest: IngestFixture, make_client: ClientFactory, ruby: bool, has_configuration: bool
) -> None:
    client = make_client(ruby=ruby)
    batch = acquire_batch(client, make_submission(ingest, 3), [make_configuration(ingest, 0)])
    half = make_half(client, batch, {"configuration": make_configuration(ingest, 1)} if has_configuration else {})
    client.close()
    with ingest.engine() as engine:
        engine.store.maintain_indexes()
    with ingest.workers():
        done = wait_for_end(ingest, batch, "Completed")
    assert files_of(ingest, batch) == ["0.txt", "1.txt", "2.txt"], "each row once"
    assert make_client().exists(f"/jobs/{half}") == has_configuration
    assert done.documents["status-report"]["counts"] == {"completed": 3, "failed": 0, "deleted": 0}
    with ingest.engine() as engine:
        assert list(engine.store.check()) == []
    assert nodedump.faults(make_client().zk) == []


@pytest.mark.parametrize("is_settled", [True, False])
def test_a_half_made_job_whose_row_has_another_is_removed(
    ingest: IngestFixture, make_client: ClientFactory, is_settled: bool
) -> None:
    client = make_client()
    batch = acquire_batch(client, make_submission(ingest, 2), [make_configuration(ingest, n) for n in range(2)])
    if is_settled:
        client.close()
        with ingest.workers():
            wait_for_end(ingest, batch, "Completed")
    half = make_half(make_client(), batch, {"configuration": make_configuration(ingest, 1, jobID="jid-other")})
    with ingest.engine() as engine:
        engine.store.maintain_indexes()
        assert not make_client().exists(f"/jobs/{half}")
        engine.store.maintain_indexes()
    assert files_of(ingest, batch) == ["0.txt", "1.txt"]


def test_a_batch_whose_creator_died_before_its_status_goes_with_its_batch_id(
    ingest: IngestFixture, make_client: ClientFactory
) -> None:
    client = make_client()
    id = client.create("/batches/bid", sequence=True).rpartition("/")[2]
    client.create("/batch-uuids/bid-1", id)
    with ingest.engine() as engine:
        engine.store.maintain_indexes()
        assert (client.exists(f"/batches/{id}"), client.exists("/batch-uuids/bid-1")) == (False, False)
        assert list(engine.store.check()) == []
