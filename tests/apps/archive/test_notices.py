"""Mail: once, from the commit of what it reports. The demonstration."""

from __future__ import annotations

import os

from tests.apps.archive.archive_fixture import ArchiveFixture
from waybill.apps.archive.demo import load_demo

ANN = "ann@example.org"


def _read_mail(archive: ArchiveFixture) -> list[tuple[tuple[str, ...], str, str]]:
    return [
        (tuple(mail.documents["mail"]["to"]), mail.documents["mail"]["subject"], mail.documents["mail"]["text"])
        for mail in archive.tester.find_all("mail")
    ]


def test_completion_is_told_once_to_whoever_asked(archive: ArchiveFixture) -> None:
    archive.store_migration(kind="MIGRATE", notify=[ANN])
    archive.run_until(archive.get(), "GET_COMPLETED")
    delete = archive.delete(only_copy=True, notify=[ANN])
    archive.tester.advance(8 * 86400)
    archive.run_until(delete, "DELETE_COMPLETED")
    assert [(to, subject) for to, subject, _ in _read_mail(archive)] == [
        ((ANN,), "[Waybill] MIGRATE of migration 1 is done"),
        ((ANN,), "[Waybill] DELETE of migration 1 is done"),
    ]


def test_a_failure_is_told_with_its_reason_and_what_to_do(archive: ArchiveFixture) -> None:
    os.mkfifo(archive.source / "pipe")
    archive.run_until(archive.put(notify=[ANN]), "FAILED")
    ((to, subject, text),) = _read_mail(archive)
    assert (to, subject) == ((ANN,), "[Waybill] PUT of migration 1 has failed")
    assert "pipe" in text
    assert "waybill archive cancel 1" in text
    archive.requests.resume(archive.caller, 1)
    archive.run_until(archive.find_requests("PUT")[0], "FAILED")
    assert len(_read_mail(archive)) == 2  # it has failed again


def test_the_demonstration_is_loaded_once(archive: ArchiveFixture) -> None:
    for _ in range(2):
        load_demo(archive.tester.environment, archive.tester.engine)
    archive.run_until(archive.find_requests("PUT")[0], "PUT_COMPLETED")
    assert len(archive.tester.find_all("archive-migration")) == 1
