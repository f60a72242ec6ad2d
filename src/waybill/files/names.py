"""Names of files that others send: which are accepted, the same wherever they come from.

A name is a path below some folder: segments separated by `/`. It must be possible to store the file under this name on a
disk and in every object store, and no two names below one folder may be confused: `é` as one character and as `e` with
an accent look the same to a reader.
"""

from __future__ import annotations

import re
import unicodedata

from waybill.objects.protocol import ObjectRequestRefused, check_name
from waybill.transfer.partial_file import PARTIAL_FOLDER

MAX_SEGMENT_BYTES = 255  # of UTF-8, the limit of file systems


def quote_text(text: str) -> str:
    """A text quoted for a message: short, and without characters that could disturb a terminal or a log."""
    cut = text if len(text) <= 100 else text[:60] + "..." + text[-30:]
    return "'" + "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in cut) + "'"


def find_fault(name: str) -> str | None:
    """What is wrong with the name, as a sentence; None if it is accepted."""
    if name.startswith("/"):
        return f"{quote_text(name)} is not a name: it begins with a slash, and names are relative."
    try:
        segments = check_name(name).split("/")
    except ObjectRequestRefused as refusal:
        return str(refusal)
    long = next((segment for segment in segments if len(segment.encode()) > MAX_SEGMENT_BYTES), None)
    if long is not None:
        return (
            f"{quote_text(name)} is not a name: {quote_text(long)} in it is longer than the {MAX_SEGMENT_BYTES} bytes "
            "that a disk can keep."
        )
    if segments[0] == PARTIAL_FOLDER:
        return f"{quote_text(name)} is not a name: what lies under {PARTIAL_FOLDER}/ are unfinished downloads."
    return None


def to_file_name(text: str) -> str:
    """Turn a text, such as an identifier, into a file name that is valid everywhere."""
    return re.sub(r"[^A-Za-z0-9._-]+", "_", text).strip("._")[:100] or "object"


class FileNames:
    """The names below one folder so far; `ignoring_case` for a file system that does not distinguish `a` and `A`."""

    def __init__(self, *, ignoring_case: bool = False) -> None:
        self._ignoring_case = ignoring_case
        self._files: dict[str, str] = {}
        self._folders: dict[str, str] = {}

    def __len__(self) -> int:
        return len(self._files)

    def add_file(self, name: str) -> str | None:
        """Add the name, or return as a sentence why it conflicts with the others."""
        key = self._normalize(name)
        if key in self._files:
            return self._describe_clash(name, self._files[key])
        if key in self._folders:
            return f"{quote_text(name)} is a file, and it is also the folder of {quote_text(self._folders[key])}."
        above = _parent_folders_of(key)
        blocked = next((folder for folder in above if folder in self._files), None)
        if blocked is not None:
            return f"{quote_text(name)} lies in {quote_text(self._files[blocked])}, which is a file."
        self._files[key] = name
        for folder in above:
            self._folders.setdefault(folder, name)
        return None

    def add_folder(self, folder: str) -> str | None:
        """Add a folder, or return as a sentence why there can be none of this name."""
        key = self._normalize(folder)
        blocked = next((each for each in (*_parent_folders_of(key), key) if each in self._files), None)
        if blocked is not None:
            return f"{quote_text(folder)} is a folder, and {quote_text(self._files[blocked])} is a file."
        for each in (*_parent_folders_of(key), key):
            self._folders.setdefault(each, f"{folder}/")
        return None

    def _normalize(self, name: str) -> str:
        key = unicodedata.normalize("NFC", name)
        return unicodedata.normalize("NFC", key.casefold()) if self._ignoring_case else key

    def _describe_clash(self, name: str, other: str) -> str:
        if name == other:
            return f"{quote_text(name)} is there twice."
        if unicodedata.normalize("NFC", name) == unicodedata.normalize("NFC", other):
            return f"{quote_text(name)} is there twice: once with composed characters, once with separate accents."
        return f"{quote_text(name)} and {quote_text(other)} differ only in upper and lower case."


def _parent_folders_of(name: str) -> list[str]:
    """All folders above the file, the outermost first."""
    return [name[:at] for at, letter in enumerate(name) if letter == "/"]
