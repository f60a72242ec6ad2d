"""Deposits by the native API: a URL as JSON, a file in a form; found again by id and batchID, released, checked."""

import hashlib
import http.client
import json
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest

from tests.apps.ingest.ingest_fixture import IngestFixture
from tests.apps.ingest.routes.ingest_server import API, IngestServer
from waybill.apps.ingest import routes
from waybill.apps.ingest.submission import PayloadType, Submission
from waybill.http.uploads import UploadSlots
from waybill.tokens import Role

SHA256 = hashlib.sha256(b"hello").hexdigest()


@pytest.fixture
def client(ingest_server: IngestServer) -> Iterator[httpx2.Client]:
    with ingest_server.client("submitter") as client:
        yield client


def upload(
    client: httpx2.Client, said: Any, data: bytes = b"hello", name: str = "a.txt", **more: Any
) -> httpx2.Response:
    files: list[Any] = [
        ("submission", (None, said if isinstance(said, str) else json.dumps(said))),
        ("file", (name, data)),
    ]
    return client.post(f"{API}/batches", files=files, **more)


def test_a_url_is_submitted_as_json(ingest_server: IngestServer, client: httpx2.Client) -> None:
    url = ingest_server.ingest.web.put("a.zip", b"x")
    answer = client.post(
        f"{API}/batches",
        json={"profile": "demo", "url": url, "title": "A", "local_ids": ["x1"], "dc": {"subject": "maps"}},
    )
    assert answer.status_code == 201, answer.text
    view = answer.json()
    assert (view["state"], view["type"], view["title"], view["is_repeated"], view["submitter"]) == (
        "Pending",
        "container",
        "A",
        False,
        "the submitter",
    )
    submission = Submission.from_batch(ingest_server.batch(view["batch_id"]))
    assert (submission.url, submission.dc, submission.local_ids) == (url, {"subject": "maps"}, ("x1",))
    assert answer.headers["location"] == f"{API}/batches/{view['id']}"
    for link in view["links"].values():
        assert client.get(link).status_code == 200, link


def test_a_file_is_uploaded_with_its_submission(ingest_server: IngestServer, client: httpx2.Client) -> None:
    md5 = hashlib.md5(b"hello").hexdigest()
    fields = {
        "profile": "demo",
        "digest_type": "md5",
        "digest_value": md5,
        "type": "file",
        "update": True,
        "local_ids": ["x1"],
    }
    answer = upload(client, fields)
    assert answer.status_code == 201, answer.text
    view = answer.json()
    assert (view["digests"], view["size"], view["filename"], view["update"]) == (
        {"sha256": SHA256, "md5": md5},
        5,
        "a.txt",
        True,
    )
    with ingest_server.environment.objects.get(
        Submission.from_batch(ingest_server.batch(view["batch_id"])).url.removeprefix("waybill:")
    ) as body:
        assert body.read() == b"hello"
    renamed = upload(client, {"profile": "demo", "filename": "b.txt"}).json()
    assert renamed["filename"] == "b.txt"


def test_a_local_id_with_a_semicolon_is_refused(client: httpx2.Client) -> None:
    answer = upload(client, {"profile": "demo", "local_ids": ["a;b"]})
    assert answer.status_code == 400
    assert "holds a semicolon" in answer.text


def test_a_batch_is_found_by_id_and_by_batch_id(client: httpx2.Client) -> None:
    view = upload(client, {"profile": "demo"}).json()
    for name in (view["id"], view["batch_id"], view["batch_id"].removeprefix("bid-")):
        assert client.get(f"{API}/batches/{name}").json()["id"] == view["id"]
    assert client.get(f"{API}/batches/bid-nobody").status_code == 404


def test_batches_are_listed_newest_first(client: httpx2.Client) -> None:
    made = [upload(client, {"profile": "demo", "submitter": "lister"}).json()["id"] for _ in range(3)]
    first = client.get(f"{API}/batches", params={"submitter": "lister", "limit": 2}).json()
    rest = client.get(f"{API}/batches", params={"page_token": first["next"]}).json()
    assert [b["id"] for b in (*first["batches"], *rest["batches"])] == made[::-1]
    assert rest["next"] is None
    assert client.get(f"{API}/batches", params={"state": "Pending", "limit": 1}).json()["batches"][0]["id"] == made[-1]
    assert client.get(f"{API}/batches", params={"state": "Pending", "submitter": "x"}).status_code == 400
    assert client.get(f"{API}/batches", params={"page_token": "forged"}).json()["error"]["code"] == "bad-page-token"
    unknown = client.get(f"{API}/batches", params={"state": "Bogus"})
    assert (unknown.status_code, unknown.json()["error"]["code"]) == (400, "unknown-state")
    assert "A batch has no state 'Bogus'; it has Pending" in unknown.json()["error"]["message"]


