"""A server that speaks EZID's protocol over HTTP and keeps what it is told, and does to each request what the test
wrote down, in order.

does = ["lose", "ok"]      ok: as EZID does      lose: do it, then cut the connection      cut: cut it before anything is done
                           status 503 text: answer so, nothing done      hang: never answer      endless: an answer without end

`watch` is called with "before" and "after" each request that is done, in the thread that serves it.
"""

import base64
import itertools
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self
from urllib.parse import unquote, urlsplit

PASSWORD = base64.b64encode(b"apitest:secret").decode()


class EzidServer:
    def __init__(self) -> None:
        self.known: dict[str, dict[str, str]] = {}
        self.does: list[str] = []
        self.asked: list[tuple[str, str, str]] = []  # method, path, body
        self.minted: list[str] = []
        self.watch: Callable[[str], None] = lambda when: None
        self.over = threading.Event()
        self.numbers = itertools.count(1)
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"ezid": self}))
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.over.set()
        self._server.shutdown()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    ezid: EzidServer

    def log_message(self, format: str, *args: object) -> None:
        pass

    def _serve(self) -> None:
        length = int(self.headers.get("content-length") or 0)
        body = self.rfile.read(length).decode()
        if len(body.encode()) < length:  # the client died while it sent: nobody heeds half a request
            self.close_connection = True
            return
        self.ezid.asked.append((self.command, self.path, body))
        what, _, value = (self.ezid.does.pop(0) if self.ezid.does else "ok").partition(" ")
        if what == "cut":
            self.close_connection = True
        elif what == "hang":
            self.ezid.over.wait(60)
            self.close_connection = True
        elif what == "status":
            code, _, text = value.partition(" ")
            self._answer(int(code), text)
        elif what == "endless":
            self.send_response(200)
            self.end_headers()
            try:
                while not self.ezid.over.is_set():
                    self.wfile.write(b"success: x" * 10_000)
            except OSError:
                self.close_connection = True
        else:
            self.ezid.watch("before")
            status, text = self._do(body)
            self.ezid.watch("after")
            if what == "lose":
                self.close_connection = True
            else:
                self._answer(status, text)

    do_GET = do_PUT = do_POST = _serve

    def _do(self, body: str) -> tuple[int, str]:
        if self.headers.get("authorization") != f"Basic {PASSWORD}":
            return 401, "error: unauthorized"
        parts = urlsplit(self.path)
        kind, _, identifier = parts.path.removeprefix("/").partition("/")
        identifier, known = unquote(identifier), self.ezid.known
        fields = {
            unquote(label): unquote(value) for label, _, value in (line.partition(": ") for line in body.splitlines())
        }
        if kind == "shoulder":
            ark = f"{identifier}{next(self.ezid.numbers)}x"
            known[ark] = fields
            self.ezid.minted.append(ark)
            return 201, f"success: {ark}"
        if not identifier.startswith("ark:/99999/"):
            return 403, "error: forbidden"
        exists = identifier in known
        if self.command == "PUT" and exists and parts.query != "update_if_exists=yes":
            return 400, "error: bad request - identifier already exists"
        if self.command in ("GET", "POST") and not exists:
            return 400, "error: bad request - no such identifier"
        if self.command == "GET":
            lines = [
                f"{label}: {value.replace('%', '%25').replace(chr(10), '%0A')}"
                for label, value in known[identifier].items()
            ]
            return 200, "\n".join([f"success: {identifier}", *lines])
        known[identifier] = {**known.get(identifier, {}), **fields}
        return (200 if exists else 201), f"success: {identifier}"

    def _answer(self, status: int, text: str) -> None:
        data = text.encode()
        try:
            self.send_response(status)
            self.send_header("content-type", "text/plain; charset=UTF-8")
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)
        except OSError:
            self.close_connection = True  # whoever asked is dead by now
