"""What a setting's value may be, from a file (its own type) or from the environment (text).

Each raises ValueError with what is right.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from waybill.config.shape import Webhook


def text(value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError("a text that is not empty")
    return value


def path(value: Any) -> Path:
    return Path(value) if isinstance(value, Path) else Path(text(value))


def yes(value: Any) -> bool:
    if isinstance(value, str) and value.lower() in ("true", "1", "yes", "on", "false", "0", "no", "off"):
        return value.lower() in ("true", "1", "yes", "on")
    if not isinstance(value, bool):
        raise ValueError("true or false")
    return value


def whole(least: int, most: int) -> Callable[[Any], int]:
    def parse(value: Any) -> int:
        number = int(value) if isinstance(value, str) and re.fullmatch(r"-?[0-9]+", value) else value
        if isinstance(number, bool) or not isinstance(number, int) or not least <= number <= most:
            raise ValueError(f"a whole number from {least} to {most}")
        return number

    return parse


def seconds(least: float, most: float) -> Callable[[Any], float]:
    def parse(value: Any) -> float:
        try:
            number = float(value) if not isinstance(value, bool) else None
        except (TypeError, ValueError):
            number = None
        if number is None or not least <= number <= most:
            raise ValueError(f"a number of seconds from {least:g} to {most:g}")
        return number

    return parse


def one_of(*names: str) -> Callable[[Any], str]:
    def parse(value: Any) -> str:
        if value not in names:
            raise ValueError(" or ".join(f'"{name}"' for name in names))
        return str(value)

    return parse


def names(value: Any) -> tuple[str, ...]:
    found = [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value
    if not isinstance(found, (list, tuple)) or not all(isinstance(name, str) and name for name in found):
        raise ValueError("a list of names (in the environment: parted by commas)")
    return tuple(found)


def days(value: Any) -> dict[str, float]:
    right = 'a table of days by "kind.State", such as {"shipment.Delivered" = 30} (in the environment: kind.State=30,kind.State=7)'
    if isinstance(value, str):
        pairs = [part.partition("=") for part in value.split(",") if part.strip()]
        value = {name.strip(): days.strip() for name, _, days in pairs}
    if not isinstance(value, Mapping):
        raise ValueError(right)
    kept: dict[str, float] = {}
    for name, days in value.items():
        try:
            kept[name] = float(days) if not isinstance(days, bool) else -1.0
        except (TypeError, ValueError):
            raise ValueError(right) from None
        if not re.fullmatch(r"[^.\s]+\.[^.\s]+", name) or not 0 <= kept[name] < 1e6:
            raise ValueError(right)
    return kept


MAIL_SCHEMES = {"smtp": 25, "starttls": 587, "smtps": 465}


def url(value: Any) -> str:
    """A URL, or a path; what it names is looked at where it is opened."""
    given = text(value)
    try:
        urlsplit(given)
    except ValueError as error:
        raise ValueError(f"a URL as other programs read it ({error})") from None
    return given


def mail_url(value: Any) -> str:
    right = (
        "smtp://host:port, starttls://host:port or smtps://host:port, "
        "without a user and a password (those are mail.user and mail.password)"
    )
    try:
        parts = urlsplit(text(value).strip())
        good = (
            parts.scheme in MAIL_SCHEMES
            and parts.hostname
            and "@" not in parts.netloc
            and parts.path in ("", "/")
            and parts.port != 0
        )
    except ValueError:
        good = False
    if not good or parts.query or parts.fragment:
        raise ValueError(right)
    return f"{parts.scheme}://{parts.netloc}"


def address(value: Any) -> str:
    if not re.fullmatch(r"[^@\s,;<>\x00-\x1f\x7f]+@[^@\s,;<>\x00-\x1f\x7f]+", text(value).strip()):
        raise ValueError("one mail address, such as waybill@example.org")
    return str(value).strip()


def webhooks(value: Any) -> tuple[Webhook, ...]:
    right = (
        'tables [webhooks.NAME] with a url (http or https, without a user and a password), and perhaps types = ["org.waybill.ingest.*"] '
        'and a secret (in the environment: JSON, {"NAME": {"url": "https://example.org/hook"}})'
    )
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            raise ValueError(right) from None
    if not isinstance(value, Mapping):
        raise ValueError(right)
    return tuple(_webhook(name, said, right) for name, said in value.items())


def _webhook(name: str, said: Any, right: str) -> Webhook:
    if (
        not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name)
        or not isinstance(said, Mapping)
        or set(said) - {"url", "types", "secret"}
    ):
        raise ValueError(right)
    url, types, secret = said.get("url"), said.get("types", ["*"]), said.get("secret", "")
    try:
        parts = urlsplit(url if isinstance(url, str) else "")
        good = (
            parts.scheme in ("http", "https") and bool(parts.hostname) and "@" not in parts.netloc and parts.port != 0
        )
    except ValueError:
        good = False
    listed = isinstance(types, list) and all(isinstance(each, str) and each for each in types)
    if not good or not listed or not isinstance(secret, str):
        raise ValueError(right)
    return Webhook(name, str(url), tuple(types), secret)
