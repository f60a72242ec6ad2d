"""The list of settings: the loader, `waybill config` and docs/reference/config.md all follow it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from waybill.config import value_parsers


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting: its name in the file (dots are tables), how its value is parsed, its default, and one sentence."""

    name: str
    parse: Callable[[Any], Any]
    default: str  # in words, for the docs
    description: str
    secret: bool = False  # never shown, not even in an error message

    @property
    def variable(self) -> str:
        return "WAYBILL_" + self.name.upper().replace(".", "_")


SETTINGS: tuple[Setting, ...] = (
    Setting(
        "data",
        value_parsers.parse_path,
        "waybill-data",
        "The folder that holds everything that no other setting places elsewhere.",
    ),
    Setting(
        "store",
        value_parsers.parse_url,
        "the file DATA/waybill.db",
        "Where records are stored: a sqlite, postgresql or zookeeper URL.",
    ),
    Setting(
        "objects", value_parsers.parse_url, "DATA/objects", "Where bytes are stored: a folder, or s3://bucket/prefix."
    ),
    Setting(
        "index",
        value_parsers.parse_url,
        "PostgreSQL's database with the store; else a file beside that of SQLite, or DATA/index.db",
        "The SQL database of searchable catalogues: a sqlite or postgresql URL.",
    ),
    Setting("http.host", value_parsers.parse_text, "127.0.0.1", "The address that the server listens on."),
    Setting(
        "http.port",
        value_parsers.make_integer_parser(0, 65535),
        "8700",
        "The port that the server listens on; 0 takes a free one.",
    ),
    Setting(
        "http.allowed_hosts",
        value_parsers.parse_names,
        "none",
        'Further host names that the server accepts, as behind a proxy; "*" is any.',
    ),
    Setting(
        "http.tls_certificate",
        value_parsers.parse_path,
        "none: plain HTTP",
        "The file of the certificate, with those that lead to its authority, in PEM; with it the server speaks TLS alone.",
    ),
    Setting(
        "http.tls_key", value_parsers.parse_path, "the file of the certificate", "The file of its private key, in PEM."
    ),
    Setting(
        "open_loopback",
        value_parsers.parse_boolean,
        "false",
        "Accept requests from this machine without a token, as admin, and serve the protocols that have no tokens; "
        "only when http.host is loopback. For a computer with one user, not for a shared one.",
    ),
    Setting("work.root", value_parsers.parse_path, "DATA/work", "The folder that holds the working folders of steps."),
    Setting(
        "work.host",
        value_parsers.parse_text,
        "the machine's name",
        "The stable name of this host: working files are used on the host that made them.",
    ),
    Setting(
        "work.shared",
        value_parsers.parse_boolean,
        "false",
        "Whether work.root is one and the same folder on every host.",
    ),
    Setting(
        "work.threads",
        value_parsers.make_integer_parser(1, 1024),
        "4",
        "How many steps one worker runs at the same time.",
    ),
    Setting(
        "work.pools",
        value_parsers.parse_pools,
        "upkeep=2",
        "The threads of the pools that states name, as a table; of a pool that is not named, work.threads. "
        "Mail, subscriptions, maintenance and joins are in the pool upkeep.",
    ),
    Setting(
        "work.processes",
        value_parsers.make_integer_parser(1, 256),
        "1",
        "How many worker processes there are, each with its own threads: at most one for each core is useful.",
    ),
    Setting(
        "work.queues",
        value_parsers.parse_names,
        "all",
        'Which queues a worker serves: "kind", "kind.State" or "maintenance".',
    ),
    Setting(
        "work.claim_max",
        value_parsers.make_integer_parser(1, 1000),
        "512",
        "How many records a worker claims at once, at most.",
    ),
    Setting(
        "work.ttl",
        value_parsers.make_seconds_parser(1, 3600),
        "15",
        "Seconds that a worker may be silent before its claims are freed.",
    ),
    Setting(
        "sandbox.mode",
        value_parsers.make_choice_parser("required", "unsandboxed"),
        "required",
        'Where commands of users run: in a sandbox, or nowhere; "unsandboxed" runs them without one. For a computer with one user.',
    ),
    Setting(
        "sandbox.folder",
        value_parsers.parse_path,
        "DATA/sandbox",
        "The folder that holds the temporary files of sandboxes, where these are not in memory.",
    ),
    Setting(
        "sandbox.first_uid",
        value_parsers.make_integer_parser(1, 4_294_960_000),
        "1900000000",
        "The first of 1000 uids that nobody else has; with root, each sandbox runs its commands under one of them.",
    ),
    Setting(
        "sandbox.system",
        value_parsers.parse_names,
        "none",
        "Folders, beside /usr, that every sandbox shows at the same place, read-only: absolute paths, such as /opt.",
    ),
    Setting(
        "retention",
        value_parsers.parse_retention_days,
        "each machine's own",
        "Days after which records that have settled in a state are removed.",
    ),
    Setting(
        "applications",
        value_parsers.parse_names,
        "all that are installed",
        "Which applications to load: names of installed ones, or module:object for one that is not installed.",
    ),
    Setting(
        "demo",
        value_parsers.parse_boolean,
        "true when DATA/demo exists",
        "Load the demonstration; `waybill up --demo` makes the file DATA/demo.",
    ),
    Setting(
        "mail.url",
        value_parsers.parse_mail_url,
        "no mail is sent",
        "The mail server: smtp://host:25, starttls://host:587 or smtps://host:465.",
    ),
    Setting(
        "mail.sender",
        value_parsers.parse_mail_address,
        "waybill@ and the machine's name",
        "The sender address of mail.",
    ),
    Setting("mail.user", value_parsers.parse_text, "none", "The user name for the mail server."),
    Setting(
        "mail.password",
        value_parsers.parse_text,
        "none",
        "The password of mail.user; better in the environment than in the file.",
        secret=True,
    ),
    Setting(
        "webhooks",
        value_parsers.parse_webhooks,
        "none",
        "The receivers of events, as tables [webhooks.NAME]: the url, the types of events, and the secret that signs them.",
        secret=True,
    ),
    Setting(
        "events.keep",
        value_parsers.make_number_parser(0, 3650, "days"),
        "7",
        "Days that an event stays in the log after everybody who subscribes has read it.",
    ),
    Setting(
        "events.source",
        value_parsers.parse_url,
        "the server's address",
        "The URL of this installation in the events that webhooks get.",
    ),
    Setting(
        "events.log",
        value_parsers.parse_names,
        "none",
        "Types of events that are logged although nobody subscribes, for `waybill events`; * stands for any part of a name.",
    ),
    Setting(
        "log.level",
        value_parsers.make_choice_parser("debug", "info", "warning", "error"),
        "info",
        "How much is logged.",
    ),
    Setting("log.format", value_parsers.make_choice_parser("text", "json"), "text", "The format of a line of the log."),
)
SETTINGS_BY_NAME = {setting.name: setting for setting in SETTINGS}
TABLES = {"http", "work", "log", "mail", "sandbox", "events"}
# Variables of Waybill that are no settings of the process.
OTHER_VARIABLES: dict[str, str] = {
    "WAYBILL_CONFIG": "The settings file; the same as --config.",
    "WAYBILL_SERVER": "The server that commands use instead of a store; the same as --server.",
    "WAYBILL_TOKEN_FILE": "The file with the token for that server; the same as --token-file.",
    "WAYBILL_TOKEN": "The token that a client of the HTTP API sends, where no file is named.",
    "WAYBILL_DEBUG": "1: print the traceback of an error as well.",
    "WAYBILL_BUDGET": "For Waybill's own tests: `small` is the default, `long` runs the full counts (`make test-long`).",
}


def find_unknown_variables(env: Mapping[str, str]) -> list[str]:
    """Variables that begin with WAYBILL_ and are not ours: perhaps misspelt."""
    ours = {setting.variable for setting in SETTINGS} | set(OTHER_VARIABLES)
    return sorted(name for name in env if name.startswith("WAYBILL_") and name not in ours)
