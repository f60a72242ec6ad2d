"""The settings of a process: one TOML file and the environment, read once, each value knowing where it came from.

    given on the command line  >  environment (WAYBILL_...)  >  waybill.toml  >  default

The file is the one given by `--config` or WAYBILL_CONFIG, or else `waybill.toml` in the data folder. A path in the file is relative to the
file; one from the environment or the command line is relative to where the process was started. `SETTINGS` is the only list of settings:
the reader, `waybill config` and docs/reference/config.md all follow it.
"""

from __future__ import annotations

import json
import platform
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlsplit

FILE = "waybill.toml"
DEMO_FILE = "demo"  # in a data folder that was started with the demonstration: its records need their machines ever after
DAY = 86400.0


class BadConfig(Exception):
    """A setting that cannot be used; the text says which, where it was given, and what is right."""


@dataclass(frozen=True, slots=True)
class Http:
    host: str
    port: int
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Work:
    root: Path
    host: str
    shared: bool
    threads: int
    roles: tuple[str, ...]
    portion_max: int
    ttl: float


@dataclass(frozen=True, slots=True)
class Log:
    level: str
    format: str


@dataclass(frozen=True, slots=True)
class Mail:
    """The server that takes mail; without a URL no mail is sent."""

    url: str = ""
    sender: str = ""
    user: str = ""
    password: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class Webhook:
    """A receiver of events. `types`: which, `*` standing for any part of a name; `secret`: what its events are signed with."""

    name: str
    url: str
    types: tuple[str, ...] = ("*",)
    secret: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class Config:
    """The effective settings. `origins`: for each setting's name, where its value came from."""

    data: Path
    store: str
    objects: str
    index: str
    open_loopback: bool
    http: Http
    work: Work
    log: Log
    retention: Mapping[str, float]  # "kind.State" -> days
    applications: tuple[str, ...] | None
    demo: bool
    app: Mapping[str, Mapping[str, Any]]  # [app.NAME]: an application's own settings, checked by the application
    origins: Mapping[str, str] = field(default_factory=dict)
    mail: Mail = Mail()
    webhooks: tuple[Webhook, ...] = ()


# --- what a value may be; each raises ValueError with what is right


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError("a text that is not empty")
    return value


def _path(value: Any) -> Path:
    return Path(value) if isinstance(value, Path) else Path(_text(value))


def _yes(value: Any) -> bool:
    if isinstance(value, str) and value.lower() in ("true", "1", "yes", "on", "false", "0", "no", "off"):
        return value.lower() in ("true", "1", "yes", "on")
    if not isinstance(value, bool):
        raise ValueError("true or false")
    return value


def _whole(least: int, most: int) -> Callable[[Any], int]:
    def parse(value: Any) -> int:
        number = int(value) if isinstance(value, str) and re.fullmatch(r"-?[0-9]+", value) else value
        if isinstance(number, bool) or not isinstance(number, int) or not least <= number <= most:
            raise ValueError(f"a whole number from {least} to {most}")
        return number

    return parse


def _seconds(least: float, most: float) -> Callable[[Any], float]:
    def parse(value: Any) -> float:
        try:
            number = float(value) if not isinstance(value, bool) else None
        except (TypeError, ValueError):
            number = None
        if number is None or not least <= number <= most:
            raise ValueError(f"a number of seconds from {least:g} to {most:g}")
        return number

    return parse


def _one_of(*names: str) -> Callable[[Any], str]:
    def parse(value: Any) -> str:
        if value not in names:
            raise ValueError(" or ".join(f'"{name}"' for name in names))
        return str(value)

    return parse


