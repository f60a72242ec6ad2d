"""A batch whose jobs have settled is reported: honestly, once, to whom it concerns, and again after mending."""

from __future__ import annotations

import importlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import pytest

from tests.apps.ingest.batches import every, files, jobs, profile, settle, submit
from tests.apps.ingest.documents import read_report_jobs
from tests.apps.ingest.ingest_fixture import IngestFixture
from tests.apps.ingest.steps.test_batch_jobs import made
from tests.notify.smtp_server import ReceivedMail, SmtpServer
from waybill import rules
from waybill.apps.ingest.profile import ProfileMail
from waybill.apps.ingest.submission import PayloadType
from waybill.record import Change, CommitGroup, Record

ROLES = ["batch", "mail", "subscription"]
MODULE = importlib.import_module("waybill.apps.ingest.report_writer")


@contextmanager
def run_batch_with_mail(
    folder: Path, count: int, *, mail: ProfileMail | None = None, **options: Any
) -> Iterator[tuple[IngestFixture, Record, SmtpServer]]:
    """A batch of so many jobs, none of which works; a mail server; workers."""
    names = ("store", "settings", "webhooks", "mail__url")
    more: dict[str, Any] = {name: options.pop(name) for name in names if name in options}
    with (
        SmtpServer() as box,
        IngestFixture(folder, **{"mail__url": box.url, "mail__sender": "waybill@example.org", **more}) as ingest,
    ):
        profile(ingest, mail=mail if mail is not None else ProfileMail(to=("jane@example.org",)))
        batch = submit(
            ingest, url=ingest.web.put("list.checkm", files(count)), type=PayloadType.FILES, title="Husky", **options
        )
        with ingest.workers(queues=ROLES):
            yield ingest, made(ingest, batch), box


def read_attachment(message: EmailMessage) -> dict[str, Any]:
    return {str(part.get_filename()): json.loads(part.get_content()) for part in message.iter_attachments()}


def body(came: ReceivedMail) -> str:
    part = came.message.get_body()
    assert part is not None
    return str(part.get_content()).replace("\r\n", "\n")


@pytest.mark.parametrize("store", ["sqlite", "postgres", "zookeeper"])
def test_batch_reporting_to_completed(tmp_path: Path, store: str, request: pytest.FixtureRequest) -> None:
    url = "" if store == "sqlite" else request.getfixturevalue(f"{'fast_' if store == 'postgres' else ''}{store}_url")
    with run_batch_with_mail(tmp_path, 2, store=url) as (ingest, batch, box):
        ids = [settle(ingest, job, "Completed").id for job in jobs(ingest, batch)]
        done = ingest.wait("batch", batch.id, "Completed")
        report = done.documents["status-report"]
        assert report["counts"] == {"completed": 2, "failed": 0, "deleted": 0}
        assert (report["failed_jobs"], report["successful_jobs"], report["whole"], report["report"]) == (
            [],
            ids,
            True,
            1,
        )
        (came,) = box.wait()
        assert came.message["Subject"] == "OK: 2 of 2 completed: Husky (bid-1)"
        assert came.recipients == ("jane@example.org",)
        assert [row["id"] for row in read_attachment(came.message)["completed.json"]["completedJobs"]] == ids


@pytest.mark.parametrize("store", ["sqlite", "postgres", "zookeeper"])
def test_batch_reporting_to_failed(tmp_path: Path, store: str, request: pytest.FixtureRequest) -> None:
    url = "" if store == "sqlite" else request.getfixturevalue(f"{'fast_' if store == 'postgres' else ''}{store}_url")
    with run_batch_with_mail(tmp_path, 3, store=url) as (ingest, batch, box):
        first, second, third = jobs(ingest, batch)
        settle(ingest, first, "Completed")
        settle(ingest, second, "Failed", "The server answered 404.")
        settle(ingest, third, "Completed")
        failed = ingest.wait("batch", batch.id, "Failed")
        assert failed.message == "1 of 3 failed, 2 completed"
        assert failed.documents["status-report"]["failed_jobs"] == [second.id]
        assert failed.documents["status-report"]["successful_jobs"] == [first.id, third.id]
        (came,) = box.wait()
        assert came.message["Subject"].startswith("FAIL: 1 of 3 failed, 2 completed: ")
        assert f"{second.id} ('1.txt', 'Husky'): The server answered 404." in body(came)
        (row,) = read_attachment(came.message)["failed.json"]["failedJobs"]
        assert (row["id"], row["status"], row["message"]) == (second.id, "Failed", "The server answered 404.")
        assert (row["profile"], row["payload_url"]) == ("demo", "http://127.0.0.1/1.txt")


