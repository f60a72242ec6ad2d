"""Deposits in the simulator: many seeds pass, and bugs that are planted in ingest's steps are found."""

from __future__ import annotations

import dataclasses
import hashlib
import importlib
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.budget import Budget
from tests.simulation.stories import problems
from waybill.apps.ingest import minting
from waybill.apps.ingest.containers import File
from waybill.apps.ingest.duties import audit, papers, payloads, staged
from waybill.apps.ingest.simulation import Deposits, deposits
from waybill.apps.ingest.storage import OcflStorage, Version
from waybill.duties import folders, retention
from waybill.machine import Machine
from waybill.record import Docs, Record, encode
from waybill.sim.simulation import Simulation
from waybill.sim.world import current
from waybill.step import Context, Done
from waybill.worker.context import StepContext

Patch = pytest.MonkeyPatch
STEPS = "waybill.apps.ingest.steps"
# By name: the package's attributes of these names are the steps themselves.
admitting, depositing, processing, reporting, unwrapping = (
    importlib.import_module(f"{STEPS}.{name}")
    for name in ("admitting", "depositing", "processing", "reporting", "unwrapping")
)


@pytest.mark.parametrize("slice_", range(4))
def test_seeds_on_the_model(slice_: int, budget: Budget) -> None:
    count = budget.pick(small=40, long=4_000) // 4
    assert list(problems(Deposits, "model", range(slice_ * count, (slice_ + 1) * count))) == []


def test_seeds_on_sqlite(budget: Budget) -> None:
    assert list(problems(Deposits, "sqlite", range(10_000, 10_000 + budget.pick(small=10, long=500)))) == []


def test_deposits_come_through() -> None:
    """What never completes breaks no rule: most of these must."""
    done = 0
    for seed in range(20):
        simulation = Simulation(seed, Deposits, "model")
        assert simulation.run().problem is None
        assert isinstance(simulation.scenario, Deposits)
        done += simulation.scenario.completed > 0
    assert done > 10


# --- bugs


def an_ark_is_used_before_it_is_saved(patch: Patch) -> None:
    def forgotten(ctx: Context, said: Any, ark: str, **options: Any) -> Record:
        return ctx.save(keys=(f"storage/{ark}",))

    patch.setattr(processing, "_saved", forgotten)


def every_run_asks_storage_anew(patch: Patch) -> None:
    plain = depositing.request_of
    runs: list[int] = []

    def anew(job: Record) -> str:
        runs.append(1)
        return f"{plain(job)} {len(runs)}"

    patch.setattr(depositing, "request_of", anew)


def numbers_are_drawn_twice(patch: Patch) -> None:
    patch.setattr(minting, "draw", lambda engine, minter, count: Record("minter", "m", "Active", docs=_next(count)))


def _next(count: int) -> Docs:
    return Docs({"numbers": encode({"next": count})})


def a_report_counts_only_what_failed(patch: Patch) -> None:
    plain = reporting.document

    def wrong(found: Any, *rest: Any) -> Any:
        told = plain(found, *rest)
        return {**told, "counts": {**told["counts"], "completed": 0}}

    patch.setattr(reporting, "document", wrong)


def jobs_are_made_again_after_a_crash(patch: Patch) -> None:
    """How many were made is forgotten with the run that made them."""
    plain = StepContext.spawn_each

    def forgetful(ctx: StepContext, children: Any, cursor: str = "spawned", portion: int = 200) -> int:
        made = list(children)
        ctx.spawn(made[:1])
        ctx.spawn(made[1:])
        return plain(ctx, (), cursor) + len(made)

    patch.setattr(StepContext, "spawn_each", forgetful)


def recorded_means_nothing(patch: Patch) -> None:
    steps = importlib.import_module(STEPS)
    patch.setattr(steps, "STEPS", {**steps.STEPS, "job": {**steps.STEPS["job"], "Recording": lambda job, ctx: Done()}})


