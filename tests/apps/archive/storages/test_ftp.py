"""The FTP storage passes the suite, on a real server, with TLS and without."""

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.register_assert_rewrite("waybill.apps.archive.storages.conformance")

from tests.servers.forwarder import Forwarder  # noqa: E402
from tests.servers.ftp import FtpServerProcess  # noqa: E402
from waybill.apps.archive.storages import (  # noqa: E402
    BytesSource,
    CredentialsRefused,
    FtpServer,
    FtpStorage,
    StorageRefused,
    StorageUnavailable,
    read_back,
)
from waybill.apps.archive.storages.conformance import StorageSuite  # noqa: E402

PART = 64 * 1024


@pytest.fixture(scope="module")
def ftps_server() -> Iterator[FtpServerProcess]:
    with FtpServerProcess() as server:
        yield server


@pytest.fixture(scope="module")
def ftp_server() -> Iterator[FtpServerProcess]:
    with FtpServerProcess(has_tls=False) as server:
        yield server


def open_storage(server: FtpServerProcess, folder: str, port: int | None = None, **changes: object) -> FtpStorage:
    settings: dict = {
        "host": "127.0.0.1",
        "port": port or server.port,
        "user": server.user,
        "password": server.password,
        "folder": f"/{folder}",
        "certificates": str(server.certificate),
        "timeout": 10.0,
    }
    return FtpStorage("ftp", FtpServer(**(settings | changes)), part_size=PART)


_numbers = iter(range(10**6))


def make_folder(server: FtpServerProcess) -> str:
    folder = server.files / f"archives-{next(_numbers)}"
    folder.mkdir()
    folder.chmod(0o777)
    return folder.name


class FtpSuite(StorageSuite):
    security = "explicit"

    @pytest.fixture
    def running(self, ftps_server: FtpServerProcess) -> FtpServerProcess:
        return ftps_server

    @pytest.fixture
    def storage(self, running: FtpServerProcess) -> Iterator[FtpStorage]:
        self.server, self.folder = running, make_folder(running)
        self.forwarder = Forwarder(running.port)
        with self.forwarder, open_storage(running, self.folder, self.forwarder.port, security=self.security) as storage:
            yield storage

    @pytest.fixture
    def other_process(self, storage: FtpStorage) -> FtpStorage:
        return open_storage(self.server, self.folder, security=self.security)

    def make_unavailable(self) -> None:
        self.forwarder.cut()


class TestFtps(FtpSuite):
    def test_the_certificate_is_checked(self, storage: FtpStorage) -> None:
        with pytest.raises(StorageRefused, match="certificate"):
            open_storage(self.server, self.folder, certificates=None).check()

    def test_no_password_is_sent_without_tls(self, storage: FtpStorage) -> None:
        with pytest.raises((StorageRefused, CredentialsRefused, StorageUnavailable)):
            open_storage(self.server, self.folder, security="none").check()

    def test_a_wrong_password_is_waited_for(self, storage: FtpStorage) -> None:
        with pytest.raises(CredentialsRefused) as raised:
            open_storage(self.server, self.folder, password="wrong").check()
        assert "wrong" not in str(raised.value)

    def test_a_folder_that_is_not_there_is_no_empty_storage(self, storage: FtpStorage) -> None:
        missing = open_storage(self.server, "not-there")
        with pytest.raises(StorageUnavailable, match="not there"):
            missing.check()
        with pytest.raises(StorageUnavailable, match="not there"):
            missing.open_batch("put", "migration-1", "t")
        with pytest.raises(StorageUnavailable, match="not there"):
            list(missing.list_containers())
        assert not (self.server.files / "not-there").exists()


class TestFtpWithoutTls(FtpSuite):
    security = "none"

    @pytest.fixture
    def running(self, ftp_server: FtpServerProcess) -> FtpServerProcess:
        return ftp_server


def test_an_archive_that_is_cut_on_the_server_is_found_when_it_is_read_back(
    ftp_server: FtpServerProcess, tmp_path: Path
) -> None:
    folder = make_folder(ftp_server)
    storage = open_storage(ftp_server, folder, security="none")
    batch = storage.open_batch("put", "migration-1", "put")
    sent = storage.put(batch, "a", BytesSource(b"1" * 200_000))
    gotten = storage.open_batch("get", "migration-1", "get")
    assert read_back(storage, gotten, "a") == sent
    with (ftp_server.files / folder / "migration-1/a").open("r+b") as file:
        file.truncate(100_000)
    assert read_back(storage, gotten, "a") != sent
