"""Secrets in what people and logs are shown: this module is the only one that masks them.

    hide_secret("hunter2")                                        ***
    mask_secrets("postgresql://me:hunter2@host/db")               postgresql://me:***@host/db
    mask_secrets("https://host/a?X-Amz-Signature=6f0c&id=7")      https://host/a?X-Amz-Signature=***&id=7
    mask_secrets("https://me:hunter2@host/a", keep_user=False)    https://host/a
    mask_document({"url": "https://host/a?token=6f0c"})           {"url": "https://host/a?token=***"}

In a URL the password and every parameter whose name says that it is secret are replaced: a signature or a token lets
whoever reads it fetch the file. A text without a URL is returned as it is.
"""

from __future__ import annotations

import re
from typing import Any

MASK = "***"
_ACCOUNT = re.compile(r"([\w+.-]+://)([^/?#]*@)", re.ASCII)
_SECRET_PARAMETER = re.compile(
    r"([?&][^=&#]*(?:sig|token|key|secret|password|credential|auth)[^=&#]*)=[^&#]*", re.IGNORECASE
)


def hide_secret(secret: str) -> str:
    """A mask in the place of a secret; nothing where none is set."""
    return MASK if secret else ""


def mask_secrets(value: str, *, keep_user: bool = True) -> str:
    """A URL as it may be shown and logged. `keep_user=False` removes the account: of a URL that a user sent, even the
    user name may be a token.
    """
    if "://" not in value:
        return value

    def mask_account(match: re.Match[str]) -> str:
        start, account = match.groups()
        user, colon, _ = account.partition(":")
        return start + ("" if not keep_user else f"{user}:{MASK}@" if colon else account)

    return _SECRET_PARAMETER.sub(rf"\1={MASK}", _ACCOUNT.sub(mask_account, value))


def mask_document(value: Any) -> Any:
    """A JSON document in which every URL is masked, without its account."""
    if isinstance(value, dict):
        return {name: mask_document(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [mask_document(inner) for inner in value]
    return mask_secrets(value, keep_user=False) if isinstance(value, str) else value
