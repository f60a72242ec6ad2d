"""The demonstration, and a workload tried on folders of this host."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.apps.lots.lots_site import LotsSite
from waybill.apps.lots.demo import load_demo
from waybill.apps.lots.machine import RUN


def test_the_demonstration_has_a_good_lot_a_gap_and_a_failure(tmp_path: Path) -> None:
    site = LotsSite(tmp_path, "")
    load_demo(site.tester.environment, site.tester.engine)
    load_demo(site.tester.environment, site.tester.engine)
    site.settle()
    assert site.classes("demo/total", site.lot(-4, "PT1M"), 3) == ["complete", "never", "partial"]
    assert site.classes("demo-archive", site.lot(-4, "PT1M"), 3) == ["complete", "never", "never"]
    (failed,) = [run for run in site.tester.find_all(RUN.name) if run.state == "Partial"]
    assert "which is no number" in failed.message


PROJECT = """
name = "p"
[datasets.a]
path = "a/"
[datasets.b]
path = "b/"
[boundaries.in]
dataset = "a"
unit = "PT5M"
[arcs.count]
sources = { main = "a" }
sinks = { main = "b" }
command = "cat $WAYBILL_SOURCE/x/one.txt > $WAYBILL_SINK/made.txt; echo $WAYBILL_LOT; exit $(cat $WAYBILL_SOURCE/code)"
"""


def test_a_workload_is_tried_without_a_store(tmp_path: Path, bare: Any) -> None:
    (tmp_path / "p.toml").write_text(PROJECT)
    (tmp_path / "in" / "x").mkdir(parents=True)
    (tmp_path / "in" / "x" / "one.txt").write_text("hello\n")
    (tmp_path / "in" / "code").write_text("0")
    call = (
        "lots",
        "run-local",
        str(tmp_path / "p.toml"),
        "count",
        "--source",
        str(tmp_path / "in"),
        "--out",
        str(tmp_path / "out"),
    )
    done = bare(*call, "--lot", "20260301PT5M000")
    assert done.code == 0, done
    assert (tmp_path / "out" / "main" / "made.txt").read_text() == "hello\n"
    assert "20260301PT5M000" in done.err
    (tmp_path / "in" / "code").write_text("4")
    assert bare(*call).code == 1
