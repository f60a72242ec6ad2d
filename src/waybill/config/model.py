"""The settings of a process as the code reads them, checked and complete."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class HttpSettings:
    host: str
    port: int
    allowed_hosts: tuple[str, ...]
    tls_certificate: Path | None = None  # None: plain HTTP
    tls_key: Path | None = None  # None: it is in the file of the certificate


@dataclass(frozen=True, slots=True)
class WorkSettings:
    root: Path
    host: str
    shared: bool
    threads: int
    pools: Mapping[str, int]  # by the names of pools, the threads of each
    processes: int
    queues: tuple[str, ...]
    claim_max: int
    ttl: float


@dataclass(frozen=True, slots=True)
class LogSettings:
    level: str
    format: str


@dataclass(frozen=True, slots=True)
class MailSettings:
    """The mail server; without a URL no mail is sent."""

    url: str = ""
    sender: str = ""
    user: str = ""
    password: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class WebhookSettings:
    """A receiver of events. `types`: which events, `*` for any part of a name; `secret`: the key that signs them."""

    name: str
    url: str
    types: tuple[str, ...] = ("*",)
    secret: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class EventSettings:
    """`keep`: days that an event stays in the log when everybody has read it. `log`: types that are logged although nobody subscribes.
    `source`: the URL of this installation in the events that webhooks get; empty: the server's address.
    """

    keep: float = 7.0
    log: tuple[str, ...] = ()
    source: str = ""


@dataclass(frozen=True, slots=True)
class SandboxSettings:
    """`mode` is `required` or `unsandboxed`; `system` are further folders of the host that every sandbox shows, read-only."""

    mode: str
    folder: Path
    first_uid: int
    system: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Config:
    """The effective settings. `origins`: for each setting's name, where its value came from."""

    data: Path
    store: str
    objects: str
    index: str
    open_loopback: bool
    http: HttpSettings
    work: WorkSettings
    log: LogSettings
    sandbox: SandboxSettings
    retention: Mapping[str, float]  # "kind.State" -> days
    applications: tuple[str, ...] | None
    demo: bool
    app: Mapping[str, Mapping[str, Any]]  # [app.NAME]: an application's own settings, checked by the application
    origins: Mapping[str, str] = field(default_factory=dict)
    mail: MailSettings = MailSettings()
    webhooks: tuple[WebhookSettings, ...] = ()
    events: EventSettings = EventSettings()
