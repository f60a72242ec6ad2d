"""Deposits of depositors who may not see all: their own, and those of the collections that they have a role in."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx2
import pytest

from tests.apps.ingest.routes.ingest_server import API, IngestServer
from waybill import accounts
from waybill.accounts import Grant
from waybill.tokens import issue

MAPS = "ingest/collection/maps"


@pytest.fixture(scope="module")
def tokens(ingest_server: IngestServer) -> dict[str, str]:
    grants = {
        "ada": [Grant("submitter", "own")],
        "bob": [Grant("reader", "own")],
        "mia": [Grant("operator", MAPS)],
        "eve": [Grant("admin", "ingest/collection/others"), Grant("admin", "compute")],
        "tom": [Grant("submitter", "ingest")],
    }
    with ingest_server.ingest.engine() as engine:
        for name, roles in grants.items():
            accounts.create_user(engine, name, roles=roles)
        return {name: issue(engine, "laptop", "admin", user=name).token for name in grants}


@contextmanager
def client_of(server: IngestServer, tokens: dict[str, str], name: str) -> Iterator[httpx2.Client]:
    headers = {"Authorization": f"Bearer {tokens[name]}"}
    with httpx2.Client(base_url=server.url, headers=headers, timeout=120) as client:
        yield client


def deposit(server: IngestServer, client: httpx2.Client, **more: Any) -> httpx2.Response:
    url = server.ingest.web.put("a.zip", b"x")
    return client.post(f"{API}/batches", json={"profile": "demo", "url": url, **more})


def test_whoever_may_deposit_into_the_collection_or_for_themselves_does(
    ingest_server: IngestServer, tokens: dict[str, str]
) -> None:
    for name, submitter, expected in [
        ("ada", None, 201), ("ada", "bob", 403), ("bob", None, 403), ("mia", None, 201), ("mia", "bob", 201), ("eve", None, 403),
        ("tom", "bob", 201),
    ]:  # fmt: skip
        with client_of(ingest_server, tokens, name) as client:
            answer = deposit(ingest_server, client, **({"submitter": submitter} if submitter else {}))
            assert answer.status_code == expected, (name, submitter, answer.text)


def test_a_deposit_is_seen_by_its_depositor_and_those_with_a_role_in_its_collection(
    ingest_server: IngestServer, tokens: dict[str, str]
) -> None:
    with client_of(ingest_server, tokens, "ada") as ada:
        view = deposit(ingest_server, ada).json()
    with ingest_server.ingest.engine() as engine:
        assert engine.store.get("batch", view["id"]).scope == MAPS
    for name, sees in {"ada": True, "bob": False, "mia": True, "eve": False, "tom": True}.items():
        with client_of(ingest_server, tokens, name) as client:
            for path in (
                f"{API}/batches/{view['id']}",
                f"{API}/batches/{view['batch_id']}",
                f"/api/v1/records/batch/{view['id']}",
            ):
                assert client.get(path).status_code == (200 if sees else 404), (name, path)
            listed = client.get(f"{API}/batches").json()["batches"]
            assert (view["id"] in {each["id"] for each in listed}) == sees, name
            released = client.post(f"{API}/batches/{view['id']}/release")
            expected = {"mia": 200, "eve": 404}.get(name, 403)  # who is no operator of anything is told just that
            assert released.status_code == expected, (name, released.text)


def test_the_batch_id_of_another_shows_nothing(ingest_server: IngestServer, tokens: dict[str, str]) -> None:
    with client_of(ingest_server, tokens, "mia") as mia:
        view = deposit(ingest_server, mia, batch_id="bid-of-mia").json()
    with client_of(ingest_server, tokens, "ada") as ada:
        answer = deposit(ingest_server, ada, batch_id="bid-of-mia")
    assert answer.status_code in (404, 409)
    assert view["id"] not in answer.text


def test_the_inventory_and_all_else_needs_a_role_that_holds_everywhere(
    ingest_server: IngestServer, tokens: dict[str, str]
) -> None:
    with client_of(ingest_server, tokens, "mia") as mia:
        for path in ("objects", "holds", "locks", "profiles", "collections", "damaged"):
            assert mia.get(f"{API}/{path}").status_code == 403, path
