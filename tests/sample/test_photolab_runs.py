"""The application of the guide on SQLite: the front door, its routes with their roles, its command, its event."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
from tests.http.api_fixture import ApiFixture

from photolab.application import PHOTOLAB
from photolab.catalogue import PHOTOS
from photolab.machine import Film
from waybill import Runtime
from waybill.cli import invoke
from waybill.index import rebuild_catalogue
from waybill.registry import Registry, list_application_settings

HOOK = '{"shop": {"url": "http://127.0.0.1:9/hook", "types": ["photolab.*"]}}'


def open_lab(folder: Path) -> Runtime:
    return Runtime(folder, applications=[PHOTOLAB], settings={"webhooks": HOOK})


def test_a_roll_is_developed_announced_and_collected(tmp_path: Path) -> None:
    with open_lab(tmp_path) as waybill:
        roll = waybill.submit("roll", (Film(("harbour", "pier")),))
        waybill.run_until_idle(max_wait=0)
        assert waybill.get("roll", roll.id).state == "Ready"
        assert waybill.count_by_state("photo") == {"Developed": 2}
        (event,) = waybill.each("event", documents=True)
        assert event.documents["event"]["data"] == {"Developed": 2}
        assert waybill.act("roll", roll.id, "collect").record.state == "Collected"


def test_the_catalogue_is_rebuilt_from_the_records(tmp_path: Path) -> None:
    with open_lab(tmp_path) as waybill:
        waybill.submit("roll", (Film(("harbour", "pier")),))
        waybill.run_until_idle(max_wait=0)
        with waybill.environment.resources_of("photolab").open_catalogue() as tables:
            tables.execute("clear_some", n=1)
            assert rebuild_catalogue(tables, PHOTOS, lambda: waybill.each("photo", documents=True)) == 2
            assert len(tables.query("find", text="")) == 2


def test_its_routes_need_their_roles(tmp_path: Path) -> None:
    with open_lab(tmp_path) as waybill, closing(ApiFixture(waybill.environment)) as api:
        body = {"captions": ["harbour"]}
        assert api.client("reader").post("/api/v1/photolab/rolls", json=body).status_code == 403
        made = api.client("submitter").post("/api/v1/photolab/rolls", json=body)
        assert made.status_code == 201
        assert api.client("submitter").post("/api/v1/records/roll", json={}).status_code == 403, "made by its own route"
        waybill.run_until_idle(max_wait=0)
        assert waybill.get("roll", made.json()["id"]).owner == "the submitter"
        found = api.client("reader").get("/api/v1/photolab/photos", params={"text": "arb"}).json()
        assert [row["caption"] for row in found] == ["harbour"]
        assert api.client().get("/api/v1/photolab/photos", params={"text": "arb"}).status_code == 401


def test_its_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    with open_lab(tmp_path) as waybill:
        waybill.submit("roll", (Film(("harbour",)),))
        waybill.run_until_idle(max_wait=0)
    monkeypatch.setenv("WAYBILL_APPLICATIONS", "photolab.application:PHOTOLAB")
    assert invoke(["photolab", "find", "harb", "--data", str(tmp_path)]) == 0
    assert capsys.readouterr().out.endswith("  harbour\n")


def test_the_registry_has_what_it_declares(tmp_path: Path) -> None:
    with open_lab(tmp_path) as waybill:
        registry = Registry.from_environment(waybill.environment)
    assert {"roll", "photo"} <= {machine.name for machine in registry.machines}
    assert [event.name for event in registry.events] == ["photolab.roll.ready"]
    assert [setting.name for setting in list_application_settings(PHOTOLAB)] == ["max_photos", "keep_days"]


def test_its_pages_are_among_the_others(tmp_path: Path) -> None:
    with open_lab(tmp_path) as waybill, closing(ApiFixture(waybill.environment, with_pages=True)) as api:
        waybill.submit("roll", (Film(("harbour", "pier")),))
        waybill.run_until_idle(max_wait=0)
        browser = api.browser("reader")
        page = browser.get("/photolab/photos", params={"text": "arb"}).text
        assert "harbour" in page
        assert "pier" not in page
        assert '<a href="/photolab/photos" aria-current="page">Photos</a>' in page
        photo = next(iter(waybill.each("photo")))
        assert "<h2>Picture</h2><p>harbour</p>" in browser.get(f"/records/photo/{photo.id}").text
        assert f"/records/photo/{photo.id}" in browser.get("/search", params={"q": "harbour"}).text
        assert api.client().get("/photolab/photos").status_code == 303, "to the sign-in"
