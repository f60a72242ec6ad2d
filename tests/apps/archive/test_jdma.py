"""JDMA's API: numbers, texts and status codes as its official client knows them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.apps.archive.archive_fixture import ArchiveFixture, read_tree
from waybill.apps.archive.jdma.app import JdmaApp, JdmaNetworks
from waybill.apps.archive.jdma.calls import JdmaCalls

LOCAL, ELSEWHERE = "127.0.0.1", "192.0.2.7"


class JdmaFixture:
    """The API, as `root` of the workspace `ceda` uses it."""

    def __init__(self, archive: ArchiveFixture) -> None:
        self.archive = archive
        resources = archive.tester.resources
        self.app = JdmaApp(resources, JdmaCalls(resources, archive.open_engine), JdmaNetworks(["127.0.0.0/8"]))

    def call(
        self, method: str, path: str, body: dict[str, Any] | None = None, *, client: str = LOCAL, **query: str
    ) -> tuple[int, dict[str, Any]]:
        answer = self.app.answer(client, method, tuple(path.split("/")), query, json.dumps(body or {}).encode())
        content = answer.body if isinstance(answer.body, bytes) else b"".join(answer.body)
        return answer.status, json.loads(content)

    def refuse(self, method: str, path: str, body: dict[str, Any] | None = None, **query: str) -> tuple[int, str]:
        status, answer = self.call(method, path, body, **query)
        return status, answer["error"]

    def put(self, **changes: Any) -> tuple[int, dict[str, Any]]:
        body = {
            "name": "root", "workspace": "ceda", "filelist": [str(self.archive.source)], "label": "set", "request_type": "PUT",
            "storage": "elastictape", "credentials": {"secret_key": "s3cret"},
        }  # fmt: skip
        return self.call("POST", "request", {**body, **changes})


@pytest.fixture
def jdma(tmp_path: Path) -> Iterator[JdmaFixture]:
    app = {
        "storages": {"elastictape": {"path": str(tmp_path / "data" / "archive-storage"), "title": "Elastic Tape"}},
        "workspaces": {
            "ceda": {"members": ["root", "ann"], "managers": ["eve"], "limits": {"elastictape": "100k"}},
            "full": {"members": ["root"], "limits": {"elastictape": 1}},
        },
    }
    with ArchiveFixture(tmp_path, app=app) as archive:
        archive.tester.resources.create_storage("elastictape")
        fixture = JdmaFixture(archive)
        fixture.call("POST", "user", {"name": "root", "email": "root@example.org"})
        yield fixture


def test_other_networks_are_refused(jdma: JdmaFixture) -> None:
    assert jdma.call("GET", "list_backends", client=ELSEWHERE)[0] == 403
    assert jdma.call("GET", "list_backends", client="::ffff:127.0.0.1") == (200, {"elastictape": "Elastic Tape"})


def test_users(jdma: JdmaFixture) -> None:
    assert jdma.call("GET", "user", name="root") == (200, {"name": "root", "email": "root@example.org", "notify": True})
    assert jdma.refuse("POST", "user", {"name": "root", "email": "x@y"}) == (
        403,
        "JDMA already initialized for this user.",
    )
    assert jdma.refuse("GET", "user") == (404, "No name supplied")
    assert jdma.refuse("POST", "user", {"name": "ann"}) == (404, "No email supplied")
    text = "User ann not initialised yet.  Run jdma.py init first."
    assert jdma.refuse("GET", "user", name="ann") == (403, text)
    changed = jdma.call("PUT", "user", {"name": "root", "notify": False}, name="root")
    assert changed == (200, {"name": "root", "email": "root@example.org", "notify": False})


def test_a_put_from_its_request_to_its_files(jdma: JdmaFixture) -> None:
    status, made = jdma.put(request_type="MIGRATE")
    assert status == 200
    assert {name: made[name] for name in ("request_id", "request_type", "batch_id", "stage", "error", "credentials", "label")} == {
        "request_id": 1, "request_type": 2, "batch_id": 1, "stage": 0, "error": "", "credentials": {}, "label": "set",
    }  # fmt: skip
    assert jdma.put()[0] == 403  # its files are in a migration already
    put = jdma.archive.find_requests("MIGRATE")[0]
    # JDMA's numbers do not follow its flow
    for state, stage in (("PUT_PACKING", 3), ("PUT_PENDING", 2), ("PUTTING", 4), ("PUT_COMPLETED", 9)):
        jdma.archive.run_until(put, state)
        assert jdma.call("GET", "request", name="root", request_id="1")[1]["stage"] == stage
    _, listed = jdma.call("GET", "request/", name="root")
    assert [(r["request_id"], r["migration_id"], r["storage"]) for r in listed["requests"]] == [(1, 1, "elastictape")]
    _, batch = jdma.call("GET", "migration", name="root", migration_id="1")
    assert (batch["stage"], batch["external_id"]) == (2, "migration-0000000001")
    _, files = jdma.call("GET", "file/", name="root", migration_id="1", limit="0", digest="0")
    ((archive,),) = [m["archives"] for m in files["migrations"]]
    assert (archive["archive_id"], archive["pk"]) == ("archive_0001000001", 1000001)
    assert sorted(file["path"] for file in archive["files"])[1] == f"{jdma.archive.source}/run/deep/three.dat"
    assert all(file["pk "] and file["digest_format"] == "SHA256" for file in archive["files"])
    _, two = jdma.call("GET", "file", name="root", migration_id="1", limit="2")
    assert [len(a["files"]) for a in two["migrations"][0]["archives"]] == [2]
    _, archives = jdma.call("GET", "archive", name="root", migration_id="1", limit="1")
    assert "digest" not in archives["migrations"][0]["archives"][0]


def test_a_get_of_some_and_a_delete(jdma: JdmaFixture) -> None:
    archive = jdma.archive
    jdma.put()
    archive.run_until(archive.find_requests("PUT")[0], "PUT_COMPLETED")
    target = str(archive.target)
    body = {"name": "root", "request_type": "GET", "migration_id": 1, "target_path": target, "credentials": {}}
    wanted = f"{archive.source}/run/one.dat"
    assert jdma.refuse("POST", "request", {**body, "filelist": ["/no/such"]}) == (
        404, "Requested file list contains zero files that belong to batch 1",
    )  # fmt: skip
    status, made = jdma.call("POST", "request", {**body, "filelist": [wanted]})
    assert (status, made["stage"], made["target_path"], made["filelist"]) == (200, 100, target, [wanted])
    assert jdma.refuse("POST", "request", {**body, "filelist": [wanted]}) == (
        403, f"Duplicate GET request made: batch: 1, Target path: {target}",
    )  # fmt: skip
    archive.run_until(archive.find_requests("GET")[0], "GET_COMPLETED")
    assert [name for name, (_, content) in read_tree(archive.target).items() if content] == ["run/one.dat"]
    delete = {"name": "root", "request_type": "DELETE", "migration_id": 1, "storage": "elastictape", "credentials": {}}
    jdma.call("POST", "user", {"name": "ann", "email": "ann@example.org"})
    assert jdma.refuse("POST", "request", {**delete, "name": "ann"}) == (
        403, "User ann does not have permission to delete batch: 1",
    )  # fmt: skip
    assert jdma.call("POST", "request", delete)[1]["stage"] == 200
    assert jdma.refuse("POST", "request", delete) == (403, "Duplicate DELETE request made: batch: 1")
    archive.run_until(archive.find_requests("DELETE")[0], "DELETE_COMPLETED")
    assert jdma.call("GET", "migration", name="root", migration_id="1")[1]["stage"] == 5


REFUSALS: list[tuple[dict[str, Any], int, str]] = [
    ({"name": ""}, 404, "No name supplied"),
    ({"request_type": ""}, 404, "No request type supplied"),
    ({"request_type": "STEAL"}, 404, "Invalid request method"),
    ({"workspace": ""}, 404, "No workspace supplied"),
    ({"workspace": "nope"}, 404, "Workspace nope has no associated groupworkspace quota set"),
    ({"filelist": []}, 404, "Filelist is empty"),
    ({"storage": ""}, 404, "External storage not specified in PUT / MIGRATE request"),
    ({"storage": "nope"}, 404, "External storage: nope does not exist"),
    ({"filelist": ["/no/such"]}, 404, "Path /no/such does not exist"),
    ({"request_type": "GET"}, 404, "No batch id supplied"),
    ({"request_type": "GET", "migration_id": 9}, 404, "Batch not found"),
    ({"request_type": "DELETE", "migration_id": "x"}, 404, "Batch not found"),
    ({"name": "eve"}, 403, "User eve not initialised yet.  Run jdma.py init first."),
]


@pytest.mark.parametrize(("changes", "status", "text"), REFUSALS)
def test_a_request_is_refused_with(jdma: JdmaFixture, changes: dict[str, Any], status: int, text: str) -> None:
    answered, body = jdma.put(**changes)
    assert (answered, body["error"]) == (status, text)
    assert "s3cret" not in json.dumps(body)


def test_rights(jdma: JdmaFixture) -> None:
    for name in ("mallory", "ann"):
        jdma.call("POST", "user", {"name": name, "email": f"{name}@example.org"})
    assert jdma.put(name="mallory")[1]["error"].startswith("User: mallory does not have write permissions")
    jdma.put()
    batch: dict[str, Any] = {"name": "mallory", "migration_id": "1"}
    assert jdma.refuse("GET", "migration", **batch) == (404, "Batch not found.")
    assert jdma.refuse("GET", "file", **batch) == (404, "Batch not found.")
    assert jdma.refuse("GET", "request", name="mallory", request_id="1") == (404, "Request not found.")
    assert jdma.refuse("GET", "request", name="mallory", workspace="ceda", filter="workspace")[0] == 403
    assert jdma.refuse("GET", "request", name="ann", filter="workspace") == (
        404,
        "No workspace supplied and filter=workspace.",
    )
    assert len(jdma.call("GET", "request", name="ann", workspace="ceda", filter="workspace")[1]["requests"]) == 1
    label = {"label": "mine"}
    text = "User ann cannot edit this batch as they do not own it!"
    assert jdma.refuse("PUT", "migration/", label, name="ann", migration_id="1") == (403, text)
    assert jdma.call("PUT", "migration/", label, name="root", migration_id="1")[1]["label"] == "mine"
    assert jdma.call("GET", "migration", name="root", label="mine")[1]["migration_id"] == 1


def test_a_failed_request_says_why(jdma: JdmaFixture) -> None:
    jdma.put(workspace="full")
    put = jdma.archive.run_until(jdma.archive.find_requests("PUT")[0], "FAILED")
    _, shown = jdma.call("GET", "request", name="root", request_id="1")
    assert (shown["stage"], shown["failure_reason"]) == (1000, put.message)
    assert jdma.call("GET", "migration", name="root", migration_id="1")[1]["stage"] == 3
