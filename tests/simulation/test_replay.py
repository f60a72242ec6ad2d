"""The same seed is the same history: in this process, in another, whatever the order of hashes; and one line replays
a failure.
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

from tests.simulation.planted import two_records_get_the_same_key
from waybill.sim import main_sim
from waybill.sim.run import Case, cases, simulate
from waybill.sim.scenario import scenarios

CASES = [*cases(range(8), "both"), Case(1234, "model", "orders")]

DIGESTS = """
import sys
from waybill.sim.run import Case, simulate
for line in sys.stdin:
    seed, store, scenario = line.split()
    print(simulate(Case(int(seed), store, scenario), trace=True).digest())
"""


def digests_elsewhere(hash_seed: str) -> list[str]:
    lines = "".join(f"{c.seed} {c.store} {c.scenario}\n" for c in CASES)
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    done = subprocess.run(
        [sys.executable, "-c", DIGESTS], input=lines, env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout.split()


def test_the_same_seed_gives_the_same_trace() -> None:
    here = [simulate(case, trace=True) for case in CASES]
    assert all(len(verdict.trace) > 20 for verdict in here)
    digests = [verdict.digest() for verdict in here]
    assert [simulate(case, trace=True).digest() for case in CASES] == digests
    assert digests_elsewhere("1") == digests
    assert digests_elsewhere("2") == digests
    assert len(set(digests)) >= len({case.seed for case in CASES})  # the two stores may well agree on a seed


def test_tracing_changes_nothing() -> None:
    for case in CASES:
        quiet, traced = simulate(case), simulate(case, trace=True)
        assert (quiet.turns, quiet.seconds, quiet.commits, quiet.trace) == (
            traced.turns,
            traced.seconds,
            traced.commits,
            [],
        )


def test_a_failure_prints_the_one_line_that_replays_it(monkeypatch: pytest.MonkeyPatch) -> None:
    two_records_get_the_same_key(monkeypatch)
    said: list[str] = []
    assert main_sim(seeds=50, scenario="transfers", say=said.append) == 1
    words = shlex.split(said[-1])
    assert words[:2] == ["waybill", "sim"]
    assert sum(line.startswith("waybill sim") for line in said) == 1
    options = dict(zip(words[2::2], words[3::2], strict=True))
    again: list[str] = []
    code = main_sim(
        seed=int(options["--seed"]),
        store=options["--store"],
        scenario=options["--scenario"],
        verbose=True,
        say=again.append,
    )
    assert code == 1
    problem = said[-2].partition(": ")[2]
    assert again[-2].endswith(problem)
    assert again[-1] == said[-1]
    assert any("claim transfer" in line for line in again), "the trace shows what led to it"


def test_what_passes_says_so_and_what_cannot_be_simulated_says_why() -> None:
    said: list[str] = []
    assert main_sim(seeds=20, say=said.append) == 0
    assert said[-1].startswith("20 passed, ")
    assert main_sim(seed=3, say=said.append) == 0
    assert said[-1].endswith("passed")
    assert main_sim(store="paper", say=said.append) == 2
    assert said[-1] == "paper cannot be simulated; --store is one of model, sqlite, both."
    assert main_sim(scenario="war", say=said.append) == 2
    assert said[-1] == f"There is no scenario war; --scenario is one of {', '.join(sorted(scenarios()))}, all."


def test_each_application_brings_its_scenarios() -> None:
    """As pyproject.toml names them: what is installed may be older."""
    with open(Path(__file__).parents[2] / "pyproject.toml", "rb") as file:
        declared = tomllib.load(file)["project"]["entry-points"]["waybill.scenarios"]
    for name, where in declared.items():
        module, _, attribute = where.partition(":")
        assert getattr(importlib.import_module(module), attribute).name == name
    assert set(declared) == {"assemblies", "deposits"}


def test_several_processes_do_what_one_does() -> None:
    said: list[str] = []
    assert main_sim(seeds=60, say=said.append) == main_sim(seeds=60, processes=2, say=said.append) == 0
    alone, together = (line.split("a minute, ")[1] for line in said if "passed" in line)
    assert alone == together
