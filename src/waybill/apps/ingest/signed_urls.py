"""Signed URLs, by which a service without a token can read the manifest of one version for a limited time; and the removal
of signatures and passwords from URLs that are shown.

    .../objects/ark%3A%2F99999%2Ffk4x/versions/1/manifest?expires=1793700000&signature=6f0c...

On a tree that is shared with other services, a job names the manifest of the stored version by its URL, for the service
that records it, and those services have no tokens. Who can read the tree has the URL: it gives access to this manifest,
to none of the files that it lists, and to no later version. The secret is kept in the store, and created by the first
process that needs it. Who can read the whole tree has it too, and can sign: that gives access to no file.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Callable
from typing import Any
from urllib.parse import urlencode

from waybill.record import Store

SECRET_NAME = "ingest-manifest-secret"  # the name under which the store keeps the secret

_SECRET_PARAMETER = re.compile(r"(?i)([?&][^=&#]*(?:sig|token|key|secret|password|credential|auth)[^=&#]*)=[^&#]*")
_ACCOUNT = re.compile(r"(?<=://)[^/@\s]*@")


class ManifestUrlSigner:
    def __init__(self, secret: str) -> None:
        self._secret = secret.encode()

    @classmethod
    def from_store(cls, store: Store, draw_random_bytes: Callable[[int], bytes]) -> ManifestUrlSigner:
        return cls(store.remember(SECRET_NAME, draw_random_bytes(32).hex()))

    def sign_query(self, ark: str, number: int, expires: int) -> str:
        """The query string of the URL of the version's manifest."""
        return urlencode({"expires": expires, "signature": self._sign(ark, str(number), str(expires))})

    def is_valid(self, ark: str, number: str, expires: str, signature: str, now: float) -> bool:
        """Whether the signature is for this version, and has not expired.

        `expires` is parsed only after the signature was verified.
        """
        is_ours = hmac.compare_digest(self._sign(ark, number, expires).encode(), signature.encode(errors="replace"))
        return is_ours and now < int(expires)

    def _sign(self, ark: str, number: str, expires: str) -> str:
        message = f"manifest\0{ark}\0{number}\0{expires}".encode(errors="replace")
        return hmac.new(self._secret, message, hashlib.sha256).hexdigest()


# --- secrets in URLs, such as the signatures of presigned S3 URLs: whoever reads them can fetch the file, so they are not shown


def strip_url_secrets(value: Any) -> Any:
    """A URL without its signature and without a password; any other value unchanged."""
    if not isinstance(value, str) or "://" not in value:
        return value
    return _SECRET_PARAMETER.sub(r"\1=***", _ACCOUNT.sub("", value))


def strip_document_secrets(body: Any) -> Any:
    """A document without the secrets of the URLs in it."""
    if isinstance(body, dict):
        return {name: strip_document_secrets(value) for name, value in body.items()}
    if isinstance(body, list):
        return [strip_document_secrets(value) for value in body]
    return strip_url_secrets(body)
