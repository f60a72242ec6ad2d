"""Reads the settings: from the command line, the environment and the file to a checked `Config`.

    parse what the command line and the environment give -> find and read the file -> merge -> fill in the defaults

Every value keeps its origin, for error messages and for `waybill config`, which shows the result without secrets.
"""

from __future__ import annotations

import platform
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from waybill.config.model import (
    Config,
    EventSettings,
    HttpSettings,
    LogSettings,
    MailSettings,
    SandboxSettings,
    WorkSettings,
)
from waybill.config.settings import SETTINGS, SETTINGS_BY_NAME, TABLES, Setting
from waybill.config.urls import make_absolute, sqlite_path, sqlite_url
from waybill.errors import InputError
from waybill.masking import hide_secret, mask_secrets

CONFIG_FILE = "waybill.toml"
# In a data folder that was started with the demonstration: from then on its records need their machines.
DEMO_FILE = "demo"
ADDRESS_FILE = "address"  # in a data folder that is served: where its server listens, or listened last


def load(
    path: Path | None = None, env: Mapping[str, str] | None = None, overrides: Mapping[str, Any] | None = None
) -> Config:
    """The effective settings. `overrides` come from the command line, by the settings' names; None means not given."""
    env = env or {}
    given: dict[str, tuple[Any, str]] = {}
    chosen = path or (Path(env["WAYBILL_CONFIG"]) if env.get("WAYBILL_CONFIG") else None)
    outside: dict[str, tuple[Any, str]] = {}
    for setting in SETTINGS:
        if env.get(setting.variable):
            outside[setting.name] = (
                _parse_setting(setting, env[setting.variable], f"the environment's {setting.variable}"),
                setting.variable,
            )
        if overrides and overrides.get(setting.name) is not None:
            outside[setting.name] = (
                _parse_setting(setting, overrides[setting.name], "the command line"),
                "command line",
            )
    if unknown := [name for name in overrides or {} if name not in SETTINGS_BY_NAME]:
        raise InputError(
            f"There is no setting {unknown[0]}; there are {', '.join(SETTINGS_BY_NAME)}.", code="bad-config"
        )
    apps: Mapping[str, Mapping[str, Any]] = {}
    if chosen is None:
        data = Path(outside["data"][0] if "data" in outside else "waybill-data")
        if (data / CONFIG_FILE).is_file():
            given, apps = _read_file(data / CONFIG_FILE)
            if "data" in given and given["data"][0].resolve() != data.resolve():
                raise InputError(
                    f"{data / CONFIG_FILE} lies in one data folder and names another; give the right one with --data or use --config.",
                    code="bad-config",
                )
    else:
        given, apps = _read_file(chosen)
    return _build_config({**given, **outside}, apps)


def _read_file(path: Path) -> tuple[dict[str, tuple[Any, str]], Mapping[str, Mapping[str, Any]]]:
    """The settings of a file, each with its origin."""
    try:
        text = path.read_text("utf-8-sig")  # some editors begin a file with a byte-order mark
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{path} is not TOML: {error}.", code="bad-config") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8 text.", code="bad-config") from error
    except OSError as error:
        raise InputError(
            f"{path} cannot be read: {error.strerror}. Give the settings file with --config or WAYBILL_CONFIG.",
            code="bad-config",
        ) from error
    given: dict[str, tuple[Any, str]] = {}
    apps = content.pop("app", {})
    if not isinstance(apps, dict) or not all(isinstance(table, dict) for table in apps.values()):
        raise InputError(f"{path}: app must be tables, one for each application: [app.NAME].", code="bad-config")
    flat: dict[str, Any] = {}
    for name, value in content.items():
        if name in TABLES and isinstance(value, dict):
            flat.update((f"{name}.{key}", inner) for key, inner in value.items())
        else:
            flat[name] = value
    if "retention" in flat and isinstance(flat["retention"], dict):
        flat["retention"] = _join_dotted_names(flat["retention"])
    for name, value in flat.items():
        where = f"{path}, line {_find_line(text, name)}"
        if name in TABLES:
            raise InputError(
                f"{where}: {name} is a table: write [{name}] and its settings below it.", code="bad-config"
            )
        if name not in SETTINGS_BY_NAME:
            raise InputError(
                f"{where}: there is no setting {name}; there are {', '.join(SETTINGS_BY_NAME)}, and tables [app.NAME].",
                code="bad-config",
            )
        parsed = _parse_setting(SETTINGS_BY_NAME[name], value, where)
        given[name] = (path.parent / parsed if isinstance(parsed, Path) else parsed, str(path))
    if "objects" in given and "://" not in given["objects"][0]:
        given["objects"] = (str(path.parent / given["objects"][0]), str(path))
    for name in {"store", "index"} & set(given):
        given[name] = (make_absolute(given[name][0], path.parent), str(path))
    return given, apps


