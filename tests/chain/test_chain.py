"""Applications as one chain, which know nothing of each other: a deposit arrives in a dataset, an arc runs over its lot, and the
deposit and the lots become migrations on an external storage, where a profile or a dataset says so.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.apps.lots import workloads
from waybill.apps.archive.application import APPLICATION as ARCHIVE
from waybill.apps.archive.machine import INTAKE, MIGRATION, IntakeDocument, IntakeResult
from waybill.apps.ingest.application import APPLICATION as INGEST
from waybill.apps.ingest.profile import Profile, to_document
from waybill.apps.ingest.service import submit_deposit
from waybill.apps.ingest.submission import Submission
from waybill.apps.lots.application import APPLICATION as LOTS
from waybill.apps.lots.declaration.changes import apply_changes, read_applied
from waybill.apps.lots.declaration.project_file import parse_project
from waybill.apps.lots.object_intake import OBJECT_INTAKE
from waybill.record import Record
from waybill.step import New
from waybill.testing import StepTester
from waybill.tracing import open_tracers, trace_thing

PROJECT = """
name = "library"
[datasets.maps]
path = "maps/"
archive = "default"
[datasets.counts]
path = "counts/"
[boundaries.maps-in]
dataset = "maps"
unit = "PT5M"
[arcs.count]
sources = { main = "maps" }
sinks = { main = "counts" }
function = "tests.apps.lots.workloads:count"
"""
CONTENT = b"a map of the bay\n"


class Chain:
    def __init__(self, folder: Path, store: str = "", settings: dict[str, Any] | None = None) -> None:
        self.tester = StepTester(
            INGEST, folder, store=store, others=(LOTS, ARCHIVE), app={"disk_space": {"keep_free": 0}}, settings=settings
        )
        self.tester.time = datetime(2026, 3, 1, 12, 0, tzinfo=UTC).timestamp()
        declared = parse_project(PROJECT.encode(), "project.toml", known_units=read_applied(self.tester.store).units)
        apply_changes(self.tester.engine, declared, who="test", now=self.tester.now())
        profile = Profile(name="maps", owner="ark:/99999/owner", dataset="maps", archive="default")
        self.tester.submit(New("profile", {"profile": to_document(profile)}, id="maps"))

    def deposit(self, name: str = "map.txt", **fields: Any) -> str:
        submission = Submission(url="", profile="maps", filename=name, title="The bay", local_ids=("map-1",), **fields)
        with (self.tester.folder / name).open("wb+") as file:
            file.write(CONTENT)
            file.seek(0)
            accepted = submit_deposit(self.tester.engine, self.tester.resources, submission, file, who="ada")
        return accepted.batch_id

    def settle(self, minutes: float = 0.0) -> None:
        """Let time pass, a minute at a time, and all that is due happen."""
        end = self.tester.now() + minutes * 60
        while True:
            self.tester.store.release_due_waits()
            self.tester.run_until_idle()
            if self.tester.now() >= end:
                return
            self.tester.advance(60)

    def find_ark(self) -> str:
        (row,) = self.tester.resources.inventory.search(local_id="map-1").rows
        return str(row["ark"])

    def migrations(self) -> list[Record]:
        return self.tester.find_all(MIGRATION.name)


@pytest.fixture
def chain(tmp_path: Path) -> Iterator[Chain]:
    workloads.FAILING.clear()
    workloads.RUNS.clear()
    made = Chain(tmp_path)
    yield made
    made.tester.close()


def test_a_deposit_goes_its_whole_way_and_is_traced_from_end_to_end(chain: Chain, tmp_path: Path) -> None:
    batch = chain.deposit()
    chain.settle(12)
    ark = chain.find_ark()
    assert [each.state for each in chain.tester.find_all(OBJECT_INTAKE.name)] == ["Taken"]
    intakes = chain.tester.find_all(INTAKE.name)
    assert [each.state for each in intakes] == ["Submitted", "Submitted"], [each.message for each in intakes]
    assert {each.state for each in chain.migrations()} == {"ON_STORAGE"}
    assert len(chain.migrations()) == 2, "the object, and the lot that it is in"
    # the copies are gone, the objects are where they were
    copies = tmp_path / "data" / "archive-staging-intake"
    assert [path for path in copies.rglob("*") if path.is_file()] == []
    assert any(path.read_bytes() == CONTENT for path in (tmp_path / "data" / "objects").rglob("*") if path.is_file())

    graphs = {
        text: trace_thing(open_tracers(chain.tester.environment, chain.tester.store), text)
        for text in (ark, batch, f"migration {intakes[0].document(IntakeResult).migration}", "maps/20260301PT5M144")
    }
    for text, graph in graphs.items():
        assert sorted((node.application, node.type) for node in graph.nodes) == [
            ("archive", "migration"),
            ("archive", "migration"),
            ("ingest", "batch"),
            ("ingest", "job"),
            ("ingest", "object"),
            ("lots", "lot"),
            ("lots", "lot"),
            ("lots", "run"),
        ], text
        assert graph.is_whole
    assert all(len(graph.edges) == len(graphs[ark].edges) for graph in graphs.values())


def test_what_the_dataset_or_the_workspace_lacks_is_said_and_goes_on_when_it_is_there(chain: Chain) -> None:
    engine = chain.tester.engine
    profile = Profile(name="odd", owner="ark:/99999/owner", dataset="nowhere", archive="none@tape")
    engine.submit(New("profile", {"profile": to_document(profile)}, id="odd"), who="test")
    submission = Submission(url="", profile="odd", filename="a.txt", local_ids=("map-1",))
    with (chain.tester.folder / "a.txt").open("wb+") as file:
        file.write(CONTENT)
        file.seek(0)
        submit_deposit(engine, chain.tester.resources, submission, file, who="ada")
    chain.settle(1)
    (taken,) = chain.tester.find_all(OBJECT_INTAKE.name)
    assert (taken.state, "There is no dataset" in taken.message) == ("Failed", True), taken.message
    (intake,) = chain.tester.find_all(INTAKE.name)
    assert (intake.state, "There is no workspace none" in intake.message) == ("Failed", True), intake.message
    declared = parse_project(
        b'name = "more"\n[datasets.nowhere]\npath = "nowhere/"\n[boundaries.in]\ndataset = "nowhere"\nunit = "PT5M"\n',
        "more.toml",
        known_units=read_applied(chain.tester.store).units,
    )
    apply_changes(engine, declared, who="test", now=chain.tester.now())
    chain.tester.act(taken, "resume")
    chain.settle(6)
    assert chain.tester.get(taken).state == "Taken"


def test_a_crash_at_every_call_of_an_intake_archives_once(chain: Chain) -> None:
    chain.deposit()
    chain.settle(1)
    before = len(chain.migrations())
    document = IntakeDocument(chain.find_ark(), 1, "default")
    intake = chain.tester.submit(New(INTAKE.name, (document,), idempotency_key="again"))
    for point in chain.tester.crash_at_every_call(intake, "Submitted"):
        chain.settle(1)
        assert [each.state for each in chain.migrations()[before:]] == ["ON_STORAGE"], point
