"""Names as node names: ids, states, owners and keys may hold what a node's name may not, and each must be found
again from its node.

Merritt's lock nodes are named by its own rule, `:?/` becomes `_`, so that "ark:/99999/fk4" is "ark_99999_fk4" for every
service. That rule makes no node of "." and "..", nor of a name with characters that ZooKeeper refuses, such as an
emoji: of those the bytes are written instead. By it two names can have one node; then they are one lock.
"""

from __future__ import annotations

import re
import zlib
from functools import lru_cache
from urllib.parse import quote as percent_encode
from urllib.parse import unquote

_SAFE = "-_.:@+=,()!$&'*;"
_KEY_FOLDERS = frozenset({"storage", "inventory", "localid"})  # key families that Merritt's services share
_QUEUES = frozenset({"ingest", "accessSmall", "accessLarge"})
_SLASH = re.compile(":?/")
# by ZooKeeper, in a node's name
_REFUSED = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff\U00010000-\U0010ffff]")
_DOTS = {".": "%2E", "..": "%2E%2E"}  # in a path they would mean this folder and the one above
_EMPTY = "%"  # which no other text gives: whoever asks for a record without a name finds none, as in other stores
MARK_FOLDERS = {"collections": "/locks/collections", "queue": "/locks/queue"}


@lru_cache(100_000)
def quote(name: str) -> str:
    """A node name for any text; no two texts share one, and none holds "~" or "/"."""
    if not name:
        return _EMPTY
    if name in _DOTS:
        return _DOTS[name]
    return percent_encode(name, safe=_SAFE).replace("~", "%7E")


def plain(node: str) -> str:
    """The text that `quote` made this of."""
    return "" if node == _EMPTY else unquote(node)


def _forbidden(name: str) -> bool:
    return name in _DOTS or _REFUSED.search(name) is not None


def mangle(name: str) -> str:
    if name in _DOTS:
        return _DOTS[name]
    return _REFUSED.sub(lambda found: percent_encode(found[0], errors="surrogatepass"), _SLASH.sub("_", name))


def key_path(key: str) -> str:
    """The node that stands for an exclusive key, "family/name"."""
    family, _, name = key.partition("/")
    if family in _KEY_FOLDERS and name:
        return f"/locks/{family}/{mangle(name)}"
    return f"/waybill/keys/{quote(key)}"


def shared_mark_path(mark: str) -> str | None:
    """The node by which Merritt's services know the mark too, if they do: there is none of a name that ZooKeeper
    refuses.
    """
    family, _, name = mark.partition("/")
    if family == "queue" and name in _QUEUES:
        return f"/locks/queue/{name}"
    if family == "collections" and name and "/" not in name and not _forbidden(name):
        return f"/locks/collections/{name}"
    return None


def mark_path(mark: str) -> str:
    """The node that says who set the mark and why."""
    return f"/waybill/marks/{quote(mark)}"


def checksum(text: str | bytes) -> int:
    return zlib.crc32(text if isinstance(text, bytes) else text.encode())
