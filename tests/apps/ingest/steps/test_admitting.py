"""A batch becomes jobs: one for each object of its payload, made once, whatever the payload does to us."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from tests.apps.ingest.batches import every, files, jobs, manifest, profile, settle, submit
from tests.apps.ingest.site import Site
from tests.notify.mailbox import Mailbox
from waybill.apps.ingest.profile import Mail
from waybill.apps.ingest.service import batch_view
from waybill.apps.ingest.steps import admitting, comparing
from waybill.apps.ingest.steps.admitting import job_id
from waybill.apps.ingest.submission import Type, of_job
from waybill.record import Record
from waybill.step import New

ROLES = ["batch"]


def admitted(site: Site, batch: Record, **options: Any) -> Record:
    """The batch when all of its jobs are made, or none can be."""
    with site.workers(roles=ROLES, **options):
        return made(site, batch)


def made(site: Site, batch: Record) -> Record:
    with site.engine() as engine:
        while True:
            record = engine.store.get("batch", batch.id)
            if record.state == "Failed" or (
                record.parked == "children" and record.docs.get("spawned", {}).get("whole")
            ):
                return record
            engine.store.watch(0.1)


@pytest.mark.parametrize("store", ["sqlite", "postgres", "zookeeper"])
def test_batch_pending_to_processing_makes_one_job_for_a_file(
    tmp_path: Path, store: str, request: pytest.FixtureRequest
) -> None:
    url = "" if store == "sqlite" else request.getfixturevalue(f"{'fast_' if store == 'postgres' else ''}{store}_url")
    with Site(tmp_path, store=url) as site:
        batch = submit(
            site, url="http://127.0.0.1/a.txt", type=Type.FILE, title="A", creator="Jane", local_ids=("x", "y"), size=5
        )
        assert admitted(site, batch).state == "Processing"
        (job,) = jobs(site, batch)
        said = of_job(job)
        assert job.state == "Pending"
        assert (said.url, said.type, said.title, said.batch_id) == ("http://127.0.0.1/a.txt", Type.FILE, "A", "bid-1")
        assert said.job_id == job_id("bid-1", 0)
        assert job.docs["identifiers"] == {"primary_id": "", "local_id": ["x", "y"]}
        assert job.docs["metadata"] == {"erc_who": "Jane", "erc_what": "A", "erc_when": "", "erc_where": ""}
        assert (job.priority, job.owner) == (5, "jane")


def test_each_row_of_a_batch_manifest_is_a_job_with_what_its_row_says(tmp_path: Path) -> None:
    body = manifest(
        "container-batch",
        "http://127.0.0.1/a.zip | md5 | 47d321056e60944a06973793c7b5841e | 17 |  | a.zip"
        " | ark:/99999/fk4abc | x; y ;x | Tracy | Husky | 2009",
        "http://127.0.0.1/b.zip |  |  |  |  | b.zip",
    )
    with Site(tmp_path) as site:
        url = site.web.put("list.checkm", body)
        batch = submit(
            site, url=url, type=Type.CONTAINERS, creator="Everyone", digest_type="", local_ids=("of-the-batch",)
        )
        assert admitted(site, batch).state == "Processing"
        first, second = (of_job(job) for job in jobs(site, batch))
        assert (first.type, first.url, first.filename, first.size) == (
            Type.CONTAINER,
            "http://127.0.0.1/a.zip",
            "a.zip",
            17,
        )
        assert first.digests_of_row == {"md5": "47d321056e60944a06973793c7b5841e"}
        assert (first.primary_id, first.local_ids, first.creator, first.title, first.date) == (
            "ark:/99999/fk4abc",
            ("x", "y"),
            "Tracy",
            "Husky",
            "2009",
        )
        assert (second.primary_id, second.local_ids, second.creator, second.digests_of_row) == ("", (), "Everyone", {})
        assert first.job_id != second.job_id


@pytest.mark.parametrize("checked", [True, False])
def test_a_row_of_an_update_names_the_object_that_it_updates(tmp_path: Path, checked: bool) -> None:
    with Site(tmp_path) as site:
        profile(site)
        rows = (
            f"{site.web.put(name, b'x')} |  |  |  |  | {name} |  | {local}"
            for name, local in (("a.txt", "x1"), ("b.txt", ""))
        )
        url = site.web.put("list.checkm", manifest("single-file-batch", *rows))
        batch = submit(site, url=url, type=Type.FILES, update=True, checked=checked)
        with site.workers():
            site.wait("batch", batch.id, "Completed", "Failed")
        named, nameless = jobs(site, batch)
        assert named.state == "Completed"
        assert nameless.state == ("Failed" if checked else "Completed"), (
            "other services' deposits are done as they do them"
        )
        if checked:
            assert nameless.message.startswith("An update needs the object that it updates: give its ARK")
            assert ("GET", "/b.txt") not in site.web.requests


@pytest.mark.parametrize("portion", [admitting.PORTION, 1])
def test_rows_that_name_one_object_are_remarked_on_in_the_batch(
    tmp_path: Path, portion: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admitting, "PORTION", portion)  # 1: the rows are kept in a list
    body = manifest(
        "single-file-batch", *(f"http://127.0.0.1/{n}.txt |  |  |  |  | {n}.txt |  | box-{n % 2}" for n in range(3))
    )
    with Site(tmp_path) as site:
        batch = admitted(site, submit(site, url=site.web.put("list.checkm", body), type=Type.FILES))
        assert len(jobs(site, batch)) == 3
        with site.engine() as engine:
            (remark,) = batch_view(engine, batch)["remarks"]
        assert remark.startswith("Line 6: 'box-0' is named in line 4 too: both become versions of one object")


@pytest.mark.parametrize(
    ("kind", "type", "of_rows", "name"),
    [("batch", Type.MANIFESTS, Type.OBJECT, "a.checkm"), ("single-file-batch", Type.FILES, Type.FILE, "a.zip")],
)
def test_what_a_row_names_follows_from_the_kind_of_manifest(
    tmp_path: Path, kind: str, type: Type, of_rows: Type, name: str
) -> None:
    with Site(tmp_path) as site:
        url = site.web.put("list.checkm", manifest(kind, f"http://127.0.0.1/{name} |  |  |  |  | {name}"))
        batch = submit(site, url=url, type=type)
        admitted(site, batch)
        assert [of_job(job).type for job in jobs(site, batch)] == [of_rows]


@pytest.mark.parametrize(
    ("name", "type"),
    [
        ("a.checkm", Type.OBJECT),
        ("b.zip", Type.CONTAINER),
        ("c.tar.gz", Type.CONTAINER),
        ("d.pdf", Type.FILE),
        ("e.txt", Type.FILE),
    ],
)
def test_a_payload_of_which_nobody_said_what_it_is_is_told_by_its_name(tmp_path: Path, name: str, type: Type) -> None:
    with Site(tmp_path) as site:
        batch = submit(site, url=site.web.put(name, b"something"))
        admitted(site, batch)
        assert [of_job(job).type for job in jobs(site, batch)] == [type]


@pytest.mark.parametrize(
    ("body", "part"),
    [
        (b"garbage\n", "Line 1: "),
        (b"", "The manifest is not taken"),
        (manifest("unheard-of", "http://127.0.0.1/a"), "Line 2: "),
    ],
    ids=["corrupt", "empty", "wrong profile"],
)
def test_a_corrupt_manifest_that_has_the_name_of_one_is_not_stored_as_a_file(
    tmp_path: Path, body: bytes, part: str
) -> None:
    with Site(tmp_path) as site:
        batch = submit(site, url=site.web.put("a.checkm", body))
        admitted(site, batch)
        (job,) = jobs(site, batch)
        failed = site.lead(job.ref, "Failed", "Estimating")
        assert failed.state == "Failed"
        assert part in failed.message + " ".join(failed.docs["refusal"]["reasons"])
        assert failed.docs["refusal"]["final"]


def test_what_has_the_name_of_a_manifest_is_stored_as_it_is_if_it_is_called_a_file(tmp_path: Path) -> None:
    with Site(tmp_path) as site:
        batch = submit(site, url=site.web.put("a.checkm", b"garbage"), type=Type.FILE)
        admitted(site, batch)
        assert [of_job(job).type for job in jobs(site, batch)] == [Type.FILE]


def test_a_manifest_of_which_nobody_said_what_it_is_is_told_by_its_profile(tmp_path: Path) -> None:
    with Site(tmp_path) as site:
        batch = submit(site, url=site.web.put("a.checkm", files(3)))
        admitted(site, batch)
        assert [of_job(job).type for job in jobs(site, batch)] == [Type.FILE] * 3


def test_an_uploaded_manifest_is_read_from_the_objects(tmp_path: Path) -> None:
    with Site(tmp_path) as site:
        name = "ingest/payloads/6e0cbd1c-6f4e-4a36-9d5c-0d2f6e3a7b11/list.checkm"
        site.depot.objects.put(name, files(2))
        batch = submit(site, url=f"waybill:{name}", type=Type.FILES)
        admitted(site, batch)
        assert len(jobs(site, batch)) == 2


def test_the_first_priority_is_the_profiles_or_follows_from_the_number_of_jobs(tmp_path: Path) -> None:
    with Site(tmp_path) as site:
        profile(site, name="urgent", priority=3)
        url = site.web.put("list.checkm", files(10))
        with site.workers(roles=ROLES):
            ten = made(site, submit(site, url=url, type=Type.FILES))
            urgent = made(site, submit(site, url=url, type=Type.FILES, profile="urgent", batch_id="bid-2"))
        assert {job.priority for job in jobs(site, ten)} == {28}
        assert {job.priority for job in jobs(site, urgent)} == {3}


def test_many_jobs_are_made_in_portions_from_a_list_that_does_not_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The manifest at the URL changes, and the worker is stopped, after the first portion: the jobs are those of the
    first reading.
    """
    monkeypatch.setattr(admitting, "PORTION", 3)
    with Site(tmp_path) as site:
        url = site.web.put("list.checkm", files(10))
        stopped = threading.Event()
        with site.workers(roles=ROLES) as worker:
            context = _stop_after_a_portion(worker, monkeypatch, stopped)
            batch = submit(site, url=url, type=Type.FILES)  # not before: the worker may be quick
            assert stopped.wait(60)
        context.undo()
        between = jobs(site, batch)
        assert 0 < len(between) < 10
        assert site.get("batch", batch.id).docs["spawned"] == {"v": 1, "count": len(between), "whole": False}
        site.web.put("list.checkm", files(4))
        record = admitted(site, batch)
        assert [of_job(job).filename for job in jobs(site, batch)] == [f"{n}.txt" for n in range(10)]
        assert len({of_job(job).job_id for job in jobs(site, batch)}) == 10
        assert record.docs["spawned"]["jobs"] == 10
        assert [path for method, path in site.web.requests if method == "GET"] == ["/list.checkm"]


