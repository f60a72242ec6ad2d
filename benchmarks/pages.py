"""The pages over a large store: how long the first page, failures and a search take on loopback, and what 200 listeners cost.

    pages.sqlite, pages.postgres      a million parcels, a tenth of them failed with a hundred causes
    pages.zookeeper                   ten thousand

A page is asked for as a browser does, signed in, and counts when all of it has come; the slowest of some is shown.
"""

from __future__ import annotations

import http.client
import itertools
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
from tests.servers.postgres import PostgresServer
from tests.servers.zookeeper import ZooKeeperServer

from benchmarks.effort import Effort
from benchmarks.engine import POSTGRES
from benchmarks.figure import Figure
from waybill import config
from waybill.engine import Engine
from waybill.environment import Environment
from waybill.record import Change, CommitGroup, Record, StoreError, encode_document
from waybill.sign_in import make_login_link

OWNED = 1_000  # parcels of one depositor
CAUSES = 100
GROUP = 500  # parcels in one commit
LISTENERS, CHANGES = 200, 50  # streams, and changes a second


def sqlite(effort: Effort) -> Iterator[Figure]:
    yield from measure("pages.sqlite", effort, "", effort.pick(1_000_000, 2_000))


def postgres(effort: Effort) -> Iterator[Figure]:
    with PostgresServer(settings=POSTGRES) as server:
        yield from measure("pages.postgres", effort, server.create_database(), effort.pick(1_000_000, 2_000))


def zookeeper(effort: Effort) -> Iterator[Figure]:
    with ZooKeeperServer() as server:
        yield from measure("pages.zookeeper", effort, server.create_chroot(), effort.pick(10_000, 500))


def measure(name: str, effort: Effort, store_url: str, count: int) -> Iterator[Figure]:
    with tempfile.TemporaryDirectory(prefix="waybill-bench-") as folder:
        overrides: dict[str, Any] = {"data": Path(folder) / "data", **({"store": store_url} if store_url else {})}
        environment = Environment.from_config(config.load(env={}, overrides=overrides), applications=[], demo=True)
        with closing(environment.open_store()) as store:
            engine = environment.make_engine(store)
            fill(engine, count)
            links = {role: make_login_link(engine, "bench", role).text for role in ("operator", "reader")}
        env = {**os.environ, "WAYBILL_DATA": str(overrides["data"]), "WAYBILL_STORE": environment.config.store}
        env |= {"WAYBILL_APPLICATIONS": "", "WAYBILL_DEMO": "true", "WAYBILL_LOG_LEVEL": "warning"}
        command = [sys.executable, "-m", "waybill", "serve", "--demo", "--port", "0", "--json"]
        with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) as server:
            try:
                assert server.stdout is not None
                url = msgspec.json.decode(server.stdout.readline())["url"]
                browser = Browser(url, links["operator"])
                for page, path, goal in (
                    ("home", "/", 200),
                    ("failures", "/failures", 200),
                    ("waiting", "/waiting", 200),
                    ("list", "/records/parcel?state=Failed", 200),
                    ("owned", "/records/parcel?owner=depositor", 200),
                    ("search", "/search?q=pcl0000000100", 300),
                ):
                    browser.ask(path)  # the first one compiles its template
                    slowest = max(browser.ask(path) for _ in range(effort.pick(20, 3)))
                    yield Figure(f"{name}.{page}", slowest, "ms", goal=goal, sense="at most", note=f"{count:,} parcels")
                yield from listen(name, environment, browser, server.pid, effort.pick(10.0, 1.0))
            finally:
                server.terminate()
                server.wait(60)


def fill(engine: Engine, count: int) -> None:
    """Parcels of which a tenth failed, written as a migration would: without running any step."""
    machine = engine.machines["parcel"]
    body = encode_document({"v": 1, "number": 1, "carrier": "mule", "address": "1 Quay Street"})
    for start in range(0, count, GROUP):
        changes = tuple(
            Change(None, make_parcel(machine.name, n), "submit", "bench", documents={"label": body})
            for n in range(start, min(count, start + GROUP))
        )
        (answer,) = engine.store.commit([CommitGroup(changes)])
        if isinstance(answer, StoreError):
            raise answer


def make_parcel(kind: str, n: int) -> Record:
    is_failed = n % 10 == 0
    return Record(
        kind,
        "pcl*",
        state="Failed" if is_failed else "Delivered",
        owner="depositor" if n < OWNED else f"owner {n % 50}",
        message=f"There is no such house in {'abcdefghij'[n // 10 % 10]}{'klmnopqrst'[n // 100 % 10]} Street; parcel {n}."
        if is_failed
        else "",
        open=False,
    )


class Browser:
    """A connection that is signed in."""

    def __init__(self, url: str, link: str) -> None:
        self.netloc = urlsplit(url).netloc
        self._connection = http.client.HTTPConnection(self.netloc, timeout=60)
        self._connection.request(
            "POST", f"/login/{link}", "csrf=", {"Content-Type": "application/x-www-form-urlencoded"}
        )
        answer = self._connection.getresponse()
        answer.read()
        self.headers = {"Cookie": (answer.getheader("Set-Cookie") or "").partition(";")[0]}

    def ask(self, path: str) -> float:
        """Milliseconds until all of a page has come."""
        began = time.perf_counter()
        self._connection.request("GET", path, headers=self.headers)
        answer = self._connection.getresponse()
        answer.read()
        if answer.status not in (200, 303):
            raise SystemExit(f"{path} was answered with {answer.status}.")
        return (time.perf_counter() - began) * 1000


def listen(name: str, environment: Environment, browser: Browser, pid: int, seconds: float) -> Iterator[Figure]:
    """Open streams, change records, and say how much of a core the server took, and how late a change was seen."""
    streams = [http.client.HTTPConnection(browser.netloc, timeout=60) for _ in range(LISTENERS)]
    for stream in streams:
        stream.request("GET", "/live", headers=browser.headers)
    answers = [stream.getresponse() for stream in streams]
    seen: list[float] = []
    threading.Thread(target=lambda: seen.extend(iter_lines(answers[0])), daemon=True).start()
    time.sleep(1)  # all have what is true now
    with closing(environment.open_store()) as store:
        began, used = time.perf_counter(), _cpu_of(pid)
        while (elapsed := time.perf_counter() - began) < seconds:
            for n in range(CHANGES // 10):
                store.commit([CommitGroup((Change(None, make_parcel("parcel", n + 1), "submit", "bench"),))])
            time.sleep(max(0.0, 0.1 - (time.perf_counter() - began - elapsed)))
        share = (_cpu_of(pid) - used) / (time.perf_counter() - began)
    note = f"{LISTENERS} listeners, {CHANGES} changes a second"
    yield Figure(f"{name}.listeners", share * 100, "% of a core", goal=100, sense="at most", note=note)
    gaps = [later - at for at, later in itertools.pairwise(seen)]
    yield Figure(
        f"{name}.visible", max(gaps, default=0.0) * 1000, "ms", goal=1000, sense="at most", note="between messages"
    )
    for stream in streams:
        stream.close()


def iter_lines(answer: http.client.HTTPResponse) -> Iterator[float]:
    """The times at which messages with numbers came."""
    try:
        while line := answer.readline():
            if line.startswith(b"event: counts"):
                yield time.perf_counter()
    except (OSError, ValueError, AttributeError):
        return  # the stream was closed: the measurement is over


def _cpu_of(pid: int) -> float:
    """Seconds of processor time that a process has taken."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
