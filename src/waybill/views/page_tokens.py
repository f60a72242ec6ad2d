"""Lists are read page by page, and the token of a page says where the next one begins.

A token holds the query and where the page ended, signed with a secret that the store keeps: any process of the same
store accepts it, and nobody can forge a query.

    ListQuery -> store.find -> PageTokens.sign(query, page.after) -> ... -> PageTokens.verify(token) -> the same query,
    further on

`find_page` does all of it.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
from collections.abc import Callable

import msgspec

from waybill.errors import InputError
from waybill.record import Page, Ref, Store


class ListQuery(msgspec.Struct, frozen=True, array_like=True):
    """What a list shows: a kind, at most one filter, and the direction."""

    kind: str
    state: str | None = None
    parent: Ref | None = None
    owner: str | None = None
    newest: bool = False


class _PagePosition(msgspec.Struct, frozen=True, array_like=True):
    query: ListQuery
    after: int


class PageTokens:
    """Makes the tokens of pages and accepts only its own."""

    SIGNATURE_BYTES = 16  # nobody guesses one of 2**128

    def __init__(self, secret: str) -> None:
        self._secret = secret.encode()

    @classmethod
    def from_store(cls, store: Store) -> PageTokens:
        """Use the store's secret, which the first caller makes."""
        return cls(store.remember("page-secret", secrets.token_hex(32)))

    def sign(self, query: ListQuery, after: int | None) -> str | None:
        """Return the token of the page that follows `after`; None after the last page."""
        if after is None:
            return None
        body = msgspec.json.encode(_PagePosition(query, after))
        return base64.urlsafe_b64encode(self._compute_signature(body) + body).rstrip(b"=").decode()

    def verify(self, token: str) -> tuple[ListQuery, int]:
        """Return the query and where to go on. Raises InputError for anything that this store did not sign."""
        try:
            signed = base64.b64decode(token.encode("ascii") + b"=" * (-len(token) % 4), altchars=b"-_", validate=True)
        except (UnicodeEncodeError, binascii.Error, ValueError) as error:
            raise InputError(code="bad-page-token") from error
        signature, body = signed[: self.SIGNATURE_BYTES], signed[self.SIGNATURE_BYTES :]
        if not hmac.compare_digest(signature, self._compute_signature(body)):
            raise InputError(code="bad-page-token")
        try:
            position = msgspec.json.decode(body, type=_PagePosition)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:  # signed by us, in the format of another release
            raise InputError(code="bad-page-token") from error
        return position.query, position.after

    def _compute_signature(self, body: bytes) -> bytes:
        return hmac.new(self._secret, b"page\0" + body, hashlib.sha256).digest()[: self.SIGNATURE_BYTES]


def find_page(
    store: Store,
    requested: ListQuery,
    page_token: str | None,
    *,
    limit: int,
    documents: bool = False,
    is_order_given: bool = False,
    tokens_of: Callable[[Store], PageTokens] = PageTokens.from_store,
) -> tuple[Page, str | None]:
    """Return the page that follows the token, or the first one, and the token of the next page.

    A page token alone continues its own list; a filter beside it must agree with it, and so must the order if it is
    given. Raises InputError otherwise.
    """
    query, after = requested, None
    if page_token is not None:
        query, after = tokens_of(store).verify(page_token)
        given = (requested.state, requested.parent, requested.owner)
        if (
            query.kind != requested.kind
            or (any(given) and given != (query.state, query.parent, query.owner))
            or (is_order_given and query.newest != requested.newest)
        ):
            raise InputError(
                "This page token belongs to another list. Give it with the same kind, filter and order, or alone.",
                code="bad-page-token",
            )
    page = store.find(
        query.kind,
        state=query.state,
        parent=query.parent,
        owner=query.owner,
        after=after,
        newest=query.newest,
        limit=limit,
        documents=documents,
    )
    # Signing the first token of a store writes its secret. A list of one page is readable even when the disk is full.
    return page, tokens_of(store).sign(query, page.after) if page.after is not None else None
