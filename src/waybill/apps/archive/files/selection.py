"""stub"""

from __future__ import annotations
from collections.abc import Iterable, Mapping
from waybill.apps.archive.files.entries import FileEntry


class Selection:
    """Which paths of a set are restored: all that one of the globs, regular expressions or listed paths names, with
    everything below a directory that is named. Nothing given: everything.

    Globs are of whole paths: `*` and `?` do not match `/`, `**` does. A listed path is matched as it is.
    """

    def __init__(self, *, globs: Iterable[str] = (), regexes: Iterable[str] = (), paths: Iterable[str] = ()) -> None:
        """Raises WaybillError("invalid-request") for a regular expression that cannot be read."""

    def has_path(self, path: str) -> bool:
        raise NotImplementedError


def find_link_sources(entries: Iterable[FileEntry], selection: Selection) -> dict[str, str]:
    """Where hard links are selected without the file that has the content: the path of that file, and the path that
    gets its content. Goes into RestoreOptions; the archive of that file is needed too."""
    raise NotImplementedError
