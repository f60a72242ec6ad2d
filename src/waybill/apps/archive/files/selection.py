"""Which files of a set are restored: by globs, regular expressions, and lists of paths.

A directory that is named brings all that is below it. A further hard link can be selected without the file that holds the
content: then it gets the content itself, and links that were selected too are made to it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

from waybill.apps.archive.files.entries import FileEntry, to_printable
from waybill.errors import WaybillError

MAX_PATTERNS = 1000


class Selection:
    """The paths that one of the globs, regular expressions or listed paths names, with everything below a directory that
    is named. Nothing given: everything.

    Globs are of whole paths: `*` and `?` do not match `/`, `**` does. A regular expression is searched for in the path,
    and brings nothing but what it matches. A listed path is taken as it is.
    """

    def __init__(self, *, globs: Iterable[str] = (), regexes: Iterable[str] = (), paths: Iterable[str] = ()) -> None:
        """Raises WaybillError for a pattern that cannot be read."""
        self.globs, self.regexes = tuple(globs), tuple(regexes)
        self.paths = tuple(path.rstrip("/") or "." for path in paths)
        if len(self.globs) + len(self.regexes) > MAX_PATTERNS:
            raise WaybillError(f"More than {MAX_PATTERNS} patterns were given.", code="invalid-request")
        self._listed = frozenset(path.removeprefix("./") or "." for path in self.paths)
        self._globs = [re.compile(_glob_to_regex(glob), re.DOTALL) for glob in self.globs]
        try:
            self._regexes = [re.compile(regex, re.DOTALL) for regex in self.regexes]
        except (re.error, RecursionError) as error:
            raise WaybillError(f"A regular expression cannot be read: {error}.", code="invalid-request") from None
        self._has_path_above = lru_cache(maxsize=4096)(self._find_path_above)

    @property
    def is_everything(self) -> bool:
        return not (self.globs or self.regexes or self.paths)

    def has_path(self, path: str) -> bool:
        if self.is_everything or self._is_named(path):
            return True
        return any(regex.search(path) for regex in self._regexes) or self._has_path_above(path.rpartition("/")[0])

    def _is_named(self, path: str) -> bool:
        return path in self._listed or any(glob.fullmatch(path) for glob in self._globs)

    def _find_path_above(self, directory: str) -> bool:
        """Whether a directory, or one above it, is named."""
        if not directory:
            return "." in self._listed
        return self._is_named(directory) or self._has_path_above(directory.rpartition("/")[0])


def _glob_to_regex(glob: str) -> str:
    """`**/` is any number of directories, none too."""
    out, at = "", 0
    glob = glob.removeprefix("./").rstrip("/")
    while at < len(glob):
        if glob.startswith("**/", at):
            out, at = out + "(?:.*/)?", at + 3
        elif glob.startswith("**", at):
            out, at = out + ".*", at + 2
        elif glob[at] == "*":
            out, at = out + "[^/]*", at + 1
        elif glob[at] == "?":
            out, at = out + "[^/]", at + 1
        elif glob[at] == "[" and (end := glob.find("]", at + 2)) > 0:
            chosen = glob[at + 1 : end]
            negated = "^" if chosen[0] in "!^" else ""
            inside = re.sub(r"([\\\[\]^&|~])", r"\\\1", chosen[1:] if negated else chosen)
            out, at = out + f"(?!/)[{negated}{inside}]", end + 1
        else:
            out, at = out + re.escape(glob[at]), at + 1
    try:
        re.compile(out)
    except re.error as error:
        raise WaybillError(f"The glob {to_printable(glob)} cannot be read: {error}.", code="invalid-request") from None
    return out


def find_link_sources(entries: Iterable[FileEntry], selection: Selection) -> dict[str, str]:
    """Where hard links are selected without the file that has the content: the path of that file, and the path that
    gets its content. Goes into RestoreOptions; the archive of that file is needed, too.
    """
    sources: dict[str, str] = {}
    if not selection.is_everything:
        for entry in entries:
            if entry.kind == "hardlink" and selection.has_path(entry.path) and not selection.has_path(entry.target):
                sources.setdefault(entry.target, entry.path)
    return sources
