"""Profiles, collections, holds, pauses and locks over HTTP."""

import json
from collections.abc import Iterator

import httpx2
import pytest

from tests.apps.ingest.routes.ingest_server import API, IngestServer

SECRET = "correct-horse-battery"


@pytest.fixture
def admin(ingest_server: IngestServer) -> Iterator[httpx2.Client]:
    with ingest_server.client("admin") as client:
        yield client


@pytest.fixture
def operator(ingest_server: IngestServer) -> Iterator[httpx2.Client]:
    with ingest_server.client("operator") as client:
        yield client


def test_a_profile_is_put_changed_retired_and_deleted(admin: httpx2.Client) -> None:
    path = f"{API}/profiles/news"
    assert admin.get(path).status_code == 404
    assert admin.put(path, json={"name": "news", "priority": 3}).status_code == 201
    changed = admin.put(path, json={"name": "news", "priority": 4}, params={"why": "more urgent"})
    assert (changed.status_code, changed.json()["document"]["priority"]) == (200, 4)
    assert admin.post(f"{path}/retire").json()["state"] == "Retired"
    assert admin.put(path, json={"name": "news"}).status_code == 409
    assert admin.post(f"{path}/delete").status_code == 409
    assert admin.post(f"{path}/delete", json={"confirmed": True}).json()["state"] == "Deleted"
    assert admin.get(path).status_code == 404
    assert "news" not in [each["name"] for each in admin.get(f"{API}/profiles").json()["documents"]]


def test_a_password_is_in_no_answer(
    ingest_server: IngestServer, admin: httpx2.Client, caplog: pytest.LogCaptureFixture
) -> None:
    document = {"name": "secretive", "callback": {"url": "https://example.org/cb", "user": "ann", "password": SECRET}}
    answers = [
        admin.put(f"{API}/profiles/secretive", json=document),
        admin.put(f"{API}/profiles/secretive", json=document),
        admin.get(f"{API}/profiles/secretive"),
        admin.get(f"{API}/profiles"),
        admin.get("/api/v1/records/profile/secretive"),
        admin.get("/api/v1/records/profile", params={"documents": True}),
        admin.get("/api/v1/records/profile/secretive/history"),
        admin.post("/api/v1/records/profile/secretive/change", json={"args": document, "why": "again"}),
        admin.put(f"{API}/profiles/secretive", json={**document, "priority": "high"}),
        admin.put(
            f"{API}/profiles/secretive",
            json={"name": "secretive", "callback": {"url": f"https://ann:{SECRET}@example.org"}},
        ),
        admin.put(f"{API}/profiles/other", json=document),
        admin.post(
            f"{API}/profile-imports", content=f"ProfileID: imported\nCallbackURL: https://ann:{SECRET}@example.org/\n"
        ),
        admin.get(f"{API}/profiles/imported"),
    ]
    assert [a.status_code for a in answers] == [201, 200, 200, 200, 200, 200, 200, 200, 400, 400, 400, 200, 200]
    assert not [a.url for a in answers if SECRET in a.text]
    assert SECRET not in caplog.text
    with ingest_server.ingest.engine() as engine:
        for name in ("secretive", "imported"):
            assert engine.store.get("profile", name).documents["profile"]["callback"]["password"] == SECRET


def test_what_is_shown_can_be_put_back_without_losing_the_password(
    ingest_server: IngestServer, admin: httpx2.Client
) -> None:
    callback = {"url": "https://example.org/cb", "user": "ann", "password": SECRET}
    admin.put(f"{API}/profiles/round", json={"name": "round", "callback": callback})
    shown = admin.get(f"{API}/profiles/round").json()["document"]
    assert admin.put(f"{API}/profiles/round", json={**shown, "description": "new words"}).status_code == 200
    with ingest_server.ingest.engine() as engine:
        assert engine.store.get("profile", "round").documents["profile"]["callback"]["password"] == SECRET


def test_a_properties_file_is_imported(admin: httpx2.Client) -> None:
    answer = admin.post(
        f"{API}/profile-imports", params={"name": "far"}, content="ProfileID: far\nPriority: 9\nOddity: 1\n"
    )
    assert (answer.json()["document"]["priority"], answer.json()["name"]) == (9, "far")
    assert "Oddity" in json.dumps(answer.json()["remarks"])
    assert admin.post(f"{API}/profile-imports", content="").status_code == 400
    assert admin.post(f"{API}/profile-imports", content=b"x" * 1_000_001).status_code == 413


