"""The same seed gives the same history, in this process and in others, whatever the order of hashes; one command replays a
failure.
"""

from __future__ import annotations

import importlib
import os
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.simulation.engine_scenarios import NAMES
from tests.simulation.planted_bugs import ORDERS, two_records_get_the_same_lock
from waybill.sim import run_sim_command
from waybill.sim.scenario import list_scenario_names
from waybill.sim.seed_runs import SimulationCase, generate_cases, simulate

CASES = [
    *generate_cases(range(4), "both"),  # of all that are installed, those of applications too
    *(case for name in NAMES.values() for case in generate_cases(range(2), "both", name)),
    SimulationCase(1234, "model", ORDERS),
]
ROOT = Path(__file__).parents[2]

DIGESTS = """
import sys
from waybill.sim.seed_runs import SimulationCase, simulate
for line in sys.stdin:
    seed, store, scenario = line.split()
    print(simulate(SimulationCase(int(seed), store, scenario), trace=True).compute_digest())
"""


def digests_in_a_subprocess(hash_seed: str) -> list[str]:
    cases = "".join(f"{c.seed} {c.store} {c.scenario}\n" for c in CASES)
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    done = subprocess.run(
        [sys.executable, "-c", DIGESTS],
        input=cases,
        env=environment,
        cwd=ROOT,  # the scenarios of these tests are not installed
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.split()


def test_the_same_seed_gives_the_same_trace() -> None:
    here = [simulate(case, trace=True) for case in CASES]
    assert all(len(verdict.trace_lines) > 20 for verdict in here)
    digests = [verdict.compute_digest() for verdict in here]
    assert [simulate(case, trace=True).compute_digest() for case in CASES] == digests
    assert digests_in_a_subprocess("1") == digests
    assert digests_in_a_subprocess("2") == digests
    assert len(set(digests)) >= len({case.seed for case in CASES})  # the two stores may well agree on a seed


def test_tracing_changes_nothing() -> None:
    for case in CASES:
        quiet, traced = simulate(case), simulate(case, trace=True)
        assert (quiet.turn_count, quiet.virtual_seconds, quiet.commit_count, quiet.trace_lines) == (
            traced.turn_count,
            traced.virtual_seconds,
            traced.commit_count,
            [],
        )


def test_a_failure_prints_the_command_that_replays_it(monkeypatch: pytest.MonkeyPatch) -> None:
    two_records_get_the_same_lock(monkeypatch)
    lines: list[str] = []
    assert run_sim_command(seeds=50, scenario="transfers", write_line=lines.append) == 1
    words = shlex.split(lines[-1])
    assert words[:2] == ["waybill", "sim"]
    assert sum(line.startswith("waybill sim") for line in lines) == 1
    options = dict(zip(words[2::2], words[3::2], strict=True))
    again: list[str] = []
    code = run_sim_command(
        seed=int(options["--seed"]),
        store=options["--store"],
        scenario=options["--scenario"],
        verbose=True,
        write_line=again.append,
    )
    assert code == 1
    problem = lines[-2].partition(": ")[2]
    assert again[-2].endswith(problem)
    assert again[-1] == lines[-1]
    assert any("claim transfer" in line for line in again), "the trace shows what led to it"


def test_the_last_line_says_that_all_passed_or_why_nothing_can_be_simulated() -> None:
    lines: list[str] = []
    assert run_sim_command(seeds=20, write_line=lines.append) == 0
    assert lines[-1].startswith("20 passed, ")
    assert run_sim_command(seed=3, write_line=lines.append) == 0
    assert lines[-1].endswith("passed")
    assert run_sim_command(store="paper", write_line=lines.append) == 2
    assert lines[-1] == "paper cannot be simulated; --store is one of model, sqlite, both."
    assert run_sim_command(scenario="war", write_line=lines.append) == 2
    assert lines[-1] == f"There is no scenario war; --scenario is one of {', '.join(list_scenario_names())}, all."


def test_each_application_brings_its_scenarios() -> None:
    """As pyproject.toml names them: what is installed may be older."""
    with open(ROOT / "pyproject.toml", "rb") as file:
        declared = tomllib.load(file)["project"]["entry-points"]["waybill.scenarios"]
    for name, where in declared.items():
        module, _, attribute = where.partition(":")
        assert getattr(importlib.import_module(module), attribute).name == name
    assert set(declared) == {"assemblies", "deposits"}


def test_several_processes_do_what_one_does() -> None:
    lines: list[str] = []
    assert (
        run_sim_command(seeds=12, write_line=lines.append)
        == run_sim_command(seeds=12, processes=2, write_line=lines.append)
        == 0
    )
    alone, together = (line.split("a minute, ")[1] for line in lines if "passed" in line)
    assert alone == together
