"""The settings of a process as its parts read them, in force and checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


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
    processes: int
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
    """A receiver of events. `types`: which, `*` standing for any part of a name; `secret`: what its events are
    signed with.
    """

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
