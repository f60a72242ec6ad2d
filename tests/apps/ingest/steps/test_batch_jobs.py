"""A batch becomes jobs: one for each object of its payload, made once, whatever the payload does to us."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from tests.apps.ingest.batches import every, files, jobs, manifest, profile, settle, submit
from tests.apps.ingest.ingest_fixture import IngestFixture
from tests.notify.smtp_server import SmtpServer
from waybill.apps.ingest import batch_jobs
from waybill.apps.ingest.batch_jobs import job_id_of
from waybill.apps.ingest.merritt import unfinished_batches
from waybill.apps.ingest.profile import ProfileMail
from waybill.apps.ingest.service import build_batch_view
from waybill.apps.ingest.submission import PayloadType, Submission
from waybill.record import CommitResult, Record
from waybill.step import New

ROLES = ["batch"]


def run_until_admitted(ingest: IngestFixture, batch: Record, **options: Any) -> Record:
    """The batch when all of its jobs are made, or none can be."""
    with ingest.workers(queues=ROLES, **options):
        return made(ingest, batch)


def made(ingest: IngestFixture, batch: Record) -> Record:
    with ingest.engine() as engine:
        while True:
            record = engine.store.get("batch", batch.id)
            if record.state == "Failed" or (
                record.blocked_by == "children" and record.documents.get("spawned", {}).get("whole")
            ):
                return record
            engine.store.watch(0.1)


@pytest.mark.parametrize("store", ["sqlite", "postgres", "zookeeper"])
def test_batch_pending_to_processing_makes_one_job_for_a_file(
    tmp_path: Path, store: str, request: pytest.FixtureRequest
) -> None:
    url = "" if store == "sqlite" else request.getfixturevalue(f"{'fast_' if store == 'postgres' else ''}{store}_url")
    with IngestFixture(tmp_path, store=url) as ingest:
        batch = submit(
            ingest,
            url="http://127.0.0.1/a.txt",
            type=PayloadType.FILE,
            title="A",
            creator="Jane",
            local_ids=("x", "y"),
            size=5,
        )
        assert run_until_admitted(ingest, batch).state == "Processing"
        (job,) = jobs(ingest, batch)
        submission = Submission.from_job(job)
        assert job.state == "Pending"
        assert (submission.url, submission.type, submission.title, submission.batch_id) == (
            "http://127.0.0.1/a.txt",
            PayloadType.FILE,
            "A",
            "bid-1",
        )
        assert submission.job_id == job_id_of("bid-1", 0)
        assert job.documents["identifiers"] == {"primary_id": "", "local_id": ["x", "y"]}
        assert job.documents["metadata"] == {"erc_who": "Jane", "erc_what": "A", "erc_when": "", "erc_where": ""}
        assert (job.priority, job.owner) == (5, "jane")


def test_each_row_of_a_batch_manifest_is_a_job_with_what_its_row_says(tmp_path: Path) -> None:
    body = manifest(
        "container-batch",
        "http://127.0.0.1/a.zip | md5 | 47d321056e60944a06973793c7b5841e | 17 |  | a.zip"
        " | ark:/99999/fk4abc | x; y ;x | Tracy | Husky | 2009",
        "http://127.0.0.1/b.zip |  |  |  |  | b.zip",
    )
    with IngestFixture(tmp_path) as ingest:
        url = ingest.web.put("list.checkm", body)
        batch = submit(
            ingest,
            url=url,
            type=PayloadType.CONTAINERS,
            creator="Everyone",
            digest_type="",
            local_ids=("of-the-batch",),
        )
        assert run_until_admitted(ingest, batch).state == "Processing"
        first, second = (Submission.from_job(job) for job in jobs(ingest, batch))
        assert (first.type, first.url, first.filename, first.size) == (
            PayloadType.CONTAINER,
            "http://127.0.0.1/a.zip",
            "a.zip",
            17,
        )
        assert first.row_digests == {"md5": "47d321056e60944a06973793c7b5841e"}
        assert (first.primary_id, first.local_ids, first.creator, first.title, first.date) == (
            "ark:/99999/fk4abc",
            ("x", "y"),
            "Tracy",
            "Husky",
            "2009",
        )
        assert (second.primary_id, second.local_ids, second.creator, second.row_digests) == ("", (), "Everyone", {})
        assert first.job_id != second.job_id


@pytest.mark.parametrize("checked", [True, False])
def test_a_row_of_an_update_names_the_object_that_it_updates(tmp_path: Path, checked: bool) -> None:
    with IngestFixture(tmp_path) as ingest:
        profile(ingest)
        rows = (
            f"{ingest.web.put(name, b'x')} |  |  |  |  | {name} |  | {local}"
            for name, local in (("a.txt", "x1"), ("b.txt", ""))
        )
        url = ingest.web.put("list.checkm", manifest("single-file-batch", *rows))
        batch = submit(ingest, url=url, type=PayloadType.FILES, update=True, is_profile_checked=checked)
        with ingest.workers():
            ingest.wait("batch", batch.id, "Completed", "Failed")
        named, nameless = jobs(ingest, batch)
        assert named.state == "Completed"
        assert nameless.state == ("Failed" if checked else "Completed"), (
            "other services' deposits are done as they do them"
        )
        if checked:
            assert nameless.message.startswith("An update needs the object that it updates: give its ARK")
            assert ("GET", "/b.txt") not in ingest.web.requests


@pytest.mark.parametrize("portion", [batch_jobs.MAX_JOBS_PER_COMMIT, 1])
def test_rows_that_name_one_object_are_remarked_on_in_the_batch(
    tmp_path: Path, portion: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_jobs, "MAX_JOBS_PER_COMMIT", portion)  # 1: the rows are kept in a list
    body = manifest(
        "single-file-batch", *(f"http://127.0.0.1/{n}.txt |  |  |  |  | {n}.txt |  | box-{n % 2}" for n in range(3))
    )
    with IngestFixture(tmp_path) as ingest:
        batch = run_until_admitted(
            ingest, submit(ingest, url=ingest.web.put("list.checkm", body), type=PayloadType.FILES)
        )
        assert len(jobs(ingest, batch)) == 3
        with ingest.engine() as engine:
            (remark,) = build_batch_view(engine, batch)["remarks"]
        assert remark.startswith("Line 6: 'box-0' is named in line 4 too: both become versions of one object")


@pytest.mark.parametrize(
    ("kind", "type", "of_rows", "name"),
    [
        ("batch", PayloadType.MANIFESTS, PayloadType.OBJECT, "a.checkm"),
        ("single-file-batch", PayloadType.FILES, PayloadType.FILE, "a.zip"),
    ],
)
def test_what_a_row_names_follows_from_the_kind_of_manifest(
    tmp_path: Path, kind: str, type: PayloadType, of_rows: PayloadType, name: str
) -> None:
    with IngestFixture(tmp_path) as ingest:
        url = ingest.web.put("list.checkm", manifest(kind, f"http://127.0.0.1/{name} |  |  |  |  | {name}"))
        batch = submit(ingest, url=url, type=type)
        run_until_admitted(ingest, batch)
        assert [Submission.from_job(job).type for job in jobs(ingest, batch)] == [of_rows]


@pytest.mark.parametrize(
    ("name", "type"),
    [
        ("a.checkm", PayloadType.OBJECT),
        ("b.zip", PayloadType.CONTAINER),
        ("c.tar.gz", PayloadType.CONTAINER),
        ("d.pdf", PayloadType.FILE),
        ("e.txt", PayloadType.FILE),
    ],
)
def test_the_type_of_a_payload_is_guessed_from_its_name(tmp_path: Path, name: str, type: PayloadType) -> None:
    with IngestFixture(tmp_path) as ingest:
        batch = submit(ingest, url=ingest.web.put(name, b"something"))
        run_until_admitted(ingest, batch)
        assert [Submission.from_job(job).type for job in jobs(ingest, batch)] == [type]


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
    with IngestFixture(tmp_path) as ingest:
        batch = submit(ingest, url=ingest.web.put("a.checkm", body))
        run_until_admitted(ingest, batch)
        (job,) = jobs(ingest, batch)
        failed = ingest.step_until(job.ref, "Failed", "Estimating")
        assert failed.state == "Failed"
        assert part in failed.message + " ".join(failed.documents["refusal"]["reasons"])
        assert failed.documents["refusal"]["final"]


def test_what_has_the_name_of_a_manifest_is_stored_as_it_is_if_it_is_called_a_file(tmp_path: Path) -> None:
    with IngestFixture(tmp_path) as ingest:
        batch = submit(ingest, url=ingest.web.put("a.checkm", b"garbage"), type=PayloadType.FILE)
        run_until_admitted(ingest, batch)
        assert [Submission.from_job(job).type for job in jobs(ingest, batch)] == [PayloadType.FILE]


def test_the_type_of_a_manifest_is_read_from_its_profile(tmp_path: Path) -> None:
    with IngestFixture(tmp_path) as ingest:
        batch = submit(ingest, url=ingest.web.put("a.checkm", files(3)))
        run_until_admitted(ingest, batch)
        assert [Submission.from_job(job).type for job in jobs(ingest, batch)] == [PayloadType.FILE] * 3


def test_an_uploaded_manifest_is_read_from_the_objects(tmp_path: Path) -> None:
    with IngestFixture(tmp_path) as ingest:
        name = "ingest/payloads/6e0cbd1c-6f4e-4a36-9d5c-0d2f6e3a7b11/list.checkm"
        ingest.environment.objects.put(name, files(2))
        batch = submit(ingest, url=f"waybill:{name}", type=PayloadType.FILES)
        run_until_admitted(ingest, batch)
        assert len(jobs(ingest, batch)) == 2


def test_the_first_priority_is_the_profiles_or_follows_from_the_number_of_jobs(tmp_path: Path) -> None:
    with IngestFixture(tmp_path) as ingest:
        profile(ingest, name="urgent", priority=3)
        url = ingest.web.put("list.checkm", files(10))
        with ingest.workers(queues=ROLES):
            ten = made(ingest, submit(ingest, url=url, type=PayloadType.FILES))
            urgent = made(ingest, submit(ingest, url=url, type=PayloadType.FILES, profile="urgent", batch_id="bid-2"))
        assert {job.priority for job in jobs(ingest, ten)} == {28}
        assert {job.priority for job in jobs(ingest, urgent)} == {3}


def test_many_jobs_are_created_in_several_commits_from_a_list_that_does_not_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The manifest at the URL changes, and the worker is stopped, after the first portion: the jobs are those of the
    first reading.
    """
    monkeypatch.setattr(batch_jobs, "MAX_JOBS_PER_COMMIT", 3)
    with IngestFixture(tmp_path) as ingest:
        url = ingest.web.put("list.checkm", files(10))
        stopped = threading.Event()
        with ingest.workers(queues=ROLES) as worker:
            context = _stop_after_a_portion(worker, monkeypatch, stopped)
            batch = submit(ingest, url=url, type=PayloadType.FILES)  # not before: the worker may be quick
            assert stopped.wait(60)
        context.undo()
        between = jobs(ingest, batch)
        assert 0 < len(between) < 10
        assert ingest.get("batch", batch.id).documents["spawned"] == {"v": 1, "count": len(between), "whole": False}
        ingest.web.put("list.checkm", files(4))
        record = run_until_admitted(ingest, batch)
        assert [Submission.from_job(job).filename for job in jobs(ingest, batch)] == [f"{n}.txt" for n in range(10)]
        assert len({Submission.from_job(job).job_id for job in jobs(ingest, batch)}) == 10
        assert record.documents["spawned"]["jobs"] == 10
        assert [path for method, path in ingest.web.requests if method == "GET"] == ["/list.checkm"]


