"""Deposits in the simulator: many seeds pass, and bugs that are planted in ingest's steps are found."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.budget import Budget
from waybill.apps.ingest import minting
from waybill.apps.ingest.simulation import Deposits
from waybill.record import Docs, Record, encode
from waybill.sim.simulation import Simulation
from waybill.step import Context, Done
from waybill.worker.context import StepContext

Patch = pytest.MonkeyPatch
STEPS = "waybill.apps.ingest.steps"
# By name: the package's attributes of these names are the steps themselves.
admitting, depositing, processing, reporting = (
    importlib.import_module(f"{STEPS}.{name}") for name in ("admitting", "depositing", "processing", "reporting")
)


def problems(store: str, seeds: range) -> Iterator[str]:
    for seed in seeds:
        verdict = Simulation(seed, Deposits, store).run()
        if verdict.problem:
            yield f"waybill sim --scenario deposits --store {store} --seed {seed}: {verdict.problem}"


@pytest.mark.parametrize("slice_", range(4))
def test_seeds_on_the_model(slice_: int, budget: Budget) -> None:
    count = budget.pick(small=40, long=4_000) // 4
    assert list(problems("model", range(slice_ * count, (slice_ + 1) * count))) == []


def test_seeds_on_sqlite(budget: Budget) -> None:
    assert list(problems("sqlite", range(10_000, 10_000 + budget.pick(small=10, long=500)))) == []


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
    patch.setattr(processing, "_registered", lambda job, ctx, profile, shoulder, prepared, told: (job, prepared.ark, prepared))


BUGS: dict[Callable[[Patch], None], str] = {
    an_ark_is_used_before_it_is_saved: "",
    every_run_asks_storage_anew: "",
    numbers_are_drawn_twice: "",
    a_report_counts_only_what_failed: "reports",
    jobs_are_made_again_after_a_crash: " objects",
    recorded_means_nothing: "the inventory does not know",
    nobody_is_called: "nobody was called",
    ezid_is_told_of_nothing: "which EZID keeps for",
}


@pytest.mark.parametrize("plant", BUGS, ids=lambda plant: plant.__name__)
def test_a_planted_bug_is_found(plant: Callable[[Patch], None], monkeypatch: Patch) -> None:
    plant(monkeypatch)
    assert any(BUGS[plant] in problem for problem in problems("model", range(300))), f"{plant.__name__} was not found"
