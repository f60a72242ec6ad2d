"""What the groups of the suite share: how they look at objects, and how they do things at the same moment."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

from waybill.objects.protocol import ObjectInfo, Objects


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def content(objects: Objects, name: str) -> bytes:
    with objects.get(name) as body:
        return body.read()


def names(found: Iterator[ObjectInfo]) -> list[str]:
    return [info.name for info in found]


def together(count: int, work: Callable[[int], object]) -> list[object]:
    """Run `count` threads that begin at the same moment; what each returned or raised."""
    gate = threading.Barrier(count)

    def run(number: int) -> object:
        gate.wait(30)
        try:
            return work(number)
        except Exception as error:  # noqa: BLE001 - the caller looks at it
            return error

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(run, range(count)))