def _stop_after_a_portion(worker: Any, monkeypatch: pytest.MonkeyPatch, stopped: threading.Event) -> pytest.MonkeyPatch:
    from waybill.worker.step_context import WorkerStepContext

    context = pytest.MonkeyPatch()
    before = WorkerStepContext.spawn

    def spawn(self: WorkerStepContext, children: Any, docs: Any = None) -> Any:
        made = before(self, children, docs)
        worker.stop()
        self.is_stopped = True
        stopped.set()
        return made

    context.setattr(WorkerStepContext, "spawn", spawn)
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
            "Line 4: The description of the object",
        ),
        (b"x" * 5_000_001, "5000000 is the limit"),
    ],
    ids=["empty", "no rows", "bad row", "wrong profile", "truncated", "a book for a title", "too long"],
)
def test_a_corrupt_manifest_makes_no_jobs_and_fails_the_batch_with_the_line(
    tmp_path: Path, body: bytes, reason: str
) -> None:
    with IngestFixture(tmp_path) as ingest:
        batch = submit(ingest, url=ingest.web.put("list.checkm", body), type=PayloadType.FILES)
        failed = run_until_admitted(ingest, batch)
        assert failed.state == "Failed"
        assert reason in failed.message
        assert reason in failed.documents["failure"]["reasons"][0]
        assert failed.documents["status-report"]["counts"] == {"completed": 0, "failed": 0, "deleted": 0}
        assert jobs(ingest, batch) == []


