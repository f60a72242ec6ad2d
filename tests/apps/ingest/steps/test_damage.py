"""A new version of an object that audits found damaged: what it keeps is kept and told, what it brings is whole
again.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.apps.ingest.batches import jobs, profile, submit
from tests.apps.ingest.site import Site
from tests.apps.ingest.steps.yard import OWNER, fetched, run, stopping_at_notify
from tests.apps.ingest.storage.yard import said_by_validator
from tests.notify.mailbox import Mailbox
from waybill.apps.ingest import lists
from waybill.apps.ingest.duties.audit import audit_some, known_damage
from waybill.apps.ingest.outfit import Outfit
from waybill.apps.ingest.profile import Mail, Profile
from waybill.apps.ingest.report import Told
from waybill.apps.ingest.submission import Type
from waybill.objects import Directory
from waybill.record import Record

ARK = "ark:/99999/fk4given"
SAYS = "'producer/{}' is damaged in storage, and this version keeps it: "


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with stopping_at_notify(tmp_path, Profile(name="p", owner=OWNER)) as site:
        yield site


def outfit_of(site: Site) -> Outfit:
    found: Outfit = site.depot.outfit("job")
    return found


def spoil(site: Site, path: str, *, lost: bool = False) -> None:
    """Damage the content of a file of the newest version, and let an audit find it."""
    outfit, objects = outfit_of(site), site.depot.objects
    newest = outfit.inventory.object(ARK)
    assert newest is not None
    row = outfit.inventory.file(ARK, newest["head"], path)
    assert row is not None
    (name,) = (info.name for info in objects.list("ocfl") if info.name.endswith(row["place"]))
    objects.delete(name) if lost else objects.put(name, b"rot")
    audit(site)


def read(site: Site, path: str, number: int) -> bytes:
    with outfit_of(site).storage.open(ARK, path, number) as body:
        return body.read()


def audit(site: Site) -> None:
    with site.engine() as engine:
        audit_some(outfit_of(site), engine, before=engine.store.now() + 10)


def update(site: Site, files: dict[str, bytes]) -> Record:
    job = run(site, fetched(site, files, primary_id=ARK, update=True))
    assert job.state == "Notify", job.message
    return job


def warned(job: Record) -> list[str]:
    return list(job.docs["warnings"]["first"]) if "warnings" in job.docs else []


def damaged(site: Site) -> list[tuple[str, ...]]:
    return [each.files for each in known_damage(outfit_of(site))]


def test_an_update_keeps_damaged_files_and_says_so_and_what_it_brings_again_is_whole(site: Site) -> None:
    run(site, fetched(site, {"a.txt": b"one", "b.txt": b"two", "c.txt": b"three"}, primary_id=ARK))
    assert warned(update(site, {"d.txt": b"4"})) == [], "nothing is damaged"
    spoil(site, "producer/a.txt")
    spoil(site, "producer/b.txt", lost=True)
    kept = update(site, {"e.txt": b"5"})
    first, second = warned(kept)
    assert first.startswith(SAYS.format("a.txt"))
    assert second.startswith(SAYS.format("b.txt"))
    assert kept.message.startswith("With warnings: 'producer/a.txt' is damaged in storage")
    assert kept.message.endswith("(and 1 more)")
    again = update(site, {"a.txt": b"one"})
    assert [each.startswith(SAYS.format("b.txt")) for each in warned(again)] == [True]
    assert [read(site, "producer/a.txt", number) for number in (1, 2, 3, 4)] == [b"one"] * 4, "healed for all versions"
    assert damaged(site) == [("v4 producer/b.txt", "v3 producer/b.txt", "v2 producer/b.txt")]
    other = update(site, {"b.txt": b"another two"})
    assert (warned(other), other.message) == ([], "")
    assert damaged(site) == [("v4 producer/b.txt", "v3 producer/b.txt", "v2 producer/b.txt")], (
        "those before are as they were"
    )
    audit(site)
    assert len(damaged(site)) == 1, "an audit finds the same"
    assert warned(update(site, {"late.txt": b"two"})) == [], "the same bytes under another name heal it too"
    assert damaged(site) == []
    assert isinstance(site.depot.objects, Directory)
    assert said_by_validator(site.depot.objects.root / "ocfl") == (1, [])


def test_a_version_that_is_no_update_heals_what_it_brings_too(site: Site) -> None:
    run(site, fetched(site, {"a.txt": b"one"}, primary_id=ARK))
    spoil(site, "producer/a.txt")
    job = run(site, fetched(site, {"a.txt": b"one"}, primary_id=ARK))
    assert (warned(job), read(site, "producer/a.txt", 1), damaged(site)) == ([], b"one", [])


def test_an_update_of_nothing_says_that_it_is_the_first_version(site: Site) -> None:
    job = update(site, {"a.txt": b"one"})
    assert warned(job) == [
        "It was sent as an update, and there was nothing to update: this is the first version of the object."
    ]


def test_the_report_and_the_letter_tell_of_damaged_files_one_by_one(tmp_path: Path) -> None:
    with Mailbox() as box, Site(tmp_path, mail__url=box.url) as site:
        profile(site, mail=Mail(to=("jane@example.org",)))
        with site.workers():
            for number, update in enumerate((False, True), start=1):
                url = site.web.put(f"{number}.txt", b"%d" % number)
                batch = submit(site, url=url, type=Type.FILE, primary_id=ARK, update=update, batch_id=f"bid-{number}")
                site.wait("batch", batch.id, "Completed")
                if not update:
                    spoil(site, "producer/1.txt")
            box.wait(2)
        (job,) = jobs(site, batch)
        assert job.message.startswith("With warnings: 'producer/1.txt' is damaged")
        report = site.get("batch", batch.id).docs["status-report"]
        assert report["warnings"] == 1
        (told,) = lists.each(site.depot.objects, report["jobs"], Told)
        assert told.shown()["warnings"][0].startswith(SAYS.format("1.txt"))
        letter = box.letters[-1].message
        text = letter.get_body().get_content()
        assert "\r\nWarnings:\r\n" in text
        assert f"  {ARK}: {SAYS.format('1.txt')}" in text
        (part,) = letter.iter_attachments()
        assert json.loads(part.get_content())["completedJobs"][0]["warnings"][0].startswith(SAYS.format("1.txt"))
