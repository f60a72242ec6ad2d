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
from tests.apps.ingest.site import Site
from tests.apps.ingest.steps.test_admitting import made
from tests.notify.mailbox import Came, Mailbox
from waybill import rules
from waybill.apps.ingest import lists
from waybill.apps.ingest.profile import Mail
from waybill.apps.ingest.report import Told
from waybill.apps.ingest.submission import Type
from waybill.record import Change, Group, Record

ROLES = ["batch", "letter", "event"]
MODULE = importlib.import_module("waybill.apps.ingest.steps.reporting")


@contextmanager
def told(
    folder: Path, count: int, *, mail: Mail | None = None, **options: Any
) -> Iterator[tuple[Site, Record, Mailbox]]:
    """A batch of so many jobs, none of which works; a mail server; workers."""
    more = {name: options.pop(name) for name in ("store", "settings", "webhooks", "mail__url") if name in options}
    with (
        Mailbox() as box,
        Site(folder, **({"mail__url": box.url, "mail__sender": "waybill@example.org"} | more)) as site,
    ):
        profile(site, mail=mail if mail is not None else Mail(to=("jane@example.org",)))
        batch = submit(site, url=site.web.put("list.checkm", files(count)), type=Type.FILES, title="Husky", **options)
        with site.workers(roles=ROLES):
            yield site, made(site, batch), box


def attached(message: EmailMessage) -> dict[str, Any]:
    return {str(part.get_filename()): json.loads(part.get_content()) for part in message.iter_attachments()}


def body(came: Came) -> str:
    part = came.message.get_body()
    assert part is not None
    return str(part.get_content()).replace("\r\n", "\n")


@pytest.mark.parametrize("store", ["sqlite", "postgres", "zookeeper"])
def test_batch_reporting_to_completed(tmp_path: Path, store: str, request: pytest.FixtureRequest) -> None:
    url = "" if store == "sqlite" else request.getfixturevalue(f"{'fast_' if store == 'postgres' else ''}{store}_url")
    with told(tmp_path, 2, store=url) as (site, batch, box):
        ids = [settle(site, job, "Completed").id for job in jobs(site, batch)]
        done = site.wait("batch", batch.id, "Completed")
        report = done.docs["status-report"]
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
        assert [row["id"] for row in attached(came.message)["completed.json"]["completedJobs"]] == ids


@pytest.mark.parametrize("store", ["sqlite", "postgres", "zookeeper"])
def test_batch_reporting_to_failed(tmp_path: Path, store: str, request: pytest.FixtureRequest) -> None:
    url = "" if store == "sqlite" else request.getfixturevalue(f"{'fast_' if store == 'postgres' else ''}{store}_url")
    with told(tmp_path, 3, store=url) as (site, batch, box):
        first, second, third = jobs(site, batch)
        settle(site, first, "Completed")
        settle(site, second, "Failed", "The server answered 404.")
        settle(site, third, "Completed")
        failed = site.wait("batch", batch.id, "Failed")
        assert failed.message == "1 of 3 failed, 2 completed"
        assert failed.docs["status-report"]["failed_jobs"] == [second.id]
        assert failed.docs["status-report"]["successful_jobs"] == [first.id, third.id]
        (came,) = box.wait()
        assert came.message["Subject"].startswith("FAIL: 1 of 3 failed, 2 completed: ")
        assert f"{second.id} ('1.txt', 'Husky'): The server answered 404." in body(came)
        (row,) = attached(came.message)["failed.json"]["failedJobs"]
        assert (row["id"], row["status"], row["message"]) == (second.id, "Failed", "The server answered 404.")
        assert (row["profile"], row["payload_url"]) == ("demo", "http://127.0.0.1/1.txt")


