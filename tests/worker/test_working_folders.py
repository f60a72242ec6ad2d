"""The working root and the working folders of records: rack_folder_of, shared, cleared, and in use again meanwhile."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.worker.worker_fixture import WorkerFixture
from waybill.machine import Machine, WorkingFolder, end, work
from waybill.maintenance.routine import MaintenanceContext, run_round
from waybill.maintenance.working_folders import WorkingFolderRoutine
from waybill.record import BadStore, Change, CommitGroup, CommitResult, Record
from waybill.rules import Machines
from waybill.step import Done, New, Outcome, StepContext
from waybill.worker import working_folders
from waybill.worker.working_folders import check_work_root, clear_folder, folder_of, iterate_folders, make_workdir


def test_a_shared_root_is_the_same_folder_for_all(system: WorkerFixture, tmp_path: Path) -> None:
    check_work_root(system.store, tmp_path / "shared", shared=True)
    check_work_root(system.store, tmp_path / "shared", shared=True)
    check_work_root(system.store, tmp_path / "own", shared=False)
    with pytest.raises(BadStore, match="is not the folder that the other workers share"):
        check_work_root(system.store, tmp_path / "other", shared=True)


def test_a_root_that_cannot_be_used_says_so(system: WorkerFixture, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BadStore, match=r"cannot be used: .*Set work.root to another folder"):
        check_work_root(system.store, tmp_path / "file" / "root", shared=False)


def test_two_hosts_that_name_a_shared_root_at_the_same_moment_agree(
    system: WorkerFixture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "shared"
    write = Path.write_text

    def interrupted(self: Path, text: str) -> int:
        monkeypatch.setattr(Path, "write_text", write)
        check_work_root(system.store, root, shared=True)  # the other host, before anything is in our file
        return write(self, text)

    monkeypatch.setattr(Path, "write_text", interrupted)
    check_work_root(system.store, root, shared=True)
    check_work_root(system.store, root, shared=True)
    assert [path.name for path in root.iterdir()] == [".waybill-root"]


def test_a_root_whose_name_is_empty_is_refused_and_not_remembered(system: WorkerFixture, tmp_path: Path) -> None:
    """As after a full disk: remembered, it would keep every worker from starting for good."""
    (tmp_path / ".waybill-root").touch()
    with pytest.raises(BadStore, match="is empty: remove it"):
        check_work_root(system.store, tmp_path, shared=True)
    (tmp_path / ".waybill-root").unlink()
    check_work_root(system.store, tmp_path, shared=True)


FILM = Machine(
    name="film",
    plural="films",
    prefix="flm",
    description="A film.",
    folder=WorkingFolder("films", lambda record: (record.id,)),
    states=(work("Cutting", to="Cut", description="Cuts.", on_fail=None), end("Cut", description="Cut.")),
)


RECORD = Record("film", "flm1", "Cutting")


def test_a_folder_removed_while_a_run_begins_in_it_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "films" / "flm1"
    working_folders.make_workdir(folder, FILM, RECORD, 1)
    mkdir = Path.mkdir

    def interrupted(self: Path, **options: bool) -> None:
        if self.name == "2":
            monkeypatch.setattr(Path, "mkdir", mkdir)
            working_folders.clear_folder(folder, 1)
            assert not folder.exists()
        mkdir(self, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(Path, "mkdir", interrupted)
    assert working_folders.make_workdir(folder, FILM, RECORD, 2).is_dir()
    assert (folder / ".record").read_text() == "film flm1"


def test_a_run_that_begins_while_its_folder_is_cleared_keeps_the_record_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without it maintenance would not know the record, and the folder would stay for ever."""
    folder = tmp_path / "films" / "flm1"
    working_folders.make_workdir(folder, FILM, RECORD, 1)
    listdir = os.listdir

    def interrupted(place: int | str) -> list[str]:
        names = listdir(place)
        monkeypatch.setattr(os, "listdir", listdir)
        working_folders.make_workdir(folder, FILM, RECORD, 2)
        return names

    monkeypatch.setattr(os, "listdir", interrupted)
    working_folders.clear_folder(folder, 1)
    assert sorted(listdir(folder)) == [".record", "2"]
    assert (folder / ".record").read_text() == "film flm1"


