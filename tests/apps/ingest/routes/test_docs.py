"""Every route of ingest is described in its page, with the role that it needs."""

import re
from pathlib import Path

from tests.apps.ingest.routes.ingest_server import IngestServer

PAGE = Path(__file__).parents[4] / "docs" / "reference" / "http-ingest.md"


def test_every_route_is_described_with_its_role(ingest_server: IngestServer) -> None:
    described = dict(re.findall(r"^\| `(\w+ /\S+)` \| ([\w ]+) \|", PAGE.read_text(), re.MULTILINE))
    with ingest_server.client("reader") as client:
        paths = client.get("/openapi.json").json()["paths"]
    there = {
        f"{method.upper()} {path}": one.get("x-role", "reader" if method == "get" else "operator")
        for path, methods in paths.items()
        if path.startswith(("/api/v1/ingest", "/poster", "/m/"))
        for method, one in methods.items()
    }
    open = ("the token", "reader or signature")
    assert {route: "open" if role in open else role for route, role in described.items()} == there


def test_every_refusal_is_described_as_it_looks(ingest_server: IngestServer) -> None:
    """In /openapi.json: with the shape that all refusals have, not with the framework's own."""
    with ingest_server.client("reader") as client:
        spec = client.get("/openapi.json").json()
    assert "HTTPValidationError" not in spec["components"]["schemas"]
    for path, methods in spec["paths"].items():
        for method, one in methods.items():
            if path.startswith("/api/v1/ingest") and one.get("x-role") != "open":
                assert {"401", "403", "503"} <= set(one["responses"]), (method, path)
            if "{" in path:  # a line break in a path leads nowhere, whatever the route would say of the rest
                assert "404" in one["responses"], (method, path)
            for status, said in one["responses"].items():
                if status >= "400" and "application/json" in said.get("content", {}) and path.startswith("/api/"):
                    shape = said["content"]["application/json"]["schema"]
                    assert shape == {"$ref": "#/components/schemas/ErrorBody"}, (method, path, status)
