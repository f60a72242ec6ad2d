"""A new version of an object that audits found damaged: what it keeps is kept and told, what it brings is whole
again.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.apps.ingest.batches import jobs, profile, submit
from tests.apps.ingest.documents import read_report_jobs
from tests.apps.ingest.ingest_fixture import IngestFixture
from tests.apps.ingest.steps.downloaded_jobs import OWNER, fetched, run, stopping_at_notify
from tests.apps.ingest.storage.yard import said_by_validator
from tests.notify.smtp_server import SmtpServer
from waybill.apps.ingest.maintenance.audit import audit_next, iter_known_damage
from waybill.apps.ingest.profile import Profile, ProfileMail
from waybill.apps.ingest.resources import IngestResources
from waybill.apps.ingest.submission import PayloadType
from waybill.objects import DirectoryObjects
from waybill.record import Record

ARK = "ark:/99999/fk4given"
SAYS = "'producer/{}' is damaged in storage, and this version keeps it: "


@pytest.fixture
def ingest(tmp_path: Path) -> Iterator[IngestFixture]:
    with stopping_at_notify(tmp_path, Profile(name="p", owner=OWNER)) as ingest:
        yield ingest


def resources_of(ingest: IngestFixture) -> IngestResources:
    found: IngestResources = ingest.resources
    return found


def spoil(ingest: IngestFixture, path: str, *, lost: bool = False) -> None:
    """Damage the content of a file of the newest version, and let an audit find it."""
    resources, objects = resources_of(ingest), ingest.environment.objects
    newest = resources.inventory.get_object(ARK)
    assert newest is not None
    row = resources.inventory.get_file(ARK, newest["head"], path)
    assert row is not None
    (name,) = (info.name for info in objects.list("ocfl") if info.name.endswith(row["place"]))
    objects.delete(name) if lost else objects.put(name, b"rot")
    audit(ingest)


def read(ingest: IngestFixture, path: str, number: int) -> bytes:
    with resources_of(ingest).storage.open_file(ARK, path, number) as body:
        return body.read()


def audit(ingest: IngestFixture) -> None:
    with ingest.engine() as engine:
        audit_next(resources_of(ingest), engine, before=engine.store.now() + 10)


def update(ingest: IngestFixture, files: dict[str, bytes]) -> Record:
    job = run(ingest, fetched(ingest, files, primary_id=ARK, update=True))
    assert job.state == "Notify", job.message
    return job


def warned(job: Record) -> list[str]:
    return list(job.documents["warnings"]["first"]) if "warnings" in job.documents else []


def damaged(ingest: IngestFixture) -> list[tuple[str, ...]]:
    return [each.files for each in iter_known_damage(resources_of(ingest))]


def test_an_update_keeps_damaged_files_and_says_so_and_what_it_brings_again_is_whole(ingest: IngestFixture) -> None:
    run(ingest, fetched(ingest, {"a.txt": b"one", "b.txt": b"two", "c.txt": b"three"}, primary_id=ARK))
    assert warned(update(ingest, {"d.txt": b"4"})) == [], "nothing is damaged"
    spoil(ingest, "producer/a.txt")
    spoil(ingest, "producer/b.txt", lost=True)
    record = update(ingest, {"e.txt": b"5"})
    first, second = warned(record)
    assert first.startswith(SAYS.format("a.txt"))
    assert second.startswith(SAYS.format("b.txt"))
    assert record.message.startswith("With warnings: 'producer/a.txt' is damaged in storage")
    assert record.message.endswith("(and 1 more)")
    again = update(ingest, {"a.txt": b"one"})
    assert [each.startswith(SAYS.format("b.txt")) for each in warned(again)] == [True]
    assert [read(ingest, "producer/a.txt", number) for number in (1, 2, 3, 4)] == [b"one"] * 4, (
        "healed for all versions"
    )
    assert damaged(ingest) == [("v4 producer/b.txt", "v3 producer/b.txt", "v2 producer/b.txt")]
    other = update(ingest, {"b.txt": b"another two"})
    assert (warned(other), other.message) == ([], "")
    assert damaged(ingest) == [("v4 producer/b.txt", "v3 producer/b.txt", "v2 producer/b.txt")], (
        "those before are as they were"
    )
    audit(ingest)
    assert len(damaged(ingest)) == 1, "an audit finds the same"
    assert warned(update(ingest, {"late.txt": b"two"})) == [], "the same bytes under another name heal it too"
    assert damaged(ingest) == []
    assert isinstance(ingest.environment.objects, DirectoryObjects)
    assert said_by_validator(ingest.environment.objects.root / "ocfl") == (1, [])


def test_a_version_that_is_no_update_heals_what_it_brings_too(ingest: IngestFixture) -> None:
    run(ingest, fetched(ingest, {"a.txt": b"one"}, primary_id=ARK))
    spoil(ingest, "producer/a.txt")
    job = run(ingest, fetched(ingest, {"a.txt": b"one"}, primary_id=ARK))
    assert (warned(job), read(ingest, "producer/a.txt", 1), damaged(ingest)) == ([], b"one", [])


def test_an_update_of_nothing_says_that_it_is_the_first_version(ingest: IngestFixture) -> None:
    job = update(ingest, {"a.txt": b"one"})
    assert warned(job) == [
        "It was sent as an update, and there was nothing to update: this is the first version of the object."
    ]


def test_the_report_and_the_mail_list_damaged_files(tmp_path: Path) -> None:
    with SmtpServer() as box, IngestFixture(tmp_path, mail__url=box.url) as ingest:
        profile(ingest, mail=ProfileMail(to=("jane@example.org",)))
        with ingest.workers():
            for number, update in enumerate((False, True), start=1):
                url = ingest.web.put(f"{number}.txt", b"%d" % number)
                batch = submit(
                    ingest, url=url, type=PayloadType.FILE, primary_id=ARK, update=update, batch_id=f"bid-{number}"
                )
                ingest.wait("batch", batch.id, "Completed")
                if not update:
                    spoil(ingest, "producer/1.txt")
            box.wait(2)
        (job,) = jobs(ingest, batch)
        assert job.message.startswith("With warnings: 'producer/1.txt' is damaged")
        report = ingest.get("batch", batch.id).documents["status-report"]
        assert report["warnings"] == 1
        (told,) = read_report_jobs(ingest, batch)
        assert told.to_document()["warnings"][0].startswith(SAYS.format("1.txt"))
        letter = box.messages[-1].message
        body = letter.get_body()
        assert body is not None
        text = body.get_content()
        assert "\r\nWarnings:\r\n" in text
        assert f"  {ARK}: {SAYS.format('1.txt')}" in text
        (part,) = letter.iter_attachments()
        assert json.loads(part.get_content())["completedJobs"][0]["warnings"][0].startswith(SAYS.format("1.txt"))