def nobody_is_called(patch: Patch) -> None:
    patch.setattr(importlib.import_module(f"{STEPS}.notifying"), "_was_called", lambda job: True)


def ezid_is_told_of_nothing(patch: Patch) -> None:
    patch.setattr(
        processing, "_registered", lambda job, ctx, profile, shoulder, prepared, told: (job, prepared.ark, prepared)
    )


def a_file_of_a_container_is_left_out(patch: Patch) -> None:
    plain = unwrapping.Unwrapped.files
    patch.setattr(unwrapping.Unwrapped, "files", lambda self: itertools.islice(plain(self), 2))


def containers_are_unpacked_in_one_folder_for_all(patch: Patch) -> None:
    """What other jobs left there becomes files of this one."""
    plain = unwrapping.containers.unpack

    def beside(path: Path, into: Path, **options: Any) -> Iterator[File]:
        shared = into.parents[3] / "shared"  # below the working root
        shared.mkdir(exist_ok=True)
        for file in plain(path, into, **options):
            (shared / file.name).parent.mkdir(exist_ok=True)
            (shared / file.name).write_bytes((into / file.name).read_bytes())
        for found in sorted(each for each in shared.rglob("*") if each.is_file()):
            body, name = found.read_bytes(), found.relative_to(shared).as_posix()
            (into / name).parent.mkdir(exist_ok=True)
            (into / name).write_bytes(body)
            yield File(name, len(body), hashlib.sha256(body).hexdigest())

    patch.setattr(unwrapping.containers, "unpack", beside)


def bags_are_not_validated(patch: Patch) -> None:
    patch.setattr(unwrapping, "_validate", lambda ctx, bag: None)


def sound_containers_are_refused(patch: Patch) -> None:
    plain = unwrapping.placing.fault
    patch.setattr(
        unwrapping,
        "placing",
        SimpleNamespace(
            **{
                **vars(unwrapping.placing),
                "fault": lambda name: plain(name) or ("It is the third." if name == "2.txt" else None),
            }
        ),
    )


def a_rebuild_does_nothing(patch: Patch) -> None:
    steps = importlib.import_module(STEPS)
    patch.setattr(steps, "STEPS", {**steps.STEPS, "rebuild": {"Rebuilding": lambda record, ctx: Done()}})


def a_rebuild_holds_no_keys_and_looks_at_storage_first(patch: Patch) -> None:
    """What a job has recorded since is then one version too many."""
    rebuilding = importlib.import_module(f"{STEPS}.rebuilding")
    plain_rebuild = rebuilding.rebuild_object

    class Stale(OcflStorage):
        def __init__(self, storage: OcflStorage, ark: str) -> None:
            self.__dict__.update(vars(storage))
            self.seen = storage.versions(ark)

        def versions(self, object_id: str) -> list[Version]:
            return self.seen

    def stale(inventory: Any, storage: OcflStorage, ark: str) -> int:
        seen = Stale(storage, ark)
        current().takes(5.0)
        return int(plain_rebuild(inventory, seen, ark))

    patch.setattr(rebuilding, "rebuild_object", stale)
    tables = importlib.import_module("waybill.apps.ingest.machine")
    plain = tables.rebuild_machine

    def loose() -> Machine:
        table = plain()
        states = tuple(dataclasses.replace(state, needs=()) for state in table.states)
        return dataclasses.replace(table, states=states, keys=(), steps={}, _by_name={})

    patch.setattr(tables, "rebuild_machine", loose)
    patch.setattr(deposits, "CROWDED", 1.0)


def what_is_recorded_elsewhere_is_not_known_here(patch: Patch) -> None:
    def forgotten(ctx: Context, deposit: Any) -> Any:
        return depositing.outfit_of(ctx).storage.write(deposit, check=ctx.check)

    patch.setattr(depositing, "stored", forgotten)