def _stop_after_a_portion(worker: Any, monkeypatch: pytest.MonkeyPatch, stopped: threading.Event) -> pytest.MonkeyPatch:
    from waybill.worker.context import StepContext

    context = pytest.MonkeyPatch()
    before = StepContext.spawn

    def spawn(self: StepContext, children: Any, docs: Any = None) -> Any:
        made = before(self, children, docs)
        worker.stop()
        self.stopped = True
        stopped.set()
        return made

    context.setattr(StepContext, "spawn", spawn)
    return context


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "The manifest is empty."),
        (manifest("single-file-batch"), "The manifest lists nothing."),
        (manifest("single-file-batch", "ftp://example.org/a | md5 | zz"), "Line 4: "),
        (
            manifest("batch", "http://127.0.0.1/a.checkm |  |  |  |  | a.checkm"),
            "Line 2: The profile is mrt-batch-manifest",
        ),
        (files(3).replace(b"#%eof\n", b""), "Line 6: The manifest ends without #%eof"),
        (
            manifest("single-file-batch", f"http://h/a |  |  |  |  | a |  |  |  | {'x' * 200_000}"),
            "Line 4: What is said of the object",
        ),
        (b"x" * 5_000_001, "5000000 is the most"),
    ],
    ids=["empty", "no rows", "bad row", "wrong profile", "truncated", "a book for a title", "too long"],
)
def test_a_corrupt_manifest_makes_no_jobs_and_fails_the_batch_with_the_line(
    tmp_path: Path, body: bytes, reason: str
) -> None:
    with Site(tmp_path) as site:
        batch = submit(site, url=site.web.put("list.checkm", body), type=Type.FILES)
        failed = admitted(site, batch)
        assert failed.state == "Failed"
        assert reason in failed.message
        assert reason in failed.docs["trouble"]["reasons"][0]
        assert failed.docs["status-report"]["counts"] == {"completed": 0, "failed": 0, "deleted": 0}
        assert jobs(site, batch) == []


