"""A web server of files for all who are compared, in a process of its own: little work for a request, so that it is
nobody's limit.

    python -m benchmarks.web [FOLDER]          prints its URL, and ends when its input is closed

    /small/00000042.txt       4 KiB, the same at each request and different from all others
    /small/0-1000.checkm      a manifest of the thousand objects from 0 on, of one such file each
    /large/NAME               the file of that name in FOLDER
    /large.checkm             a manifest of all of them, as one object

Connections are kept, each with a thread, which costs nothing while it waits. Large files go to the socket without being
read here.
"""

from __future__ import annotations

import itertools
import os
import socketserver
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from benchmarks import ROOT

SMALL = 4096  # bytes
_HEAD = "#%checkm_0.7\n#%profile | http://uc3.cdlib.org/registry/ingest/manifest/{profile}\n"
_FIELDS = (
    "#%fields | nfo:fileUrl | nfo:hashAlgorithm | nfo:hashValue | nfo:fileSize | nfo:fileLastModified | nfo:fileName\n"
)
_PORTION = 2**30


def small(number: int) -> bytes:
    return (f"{number:08d} " * (SMALL // 9 + 1)).encode()[:SMALL]


def name_of(number: int) -> str:
    return f"{number:08d}.txt"


def large_name(number: int) -> str:
    return f"large-{number}.bin"


class Web:
    """The server, for as long as the block lasts."""

    def __init__(self, folder: Path | None = None) -> None:
        command = [sys.executable, "-m", "benchmarks.web", *([str(folder)] if folder else [])]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT)

    def __enter__(self) -> str:
        assert self._process.stdout is not None
        url = self._process.stdout.readline().strip()
        if not url:
            raise SystemExit(f"The web server ended before its time, with code {self._process.wait()}.")
        return url

    def __exit__(self, *error: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


class Handler(socketserver.StreamRequestHandler):
    """One connection."""

    server: Server
    rbufsize = 65536
    disable_nagle_algorithm = True

    def handle(self) -> None:
        while line := self.rfile.readline():
            while self.rfile.readline() not in (b"\r\n", b""):
                pass  # no header changes an answer here
            method, path, _ = line.decode("ascii").split(" ", 2)
            self._answer(method == "HEAD", path)

    def _answer(self, only_head: bool, path: str) -> None:
        if path.startswith("/large/"):
            with open(self.server.folder / path.removeprefix("/large/"), "rb") as file:
                self._send(path, os.fstat(file.fileno()).st_size, b"" if only_head else file)
            return
        data = self._made(path)
        self._send(path, len(data), b"" if only_head else data)

    def _made(self, path: str) -> bytes:
        host = f"http://{self.server.server_address[0]!s}:{self.server.server_address[1]}"
        if path == "/large.checkm":
            return "".join(_of_large(host, self.server.folder)).encode()
        name, _, end = path.removeprefix("/small/").partition(".")
        if end == "checkm":
            first, count = (int(part) for part in name.split("-"))
            return "".join(_of_small(host, first, count)).encode()
        return small(int(name))

    def _send(self, path: str, size: int, body: bytes | BinaryIO) -> None:
        head = f'HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\nETag: "{path}"\r\nContent-Length: {size}\r\n\r\n'.encode()
        if isinstance(body, bytes):
            self.connection.sendall(head + body)
            return
        self.connection.sendall(head)
        sent = 0
        while sent < size:
            sent += os.sendfile(self.connection.fileno(), body.fileno(), sent, _PORTION)


def _of_small(host: str, first: int, count: int) -> Iterator[str]:
    yield _HEAD.format(profile="mrt-single-file-batch-manifest") + _FIELDS
    for number in range(first, first + count):
        yield f"{host}/small/{name_of(number)} | | | | | {name_of(number)} | | | someone | number {number} | 2024\n"
    yield "#%eof\n"


def _of_large(host: str, folder: Path) -> Iterator[str]:
    yield _HEAD.format(profile="mrt-ingest-manifest") + _FIELDS
    for file in sorted(folder.iterdir()):
        yield f"{host}/large/{file.name} | | | | | {file.name}\n"
    yield "#%eof\n"


class Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        super().__init__(("127.0.0.1", 0), Handler)

    def handle_error(self, request: object, client_address: object) -> None:
        """Whoever is measured may cut a connection at any moment; anything else is seen in what it misses."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)  # type: ignore[arg-type] # of the same class


def fill(folder: Path, count: int, size: int) -> None:
    """Large files, each with bytes of its own that no disk can make smaller."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(count):
        block = os.urandom(min(size, 2**20))
        with open(folder / large_name(number), "wb") as file:
            for _ in itertools.repeat(None, size // len(block)):
                file.write(block)


def main() -> None:
    with Server(Path(sys.argv[1]) if len(sys.argv) > 1 else Path()) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        print(f"http://127.0.0.1:{server.server_address[1]}", flush=True)
        sys.stdin.read()
        server.shutdown()


if __name__ == "__main__":
    main()