def uploads_go_when_their_batch_has_failed(patch: Patch) -> None:
    patch.setattr(payloads, "ENDED", ("Completed", "Deleted", "Failed", "Processing"))


def uploads_of_nobody_stay(patch: Patch) -> None:
    patch.setattr(payloads.Payloads, "old", lambda duty, hand, info: False)


def papers_go_at_once(patch: Patch) -> None:
    patch.setattr(papers, "_is_there", lambda hand, ref: False)


def papers_stay(patch: Patch) -> None:
    patch.setattr(papers.Papers, "old", lambda duty, hand, info: False)


def what_others_sent_stays(patch: Patch) -> None:
    patch.setattr(staged.Staged, "left", lambda duty, hand, newest: False)


def completed_batches_stay(patch: Patch) -> None:
    patch.setattr(retention.Retention, "mend", lambda duty, hand, finding: False)


def folders_of_jobs_at_work_are_removed(patch: Patch) -> None:
    def needed(duty: Any, hand: Any, ref: Any) -> bool:
        return bool(ref in {record.ref for record in hand.store.find(ref.kind, state="Processing").records})

    patch.setattr(folders.Folders, "_needed", needed)


def folders_are_never_cleared(patch: Patch) -> None:
    patch.setattr(folders, "clear_folder", lambda folder, last: None)


def an_audit_takes_sound_content_for_damage(patch: Patch) -> None:
    plain = audit._read_all

    def wary(outfit: Any, rows: Any) -> Iterator[Any]:
        for row, finding in plain(outfit, rows):
            yield row, finding or audit.Damage(kind="changed", place=row["place"], words="It looks odd.")

    patch.setattr(audit, "_read_all", wary)


def an_update_keeps_nothing(patch: Patch) -> None:
    plain = depositing.Deposit
    patch.setattr(depositing, "Deposit", lambda **told: plain(**{**told, "mode": "add", "deletions": ()}))


def an_update_deletes_nothing(patch: Patch) -> None:
    patch.setattr(depositing, "deletions_of", lambda said, told: ())


BUGS: dict[Callable[[Patch], None], str] = {
    an_ark_is_used_before_it_is_saved: "",
    every_run_asks_storage_anew: "",
    numbers_are_drawn_twice: "",
    a_report_counts_only_what_failed: "reports",
    jobs_are_made_again_after_a_crash: " objects",
    recorded_means_nothing: "the inventory",
    nobody_is_called: "nobody was called",
    ezid_is_told_of_nothing: "which EZID keeps for",
    a_file_of_a_container_is_left_out: "were submitted",
    containers_are_unpacked_in_one_folder_for_all: "submitted",
    bags_are_not_validated: "its payload is broken",
    sound_containers_are_refused: "nothing is wrong with its payload",
    a_rebuild_does_nothing: "storage has others",
    a_rebuild_holds_no_keys_and_looks_at_storage_first: "and has it no more",
    what_is_recorded_elsewhere_is_not_known_here: "the inventory",
    uploads_go_when_their_batch_has_failed: "and needs it",
    uploads_of_nobody_stay: "no batch needs it",
    papers_go_at_once: " is there",
    papers_stay: "nobody needs it",
    what_others_sent_stays: "nobody needs it",
    completed_batches_stay: "when everything is long over",
    folders_of_jobs_at_work_are_removed: "its working folder is gone",
    folders_are_never_cleared: "the working folder",
    an_audit_takes_sound_content_for_damage: "damage",
    an_update_keeps_nothing: "were submitted",
    an_update_deletes_nothing: "were submitted",
}


@pytest.mark.parametrize("plant", BUGS, ids=lambda plant: plant.__name__)
def test_a_planted_bug_is_found(plant: Callable[[Patch], None], monkeypatch: Patch) -> None:
    plant(monkeypatch)
    assert any(BUGS[plant] in problem for problem in problems(Deposits, "model", range(300))), (
        f"{plant.__name__} was not found"
    )