def test_every_complaint_is_kept_with_its_line(tmp_path: Path) -> None:
    with Site(tmp_path) as site:
        batch = submit(
            site, url=site.web.put("l.checkm", manifest("single-file-batch", *["nothing"] * 150)), type=Type.FILES
        )
        trouble = admitted(site, batch).docs["trouble"]
        assert trouble["count"] == 150
        assert len(trouble["reasons"]) == 100
        assert trouble["reasons"][99].startswith("Line 103: ")


def test_a_payload_that_is_not_what_was_promised_makes_no_jobs(tmp_path: Path) -> None:
    with Site(tmp_path) as site:
        url = site.web.put("list.checkm", files(2))
        batch = submit(site, url=url, type=Type.FILES, digest_type="md5", digest_value="0" * 32)
        assert "The payload is not what was promised" in admitted(site, batch).message


@pytest.mark.parametrize(
    "url", ["file:///etc/passwd", "http://192.168.1.1/list.checkm", "waybill:ocfl/0=ocfl_1.1", "http://[", "ftp://a/b"]
)
def test_a_payload_that_may_not_be_had_makes_no_jobs(tmp_path: Path, url: str) -> None:
    with Site(tmp_path) as site:
        failed = admitted(site, submit(site, url=url, type=Type.FILES))
        assert failed.state == "Failed"
        assert failed.docs["trouble"]["reason"]