@pytest.mark.parametrize("store", ["sqlite", "postgres", "zookeeper"])
def test_a_batch_is_reported_only_when_its_last_job_has_settled(
    tmp_path: Path, store: str, request: pytest.FixtureRequest
) -> None:
    url = "" if store == "sqlite" else request.getfixturevalue(f"{'fast_' if store == 'postgres' else ''}{store}_url")
    with run_batch_with_mail(tmp_path, 2, store=url) as (ingest, batch, box):
        first, second = jobs(ingest, batch)
        _lead(ingest, batch, "Reporting")  # as others do while jobs are at work
        settle(ingest, first, "Completed")
        with ingest.engine() as engine:
            engine.store.commit([CommitGroup((), (batch.ref,))])  # somebody calls: it looks, and waits on
        waiting = ingest.wait("batch", batch.id, "Reporting")
        assert (waiting.state, box.messages) == ("Reporting", [])
        settle(ingest, second, "Completed")
        ingest.wait("batch", batch.id, "Completed")
        assert len(box.wait()) == 1


def _lead(ingest: IngestFixture, batch: Record, state: str) -> None:
    """As another service writes it."""
    with ingest.engine() as engine:
        record = engine.store.get("batch", batch.id)
        after = rules.enter_state(engine.machines["batch"], record, state)
        engine.store.commit([CommitGroup((Change(record, after, "seen from outside"),))])


def test_a_batch_that_others_led_to_reporting_before_its_jobs_were_made_gets_its_jobs(tmp_path: Path) -> None:
    with IngestFixture(tmp_path) as ingest:
        batch = submit(ingest, url=ingest.web.put("list.checkm", files(2)), type=PayloadType.FILES)
        with ingest.engine() as engine:
            record = engine.store.get("batch", batch.id)
            docs = rules.encode_documents(engine.machines["batch"], {"spawned": {"count": 0, "whole": False}})
            after = rules.enter_state(engine.machines["batch"], record, "Reporting")
            engine.store.commit([CommitGroup((Change(record, after, "seen from outside", documents=docs),))])
        with ingest.workers(queues=ROLES):
            batch = made(ingest, batch)
            assert batch.state == "Reporting"
            for job in jobs(ingest, batch):
                settle(ingest, job, "Completed")
            ingest.wait("batch", batch.id, "Completed")


def test_a_batch_that_others_led_to_reporting_with_a_corrupt_manifest_fails(tmp_path: Path) -> None:
    with IngestFixture(tmp_path) as ingest:
        batch = submit(ingest, url=ingest.web.put("list.checkm", b"nonsense"), type=PayloadType.FILES)
        with ingest.engine() as engine:
            record = engine.store.get("batch", batch.id)
            docs = rules.encode_documents(engine.machines["batch"], {"spawned": {"count": 0, "whole": False}})
            after = rules.enter_state(engine.machines["batch"], record, "Reporting")
            engine.store.commit([CommitGroup((Change(record, after, "seen from outside", documents=docs),))])
        with ingest.workers(queues=ROLES):
            assert ingest.wait("batch", batch.id, "Failed").documents["failure"]["reason"]


def test_every_reason_of_every_file_is_attached_to_the_mail(tmp_path: Path) -> None:
    with SmtpServer() as box, IngestFixture(tmp_path, mail__url=box.url, mail__sender="waybill@example.org") as ingest:
        profile(ingest, mail=ProfileMail(to=("jane@example.org",)))
        rows = "".join(f"{ingest.web.url}/{number} | | | | | n{number}\n" for number in range(120))
        head = "#%checkm_0.7\n#%profile | http://uc3.cdlib.org/registry/ingest/manifest/mrt-ingest-manifest\n"
        submit(ingest, url=ingest.web.put("object.checkm", f"{head}{rows}#%eof\n".encode()), type=PayloadType.OBJECT)
        with ingest.workers():
            (came,) = box.wait()
    (row,) = read_attachment(came.message)["failed.json"]["failedJobs"]
    assert len(row["reasons"]) == 120
    assert {reason.partition(": ")[0] for reason in row["reasons"]} == {f"'n{number}'" for number in range(120)}
    assert "(and 115 more)" in body(came)


