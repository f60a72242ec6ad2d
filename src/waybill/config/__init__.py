"""The settings of a process: one TOML file and the environment, read once, each value knowing where it came from.

    given on the command line  >  environment (WAYBILL_...)  >  waybill.toml  >  default

The file is the one given by `--config` or WAYBILL_CONFIG, or else `waybill.toml` in the data folder. A path in the file
is relative to the file; one from the environment or the command line is relative to the current folder of the process.
`SETTINGS` is the only list of settings: the loader, `waybill config` and docs/reference/config.md all follow it.
"""

from waybill.config.loader import ADDRESS_FILE, CONFIG_FILE, DEMO_FILE, effective_values_of, load
from waybill.config.model import (
    Config,
    EventSettings,
    HttpSettings,
    LogSettings,
    MailSettings,
    SandboxSettings,
    WebhookSettings,
    WorkSettings,
)
from waybill.config.settings import OTHER_VARIABLES, SETTINGS, Setting, find_unknown_variables
from waybill.config.urls import POSTGRES_TIMEOUTS, sqlite_path, sqlite_url
from waybill.config.value_parsers import MAIL_SCHEMES

DAY = 86400.0

__all__ = [
    "ADDRESS_FILE",
    "CONFIG_FILE",
    "DAY",
    "DEMO_FILE",
    "MAIL_SCHEMES",
    "OTHER_VARIABLES",
    "POSTGRES_TIMEOUTS",
    "SETTINGS",
    "Config",
    "EventSettings",
    "HttpSettings",
    "LogSettings",
    "MailSettings",
    "SandboxSettings",
    "Setting",
    "WebhookSettings",
    "WorkSettings",
    "effective_values_of",
    "find_unknown_variables",
    "load",
    "sqlite_path",
    "sqlite_url",
]
