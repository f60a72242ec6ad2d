"""Compute beside its peers, in the same run.

compute.map.shell      tasks a second of `bash -c wc` over small objects, from the end of the input until all are published;
                       the peer is a bare loop of posix_spawn with three redirected files, one after the other
compute.map.program    the same where the command needs no shell
...parallel            the same beside GNU parallel, which starts as many at once as there are cores
compute.put, .get      requests a second of 64 KiB with 16 connections, beside moto's S3 server

A task of ours has a sandbox, limits, its own session, its output stored as an object, and a line in the job's files.
"""

from __future__ import annotations

import http.client
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks import ROOT
from benchmarks.effort import Effort
from benchmarks.figure import Figure
from benchmarks.sandbox import run_bare
from waybill import config
from waybill.apps.compute.entries import Entry
from waybill.apps.compute.paths import parse_path
from waybill.apps.compute.storage import now_ms
from waybill.environment import Environment

TEXT = b"a few words\n" * 20
BODY = os.urandom(64 * 1024)
CONNECTIONS = 16
PATIENCE = 60.0
CASES: dict[str, tuple[str, Sequence[str], float, float]] = {
    "shell": ("wc;", ("bash", "--norc", "-c", "wc"), 0.8, 1.3),
    "program": ("wc", ("wc",), 0.6, 2.0),
}


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


@contextmanager
def _server(words: Sequence[str], port: int, path: str, folder: Path) -> Iterator[None]:
    """A process that answers on the port."""
    with (folder / "log").open("ab") as log:
        process = subprocess.Popen([sys.executable, *words], stdout=log, stderr=log, cwd=ROOT)
    try:
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                _request(port, "GET", path)
                break
            except OSError:
                if process.poll() is not None or time.monotonic() > deadline:
                    raise SystemExit(f"{words} did not start:\n{(folder / 'log').read_text()[-2000:]}") from None
                time.sleep(0.1)
        yield
    finally:
        process.terminate()
        process.wait()


@contextmanager
def _waybill(folder: Path) -> Iterator[int]:
    data, port = folder / "data", _free_port()
    data.mkdir()
    (data / "waybill.toml").write_text('applications = ["compute"]\n')
    words = ["-m", "waybill", "up", "--data", str(data), "--port", str(port), "--open-loopback"]
    with _server(words, port, "/health", folder):
        yield port


def _request(port: int, method: str, path: str, body: bytes | None = None) -> bytes:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    try:
        connection.request(method, path, body)
        answer = connection.getresponse()
        found = answer.read()
        if answer.status >= 400:
            raise SystemExit(f"{method} {path}: {answer.status} {found[:500]!r}")
        return found if method != "POST" else (answer.getheader("location") or "").encode()
    finally:
        connection.close()