def test_a_server_that_is_away_is_tried_again_and_then_the_batch_fails(tmp_path: Path) -> None:
    with Site(tmp_path, settings={"fetch": {"tries": 1}}) as site:
        url = site.web.put("list.checkm", files(1))
        site.web.answers["/list.checkm"] = lambda handler: handler.send_error(503)
        failed = admitted(site, submit(site, url=url, type=Type.FILES))
        assert failed.state == "Failed"
        assert "503" in failed.message
        with site.engine() as engine:
            assert [line.event for line in engine.store.history("batch", failed.id)].count("retry") == 1


def test_a_server_that_comes_back_costs_nothing(tmp_path: Path) -> None:
    with Site(tmp_path) as site:
        url = site.web.put("list.checkm", files(2))
        left = [2]

        def away(handler: Any) -> None:
            left[0] -= 1
            if not left[0]:
                del site.web.answers["/list.checkm"]
            handler.send_error(503)

        site.web.answers["/list.checkm"] = away
        batch = submit(site, url=url, type=Type.FILES)
        assert admitted(site, batch).state == "Processing"
        assert len(jobs(site, batch)) == 2


def test_a_batch_of_others_without_a_payload_is_not_spawned_but_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(comparing, "LOOK", 0.05)
    with Site(tmp_path) as site:
        batch = submit(site)
        with site.workers(roles=ROLES):
            waiting = site.wait("batch", batch.id, "Processing")
            assert "spawned" not in waiting.docs
            with site.engine() as engine:
                made_by_others = engine.store.commit([_child(engine, batch)])[0]
            job = made_by_others.records[0]  # type: ignore[union-attr]
            settle(site, job, "Completed")
            done = site.wait("batch", batch.id, "Completed")
        assert done.docs["status-report"]["successful_jobs"] == [job.id]


def _child(engine: Any, batch: Record) -> Any:
    from waybill import rules
    from waybill.record import Group

    return Group((rules.create(engine.machines, New("job", {"configuration": {}}), maker=batch, who="others"),))


def test_a_batch_for_which_nobody_makes_a_job_fails_after_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(comparing, "LOOK", 0.01)
    monkeypatch.setattr(comparing, "PATIENCE", 0.1)
    with Site(tmp_path) as site:
        batch = submit(site)
        with site.workers(roles=ROLES):
            failed = site.wait("batch", batch.id, "Failed")
        assert "Nobody has made a job for it" in failed.message


@pytest.mark.parametrize(("kind", "letters"), [("verbose", 1), ("additional", 1), ("", 0)])
def test_the_queueing_is_told_if_the_profile_wants_it(tmp_path: Path, kind: str, letters: int) -> None:
    with Mailbox() as box, Site(tmp_path, mail__url=box.url, mail__sender="waybill@example.org") as site:
        profile(site, mail=Mail(to=("jane@example.org",), kind=kind))
        batch = submit(site, url=site.web.put("list.checkm", files(2)), type=Type.FILES, title="Husky")
        record = admitted(site, batch)
        assert record.docs["spawned"]["jobs"] == 2
        found = every(site, "letter")
        assert len(found) == letters
        if found:
            assert found[0].docs["letter"]["subject"] == "Queued: 2 objects of Husky (bid-1)"
            assert found[0].docs["letter"]["to"] == ["jane@example.org"]


@pytest.mark.parametrize("store", ["sqlite", "zookeeper"])
def test_a_batch_that_names_no_profile_makes_no_jobs_and_is_reported_to_say_so(
    tmp_path: Path, store: str, request: pytest.FixtureRequest
) -> None:
    with Site(tmp_path, store="" if store == "sqlite" else request.getfixturevalue("zookeeper_url")) as site:
        batch = submit(site, profile="", url=site.web.put("a.txt", b"hello"), type=Type.FILE)
        with site.workers(roles=ROLES):
            failed = site.wait("batch", batch.id, "Failed")
        assert failed.message.startswith("It names no profile")
        assert failed.docs["trouble"]["reason"] == failed.message
        assert failed.docs["status-report"]["report"] == 1
        assert jobs(site, batch) == []


def test_a_batch_whose_submission_cannot_be_read_is_reported_on_zookeeper_too(
    tmp_path: Path, zookeeper_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(comparing, "LOOK", 0.01)
    monkeypatch.setattr(comparing, "PATIENCE", 0.0)
    with Site(tmp_path, store=zookeeper_url) as site:
        with site.engine() as engine:
            batch = engine.submit(New("batch", {"submission": {}}), who="jane")
        with site.workers(roles=ROLES):
            assert site.wait("batch", batch.id, "Failed").message.startswith("Nobody has made a job for it.")