def test_a_batch_without_jobs_says_why_in_a_file_too(tmp_path: Path) -> None:
    with SmtpServer() as box, IngestFixture(tmp_path, mail__url=box.url, mail__sender="waybill@example.org") as ingest:
        profile(ingest, mail=ProfileMail(to=("jane@example.org",)))
        batch = submit(ingest, url=ingest.web.put("list.checkm", b"nonsense\n"), type=PayloadType.FILES)
        with ingest.workers(queues=ROLES):
            failed = ingest.wait("batch", batch.id, "Failed")
            (came,) = box.wait()
    assert {"v": 1, **read_attachment(came.message)["failure.json"]} == failed.documents["failure"]


def test_a_batch_whose_jobs_were_all_deleted_completes_and_counts_them(tmp_path: Path) -> None:
    with run_batch_with_mail(tmp_path, 2) as (ingest, batch, box):
        for job in jobs(ingest, batch):
            settle(ingest, job, "Deleted")
        done = ingest.wait("batch", batch.id, "Completed")
        assert done.documents["status-report"]["counts"] == {"completed": 0, "failed": 0, "deleted": 2}
        assert box.wait()[0].message["Subject"].startswith("OK: 0 of 2 completed, 2 deleted: ")


def test_jobs_that_others_removed_are_counted_as_deleted(tmp_path: Path) -> None:
    with run_batch_with_mail(tmp_path, 3) as (ingest, batch, _):
        first, second, third = jobs(ingest, batch)
        for job in (first, second):
            gone = settle(ingest, job, "Deleted")
            with ingest.engine() as engine:
                engine.store.commit([CommitGroup((Change(gone, None, "remove"),))])
        settle(ingest, third, "Completed")
        done = ingest.wait("batch", batch.id, "Completed")
        assert done.documents["status-report"]["counts"] == {"completed": 1, "failed": 0, "deleted": 2}


def test_a_corrupt_manifest_is_reported_with_its_lines(tmp_path: Path) -> None:
    with SmtpServer() as box, IngestFixture(tmp_path, mail__url=box.url) as ingest:
        profile(ingest, mail=ProfileMail(to=("jane@example.org",)))
        url = ingest.web.put("list.checkm", files(2).replace(b"http://127.0.0.1/1.txt", b"ftp://nowhere"))
        batch = submit(ingest, url=url, type=PayloadType.FILES)
        with ingest.workers(queues=ROLES):
            ingest.wait("batch", batch.id, "Failed")
            (came,) = box.wait()
        assert came.message["Subject"] == "FAIL: nothing could be ingested: bid-1"
        assert "Line 5: " in body(came)


# --- the report after mending


@pytest.mark.parametrize("store", ["sqlite", "postgres", "zookeeper"])
def test_batch_failed_to_update_reporting_to_failed_and_completed(
    tmp_path: Path, store: str, request: pytest.FixtureRequest
) -> None:
    url = "" if store == "sqlite" else request.getfixturevalue(f"{'fast_' if store == 'postgres' else ''}{store}_url")
    with run_batch_with_mail(tmp_path, 5, store=url) as (ingest, batch, box):
        good, mended, deleted, bad, removed = jobs(ingest, batch)
        settle(ingest, good, "Completed")
        for job in (mended, deleted, bad, removed):
            settle(ingest, job, "Failed", "broken")
        ingest.wait("batch", batch.id, "Failed")
        settle(ingest, mended, "Completed")
        settle(ingest, deleted, "Deleted")
        gone = settle(ingest, removed, "Deleted")
        with ingest.engine() as engine:
            engine.store.commit([CommitGroup((Change(gone, None, "remove"),))])
            engine.act(batch.ref, "report")
        again = ingest.wait("batch", batch.id, "Failed")
        report = again.documents["status-report"]
        assert report["report"] == 2
        assert report["counts"] == {"completed": 2, "failed": 1, "deleted": 2}
        assert {key: report["since"][key] for key in ("completed", "deleted", "unresolved")} == {
            "completed": 1,
            "deleted": 2,
            "unresolved": 1,
        }
        second = next(came for came in box.wait(2) if "(update)" in came.message["Subject"])
        assert second.message["Subject"].startswith("FAIL (update): 1 of 5 failed, 2 completed, 2 deleted: ")
        found = read_attachment(second.message)
        assert [row["id"] for row in found["completed.json"]["completedJobs"]] == [mended.id]
        assert [row["id"] for row in found["failed.json"]["failedJobs"]] == [bad.id]
        assert [row["id"] for row in found["deleted.json"]["deletedJobs"]] == [deleted.id]
        settle(ingest, bad, "Completed")
        with ingest.engine() as engine:
            engine.act(batch.ref, "report")
        done = ingest.wait("batch", batch.id, "Completed")
        assert done.documents["status-report"]["since"]["completed"] == 1
        third = next(came for came in box.wait(3) if came.message["Subject"].startswith("OK (update)"))
        assert [row["id"] for row in read_attachment(third.message)["completed.json"]["completedJobs"]] == [bad.id]
        assert len({came.message["Message-ID"] for came in box.messages}) == 3