@pytest.mark.parametrize("store", ["sqlite", "postgres", "zookeeper"])
def test_a_batch_is_reported_only_when_its_last_job_has_settled(
    tmp_path: Path, store: str, request: pytest.FixtureRequest
) -> None:
    url = "" if store == "sqlite" else request.getfixturevalue(f"{'fast_' if store == 'postgres' else ''}{store}_url")
    with told(tmp_path, 2, store=url) as (site, batch, box):
        first, second = jobs(site, batch)
        _lead(site, batch, "Reporting")  # as others do while jobs are at work
        settle(site, first, "Completed")
        with site.engine() as engine:
            engine.store.commit([Group((), (batch.ref,))])  # somebody calls: it looks, and waits on
        waiting = site.wait("batch", batch.id, "Reporting")
        assert (waiting.state, box.letters) == ("Reporting", [])
        settle(site, second, "Completed")
        site.wait("batch", batch.id, "Completed")
        assert len(box.wait()) == 1


def _lead(site: Site, batch: Record, state: str) -> None:
    """As another service writes it."""
    with site.engine() as engine:
        record = engine.store.get("batch", batch.id)
        after = rules.enter(engine.machines["batch"], record, state)
        engine.store.commit([Group((Change(record, after, "seen from outside"),))])


def test_a_batch_that_others_led_to_reporting_before_its_jobs_were_made_gets_its_jobs(tmp_path: Path) -> None:
    with Site(tmp_path) as site:
        batch = submit(site, url=site.web.put("list.checkm", files(2)), type=Type.FILES)
        with site.engine() as engine:
            record = engine.store.get("batch", batch.id)
            docs = rules.documents(engine.machines["batch"], {"spawned": {"count": 0, "whole": False}})
            after = rules.enter(engine.machines["batch"], record, "Reporting")
            engine.store.commit([Group((Change(record, after, "seen from outside", docs=docs),))])
        with site.workers(roles=ROLES):
            batch = made(site, batch)
            assert batch.state == "Reporting"
            for job in jobs(site, batch):
                settle(site, job, "Completed")
            site.wait("batch", batch.id, "Completed")


def test_a_batch_that_others_led_to_reporting_with_a_corrupt_manifest_fails(tmp_path: Path) -> None:
    with Site(tmp_path) as site:
        batch = submit(site, url=site.web.put("list.checkm", b"nonsense"), type=Type.FILES)
        with site.engine() as engine:
            record = engine.store.get("batch", batch.id)
            docs = rules.documents(engine.machines["batch"], {"spawned": {"count": 0, "whole": False}})
            after = rules.enter(engine.machines["batch"], record, "Reporting")
            engine.store.commit([Group((Change(record, after, "seen from outside", docs=docs),))])
        with site.workers(roles=ROLES):
            assert site.wait("batch", batch.id, "Failed").docs["trouble"]["reason"]


def test_every_reason_of_every_file_goes_with_the_letter(tmp_path: Path) -> None:
    with Mailbox() as box, Site(tmp_path, mail__url=box.url, mail__sender="waybill@example.org") as site:
        profile(site, mail=Mail(to=("jane@example.org",)))
        rows = "".join(f"{site.web.url}/{number} | | | | | n{number}\n" for number in range(120))
        head = "#%checkm_0.7\n#%profile | http://uc3.cdlib.org/registry/ingest/manifest/mrt-ingest-manifest\n"
        submit(site, url=site.web.put("object.checkm", f"{head}{rows}#%eof\n".encode()), type=Type.OBJECT)
        with site.workers():
            (came,) = box.wait()
    (row,) = attached(came.message)["failed.json"]["failedJobs"]
    assert len(row["reasons"]) == 120
    assert {reason.partition(": ")[0] for reason in row["reasons"]} == {f"'n{number}'" for number in range(120)}
    assert "(and 115 more)" in body(came)


