"""Records to look at: a folder that is put on storage. Safe to repeat: the key of the request is always the same."""

from __future__ import annotations

import getpass
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from waybill.apps.archive.resources import DEFAULT_WORKSPACE, LOCAL_STORAGE
from waybill.apps.archive.service.access import Caller
from waybill.apps.archive.service.requests import ArchiveRequests

if TYPE_CHECKING:
    from waybill.engine import Engine
    from waybill.environment import Environment

FILES = {
    "readings/2026-11-17.csv": "station,value\nnorth,4.1\nsouth,5.0\n",
    "readings/2026-11-18.csv": "station,value\nnorth,4.3\nsouth,4.8\n",
    "notes.txt": "Readings of two stations.\n",
}


def load_demo(environment: Environment, engine: Engine) -> None:
    resources = environment.resources_of("archive")
    if LOCAL_STORAGE not in resources.settings.storages or DEFAULT_WORKSPACE not in resources.settings.workspaces:
        return  # the settings name real ones, which a demonstration leaves alone
    folder = environment.config.data / "archive-demo"
    for name, text in FILES.items():
        path = folder / name
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")

    @contextmanager
    def open_engine() -> Iterator[Engine]:
        yield engine

    requests = ArchiveRequests(resources, open_engine, "demo")
    requests.put(
        Caller(getpass.getuser(), is_operator=True),
        [str(folder)],
        label="Readings of two stations",
        idempotency_key="archive-demo",
    )
