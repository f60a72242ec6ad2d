"""The folders of attempts: published whole or not at all, and removed without those that are in use."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.disk_space.disk_fixture import DiskFixture
from waybill.files.folders import list_earlier_attempts, measure_folder, publish_folder, remove_earlier_attempts
from waybill.record import Record
from waybill.step import Done, Outcome, StepContext, Wait
from waybill.worker.step_context import WorkerStepContext


@pytest.fixture
def fixture(tmp_path: Path) -> DiskFixture:
    return DiskFixture(tmp_path, free=1000)


def start(fixture: DiskFixture) -> tuple[Record, Path]:
    record = fixture.step(fixture.add(1))
    return record, fixture.root / "crate" / record.id


def make_files(*names: str) -> Callable[[StepContext], Outcome]:
    """A step that writes these files into `made`, publishes it, and waits."""

    def fill(ctx: StepContext) -> Outcome:
        (ctx.workdir / "made").mkdir()
        for name in names:
            (ctx.workdir / "made" / name).write_text(name)
        publish_folder(ctx, "made")
        return Wait(0)

    return fill


def test_a_folder_is_published_and_replaced_as_a_whole(fixture: DiskFixture) -> None:
    record, folder = start(fixture)
    for names in (("a", "b"), ("b", "c")):
        fixture.fill = make_files(*names)
        fixture.step(record)
        assert sorted(path.name for path in (folder / "made").iterdir()) == list(names)
    assert list(folder.glob("*/made*")) == []


def test_an_attempt_that_must_stop_publishes_nothing(fixture: DiskFixture) -> None:
    record, folder = start(fixture)
    fixture.fill = make_files("a")
    fixture.step(record)

    def stop_late(ctx: StepContext) -> Outcome:
        (ctx.workdir / "made").mkdir()
        assert isinstance(ctx, WorkerStepContext)
        ctx.is_stopped = True
        publish_folder(ctx, "made")
        return Done()

    fixture.fill = stop_late
    fixture.step(record)
    assert [path.name for path in (folder / "made").iterdir()] == ["a"]


def test_only_earlier_attempts_are_removed(fixture: DiskFixture) -> None:
    record, folder = start(fixture)

    def fill(ctx: StepContext) -> Outcome:
        (ctx.workdir / "file").write_text("now")
        for version in (ctx.claim_version - 1, ctx.claim_version - 2, ctx.claim_version + 5):
            (folder / str(version)).mkdir(exist_ok=True)
        assert [int(path.name) for path in list_earlier_attempts(ctx)] == [ctx.claim_version - 1, ctx.claim_version - 2]
        remove_earlier_attempts(ctx)
        assert (ctx.workdir / "file").exists()
        left = sorted(int(path.name) for path in folder.iterdir() if path.is_dir())
        assert left == [ctx.claim_version, ctx.claim_version + 5]
        return Done()

    fixture.fill = fill
    assert fixture.step(record).state == "Shipping"


def test_a_folder_is_measured_with_all_that_is_below_it(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "1").write_bytes(bytes(10))
    (tmp_path / "a" / "b" / "2").write_bytes(bytes(5))
    assert measure_folder(tmp_path) == 15