def test_a_batch_without_jobs_says_why_in_a_file_too(tmp_path: Path) -> None:
    with Mailbox() as box, Site(tmp_path, mail__url=box.url, mail__sender="waybill@example.org") as site:
        profile(site, mail=Mail(to=("jane@example.org",)))
        batch = submit(site, url=site.web.put("list.checkm", b"nonsense\n"), type=Type.FILES)
        with site.workers(roles=ROLES):
            failed = site.wait("batch", batch.id, "Failed")
            (came,) = box.wait()
    assert attached(came.message)["trouble.json"] == failed.docs["trouble"]


def test_a_batch_whose_jobs_were_all_deleted_completes_and_counts_them(tmp_path: Path) -> None:
    with told(tmp_path, 2) as (site, batch, box):
        for job in jobs(site, batch):
            settle(site, job, "Deleted")
        done = site.wait("batch", batch.id, "Completed")
        assert done.docs["status-report"]["counts"] == {"completed": 0, "failed": 0, "deleted": 2}
        assert box.wait()[0].message["Subject"].startswith("OK: 0 of 2 completed, 2 deleted: ")


def test_jobs_that_others_removed_are_counted_as_deleted(tmp_path: Path) -> None:
    with told(tmp_path, 3) as (site, batch, _):
        first, second, third = jobs(site, batch)
        for job in (first, second):
            gone = settle(site, job, "Deleted")
            with site.engine() as engine:
                engine.store.commit([Group((Change(gone, None, "remove"),))])
        settle(site, third, "Completed")
        done = site.wait("batch", batch.id, "Completed")
        assert done.docs["status-report"]["counts"] == {"completed": 1, "failed": 0, "deleted": 2}


def test_a_corrupt_manifest_is_reported_with_its_lines(tmp_path: Path) -> None:
    with Mailbox() as box, Site(tmp_path, mail__url=box.url) as site:
        profile(site, mail=Mail(to=("jane@example.org",)))
        url = site.web.put("list.checkm", files(2).replace(b"http://127.0.0.1/1.txt", b"ftp://nowhere"))
        batch = submit(site, url=url, type=Type.FILES)
        with site.workers(roles=ROLES):
            site.wait("batch", batch.id, "Failed")
            (came,) = box.wait()
        assert came.message["Subject"] == "FAIL: nothing could be ingested: bid-1"
        assert "Line 5: " in body(came)


# --- the report after mending


@pytest.mark.parametrize("store", ["sqlite", "postgres", "zookeeper"])
def test_batch_failed_to_update_reporting_to_failed_and_completed(
    tmp_path: Path, store: str, request: pytest.FixtureRequest
) -> None:
    url = "" if store == "sqlite" else request.getfixturevalue(f"{'fast_' if store == 'postgres' else ''}{store}_url")
    with told(tmp_path, 5, store=url) as (site, batch, box):
        good, mended, deleted, bad, removed = jobs(site, batch)
        settle(site, good, "Completed")
        for job in (mended, deleted, bad, removed):
            settle(site, job, "Failed", "broken")
        site.wait("batch", batch.id, "Failed")
        settle(site, mended, "Completed")
        settle(site, deleted, "Deleted")
        gone = settle(site, removed, "Deleted")
        with site.engine() as engine:
            engine.store.commit([Group((Change(gone, None, "remove"),))])
            engine.act(batch.ref, "report")
        again = site.wait("batch", batch.id, "Failed")
        report = again.docs["status-report"]
        assert report["report"] == 2
        assert report["counts"] == {"completed": 2, "failed": 1, "deleted": 2}
        assert {key: report["since"][key] for key in ("completed", "deleted", "unresolved")} == {
            "completed": 1,
            "deleted": 2,
            "unresolved": 1,
        }
        second = next(came for came in box.wait(2) if "(update)" in came.message["Subject"])
        assert second.message["Subject"].startswith("FAIL (update): 1 of 5 failed, 2 completed, 2 deleted: ")
        found = attached(second.message)
        assert [row["id"] for row in found["completed.json"]["completedJobs"]] == [mended.id]
        assert [row["id"] for row in found["failed.json"]["failedJobs"]] == [bad.id]
        assert [row["id"] for row in found["deleted.json"]["deletedJobs"]] == [deleted.id]
        settle(site, bad, "Completed")
        with site.engine() as engine:
            engine.act(batch.ref, "report")
        done = site.wait("batch", batch.id, "Completed")
        assert done.docs["status-report"]["since"]["completed"] == 1
        third = next(came for came in box.wait(3) if came.message["Subject"].startswith("OK (update)"))
        assert [row["id"] for row in attached(third.message)["completed.json"]["completedJobs"]] == [bad.id]
        assert len({came.message["Message-ID"] for came in box.letters}) == 3


