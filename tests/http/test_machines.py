"""Machines over HTTP, marks, and the outside shape of things that no route makes odd enough."""

import xml.etree.ElementTree as ET

import msgspec
from starlette.testclient import TestClient

from tests.http.api_fixture import BOX, CRATE, ApiFixture
from waybill import views
from waybill.record import Finding, HistoryEntry, Record, RecordDocuments, Ref, SessionInfo
from waybill.rules import Machines
from waybill.tokens import TOKEN

API = "/api/v1"


def test_machines_come_with_their_tables(reader: TestClient) -> None:
    listed = {m["kind"]: m for m in reader.get(f"{API}/machines").json()["machines"]}
    assert {"crate", "box", "token"} <= set(listed)
    crate = reader.get(f"{API}/machines/crate").json()
    assert crate == listed["crate"]
    assert [(s["name"], s["type"]) for s in crate["states"]] == [(s.name, s.type) for s in CRATE.states]
    assert all(s["description"] for s in crate["states"])
    assert next(s for s in crate["states"] if s["name"] == "Failed")["actions"] == [
        "resume",
        "relabel",
        "inspect",
        "scrap",
        "forget",
    ]
    assert {(a["source"], a["target"], a["label"]) for a in crate["arrows"]} == {
        (a.source, a.target, a.label) for a in CRATE.iter_arrows()
    }
    assert crate["mermaid"].startswith("stateDiagram-v2")
    scrap = next(a for a in crate["actions"] if a["name"] == "scrap")
    assert (scrap["confirm"], scrap["role"], scrap["waits"]) == ("What is in it is lost.", "operator", True)


def test_the_figure_is_a_picture_of_its_own(reader: TestClient) -> None:
    answer = reader.get(f"{API}/machines/crate/figure.svg")
    assert answer.headers["content-type"] == "image/svg+xml"
    assert ET.fromstring(answer.text).tag == "{http://www.w3.org/2000/svg}svg"


def test_a_mark_holds_what_it_names_until_it_is_cleared(api: ApiFixture, operator: TestClient) -> None:
    put = operator.put(f"{API}/holds/road/north", json={"why": "snow"})
    assert put.status_code == 200
    assert put.json()["name"] == "road/north"
    assert "the operator" in put.json()["about"]
    assert "snow" in put.json()["about"]
    assert operator.get(f"{API}/holds").json()["holds"] == [put.json()]
    api.submit("box", {"way": {"road": "north"}}, id="b1")
    assert operator.get(f"{API}/records/box/b1").json()["hold_names"] == ["road/north"]
    assert operator.delete(f"{API}/holds/road/north").status_code == 204
    assert operator.get(f"{API}/holds").json()["holds"] == []


def test_every_view_is_plain_json() -> None:
    machines = Machines.from_machines([CRATE, BOX])
    held = Record(
        "crate", "c1", "Packing", parent=Ref("crate", "c0"), session="s1", blocked_by="wait", wake_at=1e18, created=1.5,
        documents=RecordDocuments({"label": b'{"sealed":true}', "weight": b"\xff not json"}),
    )  # fmt: skip
    shown = views.to_record_view(held, machines, documents=True, progress={"crate c1": [5, 0, "x", "Packing"]})
    assert shown["created"] == "1970-01-01T00:00:01.500Z"
    assert shown["wake_at"] == "9999-12-31T23:59:59.999Z"
    assert shown["progress"] == {"done": 5, "total": 0, "unit": "x", "fraction": None}
    assert views.to_record_view(held, machines, progress={"crate c1": [5, 0, "x", "Sealing"]})["progress"] is None, (
        "it has left that state"
    )
    assert shown["documents"] == {"label": {"sealed": True}, "weight": {"unreadable": "� not json"}}
    views_of_all = [
        shown,
        views.to_history_entry_view(HistoryEntry(1, 0.0, "me", "done", None, "Packing")),
        views.to_session_view(
            SessionInfo("s", "h", 1.0, 2.0, {"pid": 3}, {"crate c1": [1, 2, "x"], "crate c2": "?"}), 3.0
        ),
        views.to_finding_view(Finding("A rule", "here", "It is broken.", "Mend it.", True, Ref("crate", "c1"))),
        views.to_state_counts_view(CRATE, {"Packing": 2, "Gone": 1}),
        views.to_machine_view(BOX),
    ]
    for view in views_of_all:
        assert msgspec.json.decode(msgspec.json.encode(view)) == view
    assert views_of_all[4]["total"] == 3  # type: ignore[misc]


def test_a_hash_is_shown_to_nobody() -> None:
    assert views.to_public_documents(TOKEN, RecordDocuments({"token": b'{"name":"x","hash":"secret"}'})) == {
        "token": {"name": "x"}
    }
    assert views.to_public_documents(CRATE, RecordDocuments({"token": b'{"hash":"of something else"}'})) == {
        "token": {"hash": "of something else"}
    }
