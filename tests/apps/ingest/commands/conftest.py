"""`waybill ingest ...` as a person calls it, with a profile and a collection to deposit into, and workers when they
are wanted.
"""

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.apps.ingest.ingest_fixture import FileServer
from tests.cli.conftest import Result, Waybill, bare, data, environment, running, waybill  # noqa: F401 - fixtures
from waybill import config
from waybill.apps.ingest.application import APPLICATION
from waybill.environment import Environment
from waybill.worker import Worker

SETTINGS = """
[app.ingest]
url = "http://waybill.test"
takes_batches_of_others = true
[app.ingest.fetch]
allow = ["127.0.0.0/8"]
timeout = 60.0
max_tries = 1
[app.ingest.disk_space]
keep_free = 0
unknown_size_bytes = 0
"""
ARK = "ark:/99999/fk4maps"


@pytest.fixture
def ingest_cli(waybill: Waybill, data: Path, monkeypatch: pytest.MonkeyPatch) -> Waybill:  # noqa: F811
    """A command line with the collection `maps` and the profile `demo`."""
    monkeypatch.delenv("WAYBILL_DEMO")
    monkeypatch.setenv("WAYBILL_APPLICATIONS", "ingest")
    data.mkdir(exist_ok=True)
    (data / "waybill.toml").write_text(SETTINGS)

    def call(*arguments: object) -> Result:
        return waybill("ingest", *arguments)

    assert call("collection", "add", "maps", "--ark", ARK, "--name", "Maps").code == 0
    assert call("profile", "add", "demo", "--collection", "maps", "--owner", "ark:/99999/fk4owner").code == 0
    return call


@pytest.fixture
def web() -> Iterator[FileServer]:
    server = FileServer()
    yield server
    server.close()


RunWorker = Callable[[], Any]


@pytest.fixture
def run_worker() -> RunWorker:
    """Lets a worker serve the store of the command line, in a thread of this process."""

    @contextmanager
    def work() -> Iterator[None]:
        own = Environment.from_config(config.load(env=os.environ), [APPLICATION])
        queues = [
            kind for kind, machine in own.machines.items() if machine.list_work_states() and kind != "maintenance"
        ]
        worker = Worker(
            own.open_store,
            own.machines,
            host=own.host,
            work_root=own.config.work.root,
            objects=own.objects,
            resources_of=own.resources_of_kind,
            queues=queues,
            threads=4,
        )
        thread = threading.Thread(target=worker.run, name="worker")
        thread.start()
        try:
            yield
        finally:
            worker.stop()
            thread.join()
            own.close()

    return work
