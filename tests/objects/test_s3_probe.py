"""What a server's conditional writes are worth is found out, recorded, and acted upon."""

import json
import logging
from collections.abc import Callable

import pytest

from tests.objects.fake_s3 import FakeS3
from tests.servers.s3 import RcloneS3Server, SeaweedServer
from waybill.objects.protocol import UnsupportedObjectOperation, is_permanent
from waybill.objects.s3 import S3Objects
from waybill.objects.s3_signing import S3Credentials


def connect(server: SeaweedServer | RcloneS3Server, bucket: str) -> S3Objects:
    credentials = S3Credentials(server.credentials.access_key, server.credentials.secret_key)
    return S3Objects(bucket, "pre", endpoint=server.endpoint, credentials=credentials)


def fake(server: FakeS3) -> S3Objects:
    return S3Objects("bucket", "pre", endpoint=server.endpoint, credentials=S3Credentials("key", "secret"), tries=2)


def test_a_faithful_server(s3_server: SeaweedServer, s3_bucket: str) -> None:
    with connect(s3_server, s3_bucket) as objects:
        found = objects.capabilities
        assert (found.create, found.swap, found.order, found.longest_segment) == ("atomic", "atomic", "tree", 255)
        # SeaweedFS 4.48 is racy; a later one may not be, and luck is possible
        assert found.complete in ("racy", "atomic")
        record = json.loads(bytes(s3_server.bucket(s3_bucket).get("pre/.waybill/probe.json").bytes()))
        assert record["waybill"] == "probe"
        assert record["capabilities"]["create"] == "atomic"
        assert record["endpoint"] == s3_server.endpoint
        assert list(objects.list()) == []
        # Nothing is left of what it was found out with, but the record.
        assert [meta["path"] for page in s3_server.bucket(s3_bucket).list() for meta in page] == [
            "pre/.waybill/probe.json"
        ]


def test_a_server_that_overwrites(rclone_s3_server: RcloneS3Server, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO), connect(rclone_s3_server, rclone_s3_server.create_bucket()) as objects:
        found = objects.capabilities
        assert (found.create, found.swap, found.complete, found.order) == ("ignored", "ignored", "ignored", "bytes")
        assert [record.levelname for record in caplog.records if "Conditional writes" in record.message] == ["WARNING"]
        etag = objects.put("a", b"one").etag
        asked: list[Callable[[], object]] = [
            lambda: objects.put("a", b"two", if_absent=True),
            lambda: objects.put("new", b"two", if_absent=True),
            lambda: objects.put("a", b"two", if_match=etag),
            lambda: objects.put("a", iter([b"x" * 9_000_000]), if_absent=True),
            lambda: objects.copy("a", "b", if_absent=True),
            lambda: objects.upload("a").complete(if_absent=True),
        ]
        for refused in asked:
            with pytest.raises(UnsupportedObjectOperation, match="ignores this condition and overwrites") as raised:
                refused()
            assert is_permanent(raised.value)
        with objects.get("a") as body:
            assert body.read() == b"one"
        objects.put("a", b"plain puts go on")
        assert [info.name for info in objects.list()] == ["a"]


@pytest.mark.parametrize(
    ("worth", "found"),
    [
        ({}, ("atomic", "atomic", "atomic")),
        ({"create": "racy", "swap": "racy", "complete-create": "racy"}, ("racy", "racy", "racy")),
        ({"create": "ignored"}, ("ignored", "atomic", "atomic")),
        ({"create": "refused", "swap": "refused", "complete-create": "refused"}, ("refused", "refused", "refused")),
        # Ceph 16
        ({"swap": "never", "complete-create": "ignored", "complete-swap": "ignored"}, ("atomic", "refused", "ignored")),
        ({"complete-swap": "racy"}, ("atomic", "atomic", "racy")),
        ({"complete-swap": "never"}, ("atomic", "atomic", "refused")),
    ],
)
def test_servers_of_all_kinds(worth: dict[str, str], found: tuple[str, str, str]) -> None:
    with FakeS3(worth=worth) as server, fake(server) as objects:
        conditions = objects.capabilities
        assert (conditions.create, conditions.swap, conditions.complete) == found
        assert list(server.objects) == ["pre/.waybill/probe.json"]
        assert not server.uploads
        asked = len(server.requests)
        assert objects.capabilities is conditions
        assert len(server.requests) == asked  # once is enough
        if conditions.create == "atomic":
            objects.put("a", b"", if_absent=True)
        else:
            with pytest.raises(UnsupportedObjectOperation):
                objects.put("a", b"", if_absent=True)


def test_without_an_access_key_uploads_are_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_SKIP_SIGNATURE", "true")  # stands for a role of the machine, which only obstore knows
    with FakeS3() as server, S3Objects("bucket", endpoint=server.endpoint) as objects:
        found = objects.capabilities
        assert (found.create, found.swap, found.complete) == ("atomic", "atomic", "unknown")
        objects.put("small", b"", if_absent=True)
        objects.put("large", iter([b"x" * 9_000_000]))
        objects.put("larger", iter([b"x" * 9_000_000]), if_absent=True)  # still in one request
        asked: list[Callable[[], object]] = [
            lambda: objects.upload("a"),
            lambda: objects.put("b", iter([b"x" * 35_000_000] * 2), if_absent=True),
        ]
        for refused in asked:
            with pytest.raises(UnsupportedObjectOperation, match="access key"):
                refused()


def test_a_server_that_only_keeps_conditions_of_single_requests() -> None:
    with FakeS3(worth={"complete-create": "racy"}) as server, fake(server) as objects:
        assert objects.capabilities.complete == "racy"
        objects.put("a", iter([b"x" * 30_000_000]), if_absent=True)
        assert [request for request in server.requests if request.endswith("/a")] == ["PUT pre/a"]
        with pytest.raises(UnsupportedObjectOperation, match="for data sent in parts"):
            objects.put("b", iter([b"x" * 35_000_000] * 2), if_absent=True)
        with objects.upload("c") as upload, pytest.raises(UnsupportedObjectOperation, match="for data sent in parts"):
            upload.complete(if_absent=True)
        assert not server.uploads