def _names(value: Any) -> tuple[str, ...]:
    found = [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value
    if not isinstance(found, (list, tuple)) or not all(isinstance(name, str) and name for name in found):
        raise ValueError("a list of names (in the environment: parted by commas)")
    return tuple(found)


def _days(value: Any) -> dict[str, float]:
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


def _mail_url(value: Any) -> str:
    right = (
        "smtp://host:port, starttls://host:port or smtps://host:port, without a user and a password (those are mail.user and mail.password)"
    )
    try:
        parts = urlsplit(_text(value).strip())
        good = parts.scheme in MAIL_SCHEMES and parts.hostname and "@" not in parts.netloc and parts.path in ("", "/") and parts.port != 0
    except ValueError:
        good = False
    if not good or parts.query or parts.fragment:
        raise ValueError(right)
    return f"{parts.scheme}://{parts.netloc}"


def _address(value: Any) -> str:
    if not re.fullmatch(r"[^@\s,;<>\x00-\x1f\x7f]+@[^@\s,;<>\x00-\x1f\x7f]+", _text(value).strip()):
        raise ValueError("one mail address, such as waybill@example.org")
    return str(value).strip()


def _webhooks(value: Any) -> tuple[Webhook, ...]:
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
    if not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name) or not isinstance(said, Mapping) or set(said) - {"url", "types", "secret"}:
        raise ValueError(right)
    url, types, secret = said.get("url"), said.get("types", ["*"]), said.get("secret", "")
    try:
        parts = urlsplit(url if isinstance(url, str) else "")
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and "@" not in parts.netloc and parts.port != 0
    except ValueError:
        good = False
    listed = isinstance(types, list) and all(isinstance(each, str) and each for each in types)
    if not good or not listed or not isinstance(secret, str):
        raise ValueError(right)
    return Webhook(name, str(url), tuple(types), secret)


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting: its name in the file (dots are tables), what it may be, what it is when nobody says, and one sentence."""

    name: str
    parse: Callable[[Any], Any]
    default: str  # in words, for the docs
    doc: str
    secret: bool = False  # never shown, not even when it is wrong

    @property
    def variable(self) -> str:
        return "WAYBILL_" + self.name.upper().replace(".", "_")


SETTINGS: tuple[Setting, ...] = (
    Setting("data", _path, "waybill-data", "The folder that holds everything which no other setting puts elsewhere."),
    Setting("store", _text, "the file DATA/waybill.db", "Where records live: a sqlite, postgresql or zookeeper URL."),
    Setting("objects", _text, "DATA/objects", "Where bytes live: a folder, or s3://bucket/prefix."),
    Setting("index", _text, "the store's database; beside ZooKeeper the file DATA/index.db",
            "The SQL database of searchable catalogues: a sqlite or postgresql URL."),
    Setting("http.host", _text, "127.0.0.1", "The address that the server listens on."),
    Setting("http.port", _whole(0, 65535), "8700", "The port that the server listens on; 0 takes a free one."),
    Setting("http.names", _names, "none", 'Other names by which clients call the server, as behind a proxy; "*" is any.'),
    Setting("open_loopback", _yes, "false", "Serve, on loopback only, the protocols that have no authentication of their own."),
    Setting("work.root", _path, "DATA/work", "The folder that holds the working folders of steps."),
    Setting("work.host", _text, "the machine's name",
            "The stable name of this host: working files are looked for on the host that made them."),
    Setting("work.shared", _yes, "false", "Whether work.root is one and the same folder on every host."),
    Setting("work.threads", _whole(1, 1024), "4", "How many steps one worker runs at the same time."),
    Setting("work.roles", _names, "all", 'Which queues a worker serves: "kind", "kind.State" or "duty".'),
    Setting("work.portion_max", _whole(1, 1000), "512", "How many records a worker claims at once, at most."),
    Setting("work.ttl", _seconds(1, 3600), "15", "Seconds that a worker may be silent before its claims are free for others."),
    Setting("retention", _days, "each machine's own", "Days after which records that rest or ended in a state are removed."),
    Setting("applications", _names, "all that are installed",
            "Which applications to load: names of installed ones, or module:object for one that is not installed."),
    Setting("demo", _yes, "true when DATA/demo exists", "Load the demonstration; `waybill up --demo` makes the file DATA/demo."),
    Setting("mail.url", _mail_url, "no mail is sent", "The server that takes mail: smtp://host:25, starttls://host:587 or smtps://host:465."),
    Setting("mail.sender", _address, "waybill@ and the machine's name", "The address that mail comes from."),
    Setting("mail.user", _text, "none", "Who Waybill is to the mail server."),
    Setting("mail.password", _text, "none", "The password of mail.user; better in the environment than in the file.", secret=True),
    Setting("webhooks", _webhooks, "none",
            "Who is told of events, as tables [webhooks.NAME]: its url, the types of events it wants, and the secret they are signed with.",
            secret=True),
    Setting("log.level", _one_of("debug", "info", "warning", "error"), "info", "How much is logged."),
    Setting("log.format", _one_of("text", "json"), "text", "How a line of the log looks."),
)  # fmt: skip

_BY_NAME = {setting.name: setting for setting in SETTINGS}
_TABLES = {"http", "work", "log", "mail"}

# Variables that are no settings of the process but are ours.
OTHER_VARIABLES: dict[str, str] = {
    "WAYBILL_CONFIG": "The settings file; the same as --config.",
    "WAYBILL_TOKEN": "The token that a client of the HTTP API shows.",
    "WAYBILL_DEBUG": "1: show the traceback of an error as well.",
}


def load(path: Path | None = None, env: Mapping[str, str] | None = None, overrides: Mapping[str, Any] | None = None) -> Config:
    """The effective settings. `overrides` are by the settings' names; None means that it was not given."""
    env = env or {}
    given: dict[str, tuple[Any, str]] = {}
    chosen = path or (Path(env["WAYBILL_CONFIG"]) if env.get("WAYBILL_CONFIG") else None)
    outside: dict[str, tuple[Any, str]] = {}
    for setting in SETTINGS:
        if env.get(setting.variable):
            outside[setting.name] = (_parse(setting, env[setting.variable], f"the environment's {setting.variable}"), setting.variable)
        if overrides and overrides.get(setting.name) is not None:
            outside[setting.name] = (_parse(setting, overrides[setting.name], "the command line"), "command line")
    if unknown := [name for name in overrides or {} if name not in _BY_NAME]:
        raise BadConfig(f"There is no setting {unknown[0]}; there are {', '.join(_BY_NAME)}.")
    apps: Mapping[str, Mapping[str, Any]] = {}
    if chosen is None:
        data = Path(outside["data"][0] if "data" in outside else "waybill-data")
        if (data / FILE).is_file():
            given, apps = _read(data / FILE)
            if "data" in given and given["data"][0].resolve() != data.resolve():
                raise BadConfig(f"{data / FILE} lies in one data folder and names another; give the right one with --data or use --config.")
    else:
        given, apps = _read(chosen)
    return _put_together({**given, **outside}, apps)


