"""Secrets in what people and logs are shown: this module is the only one that masks them.

    hide_secret("hunter2")                                        ***
    mask_secrets("postgresql://me:hunter2@host/db")               postgresql://me:***@host/db
    mask_secrets("https://host/a?X-Amz-Signature=6f0c&id=7")      https://host/a?X-Amz-Signature=***&id=7
    mask_foreign_url("https://me:hunter2@host/a?token=6f0c")      https://host/a?token=***
    mask_document({"url": "https://host/a?token=6f0c"})           {"url": "https://host/a?token=***"}
    remove_account("me:hunter2@host/a")                           host/a

In a URL the password and the value of every parameter are replaced whose name is not known to be harmless: a signature, a
token or a `pass=` lets whoever reads it fetch the file. A text without a URL is returned as it is.
"""

from __future__ import annotations

import re
from typing import Any

MASK = "***"
_ACCOUNT = re.compile(r"([\w+.-]+://)([^/?#]*@)", re.ASCII)
_ACCOUNT_IN_TEXT = re.compile(r"([\w+.-]+://)[^/?#\s]*@", re.ASCII)
_QUERY = re.compile(r"([\w+.-]+://[^\s?#]*\?)([^\s#]+)", re.ASCII)
# Parameters whose values are no secrets, whoever chose the URL: what is not known may be one.
_HARMLESS_NAMES = """
    after batch before collection connect_timeout count date dbname encoding end endpoint ext file filename format
    from host id index item lang language length limit local_id localid mime name number object offset order owner
    page part path place port profile q query range region rev revision row size sort sslmode start state status
    submitter target_session_attrs title to type user v ver version view year
"""
_HARMLESS_PARAMETERS = frozenset(_HARMLESS_NAMES.split())


def hide_secret(secret: str) -> str:
    """A mask in the place of a secret; nothing where none is set."""
    return MASK if secret else ""


def mask_secrets(value: str) -> str:
    """A URL of our settings as it may be shown and logged."""

    def mask_account(match: re.Match[str]) -> str:
        start, account = match.groups()
        user, colon, _ = account.partition(":")
        return f"{start}{user}:{MASK}@" if colon else start + account

    return _mask_parameters(_ACCOUNT.sub(mask_account, value))


def mask_foreign_url(value: str) -> str:
    """A URL that a user or another service sent, without its account: even the user name may be a token."""
    return _mask_parameters(_ACCOUNT_IN_TEXT.sub(r"\1", value))


def _mask_parameters(value: str) -> str:
    return _QUERY.sub(lambda match: match[1] + _mask_query(match[2]), value)


def _mask_query(query: str) -> str:
    return "&".join(map(_mask_parameter, query.split("&")))


def _mask_parameter(parameter: str) -> str:
    name, equals, value = parameter.partition("=")
    if not equals:
        return MASK if name else ""  # all of it may be a token
    return parameter if not value or name.lower() in _HARMLESS_PARAMETERS else f"{name}={MASK}"


def remove_account(text: str) -> str:
    """What a user sent as a URL, and what may be none, without anything that may be a user name or password."""
    return text.rpartition("@")[2]


def mask_document(value: Any) -> Any:
    """A JSON document in which every URL is masked, without its account."""
    if isinstance(value, dict):
        return {name: mask_document(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [mask_document(inner) for inner in value]
    return mask_foreign_url(value) if isinstance(value, str) else value
