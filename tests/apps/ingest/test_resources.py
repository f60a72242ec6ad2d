"""What the steps and routes of one process share: each thread has a connection to the inventory, for as long as it
lives.
"""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from waybill.apps.ingest.resources import IngestResources
from waybill.config import sqlite_url
from waybill.index import Index, open_index


def test_urls_for_users_begin_where_the_setting_says_or_where_the_server_listens() -> None:
    def resources(url: str) -> IngestResources:
        return IngestResources(
            cast(
                Any,
                SimpleNamespace(
                    config=SimpleNamespace(app={"ingest": {"url": url}}, store=""), address="http://127.0.0.1:4711"
                ),
            )
        )

    assert resources("").api_url_of("access", "a/b") == "http://127.0.0.1:4711/api/v1/ingest/access/a%2Fb"
    assert (
        resources("https://deposit.example.org/").api_url_of("access", "x")
        == "https://deposit.example.org/api/v1/ingest/access/x"
    )


def test_the_connections_of_threads_that_have_ended_are_closed(tmp_path: Path) -> None:
    """A server's threads come and go for as long as it serves: kept, their connections would be all that a database
    has to give.
    """
    closed: list[Index] = []

    def opened() -> Index:
        index = open_index(sqlite_url(tmp_path / "index.db"))
        close = index.close
        index.close = lambda: (closed.append(index), close())[1]  # type: ignore[method-assign, func-returns-value]
        return index

    resources = IngestResources(cast(Any, SimpleNamespace(config=SimpleNamespace(app={}, store=""), open_index=opened)))
    for _ in range(5):
        thread = threading.Thread(target=lambda: resources.inventory)
        thread.start()
        thread.join()
    assert len(closed) == 4, "all but the last one's"
    assert resources.inventory is resources.inventory
    assert len(closed) == 5
    resources.close()
    assert len(closed) == 6