def test_profiles_are_listed_page_by_page(admin: httpx2.Client) -> None:
    for n in range(3):
        admin.put(f"{API}/collections/c{n}", json={"mnemonic": f"c{n}"})
    first = admin.get(f"{API}/collections", params={"limit": 3}).json()
    rest = admin.get(f"{API}/collections", params={"page_token": first["next"]}).json()
    assert [each["name"] for each in (*first["documents"], *rest["documents"])] == ["maps", "c0", "c1", "c2"]
    assert admin.get(f"{API}/profiles", params={"page_token": first["next"]}).status_code == 400


def test_only_admins_manage_profiles(ingest_server: IngestServer) -> None:
    with ingest_server.client("operator") as client:
        assert client.get(f"{API}/profiles/demo").status_code == 200
        for answer in (
            client.put(f"{API}/profiles/x", json={"name": "x"}),
            client.put(f"{API}/collections/x", json={"mnemonic": "x"}),
            client.post(f"{API}/profiles/demo/retire"),
            client.post(f"{API}/profile-imports", content="ProfileID: x\n"),
            client.post("/api/v1/records/profile/demo/change", json={"args": {"name": "demo"}}),
            client.post("/api/v1/records/profile", json={"id": "x", "documents": {"profile": {"name": "x"}}}),
        ):
            assert answer.status_code == 403


def test_a_collection_is_held_and_released(ingest_server: IngestServer, operator: httpx2.Client) -> None:
    assert operator.put(f"{API}/holds/maps", json={"why": "the curator asked"}).json() == {
        "name": "maps",
        "known": True,
    }
    (shown,) = (each for each in operator.get(f"{API}/holds").json()["holds"] if each["name"] == "maps")
    assert (shown["scope"], shown["about"]) == ("collection", "the operator: the curator asked")
    made = operator.post(
        f"{API}/batches", json={"profile": "demo", "url": ingest_server.ingest.web.put("h.txt", b"x")}
    ).json()
    operator.post(f"/api/v1/records/batch/{made['id']}/hold")
    refused = operator.post(f"{API}/batches/{made['id']}/release").json()
    assert (refused["done"], refused["refusal_count"]) == (0, 1)
    bulk = operator.delete(f"{API}/holds/maps", params={"why": "over"}).json()
    assert (bulk["done"], bulk["refusal_count"]) == (1, 0)
    assert operator.delete(f"{API}/holds/maps").status_code == 404
    assert operator.put(f"{API}/holds/a%20b").status_code == 400


def test_queues_are_paused_and_go_on(operator: httpx2.Client) -> None:
    for queue in ("ingest", "small", "large"):
        assert operator.put(f"{API}/pauses/{queue}", json={"why": "maintenance"}).status_code == 204
    shown = operator.get(f"{API}/holds").json()["holds"]
    assert {each["hold_name"] for each in shown if each["scope"] == "queue"} == {
        "queue/ingest",
        "queue/accessSmall",
        "queue/accessLarge",
    }
    for queue in ("ingest", "small", "large"):
        assert operator.delete(f"{API}/pauses/{queue}").status_code == 204
        assert operator.delete(f"{API}/pauses/{queue}").status_code == 404
    assert operator.put(f"{API}/pauses/other").status_code == 422


def test_an_object_is_locked_and_unlocked(ingest_server: IngestServer, operator: httpx2.Client) -> None:
    lock = "storage/ark:/99999/fk4lock"
    made = operator.post(f"{API}/locks", json={"lock": lock, "why": "being repaired"})
    assert (made.status_code, made.json()["state"]) == (201, "Asking")
    with ingest_server.ingest.workers(queues=["operator-lock"]):
        ingest_server.ingest.wait("operator-lock", made.json()["id"], "Set")
    (shown,) = operator.get(f"{API}/locks").json()["locks"]
    assert (shown["lock"], shown["owner"], shown["why"]) == (
        lock,
        {"kind": "operator-lock", "id": made.json()["id"]},
        "the operator: being repaired",
    )
    assert operator.delete(f"{API}/locks/{lock}").status_code == 204
    assert operator.delete(f"{API}/locks/{lock}").status_code == 404
    assert operator.get(f"{API}/locks").json() == {"locks": [], "next": None}
    assert operator.post(f"{API}/locks", json={"lock": "storage/x"}).status_code == 400


def test_readers_look_and_do_not_touch(ingest_server: IngestServer) -> None:
    with ingest_server.client("reader") as client:
        for path in ("batches", "profiles", "collections", "holds", "locks"):
            assert client.get(f"{API}/{path}").status_code == 200
        assert client.put(f"{API}/holds/maps").status_code == 403
        assert client.put(f"{API}/pauses/ingest").status_code == 403
        assert client.post(f"{API}/locks", json={"lock": "storage/ark:/9/x"}).status_code == 403
    with ingest_server.client(None) as client:
        for path in ("batches", "profiles", "collections", "holds", "locks"):
            assert client.get(f"{API}/{path}").status_code == 401
