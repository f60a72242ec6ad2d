"""Looking again and again at a store that may go away meanwhile: whoever watches need not begin anew because a
server was restarted.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from waybill.record import Unavailable

AGAIN = 0.5  # seconds between two tries to reach a store that is away

Found = TypeVar("Found")


class Looking:
    """Reads what it is given to read; while the store is away it says so once, and tries again until somebody
    interrupts it.
    """

    def __init__(self, say: Callable[[str], None], wait: Callable[[float], None] = time.sleep) -> None:
        self._say = say
        self._wait = wait

    def __call__(self, read: Callable[[], Found]) -> Found:
        away = False
        while True:
            try:
                found = read()
            except Unavailable as error:
                if not away:
                    away = True
                    self._say(f"The store is away: {str(error).rstrip('.')}; looking again.")
                self._wait(AGAIN)
            else:
                if away:
                    self._say("The store is back.")
                return found
