"""Seals: what lets a service without a token read the manifest of one version, by a URL that works for a while.

    .../objects/ark%3A%2F99999%2Ffk4x/versions/1/manifest?expires=1793700000&signature=6f0c...

On a tree that is shared with other services a job names the manifest of what was stored by its URL, for whoever records
it, and those services know no tokens. Whoever reads the tree has the URL: it opens this manifest, none of the files
that it lists, and nothing later. The secret is the store's; the first one to ask makes it. Whoever reads the whole tree
has it too, and can sign: no file is opened by it.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable
from urllib.parse import urlencode

from waybill.record import Store

SECRET = "ingest-manifest-secret"  # the name under which the store remembers it


class Seal:
    def __init__(self, secret: str) -> None:
        self._secret = secret.encode()

    @classmethod
    def of(cls, store: Store, draw: Callable[[int], bytes]) -> Seal:
        return cls(store.remember(SECRET, draw(32).hex()))

    def query(self, ark: str, number: int, expires: int) -> str:
        """What follows the URL of the version's manifest."""
        return urlencode({"expires": expires, "signature": self._signature(ark, str(number), str(expires))})

    def fits(self, ark: str, number: str, expires: str, signature: str, now: float) -> bool:
        """Whether it was signed here for this very version, and time is left.

        Nothing is read as a number before it is known to be ours.
        """
        good = hmac.compare_digest(self._signature(ark, number, expires).encode(), signature.encode(errors="replace"))
        return good and now < int(expires)

    def _signature(self, ark: str, number: str, expires: str) -> str:
        told = f"manifest\0{ark}\0{number}\0{expires}".encode(errors="replace")
        return hmac.new(self._secret, told, hashlib.sha256).hexdigest()
