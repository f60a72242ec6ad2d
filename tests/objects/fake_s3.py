"""A small S3 server in memory whose conditional writes are worth what a test wants them to be worth. It checks no
signatures.

How it treats each condition (`worth["create" | "swap" | "complete-create" | "complete-swap"]`):

    atomic    checked and written under one lock
    racy      checked, then written some time later: as OpenStack Swift does
    ignored   answered with success: as rclone does
    refused   answered with 501
    never     never holds: as `If-Match` on Ceph 16

What else it can do wrong (`trouble`, a list of what happens to the next requests that match): see `Trouble`.
"""

import hashlib
import itertools
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape


@dataclass
class Trouble:
    """Something that happens once, to the next request of this method whose key ends like this."""

    method: str
    key: str
    what: (
        # "503" | "409" | "cut answer" (done, but nobody is told) | "short" (half of the body, then the end) | "hang" |
        # "error in 200"
        str
    )


@dataclass
class FakeS3:
    worth: dict[str, str] = field(default_factory=dict)
    trouble: list[Trouble] = field(default_factory=list)
    objects: dict[str, tuple[bytes, dict[str, str]]] = field(default_factory=dict)
    uploads: dict[str, tuple[str, dict[str, str], dict[int, bytes]]] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)
    checked: dict[str, int] = field(default_factory=dict)
    numbers: Iterator[int] = field(default_factory=itertools.count)
    over: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> Self:
        handler = type("Handler", (_Handler,), {"fake": self})
        self._server = _Server(("127.0.0.1", 0), handler)
        self.endpoint = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.over.set()
        self._server.shutdown()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    request_queue_size = 200  # racers come all at once
    daemon_threads = True