def test_what_has_changed_is_reckoned_from_the_whole_list_and_not_from_the_first_ids(tmp_path: Path) -> None:
    with run_batch_with_mail(tmp_path, 6, settings={"notifications": {"max_ids": 2}}) as (ingest, batch, _):
        found = jobs(ingest, batch)
        for job in found:
            settle(ingest, job, "Failed")
        first = ingest.wait("batch", batch.id, "Failed").documents["status-report"]
        assert (first["failed_jobs"], first["whole"]) == ([job.id for job in found[:2]], False)
        for job in found[3:]:
            settle(ingest, job, "Completed")
        with ingest.engine() as engine:
            engine.act(batch.ref, "report")
        report = ingest.wait("batch", batch.id, "Failed").documents["status-report"]
        assert {key: report["since"][key] for key in ("completed", "deleted", "unresolved")} == {
            "completed": 3,
            "deleted": 0,
            "unresolved": 3,
        }


def test_after_the_report_of_another_service_everything_is_reported(tmp_path: Path) -> None:
    with run_batch_with_mail(tmp_path, 2) as (ingest, batch, box):
        first, second = jobs(ingest, batch)
        settle(ingest, first, "Completed")
        _lead(ingest, batch, "Failed")
        settle(ingest, second, "Failed", "broken")
        with ingest.engine() as engine:
            engine.act(batch.ref, "report")
        report = ingest.wait("batch", batch.id, "Failed").documents["status-report"]
        assert report["counts"] == {"completed": 1, "failed": 1, "deleted": 0}
        assert "Since the report of another service:\n  completed: 1" in body(box.wait()[0])


# --- large batches


def test_long_lists_lie_beside_the_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MODULE, "PAGE_SIZE", 7)
    with run_batch_with_mail(tmp_path, 150) as (ingest, batch, box):
        found = jobs(ingest, batch)
        for number, job in enumerate(found):
            settle(ingest, job, "Failed" if number % 3 == 0 else "Completed", "broken" if number % 3 == 0 else "")
        report = ingest.wait("batch", batch.id, "Failed").documents["status-report"]
        assert report["counts"] == {"completed": 100, "failed": 50, "deleted": 0}
        assert report["manifest_url"] == f"http://waybill.test/api/v1/ingest/batches/{batch.id}/report"
        assert report["jobs"]["list"].startswith(f"ingest/reports/{batch.id}/")
        rows = list(read_report_jobs(ingest, batch))
        assert [row.id for row in rows] == [job.id for job in found]
        (came,) = box.wait()
        assert "  and 30 more" in body(came)
        assert len(read_attachment(came.message)["failed.json"]["failedJobs"]) == 50
        (letter,) = every(ingest, "mail")
        assert len(json.dumps(letter.documents["mail"])) < 20_000


def test_the_document_stays_small_however_long_ids_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MODULE, "MAX_ID_BYTES", 100)
    with run_batch_with_mail(tmp_path, 20) as (ingest, batch, _):
        for job in jobs(ingest, batch):
            settle(ingest, job, "Completed")
        report = ingest.wait("batch", batch.id, "Completed").documents["status-report"]
        assert 0 < len(report["successful_jobs"]) < 20
        assert (report["whole"], report["counts"]["completed"]) == (False, 20)


# --- who is told


