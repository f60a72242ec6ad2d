"""Names of files in a deposit: which are taken, the same for manifests, containers and bags.

A name is a path below the folder of the object: segments with `/` between them. Whatever brought it, it must be
possible to keep the file under this name on a disk and in every object store, and no two names of one object may be
mistaken for each other: `é` as one character and as `e` with an accent look the same to everybody but a computer.
"""

from __future__ import annotations

import unicodedata

from waybill.objects.names import check_name
from waybill.objects.protocol import Refused

LONGEST_SEGMENT = 255  # bytes of UTF-8, as file systems have it
UNFINISHED = ".partial"  # the first segment under which unfinished downloads lie


def shown(name: str) -> str:
    """A name as it stands in a sentence: short, and without anything that could disturb a terminal or a log."""
    cut = name if len(name) <= 100 else name[:60] + "..." + name[-30:]
    return "'" + "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in cut) + "'"


def fault(name: str) -> str | None:
    """What is wrong with the name, as a sentence; None if nothing is."""
    if name.startswith("/"):
        return f"{shown(name)} is not a name: it begins with a slash, and names are relative to the object."
    try:
        segments = check_name(name).split("/")
    except Refused as refusal:
        return str(refusal)
    long = next((segment for segment in segments if len(segment.encode()) > LONGEST_SEGMENT), None)
    if long is not None:
        return f"{shown(name)} is not a name: {shown(long)} in it is longer than the {LONGEST_SEGMENT} bytes that a disk can keep."
    if segments[0] == UNFINISHED:
        return f"{shown(name)} is not a name: what lies under {UNFINISHED}/ are unfinished downloads."
    return None


class Names:
    """The names of one object so far; `ignoring_case` for a disk that does not tell `a` from `A`."""

    def __init__(self, *, ignoring_case: bool = False) -> None:
        self._ignoring_case = ignoring_case
        self._files: dict[str, str] = {}
        self._folders: dict[str, str] = {}

    def __len__(self) -> int:
        return len(self._files)

    def take(self, name: str) -> str | None:
        """Take the name, or say as a sentence why it cannot stand beside the others."""
        key = self._key(name)
        if key in self._files:
            return self._clash(name, self._files[key])
        if key in self._folders:
            return f"{shown(name)} is a file, and it is also the folder of {shown(self._folders[key])}."
        above = _folders(key)
        blocked = next((folder for folder in above if folder in self._files), None)
        if blocked is not None:
            return f"{shown(name)} lies in {shown(self._files[blocked])}, which is a file."
        self._files[key] = name
        for folder in above:
            self._folders.setdefault(folder, name)
        return None

    def enter(self, folder: str) -> str | None:
        """Take note of a folder, or say as a sentence why there can be none of this name."""
        key = self._key(folder)
        blocked = next((each for each in (*_folders(key), key) if each in self._files), None)
        if blocked is not None:
            return f"{shown(folder)} is a folder, and {shown(self._files[blocked])} is a file."
        for each in (*_folders(key), key):
            self._folders.setdefault(each, f"{folder}/")
        return None

    def _key(self, name: str) -> str:
        key = unicodedata.normalize("NFC", name)
        return unicodedata.normalize("NFC", key.casefold()) if self._ignoring_case else key

    def _clash(self, name: str, other: str) -> str:
        if name == other:
            return f"{shown(name)} is there twice."
        if unicodedata.normalize("NFC", name) == unicodedata.normalize("NFC", other):
            return f"{shown(name)} is there twice: once with composed characters, once with separate accents."
        return f"{shown(name)} and {shown(other)} differ only in upper and lower case."


def _folders(name: str) -> list[str]:
    """All folders that the file lies in, the outermost first."""
    return [name[:at] for at, letter in enumerate(name) if letter == "/"]
