"""The list of settings: the reader, `waybill config` and docs/reference/config.md all follow it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from waybill.config import values


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting: its name in the file (dots are tables), what it may be, what it is when nobody says, and one
    sentence.
    """

    name: str
    parse: Callable[[Any], Any]
    default: str  # in words, for the docs
    doc: str
    secret: bool = False  # never shown, not even when it is wrong

    @property
    def variable(self) -> str:
        return "WAYBILL_" + self.name.upper().replace(".", "_")


SETTINGS: tuple[Setting, ...] = (
    Setting(
        "data", values.path, "waybill-data", "The folder that holds everything which no other setting puts elsewhere."
    ),
    Setting(
        "store", values.url, "the file DATA/waybill.db", "Where records live: a sqlite, postgresql or zookeeper URL."
    ),
    Setting("objects", values.url, "DATA/objects", "Where bytes live: a folder, or s3://bucket/prefix."),
    Setting(
        "index",
        values.url,
        "PostgreSQL's database with the store; else a file beside that of SQLite, or DATA/index.db",
        "The SQL database of searchable catalogues: a sqlite or postgresql URL.",
    ),
    Setting("http.host", values.text, "127.0.0.1", "The address that the server listens on."),
    Setting("http.port", values.whole(0, 65535), "8700", "The port that the server listens on; 0 takes a free one."),
    Setting(
        "http.names",
        values.names,
        "none",
        'Other names by which clients call the server, as behind a proxy; "*" is any.',
    ),
    Setting(
        "open_loopback",
        values.yes,
        "false",
        "Let in whoever asks from this machine without a token, as admin, and serve the protocols that know no tokens; "
        "only when http.host is loopback. For one's own computer, not for a shared one.",
    ),
    Setting("work.root", values.path, "DATA/work", "The folder that holds the working folders of steps."),
    Setting(
        "work.host",
        values.text,
        "the machine's name",
        "The stable name of this host: working files are looked for on the host that made them.",
    ),
    Setting("work.shared", values.yes, "false", "Whether work.root is one and the same folder on every host."),
    Setting("work.threads", values.whole(1, 1024), "4", "How many steps one worker runs at the same time."),
    Setting(
        "work.processes",
        values.whole(1, 256),
        "1",
        "How many worker processes there are, each with its threads: one for each core is the most that is of use.",
    ),
    Setting("work.roles", values.names, "all", 'Which queues a worker serves: "kind", "kind.State" or "duty".'),
    Setting("work.portion_max", values.whole(1, 1000), "512", "How many records a worker claims at once, at most."),
    Setting(
        "work.ttl",
        values.seconds(1, 3600),
        "15",
        "Seconds that a worker may be silent before its claims are free for others.",
    ),
    Setting(
        "retention",
        values.days,
        "each machine's own",
        "Days after which records that have settled in a state are removed.",
    ),
    Setting(
        "applications",
        values.names,
        "all that are installed",
        "Which applications to load: names of installed ones, or module:object for one that is not installed.",
    ),
    Setting(
        "demo",
        values.yes,
        "true when DATA/demo exists",
        "Load the demonstration; `waybill up --demo` makes the file DATA/demo.",
    ),
    Setting(
        "mail.url",
        values.mail_url,
        "no mail is sent",
        "The server that takes mail: smtp://host:25, starttls://host:587 or smtps://host:465.",
    ),
    Setting("mail.sender", values.address, "waybill@ and the machine's name", "The address that mail comes from."),
    Setting("mail.user", values.text, "none", "Who Waybill is to the mail server."),
    Setting(
        "mail.password",
        values.text,
        "none",
        "The password of mail.user; better in the environment than in the file.",
        secret=True,
    ),
    Setting(
        "webhooks",
        values.webhooks,
        "none",
        "Who is told of events, as tables [webhooks.NAME]: its url, the types of events it wants, and the secret they are signed with.",
        secret=True,
    ),
    Setting("log.level", values.one_of("debug", "info", "warning", "error"), "info", "How much is logged."),
    Setting("log.format", values.one_of("text", "json"), "text", "How a line of the log looks."),
)
BY_NAME = {setting.name: setting for setting in SETTINGS}
TABLES = {"http", "work", "log", "mail"}
# Variables that are no settings of the process but are ours.
OTHER_VARIABLES: dict[str, str] = {
    "WAYBILL_CONFIG": "The settings file; the same as --config.",
    "WAYBILL_TOKEN": "The token that a client of the HTTP API shows.",
    "WAYBILL_DEBUG": "1: show the traceback of an error as well.",
    "WAYBILL_BUDGET": "Of Waybill's own tests alone: `small` is the default, `long` runs the full counts (`make test-long`).",
}


def strays(env: Mapping[str, str]) -> list[str]:
    """Variables that look like ours and are not: perhaps misspelt."""
    ours = {setting.variable for setting in SETTINGS} | set(OTHER_VARIABLES)
    return sorted(name for name in env if name.startswith("WAYBILL_") and name not in ours)
