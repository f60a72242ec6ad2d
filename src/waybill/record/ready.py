"""Types that are read from JSON, made ready before threads begin.

msgspec works out the fields of a type when the type is first used. Another thread that uses it meanwhile finds it half
worked out, and the process dies of it (seen as SIGSEGV in workers under load). So all types that are known are worked
out by one thread, before there are more.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import suppress

import msgspec

_lock = threading.Lock()
_ready: set[type[msgspec.Struct]] = set()


def make_ready() -> None:
    """Every type that has been defined by now. Safe to repeat; what is ready costs nothing."""
    with _lock:
        for each in _below(msgspec.Struct):
            if each not in _ready:
                with suppress(TypeError, NameError):  # one that is never read: its fields cannot be
                    msgspec.json.Decoder(each)
                _ready.add(each)


def _below(parent: type[msgspec.Struct]) -> Iterator[type[msgspec.Struct]]:
    for each in parent.__subclasses__():
        yield each
        yield from _below(each)