@pytest.mark.parametrize(
    ("route", "known"),
    [
        ("batches?stat=Failed", "state, submitter, page_token, limit"),
        ("batches/bid?full=1", "none"),
        ("profiles?stat=Active", "state, page_token, limit"),
        ("collections/x?a=b", "none"),
        ("holds?a=b", "none"),
        ("locks?offset=2", "after, limit"),
        ("objects?localid=x", "ark, owner, local_id, collection, text, after, limit"),
        ("objects/ark:/99999/fk4x/versions?x=1", "after, limit"),
        ("damaged?arc=x", "after, limit"),
        ("access/token/state?x=1", "none"),
    ],
)
def test_a_parameter_that_is_not_known_is_refused(client: httpx2.Client, route: str, known: str) -> None:
    refused = client.get(f"{API}/{route}")
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "bad-query")
    assert f"it has {known}." in refused.json()["error"]["message"]


def test_a_key_makes_a_submission_safe_to_repeat(ingest_server: IngestServer, client: httpx2.Client) -> None:
    before = len(ingest_server.payloads())
    answers = [upload(client, {"profile": "demo"}, headers={"Idempotency-Key": "k1"}) for _ in range(2)]
    assert [a.status_code for a in answers] == [201, 200]
    assert answers[0].json()["id"] == answers[1].json()["id"]
    assert answers[1].json()["is_repeated"] is True
    assert len(ingest_server.payloads()) == before + 1
    other = upload(client, {"profile": "demo"}, b"other", headers={"Idempotency-Key": "k1"})
    assert (other.status_code, other.json()["error"]["code"]) == (409, "conflict")
    with ingest_server.client("operator") as somebody:
        assert upload(somebody, {"profile": "demo"}, headers={"Idempotency-Key": "k1"}).status_code == 201, (
            "somebody else's key is another"
        )
    both = upload(client, {"profile": "demo", "batch_id": "bid-x"}, headers={"Idempotency-Key": "k2"})
    assert both.status_code == 400


WRONG: list[tuple[Any, int, str]] = [
    ({"profile": "nobody"}, 404, "no profile"),
    ({"profile": "demo", "colour": "red"}, 422, "colour"),
    ({"profile": "demo", "size": 4}, 400, "5 bytes came, and 4 were announced"),
    ({"profile": "demo", "type": "parcel"}, 422, "type"),
    ({"profile": "demo", "url": "https://example.org/a"}, 400, "not both"),
    ({"profile": "demo", "batch_id": "../x"}, 400, "not a batchID"),
    ({"profile": "demo", "filename": "a/b"}, 400, "slash"),
    ("[]", 422, "dictionary"),
    ("{", 400, "not JSON"),
]


@pytest.mark.parametrize(("said", "status", "says"), WRONG)
def test_what_cannot_be_taken_is_refused_and_leaves_nothing(
    ingest_server: IngestServer, client: httpx2.Client, said: Any, status: int, says: str
) -> None:
    before = ingest_server.count(), len(ingest_server.payloads())
    answer = upload(client, said)
    assert (answer.status_code, says in answer.json()["error"]["message"]) == (status, True), answer.text
    assert (ingest_server.count(), len(ingest_server.payloads())) == before


@pytest.mark.parametrize(
    "files",
    [
        [("file", ("a", b"x")), ("submission", (None, '{"profile":"demo"}'))],
        [("submission", (None, '{"profile":"demo"}'))],
        [("submission", (None, '{"profile":"demo"}')), ("file", ("a", b"x")), ("file", ("b", b"x"))],
        [("submission", (None, '{"profile":"demo"}')), ("other", ("a", b"x"))],
        [("submission", (None, '{"profile":"demo"}')), ("file", ("../a", b"x"))],
    ],
)
def test_a_form_of_another_shape_is_refused(
    ingest_server: IngestServer, client: httpx2.Client, files: list[Any]
) -> None:
    before = ingest_server.count(), len(ingest_server.payloads())
    assert client.post(f"{API}/batches", files=files).status_code == 400
    assert (ingest_server.count(), len(ingest_server.payloads())) == before


