"""From the command line, the environment and a file to the effective settings, each value knowing where it came
from.
"""

from __future__ import annotations

import platform
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from waybill.config.settings import BY_NAME, SETTINGS, TABLES, Setting
from waybill.config.shape import Config, Http, Log, Mail, Work
from waybill.config.showing import in_words
from waybill.config.urls import anchored, sqlite_path, sqlite_url

FILE = "waybill.toml"
# in a data folder that was started with the demonstration: its records need their machines ever after
DEMO_FILE = "demo"
ADDRESS_FILE = "address"  # in a data folder that is served: where its server listens, or listened last


class BadConfig(Exception):
    """A setting that cannot be used; the text says which, where it was given, and what is right."""


def load(
    path: Path | None = None, env: Mapping[str, str] | None = None, overrides: Mapping[str, Any] | None = None
) -> Config:
    """The effective settings. `overrides` are by the settings' names; None means that it was not given."""
    env = env or {}
    given: dict[str, tuple[Any, str]] = {}
    chosen = path or (Path(env["WAYBILL_CONFIG"]) if env.get("WAYBILL_CONFIG") else None)
    outside: dict[str, tuple[Any, str]] = {}
    for setting in SETTINGS:
        if env.get(setting.variable):
            outside[setting.name] = (
                _parse(setting, env[setting.variable], f"the environment's {setting.variable}"),
                setting.variable,
            )
        if overrides and overrides.get(setting.name) is not None:
            outside[setting.name] = (_parse(setting, overrides[setting.name], "the command line"), "command line")
    if unknown := [name for name in overrides or {} if name not in BY_NAME]:
        raise BadConfig(f"There is no setting {unknown[0]}; there are {', '.join(BY_NAME)}.")
    apps: Mapping[str, Mapping[str, Any]] = {}
    if chosen is None:
        data = Path(outside["data"][0] if "data" in outside else "waybill-data")
        if (data / FILE).is_file():
            given, apps = _read(data / FILE)
            if "data" in given and given["data"][0].resolve() != data.resolve():
                raise BadConfig(
                    f"{data / FILE} lies in one data folder and names another; give the right one with --data or use --config."
                )
    else:
        given, apps = _read(chosen)
    return _put_together({**given, **outside}, apps)


def _read(path: Path) -> tuple[dict[str, tuple[Any, str]], Mapping[str, Mapping[str, Any]]]:
    """The settings of a file, each with its origin."""
    try:
        text = path.read_text("utf-8-sig")  # some editors begin a file with a byte-order mark
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise BadConfig(f"{path} is not TOML: {error}.") from error
    except UnicodeDecodeError as error:
        raise BadConfig(f"{path} is not UTF-8 text.") from error
    except OSError as error:
        raise BadConfig(
            f"{path} cannot be read: {error.strerror}. Give the settings file with --config or WAYBILL_CONFIG."
        ) from error
    given: dict[str, tuple[Any, str]] = {}
    apps = content.pop("app", {})
    if not isinstance(apps, dict) or not all(isinstance(table, dict) for table in apps.values()):
        raise BadConfig(f"{path}: app must be tables, one for each application: [app.NAME].")
    flat: dict[str, Any] = {}
    for name, value in content.items():
        if name in TABLES and isinstance(value, dict):
            flat.update((f"{name}.{key}", inner) for key, inner in value.items())
        else:
            flat[name] = value
    if "retention" in flat and isinstance(flat["retention"], dict):
        flat["retention"] = _undotted(flat["retention"])
    for name, value in flat.items():
        where = f"{path}, line {_line(text, name)}"
        if name in TABLES:
            raise BadConfig(f"{where}: {name} is a table: write [{name}] and its settings below it.")
        if name not in BY_NAME:
            raise BadConfig(
                f"{where}: there is no setting {name}; there are {', '.join(BY_NAME)}, and tables [app.NAME]."
            )
        parsed = _parse(BY_NAME[name], value, where)
        given[name] = (path.parent / parsed if isinstance(parsed, Path) else parsed, str(path))
    if "objects" in given and "://" not in given["objects"][0]:
        given["objects"] = (str(path.parent / given["objects"][0]), str(path))
    for name in {"store", "index"} & set(given):
        given[name] = (anchored(given[name][0], path.parent), str(path))
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
        elif (start := re.match(r"\s*[\"']?([\w.\-]+)[\"']?\s*=", line)) and (
            start[1] == name or (start[1] == key and inside == table)
        ):
            return number
    return 1


def _parse(setting: Setting, value: Any, where: str) -> Any:
    try:
        return setting.parse(value)
    except ValueError as right:
        given = f"{setting.name} cannot be used" if setting.secret else f"{setting.name} is {in_words(value)}"
        raise BadConfig(f"{where}: {given}; it must be {right}.") from None


def _index_beside(store: str, data: Path) -> Path:
    """A file of its own, also beside SQLite: there can be one writer to a file, and the store's must not wait for a
    long one.
    """
    file = sqlite_path(store)
    return file.with_name(f"{file.stem}-index.db") if file else data / "index.db"


def _put_together(given: Mapping[str, tuple[Any, str]], apps: Mapping[str, Mapping[str, Any]]) -> Config:
    origins = {setting.name: given[setting.name][1] if setting.name in given else "default" for setting in SETTINGS}

    def value(name: str, default: Any) -> Any:
        return given[name][0] if name in given else default

    data = value("data", Path("waybill-data")).absolute()
    store = anchored(value("store", sqlite_url(data / "waybill.db")), Path.cwd())
    beside = store if urlsplit(store).scheme in ("postgresql", "postgres") else sqlite_url(_index_beside(store, data))
    objects = value("objects", str(data / "objects"))
    return Config(
        data=data,
        store=store,
        objects=objects if "://" in objects else str(Path(objects).absolute()),
        index=anchored(value("index", beside), Path.cwd()),
        open_loopback=value("open_loopback", False),
        http=Http(value("http.host", "127.0.0.1"), value("http.port", 8700), value("http.names", ())),
        work=Work(
            root=value("work.root", data / "work").absolute(),
            host=value("work.host", platform.node() or "localhost"),
            shared=value("work.shared", False),
            threads=value("work.threads", 4),
            processes=value("work.processes", 1),
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
            value("mail.url", ""),
            value("mail.sender", f"waybill@{platform.node() or 'localhost'}"),
            value("mail.user", ""),
            value("mail.password", ""),
        ),
        webhooks=value("webhooks", ()),
    )
