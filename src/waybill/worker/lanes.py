"""Lanes: more workers beside the first one, in the same process and behind its face.

A worker waits while its store writes. Where that is done by a server, another worker can use the time; where the store
is a file with one writer, it could not. Each lane has its own connection, session and share of the threads, and they
have nothing in common but the process: what holds for workers in two processes holds for two lanes.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Protocol
from urllib.parse import urlsplit

LANES = {"postgresql": 2, "postgres": 2}  # on ZooKeeper the client's own work is the limit: a second lane gains nothing


def shares(url: str, threads: int) -> list[int]:
    """How many threads each lane has, by the kind of store."""
    lanes = min(LANES.get(urlsplit(url).scheme, 1), threads)
    return [threads // lanes + (place < threads % lanes) for place in range(lanes)]


class Lane(Protocol):
    def run(self) -> None: ...

    def stop(self) -> None: ...


class Beside:
    """The other lanes, for as long as the first one runs.

    If one fails, all are stopped, and `join` raises its error.
    """

    def __init__(self, first: Lane, others: Sequence[Lane]) -> None:
        self._first, self._others = first, others
        self._faults: list[BaseException] = []
        self._threads = [
            threading.Thread(target=self._run, args=(lane,), name=f"lane-{n}") for n, lane in enumerate(others, 2)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        for lane in self._others:
            lane.stop()

    def join(self) -> None:
        self.stop()
        for thread in self._threads:
            thread.join()
        if self._faults:
            raise self._faults[0]

    def _run(self, lane: Lane) -> None:
        try:
            lane.run()
        except BaseException as error:  # noqa: BLE001 - raised by join
            self._faults.append(error)
            self._first.stop()
