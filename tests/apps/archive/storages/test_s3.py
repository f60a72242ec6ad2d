"""The S3 storage passes the suite, on a real server; what only it has to do with parts and limits."""

import hashlib
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

pytest.register_assert_rewrite("waybill.apps.archive.storages.conformance")

from tests.servers.forwarder import Forwarder  # noqa: E402
from tests.servers.s3 import SeaweedServer  # noqa: E402
from waybill.apps.archive.storages import (  # noqa: E402
    BytesSource,
    CredentialsRefused,
    DirectoryStorage,
    LimitedStorage,
    S3Storage,
    StorageRefused,
    StoredArchive,
    create_storage_folder,
    read_back,
)
from waybill.apps.archive.storages.conformance import StorageSuite, make_content  # noqa: E402
from waybill.objects import MIN_PART_SIZE, S3Credentials, open_objects  # noqa: E402


def open_storage(server: SeaweedServer, bucket: str, port: int | None = None, *, secret: str = "") -> S3Storage:
    endpoint = server.endpoint if port is None else f"http://127.0.0.1:{port}"
    return S3Storage(
        "cloud",
        f"s3://{bucket}/archives?endpoint={endpoint}&region={server.region}",
        credentials=S3Credentials(server.credentials.access_key, secret or server.credentials.secret_key),
        part_size=MIN_PART_SIZE,
        tries=2,
    )


class TestS3(StorageSuite):
    @pytest.fixture
    def storage(self, s3_server: SeaweedServer, s3_bucket: str) -> Iterator[S3Storage]:
        self.server, self.bucket = s3_server, s3_bucket
        self.forwarder = Forwarder(int(s3_server.endpoint.rpartition(":")[2]))
        with self.forwarder, open_storage(s3_server, s3_bucket, self.forwarder.port) as storage:
            yield storage

    @pytest.fixture
    def other_process(self, storage: S3Storage) -> Iterator[S3Storage]:
        with open_storage(self.server, self.bucket) as other:
            yield other

    def make_unavailable(self) -> None:
        self.forwarder.cut()

    def test_a_removed_container_leaves_no_parts_behind(self, storage: S3Storage, tmp_path: Path) -> None:
        self.kill_put(storage, tmp_path, make_content(MIN_PART_SIZE * 3), killed_at=MIN_PART_SIZE * 2)
        objects = open_objects(
            f"s3://{self.bucket}?endpoint={self.server.endpoint}&region={self.server.region}",
            credentials=S3Credentials(self.server.credentials.access_key, self.server.credentials.secret_key),
            probe=False,
        )
        with closing(objects):
            storage.remove_container("migration-1")
            assert objects.sweep(-60.0).uploads == 0

    def test_wrong_credentials_are_waited_for(self, storage: S3Storage) -> None:
        with open_storage(self.server, self.bucket, secret="wrong") as wrong:
            with pytest.raises(CredentialsRefused):
                wrong.check()

    def test_a_bucket_must_exist(self, storage: S3Storage) -> None:
        with open_storage(self.server, "no-such-bucket") as missing:
            with pytest.raises(StorageRefused, match="no such bucket"):
                missing.open_batch("put", "migration-1", "put-1")

    def test_parts_are_as_large_as_the_protocol_wants(self) -> None:
        with pytest.raises(StorageRefused, match="at least"):
            S3Storage("cloud", "s3://bucket?endpoint=http://127.0.0.1:1", part_size=1000)


def test_a_storage_has_a_limit_of_transfers_of_its_own(tmp_path: Path) -> None:
    create_storage_folder(tmp_path / "disk")
    storage = LimitedStorage(DirectoryStorage("disk", tmp_path / "disk"), 2)
    content = make_content(10_000)
    expected = StoredArchive("a", len(content), hashlib.sha256(content).hexdigest())
    batch = storage.open_batch("put", "migration-1", "put")
    assert storage.put(batch, "a", BytesSource(content)) == expected
    gotten = storage.open_batch("get", "migration-1", "get")
    first, second = storage.read(gotten, "a"), storage.read(gotten, "a")
    next(first)
    next(second)
    found: list[StoredArchive] = []
    third = threading.Thread(target=lambda: found.append(read_back(storage, gotten, "a")))
    third.start()
    assert found == []
    assert third.is_alive()
    first.close()
    third.join(timeout=30)
    assert found == [expected]
    second.close()
