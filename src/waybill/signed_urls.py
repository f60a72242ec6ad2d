"""Signed URLs, by which a client without a token can read one thing for a limited time.

    https://host/api/v1/...?expires=1793700000&signature=6f0c...

A signature is for a purpose and for the parts that identify the thing, such as an id and a version: it opens nothing
else, and nothing after it has expired. The secret of a purpose is kept in the store, and created by the first process
that needs it. Who can read the whole store has it too, and can sign. `waybill.http.request_context` has the routes that
accept signed URLs.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Callable, Mapping, Sequence
from urllib.parse import quote, urlencode

from waybill.record import Store


class UrlSigner:
    def __init__(self, purpose: str, secret: str) -> None:
        self._purpose = purpose
        self._secret = secret.encode()

    @classmethod
    def from_store(
        cls, store: Store, purpose: str, draw_random_bytes: Callable[[int], bytes] = secrets.token_bytes
    ) -> UrlSigner:
        """Use the secret of this purpose that the store keeps."""
        return cls(purpose, store.remember(f"{purpose}-secret", draw_random_bytes(32).hex()))

    def sign_query(self, parts: Sequence[str], expires: int) -> str:
        """The query string of the URL of what the parts identify."""
        return urlencode({"expires": expires, "signature": self._sign(parts, str(expires))})

    def is_valid(self, parts: Sequence[str], query: Mapping[str, str], now: float) -> bool:
        """Whether the query has a signature for these parts that has not expired.

        `expires` is parsed only after the signature was verified.
        """
        expires, signature = query.get("expires", ""), query.get("signature", "")
        is_ours = hmac.compare_digest(self._sign(parts, expires).encode(), signature.encode(errors="replace"))
        return is_ours and now < int(expires)

    def sign_text(self, parts: Sequence[str], expires: int) -> str:
        """The signature of what the parts identify as one text, for a token that is no query."""
        return f"{expires}.{self._sign(parts, str(expires))}"

    def is_signed(self, parts: Sequence[str], text: str, now: float) -> bool:
        """Whether a text is the signature of these parts and has not expired."""
        expires, _, signature = text.partition(".")
        return self.is_valid(parts, {"expires": expires, "signature": signature}, now)

    def _sign(self, parts: Sequence[str], expires: str) -> str:
        # quoted, so that no part can reach into the next one
        message = "/".join(quote(each, safe="", errors="replace") for each in (self._purpose, *parts, expires))
        return hmac.new(self._secret, message.encode(), hashlib.sha256).hexdigest()
