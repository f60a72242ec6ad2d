"""Handing over: portions are made in the caller's thread and taken in another's, a few of them on the way.

An S3 client takes a stream by calling it from a thread of its own, in which nothing else of that client can be called.
Portions that are themselves read from S3 could not be made there; nor what belongs to the caller's thread.

    maker   give, give ... end | fail          told by `give` when the taker has gone
    taker   for portion in line: ...           raises what the maker failed with
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator

ON_THE_WAY = 4  # portions


class Line:
    def __init__(self) -> None:
        self._portions: deque[bytes] = deque()
        self._changed = threading.Condition()
        self._ended = False
        self._gone = False
        self._failure: BaseException | None = None

    def give(self, portion: bytes) -> bool:
        """Hand over a portion, when there is room for it; False: nobody takes any more."""
        with self._changed:
            self._changed.wait_for(lambda: self._gone or len(self._portions) < ON_THE_WAY)
            if self._gone:
                return False
            self._portions.append(portion)
            self._changed.notify_all()
            return True

    def end(self, failure: BaseException | None = None) -> None:
        """There are no more; or there would have been, and this is why not."""
        with self._changed:
            self._ended, self._failure = True, failure
            self._changed.notify_all()

    def leave(self) -> None:
        """The taker goes."""
        with self._changed:
            self._gone = True
            self._changed.notify_all()

    def __iter__(self) -> Iterator[bytes]:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._portions or self._ended)
                if self._failure is not None:
                    raise RuntimeError("the portions ended early") from self._failure
                if not self._portions:
                    return
                portion = self._portions.popleft()
                self._changed.notify_all()
            yield portion
