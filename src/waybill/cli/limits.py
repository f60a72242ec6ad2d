"""What a process that serves or works asks of its system and of Python when it begins: long lives and many things at
hand.
"""

from __future__ import annotations

import gc
import resource

MANY_FILES = 65_536
MANY_OBJECTS = 20_000


def settle_in() -> None:
    allow_many_files()
    # Hundreds of records are in hand at once, and are freed without the collector: to look through them all after every
    # 700 that come new costs a tenth of a worker's time on ZooKeeper. Rings of what is dead are still found, a little
    # later.
    gc.set_threshold(MANY_OBJECTS, *gc.get_threshold()[1:])


def allow_many_files() -> None:
    """Have as many files and connections open as this process may: many systems give 1,024 unless one asks, and a
    thousand may listen.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MANY_FILES if hard == resource.RLIM_INFINITY else min(MANY_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
