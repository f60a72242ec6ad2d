"""Signatures: what in a URL lets whoever reads it fetch the file, as in the presigned URLs of S3; shown to nobody.

Depositors hand them to us with their payloads. They stay in the documents of batches and jobs, because files are
fetched with them, and are left out of everything that is shown or sent.
"""

from __future__ import annotations

import re
from typing import Any

_SECRET = re.compile(r"(?i)([?&][^=&#]*(?:sig|token|key|secret|password|credential|auth)[^=&#]*)=[^&#]*")
_ACCOUNT = re.compile(r"(?<=://)[^/@\s]*@")


def without_secrets(value: Any) -> Any:
    """The same; a URL without its signature and without a password."""
    if not isinstance(value, str) or "://" not in value:
        return value
    return _SECRET.sub(r"\1=***", _ACCOUNT.sub("", value))


def unsigned(body: Any) -> Any:
    """A document without the secrets of any URL in it."""
    if isinstance(body, dict):
        return {name: unsigned(value) for name, value in body.items()}
    if isinstance(body, list):
        return [unsigned(value) for value in body]
    return without_secrets(body)