# --- folders that a machine names


def rack_folder_of(record: Record) -> tuple[str, ...]:
    return ("rack-7", f"box-{record.id}")


@pytest.fixture
def racked_parcel(system: WorkerFixture) -> Machine:
    system.parcel = dataclasses.replace(system.parcel, folder=WorkingFolder("shelves", rack_folder_of), steps={})
    system.machines = Machines.from_machines((system.crate, system.parcel))
    system.engine.machines = system.machines
    return system.parcel


def test_a_machine_names_its_working_folders_and_they_are_cleared(
    system: WorkerFixture, racked_parcel: Machine
) -> None:
    seen: list[Path] = []

    def pack(record: Record, ctx: StepContext) -> Outcome:
        (ctx.workdir / "part").write_text("x")
        (ctx.folder / "producer").mkdir()
        seen.extend((ctx.folder, ctx.workdir))
        return Done()

    system.set_steps(Packing=pack)
    parcel = system.engine.submit(New("parcel"))
    system.start_worker()
    system.wait_for_state(parcel, "Sent")
    assert seen[0] == system.root / "shelves" / "rack-7" / f"box-{parcel.id}"
    assert seen[1].parent == seen[0]
    system.wait_until(lambda: not seen[0].exists(), "the folder is cleared")


def maintenance_context(system: WorkerFixture) -> MaintenanceContext:
    return MaintenanceContext(system.store, system.machines, "h1", system.root)


def test_maintenance_finds_named_folders_by_their_record_file(system: WorkerFixture, racked_parcel: Machine) -> None:
    open_parcel, sent_parcel = system.engine.submit(New("parcel")), system.engine.submit(New("parcel"))
    for record in (open_parcel, sent_parcel):
        make_workdir(folder_of(system.root, racked_parcel, record), racked_parcel, record, 1)
    (system.root / "shelves" / "stranger" / "data").mkdir(parents=True)  # without a record file it is not removed
    assert sorted(ref for _, ref in iterate_folders(system.root, system.machines)) == sorted(
        [open_parcel.ref, sent_parcel.ref]
    )
    sent = replace(sent_parcel, state="Sent", open=False)
    assert isinstance(system.store.commit([CommitGroup((Change(sent_parcel, sent, "done"),))])[0], CommitResult)
    assert run_round(WorkingFolderRoutine(min_age=0.0), maintenance_context(system)) == 1
    assert [folder_of(system.root, racked_parcel, record).exists() for record in (open_parcel, sent_parcel)] == [
        True,
        False,
    ]
    assert (system.root / "shelves" / "stranger" / "data").exists()
    assert run_round(WorkingFolderRoutine(min_age=0.0), maintenance_context(system)) == 0


def test_a_folder_in_use_again_keeps_its_record_file(system: WorkerFixture, racked_parcel: Machine) -> None:
    parcel = system.engine.submit(New("parcel"))
    folder = folder_of(system.root, racked_parcel, parcel)
    make_workdir(folder, racked_parcel, parcel, 3)
    make_workdir(folder, racked_parcel, parcel, 9)
    clear_folder(folder, 5)
    assert sorted(p.name for p in folder.iterdir()) == [".record", "9"]
    assert [ref for _, ref in iterate_folders(system.root, system.machines)] == [parcel.ref]


@pytest.mark.parametrize("parts", [(), ("..", "x"), ("a/b",), (".record",), ("a",) * 5])
def test_a_folder_outside_its_top_folder_is_refused(system: WorkerFixture, parts: tuple[str, ...]) -> None:
    table = dataclasses.replace(system.parcel, folder=WorkingFolder("shelves", lambda record: parts), steps={})
    with pytest.raises(ValueError, match="cannot have a working folder"):
        folder_of(system.root, table, Record("parcel", "pcl0000000001", "Packing"))
