"""What happens to lots without anybody asking: overdue ones are told of, forgotten starts are made, superseded data removed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.apps.lots import workloads
from tests.apps.lots.lots_site import SHOP, LotsSite
from waybill.apps.lots.machine import RUN

DUE = SHOP.replace('path = "counts/"', 'path = "counts/"\ndue = "20m"\nnotify = ["ops@example.org"]').replace(
    'unit = "PT5M"', 'unit = "PT5M"\nquiet = "gap"'
)


@pytest.fixture(autouse=True)
def nothing_fails() -> None:
    workloads.FAILING.clear()
    workloads.RUNS.clear()


def test_an_overdue_lot_is_told_of_once_and_again_when_it_is_there(tmp_path: Path) -> None:
    site = LotsSite(tmp_path, DUE)
    site.tester.engine.set_hold("queue/mail", who="test")
    site.pass_minutes(24)
    assert site.tester.run_maintenance("lots-overdue") == 0
    site.pass_minutes(2)
    assert site.tester.run_maintenance("lots-overdue") == 1
    assert site.tester.run_maintenance("lots-overdue") == 0
    (mail,) = site.tester.find_all("mail")
    body = mail.documents["mail"]
    assert body["subject"] == f"counts/1 {site.lot()} is overdue"
    assert "Orders/1 is never." in body["text"]
    site.arrive(site.put("a"), at=site.lot().start)
    site.pass_minutes(1)
    assert site.tester.run_maintenance("lots-overdue") == 1
    assert site.tester.find_all("mail")[-1].documents["mail"]["subject"] == f"counts/1 {site.lot()} is there"
    assert site.tester.run_maintenance("lots-overdue") == 0


def test_a_run_that_was_left_out_is_started(tmp_path: Path) -> None:
    site = LotsSite(tmp_path)
    site.arrive(site.put("a"))
    site.tester.engine.set_hold("queue/arc-run", who="test")
    site.pass_minutes(6)
    site.tester.engine.clear_hold("queue/arc-run")
    (run,) = site.tester.find_all(RUN.name)
    from waybill.record import Change, CommitGroup

    site.tester.store.commit([CommitGroup((Change(run, None, "remove", "test", ""),))])
    assert site.tester.run_maintenance("lots-starts") == 1
    assert site.tester.run_maintenance("lots-starts") == 0
    site.settle()
    assert site.run_record("count", site.lot()).state == "Complete"


def test_superseded_data_are_removed_after_a_while_and_their_manifest_says_so(tmp_path: Path) -> None:
    site = LotsSite(tmp_path, SHOP.replace('path = "counts/"', 'path = "counts/"\nkeep = "1h"'))
    site.arrive(site.put("day=1/a"))
    site.pass_minutes(6)
    site.arrive(site.put("day=2/b"), at=site.lot().start)
    site.pass_minutes(1)
    before = site.names("counts")
    assert len(before) == 3
    assert site.tester.run_maintenance("lots-superseded") == 0
    site.tester.advance(3700)
    assert site.tester.run_maintenance("lots-superseded") == 1
    row = site.find_lot("counts", site.lot(), 1)
    assert row is not None
    assert row.state == "removed"
    assert site.manifest(row.manifest).state == "removed"
    newest = site.find_lot("counts", site.lot())
    assert newest is not None
    assert sorted(site.uris(newest.manifest)) == sorted(site.names("counts"))
    assert site.tester.run_maintenance("lots-superseded") == 0
