"""A whole ingest in a test: settings, store, objects, working folder, a web server with the depositor's files, and
workers that run.

    with Site(tmp_path, store=postgres_url) as site:
        url = site.web.put("a.txt", b"hello")
        ...                                            make records with site.engine()
        with site.workers():
            job = site.wait("job", id, "Completed")    until it is in one of the states; AssertionError with its history after a while

`Web` is a real HTTP server on loopback (threads, ranges, HEAD); `web.requests` lists (method, path) of everything that
was asked.
"""

from __future__ import annotations

import dataclasses
import http.server
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from waybill import config
from waybill.apps.ingest.application import APPLICATION
from waybill.config import sqlite_url
from waybill.depot import Depot
from waybill.duties import Post, all_duties
from waybill.engine import Engine
from waybill.record import Record, Ref
from waybill.worker import Arrow, Worker, step_once

PATIENCE = 120.0


class Web:
    """Files over HTTP. `answers[path] = callable(handler)` lets a test misbehave."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.answers: dict[str, Any] = {}
        self.requests: list[tuple[str, str]] = []
        web = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, format: str, *args: Any) -> None: ...

            def do_HEAD(self) -> None:
                self._answer(body=False)

            def do_GET(self) -> None:
                self._answer(body=True)

            def do_POST(self) -> None:
                web.requests.append(("POST", self.path))
                if self.path in web.answers:
                    web.answers[self.path](self)
                else:
                    self.send_error(404)

            do_PUT = do_POST

            def _answer(self, body: bool) -> None:
                web.requests.append((self.command, self.path))
                if self.path in web.answers:
                    web.answers[self.path](self)
                    return
                data = web.files.get(self.path)
                if data is None:
                    self.send_error(404)
                    return
                start, end, wanted = 0, len(data), self.headers.get("Range", "")
                if wanted.startswith("bytes="):
                    first, _, last = wanted[6:].partition("-")
                    start, end = int(first), int(last) + 1 if last else len(data)
                    self.send_response(206)
                    self.send_header("Content-Range", f"bytes {start}-{end - 1}/{len(data)}")
                else:
                    self.send_response(200)
                self.send_header("ETag", f'"{hash(data):x}"')
                self.send_header("Accept-Ranges", "bytes")
                self.send_header("Content-Length", str(end - start))
                self.end_headers()
                if body:
                    self.wfile.write(data[start:end])

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def put(self, name: str, data: bytes) -> str:
        self.files[f"/{name}"] = data
        return f"{self.url}/{name}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class Site:
    def __init__(
        self, folder: Path, *, store: str = "", settings: Mapping[str, Any] | None = None, **more: Any
    ) -> None:
        """`settings`: of [app.ingest]; loopback may be fetched from. `more`: other settings, with __ for the dot:
        work__threads=2.
        """
        self.web = Web()
        own: dict[str, Any] = {"url": "http://waybill.test", **(settings or {})}
        own["fetch"] = {"allow": ["127.0.0.0/8"], "timeout": 60.0, **own.get("fetch", {})}
        own["room"] = {"keep_free": 0, "unknown": 0, **own.get("room", {})}
        overrides = {
            "data": folder / "data",
            "store": store or sqlite_url(folder / "data" / "waybill.db"),
            "work.host": "testhost",
        }
        overrides |= {name.replace("__", "."): value for name, value in more.items()}
        base = config.load(env={}, overrides=overrides)
        self.depot = Depot.of(dataclasses.replace(base, app={"ingest": own}), [APPLICATION])
        self.depot.config.data.mkdir(parents=True, exist_ok=True)
        with closing(self.depot.open_store()):
            pass

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.depot.close()
        self.web.close()

    @property
    def root(self) -> Path:
        return self.depot.config.work.root

    @contextmanager
    def engine(self) -> Iterator[Engine]:
        with closing(self.depot.open_store()) as store:
            yield self.depot.engine(store)

    def get(self, kind: str, id: str) -> Record:
        with self.engine() as engine:
            return engine.store.get(kind, id)

    def worker(self, **options: Any) -> Worker:
        options = {
            "roles": [k for k, m in self.depot.machines.items() if m.working() and not m.without_steps()],
            "threads": 4,
        } | options
        return Worker(
            self.depot.open_store,
            self.depot.machines,
            host=self.depot.host,
            work_root=self.root,
            objects=self.depot.objects,
            outfit=self.depot.outfit,
            **options,
        )

    @contextmanager
    def workers(self, *, duties: bool = False, **options: Any) -> Iterator[Worker]:
        """A worker in a thread; stopped, and its fault raised, at the end."""
        more = [duty for application in self.depot.applications for duty in application.duties]
        post = Post(
            all_duties(more),
            self.depot.machines,
            self.depot.host,
            self.root,
            self.depot.objects,
            self.depot.open_store,
            outfit=self.depot.outfit,
        )
        post.take_up()
        if duties:
            with self.engine() as engine:
                post.ensure(engine)
        worker = self.worker(**options)
        faults: list[BaseException] = []

        def run() -> None:
            try:
                worker.run()
            except BaseException as error:  # noqa: BLE001 - raised below
                faults.append(error)

        thread = threading.Thread(target=run, name="worker")
        thread.start()
        try:
            yield worker
        finally:
            worker.stop()
            thread.join()
        if faults:
            raise faults[0]

    def step(self, ref: Ref) -> Arrow | None:
        """Exactly one step of this record, and the arrow that it took."""
        return step_once(
            self.depot.open_store,
            self.depot.machines,
            host=self.depot.host,
            work_root=self.root,
            objects=self.depot.objects,
            target=ref,
            roles=(ref.kind,),
            outfit=self.depot.outfit,
        )

    def lead(self, ref: Ref, *states: str, steps: int = 40) -> Record:
        """Step by step, until the record is in one of the states."""
        for _ in range(steps):
            record = self.get(*ref)
            if record.state in states:
                return record
            self.step(ref)
        raise AssertionError(f"{ref} is {record.state} after {steps} steps, not {states}: {record.message}")

    def wait(self, kind: str, id: str, *states: str, patience: float = PATIENCE) -> Record:
        """Until the record is in one of the states."""
        until = time.monotonic() + patience
        with self.engine() as engine:
            while True:
                record = engine.store.get(kind, id)
                if record.state in states and record.session is None:
                    return record
                if time.monotonic() > until:
                    lines = [
                        f"{line.before} -> {line.after} {line.event} {line.why}"
                        for line in engine.store.history(kind, id)
                    ]
                    raise AssertionError(
                        f"{record.ref} is {record.state}, not {states}: {record.message}\n" + "\n".join(lines)
                    )
                engine.store.watch(0.2)
