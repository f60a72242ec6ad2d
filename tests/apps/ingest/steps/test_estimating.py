"""Estimating: what a job will need, from what servers say; never a failure, and never twice the same burden."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.apps.ingest.ingest_fixture import IngestFixture
from tests.apps.ingest.steps.new_jobs import list_requested_paths, manifest, step, submit, upload, walk
from tests.transfer.misbehaving import Misbehaving
from waybill.apps.ingest.formats.checkm import ManifestRow
from waybill.apps.ingest.submission import PayloadType
from waybill.record import Record


@pytest.fixture
def patience() -> float:
    """Seconds for an answer: a busy machine may be slow to give one."""
    return 60.0


@pytest.fixture
def ingest(tmp_path: Path, patience: float) -> Iterator[IngestFixture]:
    with IngestFixture(
        tmp_path, settings={"external_states": ["Processing"], "fetch": {"timeout": patience, "large_job_bytes": 1000}}
    ) as ingest:
        yield ingest


@pytest.fixture
def server() -> Iterator[Misbehaving]:
    with Misbehaving() as server:
        yield server


def run_estimating(ingest: IngestFixture, job: Record) -> Record:
    job = walk(ingest, job, upto="Provisioning")
    assert job.state == "Provisioning", job.message
    return job


def test_every_url_is_asked_once_and_sizes_are_added(ingest: IngestFixture) -> None:
    # what the server says counts
    rows = [ManifestRow(0, ingest.web.put(f"f{n}", bytes(n)), f"f{n}", size=999) for n in range(1, 11)]
    job = run_estimating(ingest, submit(ingest, **upload(ingest, "m.checkm", manifest(*rows)), type=PayloadType.OBJECT))
    assert (job.documents["space_needed"], job.priority) == (55, 5)
    assert sorted(list_requested_paths(ingest, "HEAD")) == sorted(f"/f{n}" for n in range(1, 11))
    assert list_requested_paths(ingest, "GET") == []


def test_several_are_asked_at_a_time(ingest: IngestFixture, server: Misbehaving) -> None:
    rows = []
    for n in range(8):
        server.files[f"/{n}"], server.does[f"/{n}"] = b"x", ["meet 4"]
        rows.append(ManifestRow(0, f"{server.url}/{n}", f"n{n}"))
    job = run_estimating(ingest, submit(ingest, **upload(ingest, "m.checkm", manifest(*rows)), type=PayloadType.OBJECT))
    assert job.documents["space_needed"] == 8
    assert server.most_at_once == 4


def test_an_upload_is_known_without_a_request(ingest: IngestFixture) -> None:
    job = run_estimating(ingest, submit(ingest, **upload(ingest, "a.txt", b"hello"), type=PayloadType.FILE))
    assert (job.documents["space_needed"], ingest.web.requests) == (5, [])


def test_a_container_needs_its_size_twice_at_least(ingest: IngestFixture) -> None:
    assert (
        run_estimating(ingest, submit(ingest, ingest.web.put("a.zip", bytes(50)), PayloadType.CONTAINER)).documents[
            "space_needed"
        ]
        == 100
    )


def test_nothing_at_all_is_not_unknown(ingest: IngestFixture) -> None:
    job = run_estimating(ingest, submit(ingest, ingest.web.put("empty", b""), PayloadType.FILE))
    assert (job.documents["space_needed"], job.priority) == (1, 5)


@pytest.mark.parametrize("patience", [0.5])
@pytest.mark.parametrize("does", ["status 404", "status 500", "hang", "nolength", "redirect /a", "garbage"])
def test_what_a_server_does_not_say_is_unknown_and_no_failure(
    ingest: IngestFixture, server: Misbehaving, does: str
) -> None:
    server.files["/a"], server.does["/a"] = b"x", [does]
    job = run_estimating(ingest, submit(ingest, f"{server.url}/a", PayloadType.FILE))
    assert (job.documents["space_needed"], job.priority) == (-1, 15)


def test_one_unknown_size_makes_the_whole_unknown_unless_the_manifest_says_it(ingest: IngestFixture) -> None:
    rows = [ManifestRow(0, ingest.web.put("a", b"123"), "a"), ManifestRow(0, f"{ingest.web.url}/missing", "b")]
    assert (
        run_estimating(
            ingest, submit(ingest, **upload(ingest, "m", manifest(*rows)), type=PayloadType.OBJECT)
        ).documents["space_needed"]
        == -1
    )
    assert sorted(list_requested_paths(ingest, "HEAD")) == ["/a", "/missing"]
    rows[1] = ManifestRow(0, f"{ingest.web.url}/missing", "b", size=7)
    assert (
        run_estimating(
            ingest, submit(ingest, **upload(ingest, "m", manifest(*rows)), type=PayloadType.OBJECT)
        ).documents["space_needed"]
        == 10
    )


def test_a_large_job_is_less_urgent_and_99_is_the_end(ingest: IngestFixture) -> None:
    url = ingest.web.put("a", bytes(1001))
    assert run_estimating(ingest, submit(ingest, url, PayloadType.FILE, priority=28)).priority == 38
    assert run_estimating(ingest, submit(ingest, url, PayloadType.FILE, priority=95)).priority == 99


def again(ingest: IngestFixture, job: Record) -> Record:
    """Failed, and begun again."""
    with ingest.engine() as engine:
        engine.act(job.ref, "fail", confirmed=True)
        engine.act(job.ref, "restart")
    return run_estimating(ingest, job)


def test_a_second_estimate_does_not_add_twice(ingest: IngestFixture) -> None:
    job = run_estimating(ingest, submit(ingest, f"{ingest.web.url}/a", PayloadType.FILE))
    assert job.priority == 15
    job = again(ingest, job)
    assert job.priority == 15
    ingest.web.put("a", b"small")
    assert again(ingest, job).priority == 5


def test_what_an_operator_has_set_counts_as_first(ingest: IngestFixture) -> None:
    job = run_estimating(ingest, submit(ingest, f"{ingest.web.url}/a", PayloadType.FILE))
    with ingest.engine() as engine:
        engine.set_priority(job.ref, 50)
    assert again(ingest, job).priority == 60


def test_a_job_that_others_led_here_is_listed_first(ingest: IngestFixture) -> None:
    job = run_estimating(
        ingest, submit(ingest, ingest.web.put("a.txt", b"hello"), PayloadType.FILE, state="Estimating")
    )
    assert (job.documents["space_needed"], job.documents["files"]["count"]) == (5, 1)


@pytest.mark.parametrize("url", ["", "file:///etc/passwd", "waybill:ocfl/x"])
def test_a_job_that_others_led_here_and_that_cannot_be_fetched_goes_on_to_hear_so(
    ingest: IngestFixture, url: str
) -> None:
    job = submit(ingest, url, PayloadType.FILE, state="Estimating")
    run_estimating(ingest, job)
    after = ingest.get("job", job.id)
    assert (after.documents["space_needed"], after.priority, "files" in after.documents) == (-1, 5, False)
    assert after.message.startswith("Its size is not known: ")
    assert walk(ingest, after).state == "Failed"


def test_a_list_that_is_gone_is_unknown(ingest: IngestFixture) -> None:
    rows = [ManifestRow(0, f"{ingest.web.url}/{n}", f"name-{n}") for n in range(500)]
    job = submit(ingest, **upload(ingest, "m.checkm", manifest(*rows)), type=PayloadType.OBJECT)
    step(ingest, job)
    ingest.environment.objects.delete(ingest.get("job", job.id).documents["files"]["list"])
    assert run_estimating(ingest, job).documents["space_needed"] == -1
