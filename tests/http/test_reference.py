"""The reference names every route, code, event and metric there is, and none that is not."""

import re
from pathlib import Path
from typing import get_args

from starlette.testclient import TestClient

from tests.http.api_fixture import ApiFixture
from tests.http.test_authentication import NEEDS
from waybill.errors import ERROR_CODES
from waybill.http import change_feed

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/reference/http.md").read_text("utf-8")


def section(title: str) -> str:
    return PAGE.partition(f"## {title}\n")[2].partition("\n## ")[0]


def rows(title: str) -> list[list[str]]:
    return [
        [cell.strip() for cell in line.strip("|").split(" |")]
        for line in section(title).splitlines()
        if line.startswith("| `")
    ]


def test_every_route_is_described_with_its_role(anyone: TestClient) -> None:
    spec = anyone.get("/openapi.json").json()
    there = {f"{method.upper()} {path}" for path, methods in spec["paths"].items() for method in methods} | {
        "GET /openapi.json"
    }
    described = {row[0].strip("`"): row[1] for row in rows("Routes")}
    assert set(described) == there
    for method, path, _, role in NEEDS:
        template = re.sub(r"/holds/.*", "/holds/{name}", re.sub(r"/tokens/x", "/tokens/{id}", path))
        template = re.sub(r"/(records|machines|counts)/crate", r"/\1/{kind}", template).replace("/x", "/{id}")
        template = re.sub(r"/\{id\}/(resume|scrap|forget)", "/{id}/{action}", template)
        assert described[f"{method} /api/v1{template}"] in (role, "the action's"), (method, template)


def test_the_description_of_the_api_has_every_code(anyone: TestClient) -> None:
    spec = anyone.get("/openapi.json").json()
    assert spec["components"]["schemas"]["ErrorView"]["properties"]["code"]["enum"] == sorted(ERROR_CODES)


def test_every_event_is_described() -> None:
    described = {row[0].strip("`") for row in rows("Live changes")}
    assert described == {*get_args(change_feed.TopicType), "store"}


def test_every_metric_is_described(api: ApiFixture, reader: TestClient) -> None:
    api.submit()
    names = set(re.findall(r"^# TYPE (waybill_\w+)", reader.get("/metrics").text, re.MULTILINE))
    described = {row[0].strip("`") for row in rows("Metrics")}
    ours = {name for name in names if not name.startswith("waybill_process_") and not name.endswith("_created")}
    assert ours == described - {"waybill_process_…"}
