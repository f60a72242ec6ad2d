"""Whatever is sent to the routes of ingest, the answer is one that the description names, and never a mistake of the
server.
"""

from collections.abc import Iterator
from contextlib import nullcontext, suppress
from typing import Any

import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable
from schemathesis.checks import not_a_server_error
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.apps.ingest.routes.ingest_server import API, IngestServer
from tests.budget import Budget

CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]


def operations(url: str, *prefixes: str) -> Iterator[Any]:
    schema = schemathesis.openapi.from_url(f"{url}/openapi.json")
    for found in schema.get_all_operations():
        operation = found.ok()  # type: ignore[union-attr] # an invalid schema fails the test
        if operation.path.startswith(prefixes):
            yield operation


def names(ingest_server: IngestServer) -> dict[str, st.SearchStrategy[str]]:
    """Names that lead somewhere."""
    with ingest_server.client("admin") as client:
        made = client.post(
            f"{API}/batches", json={"profile": "demo", "url": ingest_server.ingest.web.put("f.txt", b"x")}
        ).json()
    return {
        "name": st.sampled_from([made["id"], made["batch_id"], "demo", "maps"]),
        "verb": st.sampled_from(["submit", "add", "update"]),
        "queue": st.sampled_from(["ingest", "small", "large"]),
        "action": st.sampled_from(["retire", "restore"]),
        "lock": st.sampled_from(["storage/ark:/99999/fk4x", "localid/a_b"]),
    }


def test_any_request_is_answered_as_described(ingest_server: IngestServer, budget: Budget) -> None:
    known = names(ingest_server)
    headers = {"Authorization": f"Bearer {ingest_server.tokens['admin']}"}
    seen: dict[int, int] = {}
    found = set()
    for operation in operations(ingest_server.url, API, "/poster"):
        if operation.path.startswith(f"{API}/storage/"):
            continue  # a protocol of its own, between two Waybills: storage/test_http.py
        found.add(f"{operation.method.upper()} {operation.path}")
        for mode in GenerationMode:

            @settings(
                max_examples=budget.pick(small=8, long=250),
                deadline=None,
                database=None,
                suppress_health_check=list(HealthCheck),
            )
            @given(operation.as_strategy(generation_mode=mode), st.data())
            def ask(case: Any, data: st.DataObject) -> None:
                for name in case.path_parameters or {}:
                    if name in known and data.draw(st.integers(0, 3)):
                        case.path_parameters[name] = data.draw(known[name])
                answer = case.call(headers=headers, timeout=60)
                seen[answer.status_code] = seen.get(answer.status_code, 0) + 1
                case.validate_response(answer, checks=CHECKS)

            with suppress(Unsatisfiable) if mode.is_negative else nullcontext():
                ask()
    assert {200, 400, 404, 422} <= set(seen), seen
    assert {
        f"POST {API}/batches",
        f"PUT {API}/profiles/{{name}}",
        "POST /poster/{verb}",
        f"DELETE {API}/locks/{{lock}}",
    } <= found
