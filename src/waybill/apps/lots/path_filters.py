"""Which paths belong to a dataset: patterns to include and to exclude, as Ant and Spring write them.

    ?     one character of a segment         *     any characters of a segment
    {x}   any characters of a segment        **    any number of segments, none included

A relative pattern is meant below the dataset's path, one with a leading `/` from the root of the store. A path is kept
when it matches some pattern to include (or there are none) and no pattern to exclude. Paths are written as URIs, with or
without a leading `/`: how a listing spells a key never changes what is kept.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from waybill.errors import InputError

MAX_PATTERN = 1000  # characters
_VARIABLE = re.compile(r"\{[^{}:/]*\}")


class PathFilter:
    """The patterns of one dataset. `root`: the dataset's path or URI."""

    def __init__(
        self, root: str = "/", includes: Iterable[str] = (), excludes: Iterable[str] = (), *, ignore_case: bool = False
    ) -> None:
        folder = path_of(root)
        self._folder = folder if folder.endswith("/") else f"{folder}/"
        self._fold = str.casefold if ignore_case else str
        self._includes = [self._absolute_pattern_of(each) for each in includes]
        self._excludes = [self._absolute_pattern_of(each) for each in excludes]

    def keeps(self, path: str) -> bool:
        """Return whether a path or URI belongs to the dataset."""
        name = self._fold(path_of(path))
        if self._includes and not any(matches_path(each, name) for each in self._includes):
            return False
        return not any(matches_path(each, name) for each in self._excludes)

    def _absolute_pattern_of(self, pattern: str) -> str:
        if not pattern or len(pattern) > MAX_PATTERN:
            raise InputError(f"A pattern has 1 to {MAX_PATTERN} characters.")
        if re.search(r"[{}]", _VARIABLE.sub("", pattern)):
            raise InputError(
                f"The pattern {pattern!r} has braces that are no {{name}}; write * for any characters of a segment."
            )
        return self._fold(pattern if pattern.startswith("/") else self._folder + pattern)


def path_of(uri: str) -> str:
    """Return the path of a URI or key, with a leading `/`."""
    scheme, separator, rest = uri.partition("://")
    if separator and re.fullmatch(r"[A-Za-z][A-Za-z0-9+.-]*", scheme):
        # of a URI only the path: a bucket or a host is no segment; a `?` or `#` is part of a key
        _, _, key = rest.partition("/")
        return f"/{key}"
    return uri if uri.startswith("/") else f"/{uri}"


def matches_path(pattern: str, path: str) -> bool:
    """Return whether a path matches a pattern, segment by segment."""
    if pattern.startswith("/") != path.startswith("/"):
        return False
    wanted, found = _split(pattern), _split(path)
    # The rows of a table: `reached[i]` says whether the segments seen so far match the first i of the pattern. One pass
    # over the path, whatever the pattern: many `**` cost no more than a few.
    reached = _skip_any([True] + [False] * len(wanted), wanted)
    for segment in found:
        following = [False] * (len(wanted) + 1)
        for i, each in enumerate(wanted):
            if each == "**":
                following[i + 1] = following[i + 1] or reached[i] or reached[i + 1]
            elif reached[i] and matches_segment(each, segment):
                following[i + 1] = True
        reached = _skip_any(following, wanted)
    if not reached[-1]:
        return False
    return bool(wanted and wanted[-1] == "**") or pattern.endswith("/") == path.endswith("/")


def _split(text: str) -> list[str]:
    return [segment for segment in text.split("/") if segment]


def _skip_any(reached: list[bool], wanted: Sequence[str]) -> list[bool]:
    """Let every `**` also stand for no segment."""
    for i, each in enumerate(wanted):
        if reached[i] and each == "**":
            reached[i + 1] = True
    return reached


def matches_segment(pattern: str, text: str) -> bool:
    """Return whether a segment matches, in time proportional to the product of both lengths at most."""
    pattern = _VARIABLE.sub("*", pattern)
    p = t = 0
    star, mark = -1, 0  # the last `*`, and up to where it stands for the text
    while t < len(text):
        if p < len(pattern) and pattern[p] == "*":
            star, mark, p = p, t, p + 1
        elif p < len(pattern) and pattern[p] in ("?", text[t]):
            p, t = p + 1, t + 1
        elif star >= 0:
            mark += 1
            p, t = star + 1, mark
        else:
            return False
    return not pattern[p:].strip("*")