def test_who_may_submit(ingest_server: IngestServer) -> None:
    body = {"profile": "demo", "url": "https://example.org/a"}
    denied: tuple[tuple[Role | None, int], ...] = ((None, 401), ("reader", 403))
    for role, status in denied:
        with ingest_server.client(role) as client:
            assert client.post(f"{API}/batches", json=body).status_code == status
            assert upload(client, body).status_code == status
            assert client.post(f"{API}/check", content=b"x").status_code == status
    with ingest_server.client("submitter") as client:
        assert client.post(f"{API}/batches/bid-x/release").status_code == 403
        answer = client.post(
            "/api/v1/records/batch", json={"documents": {"submission": {"payload_url": "waybill:ingest/payloads/x/y"}}}
        )
        assert (answer.status_code, "POST /api/v1/ingest/batches" in answer.json()["error"]["hint"]) == (403, True)


def test_no_record_is_made_beside_the_routes_that_look_at_what_is_sent(ingest_server: IngestServer) -> None:
    """Otherwise a mail would be sent in the server's name, a webhook delivery signed with its secret, a job would fetch and
    store what nobody checked.
    """
    with ingest_server.client("admin") as client:
        kinds = [machine["kind"] for machine in client.get("/api/v1/machines").json()["machines"]]
        assert {"batch", "job", "mail", "webhook_delivery", "minter", "rebuild", "maintenance", "access-small"} <= set(
            kinds
        )
        for kind in kinds:
            answer = client.post(f"/api/v1/records/{kind}", json={"id": "x", "documents": {}})
            assert (kind, answer.status_code, answer.json()["error"]["code"]) == (kind, 403, "forbidden")


def test_private_addresses_are_refused_early(client: httpx2.Client) -> None:
    answer = client.post(f"{API}/batches", json={"profile": "demo", "url": "http://10.0.0.1/a"})
    assert (answer.status_code, "not a public address" in answer.json()["error"]["message"]) == (400, True)


def test_an_upload_that_breaks_off_leaves_nothing(ingest_server: IngestServer) -> None:
    before = ingest_server.count(), len(ingest_server.payloads())
    parts = urlsplit(ingest_server.url)
    head = (
        f"POST {API}/batches HTTP/1.1\r\nHost: {parts.netloc}\r\nAuthorization: Bearer {ingest_server.tokens['submitter']}\r\n"
        "Content-Type: multipart/form-data; boundary=B\r\nContent-Length: 100000\r\n\r\n"
        '--B\r\nContent-Disposition: form-data; name="submission"\r\n\r\n{"profile":"demo"}\r\n'
        '--B\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\nsome of it'
    )
    with socket.create_connection((parts.hostname, parts.port)) as broken:
        broken.sendall(head.encode())
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port)
    connection.request("GET", "/health")
    assert connection.getresponse().status == 200
    connection.close()
    with ingest_server.client("submitter") as client:
        upload(client, {"profile": "demo"})  # comes after it
    assert (ingest_server.count(), len(ingest_server.payloads())) == (before[0] + 1, before[1] + 1)


SLOW = 60  # more than the threads that all other routes share


def start_upload(ingest_server: IngestServer) -> socket.socket:
    """An upload that sends some of its body, and then nothing."""
    parts = urlsplit(ingest_server.url)
    idle = socket.create_connection((parts.hostname, parts.port))
    head = f"POST {API}/check HTTP/1.1\r\nHost: {parts.netloc}\r\nAuthorization: Bearer {ingest_server.tokens['submitter']}\r\n"
    idle.sendall(f"{head}Content-Length: 1000\r\n\r\nsome".encode())
    return idle


