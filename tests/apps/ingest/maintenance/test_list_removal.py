"""Lists and reports go when their record has gone, and not before."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.apps.ingest.batches import submit
from tests.apps.ingest.ingest_fixture import IngestFixture
from waybill.apps.ingest.application import APPLICATION
from waybill.apps.ingest.maintenance.unneeded_objects import ListRemovalRoutine, list_owner_of
from waybill.files import unneeded_objects
from waybill.maintenance import MaintenanceContext, run_round
from waybill.record import Change, CommitGroup, Ref, StoreUnavailable

DAY = 86400.0


@contextmanager
def round_of(ingest: IngestFixture) -> Iterator[MaintenanceContext]:
    with ingest.engine() as engine:
        yield MaintenanceContext(
            engine.store, ingest.environment.machines, "h", ingest.root, ingest.environment.objects
        )


def write(ingest: IngestFixture, *names: str, age: float = 2 * DAY) -> None:
    for name in names:
        ingest.environment.objects.put(name, b"rows")
    at = time.time() - age
    for folder, _, files in os.walk(ingest.environment.config.objects):
        for name in files:
            os.utime(os.path.join(folder, name), (at, at))


def left(ingest: IngestFixture) -> list[str]:
    return [info.name for info in ingest.environment.objects.list("ingest")]


def test_the_routine_belongs_to_the_application() -> None:
    assert any(isinstance(duty, ListRemovalRoutine) for duty in APPLICATION.maintenance)


def test_papers_of_a_record_that_is_there_stay_and_go_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unneeded_objects, "ROUND_SIZE", 2)
    with IngestFixture(tmp_path) as ingest:
        batch = submit(ingest)
        own = [
            f"ingest/lists/batch/{batch.id}/3/rows",
            f"ingest/reports/{batch.id}/9/a.json",
            f"ingest/reports/{batch.id}/9/b.json",
        ]
        jobs = ["ingest/lists/job/jid9/1/files", "ingest/lists/job/jid9/2/files"]
        gone = ["ingest/lists/batch/bid9/3/rows", *jobs, "ingest/reports/bid9/1/x"]
        others = ["ingest/payloads/1/a", "ingest/lists/strange"]
        write(ingest, *own, *gone, *others)
        with round_of(ingest) as context:
            assert sum(run_round(ListRemovalRoutine(), context) for _ in range(4)) == len(gone)
            assert left(ingest) == sorted([*own, *others])
            context.store.commit([CommitGroup((Change(batch, None, "remove"),))])
            assert sum(run_round(ListRemovalRoutine(), context) for _ in range(4)) == len(own)
        assert left(ingest) == sorted(others)


def test_young_papers_stay(tmp_path: Path) -> None:
    with IngestFixture(tmp_path) as ingest:
        write(ingest, "ingest/reports/bid9/1/x", age=DAY / 2)
        with round_of(ingest) as context:
            assert run_round(ListRemovalRoutine(), context) == 0


def test_a_store_that_cannot_be_asked_removes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_: object) -> None:
        raise StoreUnavailable("away")

    with IngestFixture(tmp_path) as ingest:
        write(ingest, "ingest/reports/bid9/1/x")
        with round_of(ingest) as context:
            monkeypatch.setattr(context.store, "get", away)
            with pytest.raises(StoreUnavailable):
                run_round(ListRemovalRoutine(), context)
        assert left(ingest) == ["ingest/reports/bid9/1/x"]


def test_whose_a_paper_is() -> None:
    assert list_owner_of("ingest/lists/job/jid1/7/files") == Ref("job", "jid1")
    assert list_owner_of("ingest/reports/bid1/7/failed.json") == Ref("batch", "bid1")
    for name in ("ingest/lists/job/jid1", "ingest/lists/parcel/1/2/x", "ocfl/a/b/c/d", "ingest/reports/bid1"):
        assert list_owner_of(name) is None