def _read(path: Path) -> tuple[dict[str, tuple[Any, str]], Mapping[str, Mapping[str, Any]]]:
    """The settings of a file, each with its origin."""
    try:
        text = path.read_text("utf-8")
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise BadConfig(f"{path} is not TOML: {error}.") from error
    except UnicodeDecodeError as error:
        raise BadConfig(f"{path} is not UTF-8 text.") from error
    except OSError as error:
        raise BadConfig(f"{path} cannot be read: {error.strerror}. Give the settings file with --config or WAYBILL_CONFIG.") from error
    given: dict[str, tuple[Any, str]] = {}
    apps = content.pop("app", {})
    if not isinstance(apps, dict) or not all(isinstance(table, dict) for table in apps.values()):
        raise BadConfig(f"{path}: app must be tables, one for each application: [app.NAME].")
    flat: dict[str, Any] = {}
    for name, value in content.items():
        if name in _TABLES and isinstance(value, dict):
            flat.update((f"{name}.{key}", inner) for key, inner in value.items())
        else:
            flat[name] = value
    if "retention" in flat and isinstance(flat["retention"], dict):
        flat["retention"] = _undotted(flat["retention"])
    for name, value in flat.items():
        where = f"{path}, line {_line(text, name)}"
        if name in _TABLES:
            raise BadConfig(f"{where}: {name} is a table: write [{name}] and its settings below it.")
        if name not in _BY_NAME:
            raise BadConfig(f"{where}: there is no setting {name}; there are {', '.join(_BY_NAME)}, and tables [app.NAME].")
        parsed = _parse(_BY_NAME[name], value, where)
        given[name] = (path.parent / parsed if isinstance(parsed, Path) else parsed, str(path))
    if "objects" in given and "://" not in given["objects"][0]:
        given["objects"] = (str(path.parent / given["objects"][0]), str(path))
    for name in {"store", "index"} & set(given):
        given[name] = (_anchored(given[name][0], path.parent), str(path))
    return given, apps


def _undotted(table: Mapping[str, Any]) -> dict[str, Any]:
    """`shipment.Delivered = 30` without quotes is a table in a table to TOML; it means the same here."""
    flat: dict[str, Any] = {}
    for name, value in table.items():
        if isinstance(value, dict):
            flat.update((f"{name}.{key}", inner) for key, inner in value.items())
        else:
            flat[name] = value
    return flat


def _line(text: str, name: str) -> int:
    """The line on which a setting stands, as well as one can tell without a parser that keeps lines."""
    table, _, key = name.rpartition(".")
    inside = ""
    for number, line in enumerate(text.splitlines(), 1):
        if header := re.match(r"\s*\[+\s*([^\]]+?)\s*\]+", line):
            inside = header[1]
            if inside == name:
                return number
        elif (start := re.match(r"\s*[\"']?([\w.\-]+)[\"']?\s*=", line)) and (start[1] == name or (start[1] == key and inside == table)):
            return number
    return 1


