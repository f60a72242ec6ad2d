"""Lists and reports go when their record has gone, and not before."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.apps.ingest.batches import submit
from tests.apps.ingest.site import Site
from waybill.apps.ingest.application import APPLICATION
from waybill.apps.ingest.duties import sweeping
from waybill.apps.ingest.duties.papers import Papers, whose
from waybill.duties import Hand, a_round
from waybill.record import Change, Group, Ref, Unavailable

DAY = 86400.0


@contextmanager
def round_of(site: Site) -> Iterator[Hand]:
    with site.engine() as engine:
        yield Hand(engine.store, site.depot.machines, "h", site.root, site.depot.objects)


def write(site: Site, *names: str, age: float = 2 * DAY) -> None:
    for name in names:
        site.depot.objects.put(name, b"rows")
    at = time.time() - age
    for folder, _, files in os.walk(site.depot.config.objects):
        for name in files:
            os.utime(os.path.join(folder, name), (at, at))


def left(site: Site) -> list[str]:
    return [info.name for info in site.depot.objects.list("ingest")]


def test_the_duty_belongs_to_the_application() -> None:
    assert any(isinstance(duty, Papers) for duty in APPLICATION.duties)


def test_papers_of_a_record_that_is_there_stay_and_go_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweeping, "PORTION", 2)
    with Site(tmp_path) as site:
        batch = submit(site)
        own = [
            f"ingest/lists/batch/{batch.id}/3/rows",
            f"ingest/reports/{batch.id}/9/a.json",
            f"ingest/reports/{batch.id}/9/b.json",
        ]
        jobs = ["ingest/lists/job/jid9/1/files", "ingest/lists/job/jid9/2/files"]
        gone = ["ingest/lists/batch/bid9/3/rows", *jobs, "ingest/reports/bid9/1/x"]
        others = ["ingest/payloads/1/a", "ingest/lists/strange"]
        write(site, *own, *gone, *others)
        with round_of(site) as hand:
            assert sum(a_round(Papers(), hand) for _ in range(4)) == len(gone)
            assert left(site) == sorted([*own, *others])
            hand.store.commit([Group((Change(batch, None, "remove"),))])
            assert sum(a_round(Papers(), hand) for _ in range(4)) == len(own)
        assert left(site) == sorted(others)


def test_young_papers_stay(tmp_path: Path) -> None:
    with Site(tmp_path) as site:
        write(site, "ingest/reports/bid9/1/x", age=DAY / 2)
        with round_of(site) as hand:
            assert a_round(Papers(), hand) == 0


def test_a_store_that_cannot_be_asked_removes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_: object) -> None:
        raise Unavailable("away")

    with Site(tmp_path) as site:
        write(site, "ingest/reports/bid9/1/x")
        with round_of(site) as hand:
            monkeypatch.setattr(hand.store, "get", away)
            with pytest.raises(Unavailable):
                a_round(Papers(), hand)
        assert left(site) == ["ingest/reports/bid9/1/x"]


def test_whose_a_paper_is() -> None:
    assert whose("ingest/lists/job/jid1/7/files") == Ref("job", "jid1")
    assert whose("ingest/reports/bid1/7/failed.json") == Ref("batch", "bid1")
    for name in ("ingest/lists/job/jid1", "ingest/lists/parcel/1/2/x", "ocfl/a/b/c/d", "ingest/reports/bid1"):
        assert whose(name) is None
