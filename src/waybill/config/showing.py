"""Settings as people may see them: secrets are never shown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from waybill.config.settings import SETTINGS
from waybill.config.shape import Config
from waybill.config.urls import masked


def effective(config: Config) -> dict[str, Any]:
    """Every setting's value by its name, ready to be shown: paths as text, secrets masked."""
    shown: dict[str, Any] = {}
    for setting in SETTINGS:
        value: Any = config
        for part in setting.name.split("."):
            value = getattr(value, part)
        if isinstance(value, Path):
            value = str(value)
        elif setting.name == "webhooks":
            value = {
                w.name: {"url": masked(w.url), "types": list(w.types), "secret": hidden(w.secret)}
                for w in config.webhooks
            }
        elif setting.secret:
            value = hidden(value)
        elif isinstance(value, str):
            value = masked(value)
        elif isinstance(value, tuple):
            value = list(value)
        shown[setting.name] = value
    return shown


def hidden(secret: str) -> str:
    return "***" if secret else ""


def in_words(value: Any) -> str:
    """A value in a complaint."""
    return repr(masked(value) if isinstance(value, str) else value)