def map_tasks(effort: Effort) -> Iterator[Figure]:
    count = effort.pick(10_000, 20)
    with tempfile.TemporaryDirectory(prefix="waybill-bench-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        files = folder / "files"
        files.mkdir()
        for number in range(count):
            (files / f"{number:06d}").write_bytes(TEXT)
        with _waybill(folder) as port:
            keys = _put_objects(folder / "data", count)
            for case, (command, argv, over_loop, over_parallel) in CASES.items():
                ours = count / _time_job(port, command, keys, count)
                loop = count / _time_of(lambda argv=argv: _run_loop(argv, files, folder))  # type: ignore[misc]
                shell = " ".join(argv) if case == "program" else "bash --norc -c wc"
                parallel = count / _time_of(lambda shell=shell: _run_parallel(shell, files))  # type: ignore[misc]
                note = f"{count} tasks"
                yield Figure(f"compute.map.{case}", ours, "tasks/s", loop, over_loop, note=f"{note}; a bare loop")
                yield Figure(
                    f"compute.map.{case}.parallel",
                    ours,
                    "tasks/s",
                    parallel,
                    over_parallel,
                    note=f"{note}; GNU parallel",
                )


def _time_of(run: Callable[[], object]) -> float:
    began = time.perf_counter()
    run()
    return time.perf_counter() - began


def _put_objects(data: Path, count: int) -> list[str]:
    """Small objects that share one stored content, as outputs of tasks do."""
    environment = Environment.from_config(config.load(env={}, overrides={"data": data}))
    storage, folder = environment.resources_of("compute").storage, parse_path("/bench/stor/in")
    storage.make_directories(folder)
    content = storage.store([TEXT])
    names = [f"{number:06d}" for number in range(count)]
    for at in range(0, count, 1000):
        entries = [Entry(each, "object", content.name, 0, each, len(TEXT), "", "text/plain", 2, {}, now_ms())
                   for each in names[at : at + 1000]]  # fmt: skip
        with storage.open_entries() as tables:
            tables.put_many(folder, entries, now=now_ms())
    environment.close()
    return [str(folder.child(each)) for each in names]


def _time_job(port: int, command: str, keys: Sequence[str], count: int) -> float:
    job = _request(port, "POST", "/bench/jobs", json.dumps({"phases": [{"exec": command}]}).encode()).decode()
    began = time.perf_counter()
    _request(port, "POST", f"{job}/live/in?end=true", "\n".join(keys).encode())
    while json.loads(_request(port, "GET", f"{job}/live/status"))["stats"]["tasksDone"] < count:
        time.sleep(0.05)
    return time.perf_counter() - began


def _run_loop(argv: Sequence[str], files: Path, folder: Path) -> None:
    for source in files.iterdir():
        run_bare(argv, (source, folder / "out", folder / "err"))


def _run_parallel(command: str, files: Path) -> None:
    outputs = files.parent / "outputs"
    outputs.mkdir(exist_ok=True)
    names = "\n".join(sorted(each.name for each in files.iterdir())).encode()
    line = f"{command} < {files}/{{}} > {outputs}/{{}}.out 2> {outputs}/{{}}.err"
    subprocess.run(["parallel", "--will-cite", line], input=names, check=True)


def requests(effort: Effort) -> Iterator[Figure]:
    count = effort.pick(4_000, 32)
    with tempfile.TemporaryDirectory(prefix="waybill-bench-") as name:
        folder = Path(name)
        with _waybill(folder) as port:
            ours = _measure_requests(port, "/bench/stor", count)
        moto = _free_port()
        with _server(["-m", "moto.server", "-p", str(moto)], moto, "/moto-api/", folder):
            _request(moto, "PUT", "/bucket")
            peer = _measure_requests(moto, "/bucket", count)
    note = f"{count} requests of 64 KiB, {CONNECTIONS} connections; moto"
    for what, mine, theirs in zip(("put", "get"), ours, peer, strict=True):
        yield Figure(f"compute.{what}", mine, "requests/s", theirs, 3.0, note=note)


def _measure_requests(port: int, folder: str, count: int) -> tuple[float, float]:
    put = _time_of(lambda: _run_connections(port, "PUT", folder, count))
    get = _time_of(lambda: _run_connections(port, "GET", folder, count))
    return count / put, count / get


def _run_connections(port: int, method: str, folder: str, count: int) -> None:
    failures: list[str] = []

    def work(first: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
        for number in range(first, count, CONNECTIONS):
            headers = {"x-amz-acl": "public-read"} if method == "PUT" else {}  # or moto refuses to give it back
            connection.request(method, f"{folder}/o{number}", BODY if method == "PUT" else None, headers)
            answer = connection.getresponse()
            if len(answer.read()) != (len(BODY) if method == "GET" else 0) or answer.status >= 300:
                failures.append(f"{method} {number}: {answer.status}")
        connection.close()

    threads = [threading.Thread(target=work, args=(first,)) for first in range(CONNECTIONS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise SystemExit(failures[0])


PARTS = {"compute.map": map_tasks, "compute.requests": requests}
