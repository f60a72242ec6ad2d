"""The settings of a process: one TOML file and the environment, read once, each value knowing where it came from.

    given on the command line  >  environment (WAYBILL_...)  >  waybill.toml  >  default

The file is the one given by `--config` or WAYBILL_CONFIG, or else `waybill.toml` in the data folder. A path in the file
is relative to the file; one from the environment or the command line is relative to where the process was started.
`SETTINGS` is the only list of settings: the reader, `waybill config` and docs/reference/config.md all follow it.
"""

from waybill.config.reading import ADDRESS_FILE, DEMO_FILE, FILE, BadConfig, load
from waybill.config.settings import OTHER_VARIABLES, SETTINGS, Setting, strays
from waybill.config.shape import Config, Http, Log, Mail, Webhook, Work
from waybill.config.showing import effective, hidden
from waybill.config.urls import POSTGRES_PATIENCE, masked, sqlite_path, sqlite_url
from waybill.config.values import MAIL_SCHEMES

DAY = 86400.0

__all__ = [
    "ADDRESS_FILE",
    "DAY",
    "DEMO_FILE",
    "FILE",
    "MAIL_SCHEMES",
    "OTHER_VARIABLES",
    "POSTGRES_PATIENCE",
    "SETTINGS",
    "BadConfig",
    "Config",
    "Http",
    "Log",
    "Mail",
    "Setting",
    "Webhook",
    "Work",
    "effective",
    "hidden",
    "load",
    "masked",
    "sqlite_path",
    "sqlite_url",
    "strays",
]
