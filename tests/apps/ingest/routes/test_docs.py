"""Every route of ingest is described in its page, with the role that it needs."""

import re
from pathlib import Path

from tests.apps.ingest.routes.house import House

PAGE = Path(__file__).parents[4] / "docs" / "reference" / "http-ingest.md"


def test_every_route_is_described_with_its_role(house: House) -> None:
    described = dict(re.findall(r"^\| `(\w+ /\S+)` \| ([\w ]+) \|", PAGE.read_text(), re.MULTILINE))
    with house.client("reader") as client:
        paths = client.get("/openapi.json").json()["paths"]
    there = {
        f"{method.upper()} {path}": one.get("x-role", "reader" if method == "get" else "operator")
        for path, methods in paths.items()
        if path.startswith(("/api/v1/ingest", "/poster", "/m/"))
        for method, one in methods.items()
    }
    open = ("the token", "reader or signature")
    assert {route: "open" if role in open else role for route, role in described.items()} == there
