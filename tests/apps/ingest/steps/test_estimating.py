"""Estimating: what a job will need, from what servers say; never a failure, and never twice the same burden."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.apps.ingest.site import Site
from tests.apps.ingest.steps.dock import asked, manifest, step, submit, upload, walk
from tests.transfer.misbehaving import Misbehaving
from waybill.apps.ingest.checkm import Row
from waybill.apps.ingest.submission import Type
from waybill.record import Record


@pytest.fixture
def patience() -> float:
    """Seconds for an answer: a busy machine may be slow to give one."""
    return 60.0


@pytest.fixture
def site(tmp_path: Path, patience: float) -> Iterator[Site]:
    with Site(tmp_path, settings={"outside": ["Processing"], "fetch": {"timeout": patience, "large": 1000}}) as site:
        yield site


@pytest.fixture
def server() -> Iterator[Misbehaving]:
    with Misbehaving() as server:
        yield server


def estimated(site: Site, job: Record) -> Record:
    job = walk(site, job, upto="Provisioning")
    assert job.state == "Provisioning", job.message
    return job


def test_every_url_is_asked_once_and_sizes_are_added(site: Site) -> None:
    # what the server says counts
    rows = [Row(0, site.web.put(f"f{n}", bytes(n)), f"f{n}", size=999) for n in range(1, 11)]
    job = estimated(site, submit(site, **upload(site, "m.checkm", manifest(*rows)), type=Type.OBJECT))
    assert (job.docs["space_needed"], job.priority) == (55, 5)
    assert sorted(asked(site, "HEAD")) == sorted(f"/f{n}" for n in range(1, 11))
    assert asked(site, "GET") == []


def test_several_are_asked_at_a_time(site: Site, server: Misbehaving) -> None:
    rows = []
    for n in range(8):
        server.files[f"/{n}"], server.does[f"/{n}"] = b"x", ["meet 4"]
        rows.append(Row(0, f"{server.url}/{n}", f"n{n}"))
    job = estimated(site, submit(site, **upload(site, "m.checkm", manifest(*rows)), type=Type.OBJECT))
    assert job.docs["space_needed"] == 8
    assert server.most_at_once == 4


def test_an_upload_is_known_without_a_request(site: Site) -> None:
    job = estimated(site, submit(site, **upload(site, "a.txt", b"hello"), type=Type.FILE))
    assert (job.docs["space_needed"], site.web.requests) == (5, [])


def test_a_container_needs_its_size_twice_at_least(site: Site) -> None:
    assert estimated(site, submit(site, site.web.put("a.zip", bytes(50)), Type.CONTAINER)).docs["space_needed"] == 100


def test_nothing_at_all_is_not_unknown(site: Site) -> None:
    job = estimated(site, submit(site, site.web.put("empty", b""), Type.FILE))
    assert (job.docs["space_needed"], job.priority) == (1, 5)


@pytest.mark.parametrize("patience", [0.5])
@pytest.mark.parametrize("does", ["status 404", "status 500", "hang", "nolength", "redirect /a", "garbage"])
def test_what_a_server_does_not_say_is_unknown_and_no_failure(site: Site, server: Misbehaving, does: str) -> None:
    server.files["/a"], server.does["/a"] = b"x", [does]
    job = estimated(site, submit(site, f"{server.url}/a", Type.FILE))
    assert (job.docs["space_needed"], job.priority) == (-1, 15)


def test_one_unknown_size_makes_the_whole_unknown_unless_the_manifest_says_it(site: Site) -> None:
    rows = [Row(0, site.web.put("a", b"123"), "a"), Row(0, f"{site.web.url}/missing", "b")]
    assert (
        estimated(site, submit(site, **upload(site, "m", manifest(*rows)), type=Type.OBJECT)).docs["space_needed"] == -1
    )
    assert sorted(asked(site, "HEAD")) == ["/a", "/missing"]
    rows[1] = Row(0, f"{site.web.url}/missing", "b", size=7)
    assert (
        estimated(site, submit(site, **upload(site, "m", manifest(*rows)), type=Type.OBJECT)).docs["space_needed"] == 10
    )


def test_a_large_job_is_less_urgent_and_99_is_the_end(site: Site) -> None:
    url = site.web.put("a", bytes(1001))
    assert estimated(site, submit(site, url, Type.FILE, priority=28)).priority == 38
    assert estimated(site, submit(site, url, Type.FILE, priority=95)).priority == 99


def again(site: Site, job: Record) -> Record:
    """Failed, and begun again."""
    with site.engine() as engine:
        engine.act(job.ref, "fail", confirmed=True)
        engine.act(job.ref, "restart")
    return estimated(site, job)


def test_a_second_estimate_does_not_add_twice(site: Site) -> None:
    job = estimated(site, submit(site, f"{site.web.url}/a", Type.FILE))
    assert job.priority == 15
    job = again(site, job)
    assert job.priority == 15
    site.web.put("a", b"small")
    assert again(site, job).priority == 5


def test_what_an_operator_has_set_counts_as_first(site: Site) -> None:
    job = estimated(site, submit(site, f"{site.web.url}/a", Type.FILE))
    with site.engine() as engine:
        engine.priority(job.ref, 50)
    assert again(site, job).priority == 60


def test_a_job_that_others_led_here_is_listed_first(site: Site) -> None:
    job = estimated(site, submit(site, site.web.put("a.txt", b"hello"), Type.FILE, state="Estimating"))
    assert (job.docs["space_needed"], job.docs["files"]["count"]) == (5, 1)


@pytest.mark.parametrize("url", ["", "file:///etc/passwd", "waybill:ocfl/x"])
def test_a_job_that_others_led_here_and_that_cannot_be_fetched_goes_on_to_hear_so(site: Site, url: str) -> None:
    job = submit(site, url, Type.FILE, state="Estimating")
    estimated(site, job)
    after = site.get("job", job.id)
    assert (after.docs["space_needed"], after.priority, "files" in after.docs) == (-1, 5, False)
    assert after.message.startswith("Its size is not known: ")
    assert walk(site, after).state == "Failed"


def test_a_list_that_is_gone_is_unknown(site: Site) -> None:
    rows = [Row(0, f"{site.web.url}/{n}", f"name-{n}") for n in range(500)]
    job = submit(site, **upload(site, "m.checkm", manifest(*rows)), type=Type.OBJECT)
    step(site, job)
    site.depot.objects.delete(site.get("job", job.id).docs["files"]["list"])
    assert estimated(site, job).docs["space_needed"] == -1
