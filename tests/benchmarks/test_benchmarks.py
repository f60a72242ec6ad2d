"""The benchmarks run and say what they found in the right form. Nothing here is about how fast anything is."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from benchmarks.__main__ import Part, collect_parts, main
from benchmarks.effort import Effort
from benchmarks.figure import Figure, Sense
from benchmarks.rounds import Broken, Contestant, Results, rounds, strongest

from benchmarks import engine, ingest, latency, scale
from waybill.application import load_applications

LINE = re.compile(
    r"(?P<name>[a-z0-9.-]+): (?P<ours>[0-9.,e+-]+|inf) (?P<unit>[\w/]+), (?P<peer>-|[0-9.,e+-]+ [\w/]+), (?P<ratio>-|[0-9.,e+-]+x|infx), "
    r"(?P<goal>-|at (?:least|most) [0-9.]+(?:x| [\w/]+))(?P<missed> MISSED)?(?:  # (?P<note>.+))?"
)
ROOT = Path(__file__).resolve().parents[2]


def parts(*figures: Figure) -> dict[str, Part]:
    def part(effort: Effort) -> Iterator[Figure]:
        yield from figures

    return {"some.part": part}


def test_a_figure_under_its_goal_makes_the_exit_code_1(capsys: pytest.CaptureFixture[str]) -> None:
    good, bad = Figure("some.good", 200, "/s", 2, 100), Figure("some.bad", 198, "/s", 2, 100)
    assert main([], parts(good)) == 0
    assert main([], parts(good, bad)) == 1
    assert capsys.readouterr().out.splitlines()[-2:] == [
        "some.good: 200 /s, 2 /s, 100x, at least 100x",
        "some.bad: 198 /s, 2 /s, 99x, at least 100x MISSED",
    ]


@pytest.mark.parametrize(
    ("ours", "peer", "goal", "sense", "missed"),
    [
        (10.0, 1.0, 10.0, "ratio at least", False),
        (9.9, 1.0, 10.0, "ratio at least", True),
        (1.5, 1.0, 1.5, "ratio at most", False),
        (1.6, 1.0, 1.5, "ratio at most", True),
        (50.0, None, 50.0, "at most", False),
        (50.1, None, 50.0, "at most", True),
        (1.0, None, None, "ratio at least", False),
    ],
)
def test_goals_are_met_or_missed(
    ours: float, peer: float | None, goal: float | None, sense: Sense, missed: bool
) -> None:
    figure = Figure("some.figure", ours, "ms", peer, goal, sense, "a note")
    assert figure.missed is missed
    found = LINE.fullmatch(figure.line())
    assert found is not None, figure.line()
    assert (found["missed"] is not None) is missed
    assert found["note"] == "a note"


def test_a_goal_for_a_ratio_needs_a_peer() -> None:
    with pytest.raises(ValueError, match="no peer"):
        Figure("some.figure", 1, "/s", None, 2).missed  # noqa: B018


def test_parts_are_chosen_by_the_beginning_of_their_names(capsys: pytest.CaptureFixture[str]) -> None:
    one, two = parts(Figure("a.b.c", 1, "/s"))["some.part"], parts(Figure("a.d.e", 1, "/s"))["some.part"]
    table = {"a.b": one, "a.d": two}
    for words, expected in ((["a"], ["a.b.c", "a.d.e"]), (["a.d"], ["a.d.e"]), ([], ["a.b.c", "a.d.e"])):
        assert main([*words, "--json"], table) == 0
        assert [json.loads(line)["name"] for line in capsys.readouterr().out.splitlines()] == expected
    with pytest.raises(SystemExit):
        main(["nothing"], table)
    assert "nothing is no part; there are a.b, a.d" in capsys.readouterr().err


def test_rounds_interleave_and_the_best_variant_of_a_peer_counts(tmp_path: Path) -> None:
    log = tmp_path / "log"
    (tmp_path / "runner.py").write_text(
        f"import sys\nopen({str(log)!r}, 'a').write(sys.argv[2])\nprint('noise')\nprint('{{\"rate\": ' + sys.argv[2] + '}}')\n"
    )
    contestants = [Contestant(f"peer {rate}", "runner", lambda: "here", (rate,)) for rate in (1, 3, 2)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(tmp_path))
        results = rounds(contestants, 2)
    assert log.read_text() == "132132"
    name, best = strongest(results, "peer")
    assert (name, best.median(), best.best()) == ("peer 3", 3, 3)


def test_a_contestant_that_breaks_is_named_with_what_it_said() -> None:
    with pytest.raises(Broken, match="no_such_module"):
        Contestant("peer", "benchmarks.no_such_module", lambda: "here").run()


def test_the_median_counts() -> None:
    assert Results([{"rate": 1.0}, {"rate": 100.0}, {"rate": 2.0}]).median() == 2.0


# --- each part, with tiny counts. The peers themselves are not installed for tests: one of our own processes stands in for them.


def stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "DBOS", "tests.benchmarks.peer")
    monkeypatch.setattr(engine, "HUEY", "tests.benchmarks.peer")
    monkeypatch.setattr(engine, "PGQUEUER", "tests.benchmarks.peer")


def names(part: str, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """The figures that a part prints; each line has the form, and the exit code says whether one is missed."""
    code = main([part, "--quick"])
    found = [LINE.fullmatch(line) for line in capsys.readouterr().out.splitlines()]
    assert all(found)
    assert code == (1 if any(line["missed"] for line in found if line) else 0)
    return [line["name"] for line in found if line]


def test_engine_sqlite(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    stand_in(monkeypatch)
    assert names("engine.sqlite", capsys) == ["engine.sqlite.dbos", "engine.sqlite.huey", "engine.sqlite.fsync"]


def test_engine_postgres(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    stand_in(monkeypatch)
    assert names("engine.postgres", capsys) == [
        "engine.postgres.dbos",
        "engine.postgres.pgqueuer",
        "engine.postgres.pgqueuer-pooled",
        "engine.postgres.fsync",
    ]


def test_engine_zookeeper(capsys: pytest.CaptureFixture[str]) -> None:
    assert names("engine.zookeeper", capsys) == [
        "engine.zookeeper.merritt",
        "engine.zookeeper.kazoo",
        "engine.zookeeper.fsync",
    ]


def test_scale(capsys: pytest.CaptureFixture[str]) -> None:
    assert names("scale", capsys) == [
        "scale.sqlite.one",
        "scale.sqlite.ten",
        "scale.sqlite.counts",
        "scale.sqlite.first-page",
        "scale.sqlite.newest-page",
        "scale.sqlite.fsync",
        "scale.postgres.one",
        "scale.postgres.ten",
        "scale.postgres.fsync",
    ]


def test_index(capsys: pytest.CaptureFixture[str]) -> None:
    assert names("index", capsys) == [
        f"index.{store}.{figure}" for store in ("sqlite", "postgres") for figure in ("load", "fsync")
    ]


def test_ingest_small(capsys: pytest.CaptureFixture[str]) -> None:
    assert names("ingest.small", capsys) == [
        f"ingest.small.{figure}" for figure in ("bare-loop", "alone", "curl", "memory", "memory-growth", "fsync")
    ]


def test_ingest_large(capsys: pytest.CaptureFixture[str]) -> None:
    assert names("ingest.large", capsys) == [
        f"ingest.large.{figure}" for figure in ("curl", "curl-unsynced", "memory", "fsync")
    ]


def test_ingest_zookeeper(capsys: pytest.CaptureFixture[str]) -> None:
    assert names("ingest.zookeeper", capsys) == [
        f"ingest.zookeeper.{figure}" for figure in ("merritt", "merritt-four", "fsync")
    ]


@pytest.mark.parametrize("store", ["sqlite", "postgres", "zookeeper"])
def test_latency(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert names(f"latency.{store}", capsys) == [
        f"latency.{store}.{figure}" for figure in ("start", "p95", "idle", "calls", "fsync")
    ]


def test_every_part_is_there() -> None:
    declared = {
        f"{module.__name__.rpartition('.')[2]}.{store}"
        for module in (engine, scale, latency)
        for store in ("sqlite", "postgres", "zookeeper")
        if hasattr(module, store)
    }
    declared |= {f"ingest.{part.__name__}" for part in (ingest.small, ingest.large, ingest.zookeeper)}
    declared |= {"archive.small", "archive.large", "compute.map", "compute.requests", "lots.gaps", "lots.runs"}
    declared |= {f"pages.{store}" for store in ("sqlite", "postgres", "zookeeper")}
    declared |= {"sandbox.commands", "index.sqlite", "index.postgres"}
    assert set(collect_parts(load_applications())) == declared


def test_the_command_refuses_a_part_that_is_none() -> None:
    done = subprocess.run([sys.executable, "-m", "benchmarks", "nonsense"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 2
    assert "nonsense is no part" in done.stderr


@pytest.mark.parametrize("part", ["small", "large"])
def test_archive(part: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert names(f"archive.{part}", capsys) == [f"archive.{part}.tar", f"archive.{part}.untar"]


def test_compute_map(capsys: pytest.CaptureFixture[str]) -> None:
    cases = ("shell", "program")
    expected = [name for case in cases for name in (f"compute.map.{case}", f"compute.map.{case}.parallel")]
    assert names("compute.map", capsys) == expected