def test_every_complaint_is_kept_with_its_line(tmp_path: Path) -> None:
    with IngestFixture(tmp_path) as ingest:
        batch = submit(
            ingest,
            url=ingest.web.put("l.checkm", manifest("single-file-batch", *["nothing"] * 150)),
            type=PayloadType.FILES,
        )
        trouble = run_until_admitted(ingest, batch).documents["failure"]
        assert trouble["count"] == 150
        assert len(trouble["reasons"]) == 100
        assert trouble["reasons"][99].startswith("Line 103: ")


def test_a_payload_that_is_not_what_was_promised_makes_no_jobs(tmp_path: Path) -> None:
    with IngestFixture(tmp_path) as ingest:
        url = ingest.web.put("list.checkm", files(2))
        batch = submit(ingest, url=url, type=PayloadType.FILES, digest_type="md5", digest_value="0" * 32)
        assert "The payload is not what was promised" in run_until_admitted(ingest, batch).message


@pytest.mark.parametrize(
    "url", ["file:///etc/passwd", "http://192.168.1.1/list.checkm", "waybill:ocfl/0=ocfl_1.1", "http://[", "ftp://a/b"]
)
def test_a_payload_that_may_not_be_had_makes_no_jobs(tmp_path: Path, url: str) -> None:
    with IngestFixture(tmp_path) as ingest:
        failed = run_until_admitted(ingest, submit(ingest, url=url, type=PayloadType.FILES))
        assert failed.state == "Failed"
        assert failed.documents["failure"]["reason"]


