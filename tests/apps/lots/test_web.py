"""The API and the pages of lots, over one site with a good lot, a failed one and a gap."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from tests.apps.lots import workloads
from tests.apps.lots.lots_site import SHOP, LotsSite
from tests.http.api_fixture import ApiFixture

GAPPY = SHOP.replace('unit = "PT5M"', 'unit = "PT5M"\nquiet = "gap"')


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LotsSite]:
    folder = tmp_path_factory.mktemp("lots_web")
    workloads.FAILING.clear()
    found = LotsSite(folder, "", store=f"sqlite:///{folder}/data/waybill.db")
    found.tester.time = datetime.now(UTC).timestamp() // 300 * 300 - 3600
    found.apply(GAPPY)
    first = found.now
    found.arrive(found.put("day=1/a"))
    found.pass_minutes(6)
    workloads.FAILING.add("day=2")
    found.arrive(found.put("day=2/b"))
    found.pass_minutes(5)
    workloads.FAILING.clear()
    found.pass_minutes(10)
    found.tester.__dict__["began"] = first
    yield found
    found.close()


@pytest.fixture(scope="module")
def api(site: LotsSite) -> Iterator[ApiFixture]:
    found = ApiFixture(site.tester.environment, with_pages=True)
    yield found
    found.close()


def first_lot(site: LotsSite) -> str:
    from waybill.apps.lots.units import UNITS, Lot

    return str(Lot.at(site.tester.__dict__["began"], UNITS["PT5M"]))


def test_the_api_reports_and_starts_what_is_asked(site: LotsSite, api: ApiFixture) -> None:
    client = api.client("operator")
    first = first_lot(site)
    query = {"name": "shop/count", "first": first}
    (status,) = client.get("/api/v1/lots/status", params=query).json()
    assert (status["counts"]["complete"], status["counts"]["partial"]) == (1, 1)
    gaps = client.get("/api/v1/lots/gaps", params=query).json()
    assert [run["class"] for run in gaps["runs"]][:2] == ["partial", "never"]
    assert gaps["runs"][1]["cause"] == "orders/1 is never"
    lot = client.get("/api/v1/lots/lot", params={"name": "shop/count", "lot": gaps["runs"][0]["first"]}).json()
    assert lot["runs"][0]["parts"][0]["attempts"][0]["message"] == "day=2 fails."
    days = client.get("/api/v1/lots/calendar", params={"name": "orders"}).json()
    assert days[-1]["class"] == "never"
    assert client.get("/api/v1/lots/calendar.svg", params={"name": "orders"}).text.startswith("<svg ")
    answer = client.post(
        "/api/v1/lots/backfills", json={"arc": "shop/count", "first": first, "which": "failed", "dry_run": True}
    )
    assert (answer.json()["runs"], answer.json()["why"]) == (1, {"some of its parts failed; only those run": 1})
    arrivals = {"dataset": "orders", "arrivals": [{"uri": "s3://b/late", "size": 1}] * 2}
    assert client.post("/api/v1/lots/arrivals", json=arrivals).json() == {"new": 1, "known": 1, "filtered": 0}
    wrong = client.get("/api/v1/lots/gaps", params={"name": "nothing"})
    assert wrong.status_code == 404
    assert "There is no dataset or arc" in wrong.text
    assert client.get("/api/v1/lots/lot", params={"name": "orders", "lot": "20230230PT5M000"}).status_code == 400
    client = api.client("reader")
    assert (
        client.post("/api/v1/lots/arrivals", json={"dataset": "orders", "arrivals": [{"uri": "s3://b/x"}]}).status_code
        == 403
    )


def test_every_page_shows_what_the_reports_say(site: LotsSite, api: ApiFixture) -> None:
    first = first_lot(site)
    browser = api.browser("operator")
    graph = browser.get("/lots").text
    assert 'class="lot-graph"' in graph
    assert "shop/count" in graph
    calendar = browser.get("/lots/calendar", params={"name": "arc shop/count"}).text
    assert 'class="heat-map"' in calendar
    link = re.search(r'href="(/lots/day\?[^"]+)"', calendar)
    assert link is not None
    day = browser.get(link[1].replace("&amp;", "&")).text
    assert f"{first} complete" in day
    lot = browser.get("/lots/lot", params={"name": "arc shop/count", "lot": first}).text
    assert "state=complete/manifest.json" in lot
    gaps = browser.get("/lots/gaps", params={"name": "arc shop/count", "first": first}).text
    assert "orders/1 is never" in gaps
    preview = browser.get("/lots/backfill", params={"name": "arc shop/count", "first": first, "which": "failed"}).text
    assert "some of its parts failed; only those run" in preview
    token = re.search(r'name="csrf" value="([^"]+)"', preview)
    assert token is not None
    form = {"csrf": token[1], "name": "arc shop/count", "first": first, "after": "now", "which": "failed"}
    answer = browser.post("/lots/backfill", data=form, follow_redirects=False)
    assert answer.status_code == 303
    assert "/records/backfill/" in answer.headers["location"]
    assert browser.get(answer.headers["location"]).status_code == 200
    run = browser.get(f"/records/arc-run/shop:count:{first}:g1").text
    assert "its parts, attempts and manifests" in run
    assert browser.get("/search", params={"q": "counts"}).text.count("/lots/calendar") == 1


def test_ten_years_are_one_page(site: LotsSite, api: ApiFixture) -> None:
    browser = api.browser("reader")
    page = browser.get("/lots/calendar", params={"name": "orders", "first": "3650d"})
    assert page.status_code == 200