def _join_dotted_names(table: Mapping[str, Any]) -> dict[str, Any]:
    """`shipment.Delivered = 30` without quotes is a table in a table in TOML; here it means the same as with quotes."""
    flat: dict[str, Any] = {}
    for name, value in table.items():
        if isinstance(value, dict):
            flat.update((f"{name}.{key}", inner) for key, inner in value.items())
        else:
            flat[name] = value
    return flat


def _find_line(text: str, name: str) -> int:
    """The line of a setting, as well as it can be found: the TOML parser does not keep line numbers."""
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


def _parse_setting(setting: Setting, value: Any, where: str) -> Any:
    try:
        return setting.parse(value)
    except ValueError as expected:
        shown = mask_secrets(value) if isinstance(value, str) else value
        given = f"{setting.name} cannot be used" if setting.secret else f"{setting.name} is {shown!r}"
        raise InputError(f"{where}: {given}; it must be {expected}.", code="bad-config") from None


def _choose_index_path(store: str, data: Path) -> Path:
    """A file of its own, also beside a store on SQLite: a file has one writer at a time, and the store's writers must
    not wait for a long transaction of the index.
    """
    file = sqlite_path(store)
    return file.with_name(f"{file.stem}-index.db") if file else data / "index.db"


def _build_config(given: Mapping[str, tuple[Any, str]], apps: Mapping[str, Mapping[str, Any]]) -> Config:
    origins = {setting.name: given[setting.name][1] if setting.name in given else "default" for setting in SETTINGS}

    def value_of(name: str, default: Any) -> Any:
        return given[name][0] if name in given else default

    data = value_of("data", Path("waybill-data")).absolute()
    store = make_absolute(value_of("store", sqlite_url(data / "waybill.db")), Path.cwd())
    default_index = (
        store if urlsplit(store).scheme in ("postgresql", "postgres") else sqlite_url(_choose_index_path(store, data))
    )
    objects = value_of("objects", str(data / "objects"))
    return Config(
        data=data,
        store=store,
        objects=objects if "://" in objects else str(Path(objects).absolute()),
        index=make_absolute(value_of("index", default_index), Path.cwd()),
        open_loopback=value_of("open_loopback", False),
        http=HttpSettings(
            value_of("http.host", "127.0.0.1"),
            value_of("http.port", 8700),
            value_of("http.allowed_hosts", ()),
            value_of("http.tls_certificate", None),
            value_of("http.tls_key", None),
        ),
        work=WorkSettings(
            root=value_of("work.root", data / "work").absolute(),
            host=value_of("work.host", platform.node() or "localhost"),
            shared=value_of("work.shared", False),
            threads=value_of("work.threads", 4),
            pools={"work": value_of("work.threads", 4), "upkeep": 2, **value_of("work.pools", {})},
            processes=value_of("work.processes", 1),
            queues=value_of("work.queues", ()),
            claim_max=value_of("work.claim_max", 512),
            ttl=value_of("work.ttl", 15.0),
        ),
        log=LogSettings(value_of("log.level", "info"), value_of("log.format", "text")),
        sandbox=SandboxSettings(
            value_of("sandbox.mode", "required"),
            value_of("sandbox.folder", data / "sandbox").absolute(),
            value_of("sandbox.first_uid", 1_900_000_000),
            value_of("sandbox.system", ()),
        ),
        retention=value_of("retention", {}),
        applications=value_of("applications", None),
        demo=value_of("demo", (data / DEMO_FILE).exists()),
        app=apps,
        origins=origins,
        mail=MailSettings(
            value_of("mail.url", ""),
            value_of("mail.sender", f"waybill@{platform.node() or 'localhost'}"),
            value_of("mail.user", ""),
            value_of("mail.password", ""),
        ),
        webhooks=value_of("webhooks", ()),
        events=EventSettings(value_of("events.keep", 7.0), value_of("events.log", ()), value_of("events.source", "")),
    )


def effective_values_of(config: Config) -> dict[str, Any]:
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
                w.name: {"url": mask_secrets(w.url), "types": list(w.types), "secret": hide_secret(w.secret)}
                for w in config.webhooks
            }
        elif setting.secret:
            value = hide_secret(value)
        elif isinstance(value, str):
            value = mask_secrets(value)
        elif isinstance(value, tuple):
            value = list(value)
        shown[setting.name] = value
    return shown
