"""The cause of a failure: its message without what differs from record to record, so that failures of one cause are one group.

    "jid0000018211: data.example.org answered 503 to /a/b.tif after 12 s."  ->  "… data.example.org answered 503 to … after … s."

Taken out are ids, ARKs, URLs' paths, paths, digests, UUIDs, quoted names and numbers. HTTP statuses stay: 404 and 503 are two causes.
"""

from __future__ import annotations

import re
from functools import lru_cache

MAX_CAUSE = 200  # characters
NO_MESSAGE = "no message"
GAP = "…"
_STATUS = r"(?<![\w.])[45]\d\d(?![\w.]\w)"
_PARTS = re.compile(
    rf"""
    (?P<status>{_STATUS})
  | (?P<url>https?://[^\s/"'<>]+)(?:[/?\#][^\s"'<>]*)?      # the host stays
  | ark:/?[^\s"',;]+
  | "[^"]*" | (?<!\w)'[^']*'(?!\w) | “[^”]*” | «[^»]*»
  | \b[0-9a-fA-F]{{8}}-(?:[0-9a-fA-F]{{4}}-){{3}}[0-9a-fA-F]{{12}}\b
  | (?<![\w:])(?:~|\.{{0,2}})?/[^\s,;"']+                      # a path
  | \b[\w.-]+/[\w./-]*\w                                    # a relative path, a media type
  | \b\w*\d[\w.:-]*\w\b | \b\d\b                            # whatever has a digit
    """,
    re.VERBOSE,
)
_GAPS = re.compile(rf"{GAP}(?:[\s,]*{GAP})+")


@lru_cache(4096)  # pages compute it for the same messages again and again
def compute_cause(message: str) -> str:
    """Return the cause of a failure; the same for messages that differ only in ids, paths and numbers."""

    def replace(match: re.Match[str]) -> str:
        if status := match["status"]:
            return status
        return f"{match['url']}/{GAP}" if match["url"] else GAP

    text = " ".join(message.split())[: 4 * MAX_CAUSE]
    text = _GAPS.sub(GAP, _PARTS.sub(replace, text)).strip()
    return (text if len(text) <= MAX_CAUSE else text[: MAX_CAUSE - 1] + GAP) or NO_MESSAGE