def test_slow_uploads_do_not_stop_the_other_routes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    upload_slots = UploadSlots(slots=2, timeout=600.0)
    monkeypatch.setattr(routes, "UploadSlots", lambda: upload_slots)
    with (
        IngestFixture(tmp_path / "slow") as ingest,
        IngestServer(ingest).open() as ingest_server,
        ingest_server.client("reader") as client,
        ExitStack() as sockets,
    ):
        for _ in range(SLOW):
            sockets.enter_context(start_upload(ingest_server))
        until = time.monotonic() + 120
        while upload_slots.waiting_count < SLOW - 2 and time.monotonic() < until:
            assert client.get("/health").status_code == 200
        assert upload_slots.waiting_count == SLOW - 2, "all but two wait for a slot"
        assert client.get(f"{API}/batches").status_code == 200, "and nobody waits for them"


def test_an_upload_that_sends_nothing_loses_its_slot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes, "UploadSlots", lambda: UploadSlots(slots=1, timeout=0.5))
    with (
        IngestFixture(tmp_path / "slow") as ingest,
        IngestServer(ingest).open() as ingest_server,
        start_upload(ingest_server) as first,
        start_upload(ingest_server) as second,
    ):
        assert [each.recv(4096)[:12] for each in (first, second)] == [b"HTTP/1.1 408"] * 2


def test_a_batch_is_released_with_its_jobs(ingest_server: IngestServer, client: httpx2.Client) -> None:
    view = upload(client, {"profile": "demo"}).json()
    with ingest_server.client("operator") as operator:
        assert operator.post(f"/api/v1/records/batch/{view['id']}/hold").status_code == 200
        assert client.get(f"{API}/batches/{view['batch_id']}").json()["state"] == "Held"
        bulk = operator.post(f"{API}/batches/{view['batch_id']}/release", json={"why": "over"}).json()
        assert (bulk["done"], bulk["refusal_count"]) == (1, 0)
    assert client.get(f"{API}/batches/{view['id']}").json()["state"] == "Pending"


def test_a_payload_is_checked_and_not_kept(ingest_server: IngestServer, client: httpx2.Client) -> None:
    before = ingest_server.count(), len(ingest_server.payloads())
    bad = b"#%checkm_0.7\n#%profile | http://uc3.cdlib.org/registry/ingest/manifest/mrt-ingest-manifest\nftp://x/a\n"
    report = client.post(f"{API}/check", params={"filename": "a.checkm"}, content=bad).json()
    assert (report["is_good"], report["format"], report["type"]) == (False, "manifest", "object-manifest")
    assert {note["line"] for note in report["complaints"]} == {3}
    good = client.post(
        f"{API}/check", params={"filename": "a.checkm"}, content=bad.replace(b"ftp://x/a", b"https://x/a") + b"#%eof\n"
    ).json()
    assert (good["is_good"], good["count"]) == (True, 1)
    plain = client.post(f"{API}/check", params={"type": PayloadType.FILE}, content=b"x").json()
    assert (plain["is_good"], plain["format"], plain["total_bytes"]) == (True, "file", 1)
    assert (ingest_server.count(), len(ingest_server.payloads())) == before
    assert list((ingest_server.environment.config.work.root / "check").iterdir()) == []


def test_a_file_in_pieces_becomes_one_batch_however_often_it_is_sent(
    ingest_server: IngestServer, client: httpx2.Client
) -> None:
    said = client.post(f"{API}/uploads", json={"filename": "a.txt", "size": 5}).json()
    url = f"{API}/uploads/{said['upload']}"
    submission = {"profile": "demo", "upload": said["upload"], "title": "In pieces"}
    assert client.post(f"{API}/batches", json=submission).status_code == 409  # nothing has come
    digest = "sha-256=:LPJNul+wow4m6DsqxbninhsWHlwfp0JecwQzYpOLmCQ=:"
    bad = client.put(url, params={"offset": 0}, content=b"hellO", headers={"Content-Digest": digest})
    assert (bad.status_code, "damaged" in bad.text) == (400, True)
    for _ in range(2):
        sent = client.put(url, params={"offset": 0}, content=b"hello", headers={"Content-Digest": digest})
        assert sent.json()["offset"] == 5, sent.text
    answers = [client.post(f"{API}/batches", json=submission) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [201, 200]
    assert answers[0].json()["id"] == answers[1].json()["id"]
    assert answers[0].json()["digests"]["sha256"] == SHA256
    # the token is of whoever announced the file
    with ingest_server.client("operator") as other:
        assert other.get(url).status_code == 404
    assert client.get(f"{url}x").status_code == 404
