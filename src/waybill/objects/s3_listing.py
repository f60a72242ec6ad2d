"""Listing of S3: keys below a folder and after a key, in the server's own order.

Servers like Amazon's sort by the bytes of the whole key. Servers that keep a tree (SeaweedFS) go folder by folder, and
take `start-after` for "after this entry and all below it": there what lies below comes first, by itself, and then what
the server lists.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal

from waybill.objects.bucket import Bucket

if TYPE_CHECKING:
    from obstore import ObjectMeta


def listed(bucket: Bucket, folder: str, after: str, order: Literal["bytes", "tree"]) -> Iterator[ObjectMeta]:
    """The keys below a folder (the whole bucket if empty) that come after a key (from the first one if empty)."""
    if not after or _precedes_all(after, folder, order):
        yield from bucket.list(folder)
    elif _is_below(after, folder):
        if order == "tree":
            yield from bucket.list(after)
        for meta in bucket.list(folder, after):
            if order == "bytes" or not _is_below(meta["path"], after):
                yield meta


def _is_below(key: str, folder: str) -> bool:
    return not folder or key.startswith(f"{folder}/")


def _precedes_all(after: str, folder: str, order: Literal["bytes", "tree"]) -> bool:
    """Whether everything below the folder comes after this key."""
    if _is_below(after, folder):
        return False
    if order == "bytes":
        return after.encode() < f"{folder}/".encode()
    return after.encode().split(b"/") <= folder.encode().split(b"/")
