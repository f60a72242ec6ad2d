"""The settings of archive: the table [app.archive] of the settings file, checked when a process starts.

[app.archive.storages.tape]
type = "directory"          # or tape, s3, ftp
path = "/mnt/archive"

[app.archive.workspaces.atlas]
members = ["ann", "bob"]    # who may put files, and see and get those of the others; "*": everybody
managers = ["eve"]          # who may delete migrations of others, too
limits = { tape = "20T" }   # bytes on each storage; without one: no limit

Without any storage there is one called `local`, a folder of the data folder; without any workspace one called `default`, for
everybody. Both are for trying it out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec

from waybill.errors import InputError

DAY = 86400.0
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?([kMGTP]?)(i?)B?", re.IGNORECASE)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")

Seconds = Annotated[float, msgspec.Meta(ge=0)]
Positive = Annotated[int, msgspec.Meta(ge=1)]
Size = int | str  # bytes, or a text such as "2G" (10^9) or "2GiB"


class StorageSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One external storage: `type` says which of the other fields it needs."""

    type: Literal["directory", "tape", "s3", "ftp"] = "directory"
    path: str = ""  # directory, tape: its folder
    # s3: s3://bucket/prefix?endpoint=https://host&region=name; ftp: ftpes://user@host/folder
    url: str = ""
    title: str = ""  # as people call it
    minimum: Size = "64M"  # bytes of an archive, at least, unless the whole set is smaller
    maximum: Size = "8G"  # bytes of an archive, at most; a larger file is alone
    files: Positive = 50_000  # in one archive, at most
    mount_delay: Seconds = 60.0  # tape
    transfers: int = 0  # at the same time in each process; 0: as the type has it


class WorkspaceSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    members: tuple[str, ...] = ()
    managers: tuple[str, ...] = ()
    limits: dict[str, Size] = {}
    storages: tuple[str, ...] = ()  # those that it may use; empty: all


class JdmaSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The HTTP API of JDMA, which believes the name that a client says."""

    networks: tuple[str, ...] = ()  # addresses that may use it, such as 10.0.0.0/8; none: it is off


class ArchiveSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    storages: dict[str, StorageSettings] = {}  # external storages by name
    workspaces: dict[str, WorkspaceSettings] = {}  # workspaces by name
    # the folder where archives are made for storages that want whole files; empty: a folder of the data folder
    staging: str = ""
    grace: Seconds = 0.0  # seconds for which a DELETE waits and can be taken back
    only_copy_grace: Seconds = 7 * DAY  # seconds for which the DELETE of an only copy waits, at least 60
    poll: Seconds = 30.0  # seconds between two questions to a storage that is at work or unavailable
    scrub: Seconds = 180 * DAY  # seconds after which an archive on a storage is read again; 0: never
    restore_owners: bool = False  # give restored files the owners that they had, not the owner of the request
    restore_setuid: bool = False  # keep setuid and setgid bits of restored files
    jdma: JdmaSettings = JdmaSettings()


def parse_size(value: Size) -> int:
    """The bytes that "2G" or "2GiB" stands for. Raises ValueError."""
    if isinstance(value, int):
        return value
    match = _SIZE.fullmatch(value.strip())
    if match is None:
        raise ValueError(f"{value!r} is no number of bytes; write 500M, 20T or 2GiB")
    return int(float(match[1]) * (1024 if match[3] else 1000) ** " kMGTP".upper().index(match[2].upper() or " "))


def read(table: Mapping[str, Any]) -> ArchiveSettings:
    try:
        settings = msgspec.convert(dict(table), ArchiveSettings)
        _check(settings)
    except (msgspec.ValidationError, ValueError) as error:
        raise InputError(f"The settings [app.archive] cannot be used: {error}.", code="bad-config") from None
    return settings


def _check(settings: ArchiveSettings) -> None:
    for name in (*settings.storages, *settings.workspaces):
        if not _NAME.fullmatch(name):
            raise ValueError(f"{name!r} is no name of a storage or workspace: letters, digits, dashes and underscores")
    for name, storage in settings.storages.items():
        if storage.type in ("directory", "tape") and not storage.path.startswith("/"):
            raise ValueError(f"the storage {name} needs an absolute `path`")
        if storage.type in ("s3", "ftp") and not storage.url:
            raise ValueError(f"the storage {name} needs a `url`")
        if parse_size(storage.minimum) > parse_size(storage.maximum):
            raise ValueError(f"`minimum` of the storage {name} is more than its `maximum`")
    for name, workspace in settings.workspaces.items():
        for storage_name, limit in workspace.limits.items():
            parse_size(limit)
            if settings.storages and storage_name not in settings.storages:
                raise ValueError(f"the workspace {name} has a limit for {storage_name}, which is no storage")