def test_what_has_changed_is_reckoned_from_the_whole_list_and_not_from_the_first_ids(tmp_path: Path) -> None:
    with told(tmp_path, 6, settings={"tell": {"most_ids": 2}}) as (site, batch, _):
        found = jobs(site, batch)
        for job in found:
            settle(site, job, "Failed")
        first = site.wait("batch", batch.id, "Failed").docs["status-report"]
        assert (first["failed_jobs"], first["whole"]) == ([job.id for job in found[:2]], False)
        for job in found[3:]:
            settle(site, job, "Completed")
        with site.engine() as engine:
            engine.act(batch.ref, "report")
        report = site.wait("batch", batch.id, "Failed").docs["status-report"]
        assert {key: report["since"][key] for key in ("completed", "deleted", "unresolved")} == {
            "completed": 3,
            "deleted": 0,
            "unresolved": 3,
        }


def test_after_the_report_of_another_service_everything_is_told(tmp_path: Path) -> None:
    with told(tmp_path, 2) as (site, batch, box):
        first, second = jobs(site, batch)
        settle(site, first, "Completed")
        _lead(site, batch, "Failed")
        settle(site, second, "Failed", "broken")
        with site.engine() as engine:
            engine.act(batch.ref, "report")
        report = site.wait("batch", batch.id, "Failed").docs["status-report"]
        assert report["counts"] == {"completed": 1, "failed": 1, "deleted": 0}
        assert "Since the report of another service:\n  completed: 1" in body(box.wait()[0])


# --- large batches


def test_long_lists_lie_beside_the_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MODULE, "PAGE", 7)
    with told(tmp_path, 150) as (site, batch, box):
        found = jobs(site, batch)
        for number, job in enumerate(found):
            settle(site, job, "Failed" if number % 3 == 0 else "Completed", "broken" if number % 3 == 0 else "")
        report = site.wait("batch", batch.id, "Failed").docs["status-report"]
        assert report["counts"] == {"completed": 100, "failed": 50, "deleted": 0}
        assert report["manifest_url"] == f"http://waybill.test/api/v1/ingest/batches/{batch.id}/report"
        assert report["jobs"]["list"].startswith(f"ingest/reports/{batch.id}/")
        rows = list(lists.each(site.depot.objects, report["jobs"], Told))
        assert [row.id for row in rows] == [job.id for job in found]
        (came,) = box.wait()
        assert "  and 30 more" in body(came)
        assert len(attached(came.message)["failed.json"]["failedJobs"]) == 50
        (letter,) = every(site, "letter")
        assert len(json.dumps(letter.docs["letter"])) < 20_000


def test_the_document_stays_small_however_long_ids_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MODULE, "ID_BYTES", 100)
    with told(tmp_path, 20) as (site, batch, _):
        for job in jobs(site, batch):
            settle(site, job, "Completed")
        report = site.wait("batch", batch.id, "Completed").docs["status-report"]
        assert 0 < len(report["successful_jobs"]) < 20
        assert (report["whole"], report["counts"]["completed"]) == (False, 20)


# --- who is told


