"""The settings of ingest: the table [app.ingest] of the settings file, checked when a process is put together.

    [app.ingest]
    url = "https://deposit.example.org"       # where users reach this server
    storing = true                            # storing is a state of its own
    outside = ["Recording"]                   # left to another service

    [app.ingest.fetch]
    allow = ["10.1.0.0/16"]                   # private addresses from which deposits may be fetched

Secrets come from the environment: WAYBILL_INGEST_EZID_USER and WAYBILL_INGEST_EZID_PASSWORD.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec

from waybill.application import BadApplication

GIGABYTE = 2**30
DAY = 86400.0

VARIABLES = {
    "WAYBILL_INGEST_EZID_USER": "Who Waybill is to EZID, for profiles whose ARKs are minted there.",
    "WAYBILL_INGEST_EZID_PASSWORD": "The password of that user.",
}

Positive = Annotated[int, msgspec.Meta(ge=1)]
Natural = Annotated[int, msgspec.Meta(ge=0)]
Seconds = Annotated[float, msgspec.Meta(ge=0)]


class Fetching(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How payloads are fetched."""

    allow: tuple[str, ...] = ()  # networks, addresses or host names that are not public and may be reached all the same
    parallel: Positive = 4  # files of one job at a time
    tries: Positive = 5
    timeout: Seconds = 30.0
    redirects: Natural = 5
    largest: Positive | None = None  # bytes of one file
    large: Positive = 100 * GIGABYTE  # a job that needs more gives way to others


class Room(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """When the working disk has room for a job."""

    keep_free: Natural = GIGABYTE  # bytes that no job may use
    unknown: Natural = 10 * GIGABYTE  # bytes that must be free for a job of unknown size
    every: Seconds = 30.0  # between two looks
    patience: Seconds = 3600.0  # a job that has waited longer gets the next room, before smaller ones
    hook: tuple[str, ...] = ()  # a command that may provide more room; told by the environment how much is needed
    hook_every: Seconds = 600.0


class Storing(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where objects come to rest."""

    prefix: str = "ocfl"  # of the OCFL storage root among the objects
    algorithm: Literal["sha512", "sha256"] = "sha512"
    url: str = ""  # of a storage service over HTTP, in place of our own


class Minting(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """ARKs of profiles that name no minter."""

    naan: str = "99999"
    shoulder: str = "fk4"
    template: str = "eeddeeddk"


class Access(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Assemblies."""

    small: Positive = 4 * GIGABYTE  # bytes of content up to which an assembly is a small one
    keep: Seconds = 7 * DAY  # how long the file of an assembly can be fetched
    pace: Positive = 50_000_000  # bytes a second, for the time that is anticipated


class Telling(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Reports, callbacks, events."""

    admins: tuple[str, ...] = ()  # mail addresses that get a copy of reports, and alerts
    callback_timeout: Seconds = 300.0
    most_ids: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 10_000  # of jobs, in a status report


class Audit(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Fixity: content is read again and compared."""

    days: Annotated[float, msgspec.Meta(gt=0)] = 90.0  # after which content is read again
    portion: Positive = 100  # files in one round


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    storing: bool = False  # storing is a state of its own
    outside: tuple[str, ...] = ()  # states that are left to another service
    url: str = ""  # where users reach this server; "": from the address it listens on
    fetch: Fetching = Fetching()
    room: Room = Room()
    storage: Storing = Storing()
    minter: Minting = Minting()
    access: Access = Access()
    tell: Telling = Telling()
    audit: Audit = Audit()


def read(table: Mapping[str, Any]) -> Settings:
    try:
        return msgspec.convert(dict(table), Settings)
    except msgspec.ValidationError as error:
        raise BadApplication(f"The settings [app.ingest] cannot be used: {str(error).rstrip('.')}. `waybill config` shows them.") from None