def test_a_server_that_is_unavailable_is_tried_again_and_then_the_batch_fails(tmp_path: Path) -> None:
    with IngestFixture(tmp_path, settings={"fetch": {"max_tries": 1}}) as ingest:
        url = ingest.web.put("list.checkm", files(1))
        ingest.web.answers["/list.checkm"] = lambda handler: handler.send_error(503)
        failed = run_until_admitted(ingest, submit(ingest, url=url, type=PayloadType.FILES))
        assert failed.state == "Failed"
        assert "503" in failed.message
        with ingest.engine() as engine:
            assert [line.cause for line in engine.store.history("batch", failed.id)].count("retry") == 1


def test_a_server_that_comes_back_costs_nothing(tmp_path: Path) -> None:
    with IngestFixture(tmp_path) as ingest:
        url = ingest.web.put("list.checkm", files(2))
        left = [2]

        def away(handler: Any) -> None:
            left[0] -= 1
            if not left[0]:
                del ingest.web.answers["/list.checkm"]
            handler.send_error(503)

        ingest.web.answers["/list.checkm"] = away
        batch = submit(ingest, url=url, type=PayloadType.FILES)
        assert run_until_admitted(ingest, batch).state == "Processing"
        assert len(jobs(ingest, batch)) == 2


def test_a_batch_of_others_without_a_payload_is_not_spawned_but_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unfinished_batches, "POLL_SECONDS", 0.05)
    with IngestFixture(tmp_path) as ingest:
        batch = submit(ingest)
        with ingest.workers(queues=ROLES):
            waiting = ingest.wait("batch", batch.id, "Processing")
            assert "spawned" not in waiting.documents
            with ingest.engine() as engine:
                made_by_others = engine.store.commit([_child(engine, batch)])[0]
            assert isinstance(made_by_others, CommitResult)
            job = made_by_others.records[0]
            assert job is not None
            settle(ingest, job, "Completed")
            done = ingest.wait("batch", batch.id, "Completed")
        assert done.documents["status-report"]["successful_jobs"] == [job.id]