def _parse(setting: Setting, value: Any, where: str) -> Any:
    try:
        return setting.parse(value)
    except ValueError as right:
        given = f"{setting.name} cannot be used" if setting.secret else f"{setting.name} is {_in_words(value)}"
        raise BadConfig(f"{where}: {given}; it must be {right}.") from None


def _put_together(given: Mapping[str, tuple[Any, str]], apps: Mapping[str, Mapping[str, Any]]) -> Config:
    origins = {setting.name: given[setting.name][1] if setting.name in given else "default" for setting in SETTINGS}

    def value(name: str, default: Any) -> Any:
        return given[name][0] if name in given else default

    data = value("data", Path("waybill-data")).absolute()
    store = _anchored(value("store", sqlite_url(data / "waybill.db")), Path.cwd())
    beside = store if urlsplit(store).scheme in ("sqlite", "postgresql", "postgres") else sqlite_url(data / "index.db")
    objects = value("objects", str(data / "objects"))
    return Config(
        data=data,
        store=store,
        objects=objects if "://" in objects else str(Path(objects).absolute()),
        index=_anchored(value("index", beside), Path.cwd()),
        open_loopback=value("open_loopback", False),
        http=Http(value("http.host", "127.0.0.1"), value("http.port", 8700), value("http.names", ())),
        work=Work(
            root=value("work.root", data / "work").absolute(),
            host=value("work.host", platform.node() or "localhost"),
            shared=value("work.shared", False),
            threads=value("work.threads", 4),
            roles=value("work.roles", ()),
            portion_max=value("work.portion_max", 512),
            ttl=value("work.ttl", 15.0),
        ),
        log=Log(value("log.level", "info"), value("log.format", "text")),
        retention=value("retention", {}),
        applications=value("applications", None),
        demo=value("demo", (data / DEMO_FILE).exists()),
        app=apps,
        origins=origins,
        mail=Mail(
            value("mail.url", ""), value("mail.sender", f"waybill@{platform.node() or 'localhost'}"), value("mail.user", ""),
            value("mail.password", ""),
        ),
        webhooks=value("webhooks", ()),
    )  # fmt: skip


def sqlite_url(path: Path) -> str:
    """Three slashes and a path: an absolute one makes four."""
    return "sqlite:///" + quote(path.absolute().as_posix())


def sqlite_path(url: str) -> Path | None:
    """The file that a sqlite URL names; None for other URLs and for a database in memory."""
    parts = urlsplit(url)
    return Path(unquote(parts.path[1:])) if parts.scheme == "sqlite" and not parts.netloc and parts.path[1:] else None


def _anchored(url: str, folder: Path) -> str:
    """A sqlite URL with a relative path, made absolute."""
    path = sqlite_path(url)
    return url if path is None or path.is_absolute() else sqlite_url(folder / path)


def masked(value: str) -> str:
    """A URL without its password, as it may be shown and logged."""
    start, account = re.match(r"([\w+.-]+://)?((?:[^/?#]*@)?)", value, re.ASCII).groups()  # type: ignore[union-attr]  # it matches always
    if not start:
        return value
    user, colon, _ = account.partition(":")
    rest = re.sub(r"(?i)([?&]\w*(?:password|secret|key))=[^&#]*", r"\1=***", value[len(start) + len(account) :])
    return f"{start}{f'{user}:***@' if colon else account}{rest}"


def _in_words(value: Any) -> str:
    """A value in a complaint."""
    return repr(masked(value) if isinstance(value, str) else value)


def hidden(secret: str) -> str:
    return "***" if secret else ""


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
            value = {w.name: {"url": masked(w.url), "types": list(w.types), "secret": hidden(w.secret)} for w in config.webhooks}
        elif setting.secret:
            value = hidden(value)
        elif isinstance(value, str):
            value = masked(value)
        elif isinstance(value, tuple):
            value = list(value)
        shown[setting.name] = value
    return shown


def strays(env: Mapping[str, str]) -> list[str]:
    """Variables that look like ours and are not: perhaps misspelt."""
    ours = {setting.variable for setting in SETTINGS} | set(OTHER_VARIABLES)
    return sorted(name for name in env if name.startswith("WAYBILL_") and name not in ours)
