"""Ask for an assembly over HTTP, and fetch it with nothing but its URL."""

import io
import json
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.apps.ingest.access.stored_objects import ARK, StoredObjects
from tests.apps.ingest.ingest_fixture import IngestFixture
from tests.apps.ingest.routes.objects_server import ObjectsClient, serve_objects
from waybill.record import Ref
from waybill.stores.sqlite.store import SqliteStore

FILES = {"producer/a.txt": b"hello", "producer/long.bin": bytes(range(256)) * 40_000}


class Place:
    def __init__(self, ingest: IngestFixture, front: ObjectsClient) -> None:
        self.ingest, self.front, self.stored_objects = ingest, front, StoredObjects(ingest)

    def ask(self, **wanted: Any) -> Any:
        return self.front.ask("POST", "/api/v1/ingest/access", json={"object": ARK, **wanted})

    def packed(self, **wanted: Any) -> Any:
        answer = self.ask(**wanted).json()
        with self.ingest.workers():
            self.ingest.wait(f"access-{answer['queue']}", answer["record"], "Completed", "Failed")
        return answer

    def ref(self, told: Any) -> Ref:
        return Ref(f"access-{told['queue']}", told["record"])


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    with (
        IngestFixture(tmp_path, settings={"access": {"keep_seconds": 3600.0}}) as ingest,
        serve_objects(ingest) as front,
    ):
        made = Place(ingest, front)
        made.stored_objects.add(FILES)
        yield made


def test_ask_then_wait_then_fetch_with_the_url_alone(place: Place) -> None:
    record = place.ask(form="zip-stored")
    assert record.status_code == 201
    decoded = record.json()
    assert (decoded["status"], decoded["object"], decoded["version"], decoded["queue"]) == ("Pending", ARK, 1, "small")
    assert decoded["ready_at"].endswith("Z")
    assert decoded["url"].endswith(decoded["token"])
    waiting = place.front.get(decoded["url"], role=None)
    assert (waiting.status_code, waiting.json()["status"]) == (202, "Pending")
    assert waiting.headers["retry-after"]
    with place.ingest.workers():
        place.ingest.wait("access-small", decoded["record"], "Completed")
    answer = place.front.get(decoded["url"], role=None)
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/zip")
    assert 'filename="ark_99999_fk4abc_v1.zip"' in answer.headers["content-disposition"]
    with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
        assert archive.read("ark_99999_fk4abc/producer/a.txt") == b"hello"
        assert archive.read("ark_99999_fk4abc/producer/long.bin") == FILES["producer/long.bin"]
    state = place.front.get(f"{decoded['url']}/state", role=None).json()
    assert (state["status"], state["size"], state["files"]) == ("Completed", len(answer.content), 3)
    part = place.front.get(decoded["url"], role=None, headers={"Range": "bytes=100-299"})
    assert (part.status_code, part.content) == (206, answer.content[100:300])
    assert place.front.ask("HEAD", decoded["url"], role=None).headers["content-length"] == str(len(answer.content))


def test_asking_needs_a_token_and_a_second_time_answers_the_same(place: Place) -> None:
    assert place.front.ask("POST", "/api/v1/ingest/access", role=None, json={"object": ARK}).status_code == 401
    first, again = place.ask(), place.ask()
    assert (first.status_code, again.status_code) == (201, 200)
    assert first.json()["token"] == again.json()["token"]
    other = place.front.ask("POST", "/api/v1/ingest/access", role="operator", json={"object": ARK})
    assert other.status_code == 201
    assert other.json()["token"] != first.json()["token"]


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"object": "ark:/99999/none"}, 404),
        ({"object": ARK, "version": 5}, 404),
        ({"object": ARK, "files": ["x"]}, 404),
        ({"object": ARK, "version": 0, "files": ["x"]}, 409),
        ({"object": ARK, "form": "rar"}, 422),
        ({}, 422),
        ([], 422),
        ({"object": ARK, "colour": "red"}, 422),
        ({"object": ARK, "version": "1"}, 422),
    ],
)
def test_what_cannot_be_asked_for(place: Place, body: Any, status: int) -> None:
    answer = place.front.ask("POST", "/api/v1/ingest/access", json=body)
    assert answer.status_code == status
    assert answer.json()["error"]["message"].endswith(".")


def test_bodies_that_are_no_orders_are_refused(place: Place) -> None:
    assert place.front.ask("POST", "/api/v1/ingest/access", content=b"\xff{").status_code == 422
    assert place.front.ask("POST", "/api/v1/ingest/access", content=b" " * 2_000_000).status_code == 413


@given(
    body=st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda x: (
            st.lists(x, max_size=3)
            | st.dictionaries(
                st.sampled_from(["object", "version", "form", "content", "files", "x"]), x | st.just(ARK), max_size=4
            )
        ),
        max_leaves=6,
    )
)
@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_is_asked_is_answered_in_words(place: Place, body: Any) -> None:
    answer = place.front.ask("POST", "/api/v1/ingest/access", json=body)
    assert answer.status_code in (200, 201, 404, 409, 422)


def test_a_wrong_token_opens_nothing(place: Place) -> None:
    told = place.packed()
    token = told["token"]
    for wrong in (token[:-1], "x" * 43, token.swapcase(), "%2e%2e", f"{token}%00"):
        answer = place.front.get(f"/api/v1/ingest/access/{wrong}", role=None)
        assert answer.status_code == (410 if len(wrong) == 43 else 404), "what may have been a token may have expired"
        assert token not in answer.text


def test_an_expired_token_opens_nothing(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    told = place.packed()
    expires = place.front.get(f"{told['url']}/state", role=None).json()["expires"]
    assert place.front.get(told["url"], role=None).status_code == 200
    now = SqliteStore.now  # the step wrote when it expires; the store's clock decides
    monkeypatch.setattr(SqliteStore, "now", lambda self: now(self) + 3601.0)
    answer = place.front.get(told["url"], role=None)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (410, "gone")
    assert error["message"] == f"This assembly has expired at {expires}."
    assert (
        json.loads(error["hint"].removeprefix("Request it again: POST /api/v1/ingest/access "))["object"]
        == told["object"]
    )


def test_a_deleted_assembly_is_gone(place: Place) -> None:
    told = place.packed()
    with place.ingest.engine() as engine:
        engine.act(place.ref(told), "delete")
    assert place.front.get(told["url"], role=None).status_code == 410


def test_a_failed_assembly_says_why(place: Place) -> None:
    place.stored_objects.flip(ARK, "producer/a.txt")
    told = place.packed()
    answer = place.front.get(told["url"], role=None)
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "failed")
    assert "producer/a.txt" in answer.json()["error"]["message"]


def test_the_api_of_records_does_not_tell_tokens(place: Place) -> None:
    told = place.packed()
    base = "/api/v1/records/access-small"
    for path in (f"{base}/{told['record']}", f"{base}?documents=true", f"{base}/{told['record']}/history"):
        answer = place.front.get(path, role="admin")
        assert answer.status_code == 200
        assert told["token"] not in answer.text