def _child(engine: Any, batch: Record) -> Any:
    from waybill import rules
    from waybill.record import CommitGroup

    return CommitGroup((rules.create(engine.machines, New("job", {"configuration": {}}), maker=batch, who="others"),))


def test_a_batch_for_which_nobody_makes_a_job_fails_after_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unfinished_batches, "POLL_SECONDS", 0.01)
    monkeypatch.setattr(unfinished_batches, "PATIENCE_SECONDS", 0.1)
    with IngestFixture(tmp_path) as ingest:
        batch = submit(ingest)
        with ingest.workers(queues=ROLES):
            failed = ingest.wait("batch", batch.id, "Failed")
        assert "No job was created for it" in failed.message


@pytest.mark.parametrize(("kind", "letters"), [("verbose", 1), ("additional", 1), ("", 0)])
def test_queueing_is_confirmed_by_mail_if_the_profile_asks_for_it(tmp_path: Path, kind: str, letters: int) -> None:
    with SmtpServer() as box, IngestFixture(tmp_path, mail__url=box.url, mail__sender="waybill@example.org") as ingest:
        profile(ingest, mail=ProfileMail(to=("jane@example.org",), kind=kind))
        batch = submit(ingest, url=ingest.web.put("list.checkm", files(2)), type=PayloadType.FILES, title="Husky")
        record = run_until_admitted(ingest, batch)
        assert record.documents["spawned"]["jobs"] == 2
        found = every(ingest, "mail")
        assert len(found) == letters
        if found:
            assert found[0].documents["mail"]["subject"] == "Queued: 2 objects of Husky (bid-1)"
            assert found[0].documents["mail"]["to"] == ["jane@example.org"]


@pytest.mark.parametrize("store", ["sqlite", "zookeeper"])
def test_a_batch_that_names_no_profile_makes_no_jobs_and_is_reported_to_say_so(
    tmp_path: Path, store: str, request: pytest.FixtureRequest
) -> None:
    with IngestFixture(tmp_path, store="" if store == "sqlite" else request.getfixturevalue("zookeeper_url")) as ingest:
        batch = submit(ingest, profile="", url=ingest.web.put("a.txt", b"hello"), type=PayloadType.FILE)
        with ingest.workers(queues=ROLES):
            failed = ingest.wait("batch", batch.id, "Failed")
        assert failed.message.startswith("Its submission names no profile")
        assert failed.documents["failure"]["reason"] == failed.message
        assert failed.documents["status-report"]["report"] == 1
        assert jobs(ingest, batch) == []


def test_a_batch_whose_submission_cannot_be_read_is_reported_on_zookeeper_too(
    tmp_path: Path, zookeeper_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unfinished_batches, "POLL_SECONDS", 0.01)
    monkeypatch.setattr(unfinished_batches, "PATIENCE_SECONDS", 0.0)
    with IngestFixture(tmp_path, store=zookeeper_url) as ingest:
        with ingest.engine() as engine:
            batch = engine.submit(New("batch", {"submission": {}}), who="jane")
        with ingest.workers(queues=ROLES):
            assert ingest.wait("batch", batch.id, "Failed").message.startswith("No job was created for it.")
