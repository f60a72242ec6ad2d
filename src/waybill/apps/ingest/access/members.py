"""A member of an archive: its name, its size, when it was made, and its bytes, asked for when they are due."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple


class Member(NamedTuple):
    name: str
    size: int
    modified: float  # seconds since 1970
    portions: Callable[[], Iterator[bytes]]  # raises if the bytes turn out not to be those that were promised
