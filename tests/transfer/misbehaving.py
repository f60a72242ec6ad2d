"""An HTTP server that does to each request what the test wrote down for its path, in order; the last thing is repeated.

files["/a"] = b"..."                 what there is
does["/a"] = ["cut 10", "ok"]        what happens: see `_Handler._serve`
asked["/a"]                          the headers of each request
"""

import hashlib
import ssl
import threading
from collections import defaultdict
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self


class Misbehaving:
    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.files: dict[str, bytes] = {}
        self.does: dict[str, list[str]] = {}
        self.asked: dict[str, list[dict[str, str]]] = defaultdict(list)
        self.over = threading.Event()
        self.lock = threading.Lock()
        self.at_once = 0  # requests that came and are not answered yet
        self.most_at_once = 0
        self.meetings: dict[int, threading.Barrier] = {}
        handler = type("Handler", (_Handler,), {"server_of": self})
        self._server = _Server(("127.0.0.1", 0), handler)
        self.port = self._server.server_port
        self.url = f"http://127.0.0.1:{self.port}"
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.over.set()
        self._server.shutdown()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 100

    def handle_error(self, request: object, client_address: object) -> None:
        pass  # a client that does not like our certificate goes away


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_of: Misbehaving

    def log_message(self, format: str, *args: object) -> None:
        pass

    def _serve(self) -> None:
        state = self.server_of
        with state.lock:
            state.asked[self.path].append(
                {name.lower(): value for name, value in self.headers.items()} | {"method": self.command}
            )
            plan = state.does.setdefault(self.path, ["ok"])
            what, _, value = (plan.pop(0) if len(plan) > 1 else plan[0]).partition(" ")
            state.at_once += 1
            state.most_at_once = max(state.most_at_once, state.at_once)
            self.waits = True
        try:
            getattr(self, f"_{what}")(value)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True
        finally:
            self._answered()

    def _answered(self) -> None:
        """Before the first byte of the answer: whoever has that may ask for the next thing at once."""
        with self.server_of.lock:
            self.server_of.at_once -= self.waits
            self.waits = False

    do_GET = do_HEAD = _serve

    @property
    def data(self) -> bytes:
        return self.server_of.files[self.path]

    def _headers(self, status: int, length: int | None, **more: str) -> None:
        self._answered()
        self.send_response(status)
        for name, value in more.items():
            self.send_header(name.replace("_", "-"), value)
        if length is not None:
            self.send_header("content-length", str(length))
        self.end_headers()

    def _send(self, data: bytes, etag: str | None, *, stop_after: int | None = None) -> None:
        """Answer, with the range that was asked for if the version is still the same."""
        start = 0
        if etag and self.headers.get("if-range") == etag and self.headers.get("range", "").startswith("bytes="):
            start = int(self.headers["range"].removeprefix("bytes=").rstrip("-"))
        more = {"etag": etag} if etag else {}
        if start:
            self._headers(206, len(data) - start, content_range=f"bytes {start}-{len(data) - 1}/{len(data)}", **more)
        else:
            self._headers(200, len(data), **more)
        if self.command == "GET":
            self.wfile.write(data[start:] if stop_after is None else data[start : start + stop_after])
        if stop_after is not None:
            self.close_connection = True

    def _tag(self) -> str:
        return f'"{hashlib.md5(self.data, usedforsecurity=False).hexdigest()}"'

    def _ok(self, value: str) -> None:
        self._send(self.data, self._tag())

    def _cut(self, value: str) -> None:
        self._send(self.data, self._tag(), stop_after=int(value))

    def _cut_unversioned(self, value: str) -> None:
        self._send(self.data, None, stop_after=int(value))

    def _cut_weak(self, value: str) -> None:
        self._send(self.data, "W/" + self._tag(), stop_after=int(value))

    def _status(self, value: str) -> None:
        self._headers(int(value), 0)

    def _later(self, value: str) -> None:
        self._headers(503, 0, retry_after=value)

    def _redirect(self, value: str) -> None:
        self._headers(302, 0, location=value)

    def _hang(self, value: str) -> None:
        self.server_of.over.wait()
        self.close_connection = True

    def _hang_after(self, value: str) -> None:
        self._headers(200, len(self.data), etag=self._tag())
        self.wfile.write(self.data[: int(value)])
        self.server_of.over.wait()
        self.close_connection = True

    def _trickle(self, value: str) -> None:
        self._headers(200, len(self.data), etag=self._tag())
        for at in range(len(self.data)):
            self.wfile.write(self.data[at : at + 1])
            self.wfile.flush()
            if self.server_of.over.wait(float(value)):
                return

    def _nolength(self, value: str) -> None:
        self._headers(200, None, connection="close")
        self.wfile.write(self.data)
        self.close_connection = True

    def _endless(self, value: str) -> None:
        self._headers(200, None, connection="close")
        while not self.server_of.over.is_set():
            self.wfile.write(b"x" * 65536)

    def _says(self, value: str) -> None:
        """A wrong length: more than there is, or less."""
        self._headers(200, int(value))
        self.wfile.write(self.data)
        self.close_connection = True

    def _gzip(self, value: str) -> None:
        self._headers(200, len(self.data), content_encoding="gzip")
        self.wfile.write(self.data)

    def _wrongrange(self, value: str) -> None:
        self._headers(
            206, len(self.data), content_range=f"bytes 0-{len(self.data) - 1}/{len(self.data)}", etag=self._tag()
        )
        self.wfile.write(self.data)

    def _otherhalf(self, value: str) -> None:
        """A range of the right place and version, with wrong bytes."""
        start = int(self.headers["range"].removeprefix("bytes=").rstrip("-"))
        rest = len(self.data) - start
        self._headers(206, rest, content_range=f"bytes {start}-{len(self.data) - 1}/{len(self.data)}", etag=self._tag())
        self.wfile.write(b"?" * rest)

    def _garbage(self, value: str) -> None:
        self.wfile.write(b"this is not HTTP\r\n\r\n")
        self.close_connection = True

    def _meet(self, value: str) -> None:
        """Nobody is answered before so many have asked, or never will; and a moment later, in which one too many
        would come.
        """
        with self.server_of.lock:
            meeting = self.server_of.meetings.setdefault(int(value), threading.Barrier(int(value)))
        with suppress(threading.BrokenBarrierError):
            meeting.wait(30)
        self.server_of.over.wait(0.1)
        self._ok("")
