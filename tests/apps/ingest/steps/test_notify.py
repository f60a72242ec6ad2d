"""The callback of a job: in the form that receivers know, tried again, failing the job when it is refused."""

from __future__ import annotations

import base64
import dataclasses
import json
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.apps.ingest.batches import every, profile
from tests.apps.ingest.documents import by_name
from tests.apps.ingest.ingest_fixture import IngestFixture
from waybill import rules
from waybill.apps.ingest.machine import build_tables
from waybill.apps.ingest.profile import ProfileCallback
from waybill.apps.ingest.storage import StoredVersion
from waybill.apps.ingest.submission import PayloadType, Submission
from waybill.machine import Backoff, Machine
from waybill.record import Change, CommitGroup, CommitResult, Record
from waybill.step import New

ROLES = ["job.Notify", "subscription"]


class Receiver:
    """Takes what is posted, and answers with the statuses given, the last of them ever after."""

    def __init__(self, ingest: IngestFixture, path: str, *statuses: int) -> None:
        self.came: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self._statuses = list(statuses) or [200]
        self.arrived = threading.Event()
        ingest.web.answers[path] = self

    def __call__(self, handler: Any) -> None:
        self.came.append(json.loads(handler.rfile.read(int(handler.headers["Content-Length"]))))
        self.headers.append({name.lower(): value for name, value in handler.headers.items()})
        handler.send_response(self._statuses.pop(0) if len(self._statuses) > 1 else self._statuses[0])
        handler.send_header("Content-Length", "0")
        handler.end_headers()
        self.arrived.set()


def impatient(ingest: IngestFixture) -> IngestFixture:
    """Without seconds between two tries."""
    job: Machine = ingest.environment.machines["job"]
    states = tuple(dataclasses.replace(s, backoff=Backoff(0.01, 1, 0.01)) for s in job.states)
    ingest.environment.machines["job"] = dataclasses.replace(job, states=states)
    return ingest


def at_notify(ingest: IngestFixture, **fields: Any) -> Record:
    """A job that is stored and recorded, and whose turn it is to be announced."""
    submission = Submission(
        profile="demo",
        url="http://127.0.0.1/a.zip",
        type=PayloadType.CONTAINER,
        filename="a.zip",
        batch_id="bid-1",
        job_id="jid-1",
        title="Husky",
        primary_id="ark:/99999/fk4x",
        local_ids=("x", "y"),
    )
    stored = StoredVersion(
        object="ark:/99999/fk4x", version=3, request="jid-1", created="", place="", sha256="", size=0
    )
    docs = {**by_name(*submission.to_job_documents(), stored)}
    with ingest.engine() as engine:
        batch = engine.submit(New("batch", {"submission": {"profile": "demo"}}, state="Processing"))
        (answer,) = engine.store.commit(
            [CommitGroup((rules.create(engine.machines, New("job", docs | fields), maker=batch),))]
        )
        assert isinstance(answer, CommitResult)
        made = answer.records[0]
        assert made is not None
        after = rules.enter_state(engine.machines["job"], made, "Notify", last_done="Recording")
        (answer,) = engine.store.commit([CommitGroup((Change(made, after, "done"),))])
        assert isinstance(answer, CommitResult)
        record = answer.records[0]
        assert record is not None
        return record


@pytest.mark.parametrize("store", ["sqlite", "postgres", "zookeeper"])
def test_job_notify_to_completed(tmp_path: Path, store: str, request: pytest.FixtureRequest) -> None:
    url = "" if store == "sqlite" else request.getfixturevalue(f"{'fast_' if store == 'postgres' else ''}{store}_url")
    with IngestFixture(tmp_path, store=url) as ingest:
        profile(ingest, callback=ProfileCallback(url=f"{ingest.web.url}/done/", user="me", password="hush"))
        receiver = Receiver(ingest, "/done/mc/jid-1")
        job = at_notify(ingest)
        with ingest.workers(queues=ROLES):
            done = ingest.wait("job", job.id, "Completed")
        assert [path for method, path in ingest.web.requests if method == "POST"] == ["/done/mc/jid-1"]
        (state,) = receiver.came
        told = state["job:jobState"]
        expected = {
            "jobID": "jid-1",
            "batchID": "bid-1",
            "jobStatus": "COMPLETED",
            "primaryID": "ark:/99999/fk4x",
            "localID": "x; y",
            "packageName": "a.zip",
            "versionID": 3,
        }
        assert {name: told[f"job:{name}"] for name in expected} == expected
        assert receiver.headers[0]["authorization"] == "Basic " + base64.b64encode(b"me:hush").decode()
        assert receiver.headers[0]["content-type"].startswith("application/json")
        assert done.documents["callback"]["status"] == 200
        assert "hush" not in json.dumps([done.message, done.documents["callback"]])


def test_a_profile_without_a_callback_calls_nobody(tmp_path: Path) -> None:
    with IngestFixture(tmp_path) as ingest:
        job = at_notify(ingest)
        with ingest.workers(queues=ROLES):
            done = ingest.wait("job", job.id, "Completed")
        assert "callback" not in done.documents
        assert ingest.web.requests == []


