"""Paths as text that every database takes: a byte that is not UTF-8 is written as the control character SUB (U+001A) and two
hex digits, and so is SUB itself. Everything else is as it is, so that paths sort and are searched as people know them.
"""

from __future__ import annotations

import os
import re

ESCAPE = "\x1a"
_ESCAPED = re.compile(ESCAPE + "([0-9a-f]{2})")
_UNWRITABLE = re.compile("[\udc80-\udcff\x1a]")


def encode_path(path: str) -> str:
    """A path as `os.fsdecode` returns it, as text for a database."""
    return _UNWRITABLE.sub(lambda found: f"{ESCAPE}{os.fsencode(found[0])[0]:02x}", path)


def decode_path(text: str) -> str:
    if ESCAPE not in text:
        return text
    raw = _ESCAPED.sub(lambda found: os.fsdecode(bytes([int(found[1], 16)])), text)
    return os.fsdecode(os.fsencode(raw))


def range_below(path: str) -> tuple[str, str]:
    """The first text that a path below this one can be, and the first that is behind all of them."""
    folder = path.rstrip("/")
    return f"{folder}/", f"{folder}0"  # "0" follows "/"


def list_ancestors(path: str) -> list[str]:
    parts = path.strip("/").split("/")[:-1]
    return ["/", *("/" + "/".join(parts[: n + 1]) for n in range(len(parts)))]