def test_a_notification_of_the_submission_takes_the_place_of_the_profiles_contacts(tmp_path: Path) -> None:
    settings = {"notifications": {"admins": ["root@example.org"]}}
    with run_batch_with_mail(tmp_path, 1, settings=settings, notification="me@example.org; you@example.org") as (
        ingest,
        batch,
        box,
    ):
        settle(ingest, jobs(ingest, batch)[0], "Completed")
        (came,) = box.wait()
        assert came.recipients == ("me@example.org", "you@example.org", "root@example.org")
        assert came.message["To"] == "me@example.org, you@example.org"
        assert b"root@example.org" not in came.raw


def test_a_profile_that_wants_no_mail_gets_none_and_the_report_is_written_all_the_same(tmp_path: Path) -> None:
    mail = ProfileMail(to=("jane@example.org",), suppressed=True, kind="verbose")
    with run_batch_with_mail(tmp_path, 1, mail=mail, settings={"notifications": {"admins": ["root@example.org"]}}) as (
        ingest,
        batch,
        _,
    ):
        settle(ingest, jobs(ingest, batch)[0], "Failed", "broken")
        assert ingest.wait("batch", batch.id, "Failed").documents["status-report"]["counts"]["failed"] == 1
        assert every(ingest, "mail") == []


def test_without_a_mail_server_no_mail_is_created(tmp_path: Path) -> None:
    with IngestFixture(tmp_path) as ingest:
        profile(ingest, mail=ProfileMail(to=("jane@example.org",)))
        batch = submit(ingest, url="http://127.0.0.1/a", type=PayloadType.FILE)
        with ingest.workers(queues=ROLES):
            settle(ingest, jobs(ingest, made(ingest, batch))[0], "Completed")
            ingest.wait("batch", batch.id, "Completed")
        assert every(ingest, "mail") == []


def test_a_dead_mail_server_delays_the_mail_and_nothing_else(tmp_path: Path) -> None:
    dead = SmtpServer()
    with run_batch_with_mail(tmp_path, 1, mail__url=dead.url) as (ingest, batch, _):
        settle(ingest, jobs(ingest, batch)[0], "Completed")
        ingest.wait("batch", batch.id, "Completed")
        (letter,) = every(ingest, "mail")
        letter = ingest.wait("mail", letter.id, "Waiting")
        assert letter.state == "Waiting"


def test_secrets_in_urls_are_not_reported(tmp_path: Path) -> None:
    with SmtpServer() as box, IngestFixture(tmp_path, mail__url=box.url) as ingest:
        profile(ingest, mail=ProfileMail(to=("jane@example.org",)))
        batch = submit(ingest, url="https://me:hush@example.org/a?X-Amz-Signature=abcdef&id=7", type=PayloadType.FILE)
        with ingest.workers(queues=ROLES):
            settle(ingest, jobs(ingest, made(ingest, batch))[0], "Failed", "broken")
            (came,) = box.wait()
        assert b"hush" not in came.raw
        assert (
            read_attachment(came.message)["failed.json"]["failedJobs"][0]["payload_url"]
            == "https://example.org/a?X-Amz-Signature=***&id=7"
        )


def test_webhooks_get_an_event_for_the_batch(tmp_path: Path) -> None:
    came: list[dict[str, Any]] = []
    arrived = threading.Event()

    def receive(handler: Any) -> None:
        came.append(json.loads(handler.rfile.read(int(handler.headers["Content-Length"]))))
        handler.send_response(204)
        handler.end_headers()
        arrived.set()

    with IngestFixture(tmp_path / "receiver") as receiver:
        receiver.web.answers["/hook"] = receive
        hooks = {"ours": {"url": f"{receiver.web.url}/hook", "types": ["ingest.batch.*"]}}
        with run_batch_with_mail(tmp_path, 1, webhooks=hooks) as (ingest, batch, _):
            settle(ingest, jobs(ingest, batch)[0], "Failed", "broken")
            ingest.wait("batch", batch.id, "Failed")
            assert arrived.wait(120)
    (told_of,) = came
    assert (told_of["type"], told_of["subject"]) == ("ingest.batch.failed", batch.id)
    assert told_of["data"]["batchID"] == "bid-1"
    assert told_of["data"]["counts"] == {"completed": 0, "failed": 1, "deleted": 0}
