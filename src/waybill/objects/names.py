"""Names of objects: which texts are names, the same on every driver.

A name is text in segments with `/` between them: `jobs/42/attempt-7/files.jsonl`. A name that one driver keeps
faithfully and another does not would be found out on the day the bytes move, so the rules are those of the strictest
server that was met: SeaweedFS turns a backslash into a slash, XML listings cannot carry control characters, every S3
server ends at 1,024 bytes and a prefix takes its part.

Nothing is folded: `a` and `A`, composed and decomposed accents, `a` and `a/b` are all different names and may exist
side by side.
"""

from __future__ import annotations

import re

from waybill.objects.protocol import Refused

LONGEST = 900  # bytes of UTF-8; with the longest prefix of an S3 driver it stays below the 1,024 of S3
RESERVED = ".waybill"  # the first segment under which drivers keep what is theirs

_FORBIDDEN = re.compile("[\x00-\x1f\x7f\\\\\ufffe\uffff]")


def check_name(name: str) -> str:
    """The name itself, or Refused with a sentence that says what is wrong with it."""
    shown = ascii(name if len(name) <= 80 else name[:77] + "...")
    if not name:
        raise Refused("An object's name cannot be empty.")
    try:
        length = len(name.encode())
    except UnicodeEncodeError:
        raise Refused(
            f"{shown} is not a name: it holds half of a surrogate pair, which UTF-8 cannot express."
        ) from None
    if length > LONGEST:
        raise Refused(f"{shown} is too long for a name: {length} bytes of UTF-8, where {LONGEST} is the most.")
    bad = _FORBIDDEN.search(name)
    if bad:
        raise Refused(
            f"{shown} is not a name: {bad[0]!a} at position {bad.start()} is not kept faithfully by every object store."
        )
    segments = name.split("/")
    if "" in segments:
        raise Refused(f"{shown} is not a name: it starts or ends with a slash, or has two in a row.")
    if "." in segments or ".." in segments:
        raise Refused(f"{shown} is not a name: a segment is '.' or '..', which would point elsewhere.")
    if segments[0] == RESERVED:
        raise Refused(f"{shown} is not a name: what lies under {RESERVED}/ belongs to the object store itself.")
    return name


def check_prefix(prefix: str) -> str:
    """A prefix as a list of whole segments, without the slash at the end; empty for everything."""
    return check_name(prefix.removesuffix("/")) if prefix else ""
