"""Lists are read page by page, and a page's token says where to go on.

A token holds what was asked for and where the page ended, signed with a secret that the store keeps: any process of the
same store can go on, and none can be led to a query that nobody asked.

    Query -> store.find -> PageTokens.sign(query, page.after) -> ... -> PageTokens.verify(token) -> the same Query,
    further on
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets

import msgspec

from waybill.record import Ref, Store


class BadToken(ValueError):
    """This page token is not one of ours, or belongs to another list. Begin again without a token."""

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or (self.__doc__ or "").strip())


class Query(msgspec.Struct, frozen=True, array_like=True):
    """What a list shows: a kind, at most one filter, and the direction."""

    kind: str
    state: str | None = None
    parent: Ref | None = None
    owner: str | None = None
    newest: bool = False


class _Place(msgspec.Struct, frozen=True, array_like=True):
    query: Query
    after: int


class PageTokens:
    """Makes the tokens of pages and takes only its own."""

    SIGNATURE = 16  # bytes: nobody guesses one of 2**128

    def __init__(self, secret: str) -> None:
        self._secret = secret.encode()

    @classmethod
    def of(cls, store: Store) -> PageTokens:
        """With the store's secret, which the first one to ask makes."""
        return cls(store.remember("page-secret", secrets.token_hex(32)))

    def sign(self, query: Query, after: int | None) -> str | None:
        """The token of the page that follows `after`; None after the last one."""
        if after is None:
            return None
        body = msgspec.json.encode(_Place(query, after))
        return base64.urlsafe_b64encode(self._signature(body) + body).rstrip(b"=").decode()

    def verify(self, token: str) -> tuple[Query, int]:
        """What was asked and where to go on; BadToken for anything that this store did not sign."""
        try:
            sealed = base64.b64decode(token.encode("ascii") + b"=" * (-len(token) % 4), altchars=b"-_", validate=True)
        except (UnicodeEncodeError, binascii.Error, ValueError) as error:
            raise BadToken from error
        signature, body = sealed[: self.SIGNATURE], sealed[self.SIGNATURE :]
        if not hmac.compare_digest(signature, self._signature(body)):
            raise BadToken
        try:
            place = msgspec.json.decode(body, type=_Place)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:  # signed by us, in the form of another release
            raise BadToken from error
        return place.query, place.after

    def _signature(self, body: bytes) -> bytes:
        return hmac.new(self._secret, b"page\0" + body, hashlib.sha256).digest()[: self.SIGNATURE]
