"""Escape: how a name becomes a path below the root of a directory, and back; byte by byte.

An ordinary name is its own path: `jobs/42/files.jsonl` lies in `jobs/42/files.jsonl`, so that other tools (an OCFL
validator, `ls`) can read what is stored. What a file system would not keep apart is written with `%`, which therefore
never stands for itself:

    %25               the byte `%` of a name
    %41 .. %5A        on a file system that folds names (case or accents, found out when the directory is made): the letters A to Z
    %80 .. %FF        on such a file system: every byte of a character outside ASCII
    <piece>%+         a folder that holds the continuation of a segment too long for one entry: the segment goes on in the next component
    %o                inside the folder `a`: the object named `a`, which is both an object and a prefix of others

Hex digits are upper-case. A component has at most 240 bytes before `%+`; a longer segment is cut after the last whole
character that fits. An entry that is not exactly what this scheme writes (another's temporary file, `%zz`, a symbolic
link) is no object: it is neither listed nor opened. `.waybill` in the root is the driver's own; no name begins with it.
"""

from __future__ import annotations

import re
from typing import TypeAlias

Components: TypeAlias = list[str]  # a path, entry by entry

PIECE = 240  # bytes; file systems allow 255, and `%+` needs two
GOES_ON = "%+"
SELF = "%o"

_PLAIN = re.compile("%")
_FOLDING = re.compile("[%A-Z]|[^\x00-\x7f]")
_ESCAPED = re.compile(rb"%([0-9A-F]{2})")


def components(name: str, *, folding: bool = False) -> Components:
    """The path of a name, as the entries to walk through."""
    path: Components = []
    for segment in name.split("/"):
        escaped = _escape(segment, folding)
        # four bytes is the most that one character can have
        if len(escaped) <= PIECE // 4 or len(escaped.encode()) <= PIECE:
            path.append(escaped)
        else:
            path.extend(_pieces(segment, folding))
    return path


def text_of(component: str, *, folding: bool = False) -> tuple[str, bool] | None:
    """The text that an entry stands for, and whether the segment goes on inside it; None if this scheme would not
    write it.
    """
    goes_on = component.endswith(GOES_ON)
    escaped = component.removesuffix(GOES_ON)
    try:
        text = _ESCAPED.sub(lambda found: bytes([int(found[1], 16)]), escaped.encode()).decode()
    except UnicodeError:
        return None
    if not text or _escape(text, folding) != escaped:
        return None
    if len(escaped.encode()) > PIECE or (goes_on and len(escaped.encode()) <= PIECE - 12):
        return None
    return text, goes_on


def _pieces(segment: str, folding: bool) -> list[str]:
    pieces: list[str] = []
    piece, length = "", 0
    for character in segment:
        escaped = _escape(character, folding)
        size = len(escaped.encode())
        if length + size > PIECE:
            pieces.append(piece + GOES_ON)
            piece, length = "", 0
        piece += escaped
        length += size
    return [*pieces, piece]


def _escape(text: str, folding: bool) -> str:
    pattern = _FOLDING if folding else _PLAIN
    return pattern.sub(lambda found: "".join(f"%{byte:02X}" for byte in found[0].encode()), text)