def test_a_notification_of_the_submission_takes_the_place_of_the_profiles_contacts(tmp_path: Path) -> None:
    settings = {"tell": {"admins": ["root@example.org"]}}
    with told(tmp_path, 1, settings=settings, notification="me@example.org; you@example.org") as (site, batch, box):
        settle(site, jobs(site, batch)[0], "Completed")
        (came,) = box.wait()
        assert came.recipients == ("me@example.org", "you@example.org", "root@example.org")
        assert came.message["To"] == "me@example.org, you@example.org"
        assert b"root@example.org" not in came.raw


def test_a_profile_that_wants_no_mail_gets_none_and_the_report_is_written_all_the_same(tmp_path: Path) -> None:
    mail = Mail(to=("jane@example.org",), suppressed=True, kind="verbose")
    with told(tmp_path, 1, mail=mail, settings={"tell": {"admins": ["root@example.org"]}}) as (site, batch, _):
        settle(site, jobs(site, batch)[0], "Failed", "broken")
        assert site.wait("batch", batch.id, "Failed").docs["status-report"]["counts"]["failed"] == 1
        assert every(site, "letter") == []


def test_without_a_mail_server_no_letters_pile_up(tmp_path: Path) -> None:
    with Site(tmp_path) as site:
        profile(site, mail=Mail(to=("jane@example.org",)))
        batch = submit(site, url="http://127.0.0.1/a", type=Type.FILE)
        with site.workers(roles=ROLES):
            settle(site, jobs(site, made(site, batch))[0], "Completed")
            site.wait("batch", batch.id, "Completed")
        assert every(site, "letter") == []


def test_a_dead_mail_server_delays_the_letter_and_nothing_else(tmp_path: Path) -> None:
    dead = Mailbox()
    with told(tmp_path, 1, mail__url=dead.url) as (site, batch, _):
        settle(site, jobs(site, batch)[0], "Completed")
        site.wait("batch", batch.id, "Completed")
        (letter,) = every(site, "letter")
        letter = site.wait("letter", letter.id, "Waiting")
        assert letter.state == "Waiting"


def test_secrets_in_addresses_are_not_told(tmp_path: Path) -> None:
    with Mailbox() as box, Site(tmp_path, mail__url=box.url) as site:
        profile(site, mail=Mail(to=("jane@example.org",)))
        batch = submit(site, url="https://me:hush@example.org/a?X-Amz-Signature=abcdef&id=7", type=Type.FILE)
        with site.workers(roles=ROLES):
            settle(site, jobs(site, made(site, batch))[0], "Failed", "broken")
            (came,) = box.wait()
        assert b"hush" not in came.raw
        assert (
            attached(came.message)["failed.json"]["failedJobs"][0]["payload_url"]
            == "https://example.org/a?X-Amz-Signature=***&id=7"
        )


def test_webhooks_are_told_of_the_batch(tmp_path: Path) -> None:
    came: list[dict[str, Any]] = []
    arrived = threading.Event()

    def receive(handler: Any) -> None:
        came.append(json.loads(handler.rfile.read(int(handler.headers["Content-Length"]))))
        handler.send_response(204)
        handler.end_headers()
        arrived.set()

    with Site(tmp_path / "receiver") as receiver:
        receiver.web.answers["/hook"] = receive
        hooks = {"ours": {"url": f"{receiver.web.url}/hook", "types": ["org.waybill.ingest.batch.*"]}}
        with told(tmp_path, 1, webhooks=hooks) as (site, batch, _):
            settle(site, jobs(site, batch)[0], "Failed", "broken")
            site.wait("batch", batch.id, "Failed")
            assert arrived.wait(120)
            (event,) = every(site, "event")
            site.wait("event", event.id, "Delivered")
    (told_of,) = came
    assert (told_of["type"], told_of["subject"]) == ("org.waybill.ingest.batch.failed", "bid-1")
    assert told_of["source"] == "http://waybill.test/ingest"
    assert told_of["data"]["counts"] == {"completed": 0, "failed": 1, "deleted": 0}
