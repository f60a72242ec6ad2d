"""Connections that are kept from one download to the next, so that many small ones do not each make their own.

    connections = Connections()
    download(..., connections=connections); look(..., connections=connections)
    connections.close()

Each thread that asks has its own, to the hosts it asked last. What a download of many files does in further threads has
connections of its own, which end with it. Nothing but the connection is kept: cookies are forgotten, and every request
is checked anew (asking.py).
"""

from __future__ import annotations

import functools
import ssl
import threading
from collections.abc import Callable, Hashable
from types import TracebackType
from typing import Self

import httpx2

from waybill.transfer.asking import Asker
from waybill.transfer.reach import Reach


class Connections:
    """For all threads of a process."""

    def __init__(self) -> None:
        self._mine = threading.local()
        self._lock = threading.Lock()
        self._all: list[Asker] = []

    def mine(self, terms: Hashable, make: Callable[[], Asker]) -> Asker:
        """This thread's asker on these terms: where to, how long, through how many redirects."""
        askers: dict[Hashable, Asker] = self._mine.__dict__.setdefault("askers", {})
        found = askers.get(terms)
        if found is None:
            found = askers[terms] = make()
            with self._lock:
                self._all.append(found)
        return found

    def close(self) -> None:
        """When no thread asks any more. What is asked for afterwards is made anew."""
        with self._lock:
            every, self._all = self._all, []
        self._mine = threading.local()
        for asker in every:
            asker.close()


class Askers:
    """For one download: one asker for each of its threads. At the end all are closed but the one that is kept."""

    def __init__(
        self,
        reach: Reach,
        timeout: float,
        redirects: int,
        client: Callable[[], httpx2.Client] | None,
        kept: Connections | None,
    ) -> None:
        self._reach, self._timeout, self._redirects, self._client = (
            reach,
            timeout,
            redirects,
            client or clients(timeout),
        )
        self._kept = kept if client is None else None
        self._owner = threading.get_ident()
        self._all: dict[int, Asker] = {}

    def mine(self) -> Asker:
        thread = threading.get_ident()
        if self._kept is not None and thread == self._owner:
            return self._kept.mine((self._reach, self._timeout, self._redirects), self._make)
        if thread not in self._all:
            self._all[thread] = self._make()
        return self._all[thread]

    def _make(self) -> Asker:
        return Asker(self._reach, self._client, self._redirects)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for asker in self._all.values():
            asker.close()


@functools.cache  # reading all certificates takes longer than fetching a small file
def _trusted() -> ssl.SSLContext:
    return httpx2.create_ssl_context(trust_env=False)


def clients(timeout: float) -> Callable[[], httpx2.Client]:
    # Proxies of the environment are not used: they would resolve names themselves, and nobody could check the
    # addresses.
    context = _trusted()
    return lambda: httpx2.Client(
        verify=context, timeout=timeout, trust_env=False, limits=httpx2.Limits(max_connections=2)
    )