def etag_of(data: bytes) -> str:
    return f'"{hashlib.md5(data, usedforsecurity=False).hexdigest()}"'


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    fake: FakeS3

    def log_message(self, format: str, *args: object) -> None:
        pass

    def _serve(self) -> None:
        address = urlsplit(self.path)
        self.key = unquote(address.path).lstrip("/").partition("/")[2]
        self.query = {name: values[0] for name, values in parse_qs(address.query, keep_blank_values=True).items()}
        self.body = self.rfile.read(int(self.headers.get("content-length", 0)))
        self.fake.requests.append(f"{self.command} {self.key}")
        self.meta = {name: value for name, value in self.headers.items() if name.lower().startswith("x-amz-meta-")}
        self.trouble = ""
        with self.fake.lock:
            for trouble in self.fake.trouble:
                if trouble.method == self.command and self.key.endswith(trouble.key):
                    self.fake.trouble.remove(trouble)
                    self.trouble = trouble.what
                    break
        if self.trouble in ("503", "409"):
            self._answer(
                int(self.trouble),
                b"<Error><Code>ConditionalRequestConflict</Code></Error>" if self.trouble == "409" else b"",
            )
        elif self.trouble == "error in 200":
            self._answer(200, b'<?xml version="1.0"?>\n<Error><Code>InternalError</Code></Error>')
        elif self.trouble == "hang":
            self.fake.over.wait()
            self.close_connection = True
        else:
            getattr(self, f"_{self.command.lower()}")()

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _serve

    def _answer(self, status: int, body: bytes = b"", **headers: str) -> None:
        if self.trouble == "cut answer":
            self.close_connection = True
            return
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("content-length", headers.get("content_length", str(len(body))))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body[: len(body) // 2] if self.trouble == "short" else body)
            self.close_connection = self.close_connection or self.trouble == "short"

    def _get(self) -> None:
        if "list-type" in self.query:
            return self._list()
        with self.fake.lock:
            if "uploadId" in self.query:
                return self._list_parts()
            if self.key not in self.fake.objects:
                return self._answer(404, b"<Error><Code>NoSuchKey</Code></Error>")
            data, meta = self.fake.objects[self.key]
        more = {
            "etag": etag_of(data),
            "last_modified": "Sun, 15 Nov 2026 12:00:00 GMT",
            **{k.replace("-", "_"): v for k, v in meta.items()},
        }
        if self.command == "HEAD":
            return self._answer(200, b"", content_length=str(len(data)), **more)
        return self._answer(200, data, **more)

    _head = _get

    def _list(self) -> None:
        with self.fake.lock:
            keys = sorted(key for key in self.fake.objects if key.startswith(self.query.get("prefix", "")))
            found = "".join(
                f"<Contents><Key>{escape(key)}</Key><LastModified>2026-11-15T12:00:00.000Z</LastModified>"
                f"<ETag>{escape(etag_of(self.fake.objects[key][0]))}</ETag><Size>{len(self.fake.objects[key][0])}</Size></Contents>"
                for key in keys
                if key > self.query.get("start-after", "")
            )
        self._answer(200, f"<ListBucketResult><IsTruncated>false</IsTruncated>{found}</ListBucketResult>".encode())

    def _list_parts(self) -> None:
        if self.query["uploadId"] not in self.fake.uploads:
            return self._answer(404, b"<Error><Code>NoSuchUpload</Code></Error>")
        parts = self.fake.uploads[self.query["uploadId"]][2]
        found = "".join(
            f"<Part><PartNumber>{number}</PartNumber><Size>{len(data)}</Size><ETag>{escape(etag_of(data))}</ETag></Part>"
            for number, data in parts.items()
        )
        return self._answer(200, f"<ListPartsResult>{found}</ListPartsResult>".encode())

    def _put(self) -> None:
        if "uploadId" in self.query:
            with self.fake.lock:
                self.fake.uploads[self.query["uploadId"]][2][int(self.query["partNumber"])] = self.body
            return self._answer(200, etag=etag_of(self.body))
        return self._write(self.body, self.meta, "")

    def _post(self) -> None:
        if "uploads" in self.query:
            with self.fake.lock:
                upload = f"upload{next(self.fake.numbers)}"
                self.fake.uploads[upload] = (self.key, self.meta, {})
            return self._answer(200, f"<Result><UploadId>{upload}</UploadId></Result>".encode())
        with self.fake.lock:
            if self.query["uploadId"] not in self.fake.uploads:
                return self._answer(404, b"<Error><Code>NoSuchUpload</Code></Error>")
            _, meta, parts = self.fake.uploads[self.query["uploadId"]]
        return self._write(b"".join(data for _, data in sorted(parts.items())), meta, "complete-")

    def _delete(self) -> None:
        with self.fake.lock:
            if "uploadId" in self.query:
                self.fake.uploads.pop(self.query["uploadId"], None)
            else:
                self.fake.objects.pop(self.key, None)
        self._answer(204)

    def _write(self, data: bytes, meta: dict[str, str], how: str) -> None:
        condition = "create" if "if-none-match" in self.headers else "swap" if "if-match" in self.headers else ""
        worth = self.fake.worth.get(how + condition, "atomic") if condition else "ignored"
        if worth == "refused":
            return self._answer(501, b"<Error><Code>NotImplemented</Code></Error>")
        if worth == "racy" and self._holds(condition):
            self._wait_for_rivals()
        with self.fake.lock:
            if worth == "never" or (worth == "atomic" and not self._holds(condition)):
                return self._answer(412, b"<Error><Code>PreconditionFailed</Code></Error>")
            if worth == "racy" and not self._holds(condition) and self.fake.checked.get(self.key, 0) < 2:
                return self._answer(412, b"<Error><Code>PreconditionFailed</Code></Error>")
            self.fake.objects[self.key] = (data, meta)
            self.fake.uploads.pop(self.query.get("uploadId", ""), None)
        return self._answer(
            200, f"<Result><ETag>{escape(etag_of(data))}</ETag></Result>".encode() if how else b"", etag=etag_of(data)
        )

    def _holds(self, condition: str) -> bool:
        present = self.fake.objects.get(self.key)
        if condition == "create":
            return present is None
        return present is not None and etag_of(present[0]) == self.headers["if-match"]

    def _wait_for_rivals(self) -> None:
        """Between the check and the write: until a second one has passed the check as well, if one comes for this
        key at all.
        """
        with self.fake.lock:
            self.fake.checked[self.key] = self.fake.checked.get(self.key, 0) + 1
        contested = self.key[-1].isdigit()  # as the probe calls them: create-0, swap-3
        deadline = time.monotonic() + (60 if contested else 0)
        while self.fake.checked[self.key] < 2 and time.monotonic() < deadline:
            time.sleep(0.005)
