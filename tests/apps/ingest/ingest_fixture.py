"""Ingest in a test: settings, store, objects, a working folder, a web server with the depositor's files, and workers.

    with IngestFixture(tmp_path, store=postgres_url) as ingest:
        url = ingest.web.put("a.txt", b"hello")
        ...                                              create records with ingest.engine()
        with ingest.workers():
            job = ingest.wait("job", id, "Completed")    until it is in one of the states; AssertionError with its history after a while

`FileServer` is a real HTTP server on loopback (threads, ranges, HEAD); `web.requests` lists (method, path) of all
requests.
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
from waybill.apps.ingest.resources import IngestResources
from waybill.config import sqlite_url
from waybill.engine import Engine
from waybill.environment import Environment
from waybill.maintenance import MaintenanceScheduler, collect_routines
from waybill.record import Record, Ref
from waybill.worker import StepTransition, Worker, run_one_step

PATIENCE = 120.0


class FileServer:
    """Serves files over HTTP. `answers[path] = callable(handler)` replaces the answer for a path."""

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


class IngestFixture:
    def __init__(
        self, folder: Path, *, store: str = "", settings: Mapping[str, Any] | None = None, **more: Any
    ) -> None:
        """`settings`: of [app.ingest]; downloads from loopback are allowed. `more`: other settings, with __ for the
        dot: work__threads=2.
        """
        self.web = FileServer()
        own: dict[str, Any] = {"url": "http://waybill.test", **(settings or {})}
        if store.startswith("zookeeper:"):
            own = {"takes_batches_of_others": True, **own}
        own["fetch"] = {"allow": ["127.0.0.0/8"], "timeout": 60.0, **own.get("fetch", {})}
        own["disk_space"] = {"keep_free": 0, "unknown_size_bytes": 0, **own.get("disk_space", {})}
        overrides = {
            "data": folder / "data",
            "store": store or sqlite_url(folder / "data" / "waybill.db"),
            "work.host": "testhost",
        }
        overrides |= {name.replace("__", "."): value for name, value in more.items()}
        base = config.load(env={}, overrides=overrides)
        self.environment = Environment.from_config(dataclasses.replace(base, app={"ingest": own}), [APPLICATION])
        self.environment.config.data.mkdir(parents=True, exist_ok=True)
        with self.engine() as engine:
            self.environment.subscriptions.ensure_records(engine)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.environment.close()
        self.web.close()

    @property
    def resources(self) -> IngestResources:
        found: IngestResources = self.environment.resources_of("ingest")
        return found

    @property
    def root(self) -> Path:
        return self.environment.config.work.root

    @contextmanager
    def engine(self) -> Iterator[Engine]:
        with closing(self.environment.open_store()) as store:
            yield self.environment.make_engine(store)

    def get(self, kind: str, id: str) -> Record:
        with self.engine() as engine:
            return engine.store.get(kind, id)

    def start_inventory(self) -> None:
        """Before objects are put into storage past the inventory: which then is not new, and takes them for unrecorded."""
        with self.engine() as engine:
            assert self.resources.find_inventory_problem(lambda call: call(engine.store)) == ""

    def worker(self, **options: Any) -> Worker:
        machines = self.environment.machines
        served = [k for k, m in machines.items() if m.list_work_states() and not m.list_states_without_step()]
        chosen: dict[str, Any] = {"queues": served, "threads": 4, **options}
        return Worker(
            self.environment.open_store,
            self.environment.machines,
            host=self.environment.host,
            work_root=self.root,
            objects=self.environment.objects,
            resources_of=self.environment.resources_of_kind,
            **chosen,
        )

    @contextmanager
    def workers(self, *, maintenance: bool = False, **options: Any) -> Iterator[Worker]:
        """A worker in a thread, with maintenance routines if wanted; stopped, and its error raised, at the end."""
        routines = [routine for application in self.environment.applications for routine in application.maintenance]
        scheduler = MaintenanceScheduler(
            collect_routines(routines),
            self.environment.machines,
            self.environment.host,
            self.root,
            self.environment.objects,
            self.environment.open_store,
            resources_of=self.environment.resources_of,
        )
        scheduler.register_step()
        if maintenance:
            with self.engine() as engine:
                scheduler.ensure_records(engine)
        worker = self.worker(**options)
        errors: list[BaseException] = []

        def run() -> None:
            try:
                worker.run()
            except BaseException as error:  # noqa: BLE001 - raised below
                errors.append(error)

        thread = threading.Thread(target=run, name="worker")
        thread.start()
        try:
            yield worker
        finally:
            worker.stop()
            thread.join()
        if errors:
            raise errors[0]

    def step(self, ref: Ref) -> StepTransition | None:
        """Run exactly one step of this record; returns the transition."""
        return run_one_step(
            self.environment.open_store,
            self.environment.machines,
            host=self.environment.host,
            work_root=self.root,
            objects=self.environment.objects,
            target=ref,
            queues=(ref.kind,),
            resources_of=self.environment.resources_of_kind,
        )

    def step_until(self, ref: Ref, *states: str, steps: int = 40) -> Record:
        """Run steps until the record is in one of the states."""
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
                        f"{line.before} -> {line.after} {line.cause} {line.why}"
                        for line in engine.store.history(kind, id)
                    ]
                    raise AssertionError(
                        f"{record.ref} is {record.state}, not {states}: {record.message}\n" + "\n".join(lines)
                    )
                engine.store.watch(0.2)
