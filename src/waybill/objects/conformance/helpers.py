"""Helpers of the suites: reading objects, and running threads at the same moment."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

from waybill.objects.protocol import ObjectInfo, Objects


def sha256_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def read_content(objects: Objects, name: str) -> bytes:
    with objects.get(name) as body:
        return body.read()


def names_of(found: Iterator[ObjectInfo]) -> list[str]:
    return [info.name for info in found]


def run_together(count: int, work: Callable[[int], object]) -> list[object]:
    """Run `count` threads that start at the same moment; return what each returned or raised."""
    barrier = threading.Barrier(count)

    def run(number: int) -> object:
        barrier.wait(30)
        try:
            return work(number)
        except Exception as error:  # noqa: BLE001 - returned to the caller
            return error

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(run, range(count)))
