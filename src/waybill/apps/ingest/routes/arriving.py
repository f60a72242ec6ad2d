"""Arriving: the body of a request, read from the thread in which it is kept, as fast as it is kept and not faster.

A body of any size takes one thread while it comes. Uploads have places of their own, so that many slow ones never stop
the other routes; one that sends nothing for a while loses its place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

import anyio
import anyio.from_thread
import anyio.to_thread
from fastapi import Request
from starlette.requests import ClientDisconnect

from waybill.http.errors import Problem

PLACES = 16  # uploads at once in a process
PATIENCE = 60.0  # seconds without a byte

T = TypeVar("T")


class Berth:
    """The places of uploads."""

    def __init__(self, places: int = PLACES, patience: float = PATIENCE) -> None:
        self._limiter = anyio.CapacityLimiter(places)
        self._patience = patience

    @property
    def waiting(self) -> int:
        """How many uploads wait for a place."""
        return self._limiter.statistics().tasks_waiting

    async def take(self, request: Request, work: Callable[[Iterator[bytes]], T]) -> T:
        """Run `work` with the chunks of the body, in a thread of its own."""
        return await anyio.to_thread.run_sync(work, self._chunks(request), limiter=self._limiter)

    def _chunks(self, request: Request) -> Iterator[bytes]:
        stream = aiter(request.stream())

        async def following() -> bytes | None:
            try:
                with anyio.fail_after(self._patience):
                    return await anext(stream, None)
            except TimeoutError:
                hint = "Send it again, or let it be fetched from a URL."
                raise Problem(408, "too-slow", f"Nothing came for {self._patience:.0f} seconds.", hint) from None
            except ClientDisconnect:
                raise Problem(400, "gone", "The sender hung up before everything had come.", "Send it again.") from None

        while (chunk := anyio.from_thread.run(following)) is not None:
            if chunk:
                yield chunk