def test_a_receiver_that_comes_back_is_called_again(tmp_path: Path) -> None:
    with impatient(IngestFixture(tmp_path)) as ingest:
        profile(ingest, callback=ProfileCallback(url=ingest.web.url))
        receiver = Receiver(ingest, "/mc/jid-1", 503, 429, 200)
        job = at_notify(ingest)
        with ingest.workers(queues=ROLES):
            ingest.wait("job", job.id, "Completed")
        assert len(receiver.came) == 3
        assert {headers["idempotency-key"] for headers in receiver.headers} == {"jid-1"}


@pytest.mark.parametrize("store", ["sqlite", "postgres", "zookeeper"])
def test_job_notify_to_failed_when_the_receiver_stays_unavailable_and_resume_calls_again(
    tmp_path: Path, store: str, request: pytest.FixtureRequest
) -> None:
    url = "" if store == "sqlite" else request.getfixturevalue(f"{'fast_' if store == 'postgres' else ''}{store}_url")
    with impatient(IngestFixture(tmp_path, store=url)) as ingest:
        profile(ingest, callback=ProfileCallback(url=ingest.web.url))
        receiver = Receiver(ingest, "/mc/jid-1", 500, 500, 500, 500, 200)
        job = at_notify(ingest)
        with ingest.workers(queues=ROLES):
            failed = ingest.wait("job", job.id, "Failed")
            assert "answered 500" in failed.message
            assert failed.last_done == "Recording"
            assert len(receiver.came) == build_tables()[1].find_state("Notify").max_tries  # type: ignore[union-attr]
            with ingest.engine() as engine:
                engine.act(job.ref, "resume")
            assert ingest.wait("job", job.id, "Completed").resume_count == 1


@pytest.mark.parametrize("status", [301, 400, 403, 404, 410])
def test_what_a_receiver_refuses_fails_at_once(tmp_path: Path, status: int) -> None:
    with IngestFixture(tmp_path) as ingest:
        profile(ingest, callback=ProfileCallback(url=ingest.web.url, user="me", password="hush"))
        receiver = Receiver(ingest, "/mc/jid-1", status)
        job = at_notify(ingest)
        with ingest.workers(queues=ROLES):
            failed = ingest.wait("job", job.id, "Failed")
        assert f"answered {status}" in failed.message
        assert "hush" not in failed.message
        assert len(receiver.came) == 1


def test_a_callback_to_a_private_address_is_refused(tmp_path: Path) -> None:
    with IngestFixture(tmp_path, settings={"fetch": {"allow": []}}) as ingest:
        profile(ingest, callback=ProfileCallback(url=ingest.web.url))
        job = at_notify(ingest)
        with ingest.workers(queues=ROLES):
            failed = ingest.wait("job", job.id, "Failed")
        assert "is not a public address" in failed.message
        assert ingest.web.requests == []


def test_nobody_is_called_twice_about_one_version(tmp_path: Path) -> None:
    """Somebody stopped the job after the call, and resumed it."""
    with IngestFixture(tmp_path) as ingest:
        profile(ingest, callback=ProfileCallback(url=ingest.web.url))
        Receiver(ingest, "/mc/jid-1")
        job = at_notify(ingest, callback={"status": 200, "at": 1.0, "version": 3})
        with ingest.workers(queues=ROLES):
            ingest.wait("job", job.id, "Completed")
        assert ingest.web.requests == []


def test_a_new_version_is_called_about_although_the_one_before_was(tmp_path: Path) -> None:
    with IngestFixture(tmp_path) as ingest:
        profile(ingest, callback=ProfileCallback(url=ingest.web.url))
        receiver = Receiver(ingest, "/mc/jid-1")
        job = at_notify(ingest, callback={"status": 200, "at": 1.0, "version": 2})
        with ingest.workers(queues=ROLES):
            ingest.wait("job", job.id, "Completed")
        assert len(receiver.came) == 1


def test_webhooks_get_an_event_in_the_commit_that_completes_the_job(tmp_path: Path) -> None:
    with IngestFixture(tmp_path / "receiver") as other:
        receiver = Receiver(other, "/hook")
        hooks = {
            "a": {"url": f"{other.web.url}/hook"},
            "b": {"url": f"{other.web.url}/no", "types": ["ingest.batch.*"]},
        }
        with IngestFixture(tmp_path, webhooks=hooks) as ingest:
            job = at_notify(ingest)
            with ingest.workers(queues=ROLES):
                ingest.wait("job", job.id, "Completed")
                assert receiver.arrived.wait(120)
            (event,) = every(ingest, "event")
        (told,) = receiver.came
        assert (told["type"], told["subject"]) == ("ingest.object.recorded", "ark:/99999/fk4x")
        assert told["data"]["primary_id"] == "ark:/99999/fk4x"
        assert told["id"] == event.id
