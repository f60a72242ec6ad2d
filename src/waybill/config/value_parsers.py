"""Parsers of settings' values, which come from the file (with their own type) or from the environment (as text).

Each raises ValueError with a description of the values that are allowed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from waybill.config.model import WebhookSettings


def parse_text(value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError("a text that is not empty")
    return value


def parse_path(value: Any) -> Path:
    return Path(value) if isinstance(value, Path) else Path(parse_text(value))


def parse_boolean(value: Any) -> bool:
    if isinstance(value, str) and value.lower() in ("true", "1", "yes", "on", "false", "0", "no", "off"):
        return value.lower() in ("true", "1", "yes", "on")
    if not isinstance(value, bool):
        raise ValueError("true or false")
    return value


def make_integer_parser(minimum: int, maximum: int) -> Callable[[Any], int]:
    def parse(value: Any) -> int:
        number = int(value) if isinstance(value, str) and re.fullmatch(r"-?[0-9]+", value) else value
        if isinstance(number, bool) or not isinstance(number, int) or not minimum <= number <= maximum:
            raise ValueError(f"a whole number from {minimum} to {maximum}")
        return number

    return parse


def make_seconds_parser(minimum: float, maximum: float) -> Callable[[Any], float]:
    return make_number_parser(minimum, maximum, "seconds")


def make_number_parser(minimum: float, maximum: float, unit: str) -> Callable[[Any], float]:
    def parse(value: Any) -> float:
        try:
            number = float(value) if not isinstance(value, bool) else None
        except (TypeError, ValueError):
            number = None
        if number is None or not minimum <= number <= maximum:
            raise ValueError(f"a number of {unit} from {minimum:g} to {maximum:g}")
        return number

    return parse


def make_choice_parser(*names: str) -> Callable[[Any], str]:
    def parse(value: Any) -> str:
        if value not in names:
            raise ValueError(" or ".join(f'"{name}"' for name in names))
        return str(value)

    return parse


def parse_names(value: Any) -> tuple[str, ...]:
    names = [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value
    if not isinstance(names, (list, tuple)) or not all(isinstance(name, str) and name for name in names):
        raise ValueError("a list of names (in the environment: separated by commas)")
    return tuple(names)


def parse_retention_days(value: Any) -> dict[str, float]:
    expected = 'a table of days by "kind.State", such as {"shipment.Delivered" = 30} (in the environment: kind.State=30,kind.State=7)'
    if isinstance(value, str):
        pairs = [part.partition("=") for part in value.split(",") if part.strip()]
        value = {name.strip(): days.strip() for name, _, days in pairs}
    if not isinstance(value, Mapping):
        raise ValueError(expected)
    retention: dict[str, float] = {}
    for name, days in value.items():
        try:
            retention[name] = float(days) if not isinstance(days, bool) else -1.0
        except (TypeError, ValueError):
            raise ValueError(expected) from None
        if not re.fullmatch(r"[^.\s]+\.[^.\s]+", name) or not 0 <= retention[name] < 1e6:
            raise ValueError(expected)
    return retention


def parse_pools(value: Any) -> dict[str, int]:
    expected = "a table of threads by the name of a pool, such as {transfer = 8}, each from 1 to 1024 (in the environment: transfer=8)"
    if isinstance(value, str):
        pairs = [part.partition("=") for part in value.split(",") if part.strip()]
        value = {name.strip(): threads.strip() for name, _, threads in pairs}
    if not isinstance(value, Mapping):
        raise ValueError(expected)
    parse_threads = make_integer_parser(1, 1024)
    try:
        pools = {name: parse_threads(threads) for name, threads in value.items()}
    except ValueError:
        raise ValueError(expected) from None
    if not all(re.fullmatch(r"[a-z][a-z0-9-]{0,63}", name) for name in pools):
        raise ValueError(expected)
    return pools


MAIL_SCHEMES = {"smtp": 25, "starttls": 587, "smtps": 465}


def parse_url(value: Any) -> str:
    """A URL, or a path; whether it exists is checked when it is opened."""
    url = parse_text(value)
    try:
        urlsplit(url)
    except ValueError as error:
        raise ValueError(f"a valid URL ({error})") from None
    return url


def parse_mail_url(value: Any) -> str:
    expected = (
        "smtp://host:port, starttls://host:port or smtps://host:port, "
        "without a user and a password (those are mail.user and mail.password)"
    )
    try:
        parts = urlsplit(parse_text(value).strip())
        is_valid = (
            parts.scheme in MAIL_SCHEMES
            and parts.hostname
            and "@" not in parts.netloc
            and parts.path in ("", "/")
            and parts.port != 0
        )
    except ValueError:
        is_valid = False
    if not is_valid or parts.query or parts.fragment:
        raise ValueError(expected)
    return f"{parts.scheme}://{parts.netloc}"


def parse_mail_address(value: Any) -> str:
    if not re.fullmatch(r"[^@\s,;<>\x00-\x1f\x7f]+@[^@\s,;<>\x00-\x1f\x7f]+", parse_text(value).strip()):
        raise ValueError("one mail address, such as waybill@example.org")
    return str(value).strip()


def parse_webhooks(value: Any) -> tuple[WebhookSettings, ...]:
    expected = (
        'tables [webhooks.NAME] with a url (http or https, without a user and a password), and perhaps types = ["org.example.*"] '
        'and a secret (in the environment: JSON, {"NAME": {"url": "https://example.org/hook"}})'
    )
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            raise ValueError(expected) from None
    if not isinstance(value, Mapping):
        raise ValueError(expected)
    return tuple(_parse_webhook(name, table, expected) for name, table in value.items())


def _parse_webhook(name: str, table: Any, expected: str) -> WebhookSettings:
    if (
        not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name)
        or not isinstance(table, Mapping)
        or set(table) - {"url", "types", "secret"}
    ):
        raise ValueError(expected)
    url, types, secret = table.get("url"), table.get("types", ["*"]), table.get("secret", "")
    try:
        parts = urlsplit(url if isinstance(url, str) else "")
        is_valid = (
            parts.scheme in ("http", "https") and bool(parts.hostname) and "@" not in parts.netloc and parts.port != 0
        )
    except ValueError:
        is_valid = False
    is_list = isinstance(types, list) and all(isinstance(each, str) and each for each in types)
    if not is_valid or not is_list or not isinstance(secret, str):
        raise ValueError(expected)
    return WebhookSettings(name, str(url), tuple(types), secret)
