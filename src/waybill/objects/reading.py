"""Reading: the body of an object, over whatever a driver yields portions from.

Read once, by iterating or with `read`, as a file would be; both take up where the other left off. Closing it early is
fine.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from types import TracebackType
from typing import Self

from waybill.objects.protocol import ObjectInfo


class Reading:
    def __init__(self, info: ObjectInfo, portions: Generator[bytes], close: Callable[[], None] = lambda: None) -> None:
        self.info = info
        self._portions = portions
        self._close = close
        self._closed = False
        self._left = b""

    def __iter__(self) -> Iterator[bytes]:
        return self  # not a generator: leaving a loop early would close that, and the portions with it

    def __next__(self) -> bytes:
        if self._left:
            left, self._left = self._left, b""
            return left
        return next(self._portions)

    def read(self, size: int = -1) -> bytes:
        """At most so many bytes, and none only at the end; all that is left by default."""
        if size < 0:
            return b"".join(self)
        if not self._left:
            self._left = next(self._portions, b"")
        portion, self._left = self._left[:size], self._left[size:]
        return portion

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._portions.close()
            self._close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()
