"""The deposit scenario: many seeds pass, and bugs that are planted in ingest's steps are found."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from tests.budget import Budget
from tests.simulation.seed_problems import find_seed_problems, start_at
from waybill.apps.ingest import machine, object_paths, object_versions, report_writer, unpacked_container
from waybill.apps.ingest.batch_report import build_report
from waybill.apps.ingest.identifiers import minter
from waybill.apps.ingest.inventory import rebuild_object
from waybill.apps.ingest.machine.rebuild import build_rebuild_machine
from waybill.apps.ingest.maintenance import audit, unneeded_objects
from waybill.apps.ingest.resources import resources_of
from waybill.apps.ingest.simulation import DepositScenario, deposits
from waybill.apps.ingest.steps.job import notify, processing, recording
from waybill.apps.ingest.steps.rebuild import rebuilding
from waybill.apps.ingest.storage import Deposit, OcflStorage, StorageFinding, VersionSummary
from waybill.files import containers
from waybill.files.containers import UnpackedFile
from waybill.machine import Machine
from waybill.maintenance import retention, working_folders
from waybill.record import Record, RecordDocuments, encode_document
from waybill.sim.simulation import Simulation
from waybill.sim.world import get_current_world
from waybill.step import Done, StepContext
from waybill.worker.step_context import WorkerStepContext

Patch = pytest.MonkeyPatch


@pytest.mark.parametrize("slice_", range(4))
def test_seeds_on_the_model(slice_: int, budget: Budget) -> None:
    count = budget.pick(small=40, long=4_000) // 4
    assert list(find_seed_problems(DepositScenario, "model", range(slice_ * count, (slice_ + 1) * count))) == []


def test_seeds_on_sqlite(budget: Budget) -> None:
    assert (
        list(find_seed_problems(DepositScenario, "sqlite", range(10_000, 10_000 + budget.pick(small=10, long=500))))
        == []
    )


def test_deposits_come_through() -> None:
    """What never completes breaks no rule: most of these must."""
    done = 0
    for seed in range(20):
        simulation = Simulation(seed, DepositScenario, "model")
        assert simulation.run().problem is None
        assert isinstance(simulation.scenario, DepositScenario)
        done += simulation.scenario.completed_count > 0
    assert done > 10


# --- bugs


def an_ark_is_used_before_it_is_saved(patch: Patch) -> None:
    def forget(ctx: StepContext, submission: Any, ark: str, **options: Any) -> Record:
        return ctx.save(locks=(f"storage/{ark}",))

    patch.setattr(processing, "_save_identifiers", forget)


def every_run_asks_storage_anew(patch: Patch) -> None:
    plain = object_versions.storage_request_of
    runs: list[int] = []

    def anew(job: Record) -> str:
        runs.append(1)
        return f"{plain(job)} {len(runs)}"

    patch.setattr(object_versions, "storage_request_of", anew)


def numbers_are_drawn_twice(patch: Patch) -> None:
    patch.setattr(
        minter, "draw_numbers", lambda engine, minter, count: Record("minter", "m", "Active", documents=_next(count))
    )


def _next(count: int) -> RecordDocuments:
    return RecordDocuments({"numbers": encode_document({"next": count})})


def a_report_counts_only_what_failed(patch: Patch) -> None:
    plain = build_report

    def miscount(findings: Any, *rest: Any) -> Any:
        report = plain(findings, *rest)
        return msgspec.structs.replace(report, counts=msgspec.structs.replace(report.counts, completed=0))

    patch.setattr(report_writer, "build_report", miscount)


def jobs_are_made_again_after_a_crash(patch: Patch) -> None:
    """How many were made is forgotten with the run that made them."""
    plain = WorkerStepContext.spawn_each

    def forgetful(ctx: WorkerStepContext, children: Any, cursor: str = "spawned", page_size: int = 200) -> int:
        made = list(children)
        ctx.spawn(made[:1])
        ctx.spawn(made[1:])
        return plain(ctx, (), cursor) + len(made)

    patch.setattr(WorkerStepContext, "spawn_each", forgetful)


def recorded_means_nothing(patch: Patch) -> None:
    patch.setattr(recording, "run_step", lambda job, ctx: Done())


def no_receiver_is_called(patch: Patch) -> None:
    patch.setattr(notify, "_was_called", lambda job: True)


def ezid_is_told_of_nothing(patch: Patch) -> None:
    patch.setattr(
        processing,
        "_register_with_ezid",
        lambda job, ctx, profile, shoulder, prepared, embedded: (job, prepared.ark, prepared),
    )


def a_file_of_a_container_is_left_out(patch: Patch) -> None:
    plain = unpacked_container.UnpackedContainer.read_files
    patch.setattr(unpacked_container.UnpackedContainer, "read_files", lambda self: itertools.islice(plain(self), 2))


def containers_are_unpacked_in_one_folder_for_all(patch: Patch) -> None:
    """What other jobs left there becomes files of this one."""
    plain = containers.unpack

    def beside(path: Path, into: Path, **options: Any) -> Iterator[UnpackedFile]:
        shared = into.parents[3] / "shared"  # below the working root
        shared.mkdir(exist_ok=True)
        for file in plain(path, into, **options):
            (shared / file.name).parent.mkdir(exist_ok=True)
            (shared / file.name).write_bytes((into / file.name).read_bytes())
        for found in sorted(each for each in shared.rglob("*") if each.is_file()):
            body, name = found.read_bytes(), found.relative_to(shared).as_posix()
            (into / name).parent.mkdir(exist_ok=True)
            (into / name).write_bytes(body)
            yield UnpackedFile(name, len(body), hashlib.sha256(body).hexdigest())

    patch.setattr(containers, "unpack", beside)


def bags_are_not_validated(patch: Patch) -> None:
    patch.setattr(unpacked_container, "_validate_bag", lambda ctx, bag: None)


def sound_containers_are_refused(patch: Patch) -> None:
    plain = object_paths.find_fault
    patch.setattr(
        unpacked_container,
        "object_paths",
        SimpleNamespace(
            **{
                **vars(object_paths),
                "find_fault": lambda name: plain(name) or ("It is the third." if name == "2.txt" else None),
            }
        ),
    )


def a_rebuild_does_nothing(patch: Patch) -> None:
    patch.setattr(rebuilding, "run_step", lambda record, ctx: Done())


def a_rebuild_owns_no_locks_and_reads_storage_first(patch: Patch) -> None:
    """What a job has recorded since is then one version too many."""
    plain_rebuild = rebuild_object

    class Stale(OcflStorage):
        def __init__(self, storage: OcflStorage, ark: str) -> None:
            self.__dict__.update(vars(storage))
            self.seen = storage.list_versions(ark)

        def list_versions(self, object_id: str) -> list[VersionSummary]:
            return self.seen

    def stale(inventory: Any, storage: OcflStorage, ark: str) -> int:
        seen = Stale(storage, ark)
        get_current_world().spend_time(5.0)
        return int(plain_rebuild(inventory, seen, ark))

    patch.setattr(rebuilding, "rebuild_object", stale)
    plain = build_rebuild_machine

    def loose() -> Machine:
        table = plain()
        states = tuple(dataclasses.replace(state, locks=()) for state in table.states)
        return dataclasses.replace(table, states=states, locks=())

    patch.setattr(machine, "build_rebuild_machine", loose)
    patch.setattr(deposits, "CROWDED_CHANCE", 1.0)


def what_is_recorded_elsewhere_is_not_known_here(patch: Patch) -> None:
    def forgotten(ctx: StepContext, deposit: Any) -> Any:
        return resources_of(ctx).storage.write(deposit, check=ctx.check)

    patch.setattr(object_versions, "store_deposit", forgotten)


def uploads_go_when_their_batch_has_failed(patch: Patch) -> None:
    patch.setattr(unneeded_objects, "ENDED_STATES", ("Completed", "Deleted", "Failed", "Processing"))


def uploads_of_nobody_stay(patch: Patch) -> None:
    patch.setattr(unneeded_objects.UploadRemovalRoutine, "is_old", lambda routine, context, info: False)


def lists_are_removed_at_once(patch: Patch) -> None:
    patch.setattr(unneeded_objects.ListRemovalRoutine, "has_owner", lambda routine, context, ref: False)


def lists_stay(patch: Patch) -> None:
    patch.setattr(unneeded_objects.ListRemovalRoutine, "is_old", lambda routine, context, info: False)


def what_others_sent_stays(patch: Patch) -> None:
    patch.setattr(unneeded_objects.StagingRemovalRoutine, "is_old", lambda routine, context, newest: False)


def completed_batches_stay(patch: Patch) -> None:
    patch.setattr(retention.RetentionRoutine, "repair", lambda routine, context, finding: False)


def folders_of_jobs_at_work_are_removed(patch: Patch) -> None:
    def needed(routine: Any, context: Any, ref: Any) -> bool:
        return bool(ref in {record.ref for record in context.store.find(ref.kind, state="Processing").records})

    patch.setattr(working_folders.WorkingFolderRoutine, "_is_needed", needed)


def folders_are_never_cleared(patch: Patch) -> None:
    patch.setattr(working_folders, "clear_folder", lambda folder, last: None)


def an_audit_reports_intact_content_as_damaged(patch: Patch) -> None:
    plain = audit._read_all

    def wary(resources: Any, rows: Any) -> Iterator[Any]:
        for row, finding in plain(resources, rows):
            yield row, finding or StorageFinding(kind="changed", place=row["place"], message="It looks odd.")

    patch.setattr(audit, "_read_all", wary)


def an_update_keeps_nothing(patch: Patch) -> None:
    plain = Deposit
    patch.setattr(object_versions, "Deposit", lambda **fields: plain(**{**fields, "mode": "add", "deletions": ()}))


def an_update_deletes_nothing(patch: Patch) -> None:
    patch.setattr(object_versions, "deletions_of", lambda *args: ())


BUGS: dict[Callable[[Patch], None], str] = {
    an_ark_is_used_before_it_is_saved: "",
    every_run_asks_storage_anew: "",
    numbers_are_drawn_twice: "",
    a_report_counts_only_what_failed: "reports",
    jobs_are_made_again_after_a_crash: " objects",
    recorded_means_nothing: "the inventory",
    no_receiver_is_called: "its receiver was not called",
    ezid_is_told_of_nothing: "which EZID has for",
    a_file_of_a_container_is_left_out: "were submitted",
    containers_are_unpacked_in_one_folder_for_all: "submitted",
    bags_are_not_validated: "its payload is faulty",
    sound_containers_are_refused: "although its payload is intact",
    a_rebuild_does_nothing: "storage has others",
    a_rebuild_owns_no_locks_and_reads_storage_first: "and has it no more",
    what_is_recorded_elsewhere_is_not_known_here: "the inventory",
    uploads_go_when_their_batch_has_failed: "and needs it",
    uploads_of_nobody_stay: "no batch needs it",
    lists_are_removed_at_once: " exists",
    lists_stay: "is not needed",
    what_others_sent_stays: "is not needed",
    completed_batches_stay: "long after the end",
    folders_of_jobs_at_work_are_removed: "its working folder is missing",
    folders_are_never_cleared: "the working folder",
    an_audit_reports_intact_content_as_damaged: "damage",
    an_update_keeps_nothing: "were submitted",
    an_update_deletes_nothing: "were submitted",
}
FIRST_SEEDS: dict[Callable[[Patch], None], int] = {  # where many seeds do not show it
    numbers_are_drawn_twice: 41,
    a_file_of_a_container_is_left_out: 11,
    containers_are_unpacked_in_one_folder_for_all: 12,
    bags_are_not_validated: 25,
    sound_containers_are_refused: 11,
    a_rebuild_owns_no_locks_and_reads_storage_first: 31,
    what_is_recorded_elsewhere_is_not_known_here: 11,
    lists_are_removed_at_once: 92,
    lists_stay: 202,
    an_update_deletes_nothing: 14,
}


@pytest.mark.parametrize("plant", BUGS, ids=lambda plant: plant.__name__)
def test_a_planted_bug_is_found(plant: Callable[[Patch], None], monkeypatch: Patch, budget: Budget) -> None:
    plant(monkeypatch)
    seeds = start_at(budget.pick(small=FIRST_SEEDS.get(plant, 0), long=0), 300)
    assert any(BUGS[plant] in problem for problem in find_seed_problems(DepositScenario, "model", seeds)), (
        f"{plant.__name__} was not found"
    )
