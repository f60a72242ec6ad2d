"""`waybill trace` of a deposit: from its batch, its job and its object, also when the records are gone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.apps.ingest.ingest_fixture import IngestFixture
from waybill.accounts import Grant, Identity
from waybill.apps.ingest.profile import Profile, to_document
from waybill.apps.ingest.submission import PayloadType, Submission
from waybill.errors import NotFound
from waybill.http.trace import make_visibility_check
from waybill.record import Ref
from waybill.step import New
from waybill.tracing import TraceGraph, open_tracers, trace_thing


@pytest.fixture
def ingest(tmp_path: Path) -> Iterator[IngestFixture]:
    with IngestFixture(tmp_path) as ingest:
        yield ingest


def trace(ingest: IngestFixture, text: str, identity: Identity | None = None) -> TraceGraph:
    with ingest.engine() as engine:
        tracers = open_tracers(ingest.environment, engine.store)
        if identity is None:
            return trace_thing(tracers, text)
        return trace_thing(tracers, text, make_visibility_check(identity))


def test_a_deposit_is_traced_from_every_end_and_when_its_records_are_gone(ingest: IngestFixture) -> None:
    submission = Submission(
        profile="p",
        url=ingest.web.put("a.txt", b"hello"),
        type=PayloadType.FILE,
        filename="a.txt",
        batch_id="bid-1",
        title="A map",
        local_ids=("map-1",),
    )
    with ingest.engine() as engine:
        profile = Profile(name="p", owner="ark:/99999/owner")
        engine.submit(New("profile", {"profile": to_document(profile)}, id="p"))
        batch = engine.submit(New("batch", {"submission": submission.to_document()}, idempotency_key="bid-1"))
    with ingest.workers():
        ingest.wait("batch", batch.id, "Completed")
    with ingest.engine() as engine:
        (job,) = engine.store.find("job", parent=batch.ref).records
        (row,) = ingest.resources.inventory.search(local_id="map-1").rows
        ark = row["ark"]

    graphs = [trace(ingest, text) for text in (batch.id, "bid-1", job.id, ark, "map-1")]
    for graph in graphs:
        assert {(node.type, node.label) for node in graph.nodes} == {
            ("batch", "bid-1"),
            ("job", "A map"),
            ("object", "A map"),
        }
        assert {edge.label for edge in graph.edges} == {"job", "stored version 1"}
        assert {node.state for node in graph.nodes} == {"Completed", "version 1"}

    stranger = Identity.from_grants("eve", [Grant("reader", "own")], owners=("eve",))
    with pytest.raises(NotFound):
        trace(ingest, ark, stranger)
    reader = Identity.from_grants("bob", [Grant("reader", "ingest")])
    assert len(trace(ingest, ark, reader).nodes) == 3

    with ingest.engine() as engine:
        engine.remove(Ref("batch", batch.id))
    later = trace(ingest, ark)
    assert {(node.type, node.state) for node in later.nodes} == {
        ("object", "version 1"),
        ("job", "removed"),
        ("batch", "removed"),
    }
    assert len(later.edges) == 2
