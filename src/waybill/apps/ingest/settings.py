"""The settings of ingest: the table [app.ingest] of the settings file, checked when a process is put together.

    [app.ingest]
    url = "https://deposit.example.org"       # where users reach this server
    storing = true                            # storing is a state of its own
    outside = ["Recording"]                   # left to another service

    [app.ingest.fetch]
    allow = ["10.1.0.0/16"]                   # private addresses from which deposits may be fetched

Secrets come from the environment: WAYBILL_INGEST_EZID_USER and WAYBILL_INGEST_EZID_PASSWORD,
WAYBILL_INGEST_STORAGE_TOKEN.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec

from waybill.application import BadApplication
from waybill.transfer import Reach

GIGABYTE = 2**30
DAY = 86400.0

VARIABLES = {
    "WAYBILL_INGEST_EZID_USER": "Who Waybill is to EZID, for profiles whose ARKs are minted there.",
    "WAYBILL_INGEST_EZID_PASSWORD": "The password of that user.",
    "WAYBILL_INGEST_STORAGE_TOKEN": "The token that is sent to the storage service of app.ingest.storage.url.",
}

Positive = Annotated[int, msgspec.Meta(ge=1)]
Natural = Annotated[int, msgspec.Meta(ge=0)]
Seconds = Annotated[float, msgspec.Meta(ge=0)]


class Fetching(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How payloads are fetched."""

    allow: tuple[str, ...] = ()  # networks, addresses or host names that are not public and may be reached all the same
    parallel: Positive = 4  # how many files of one job are fetched at the same time
    tries: Positive = 5  # how often a file, or a manifest, is asked for before its job fails
    timeout: Seconds = 30.0  # seconds that a server may be silent
    redirects: Natural = 5  # how many redirects are followed, each to an address that may be reached
    largest: Positive = 5 * 2**40  # bytes of one file, or of one upload; a larger one is refused
    large: Positive = 100 * GIGABYTE  # bytes; a job that needs more gives way to others (its priority is 10 lower)

    def reach(self) -> Reach:
        """Where payloads may be fetched from."""
        return Reach(allow=self.allow, setting="app.ingest.fetch.allow")


class Room(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """When the working disk has room for a job."""

    keep_free: Natural = GIGABYTE  # bytes that no job may use
    unknown: Natural = 10 * GIGABYTE  # bytes that must be free for a job of unknown size
    every: Seconds = 30.0  # seconds between two looks at the disk
    patience: Seconds = 3600.0  # seconds; a job that has waited longer gets the next room, before smaller ones
    alert: Seconds = DAY  # seconds; the admins are told of a job that has waited longer
    hook: tuple[str, ...] = ()  # a command that may provide more room; told by the environment how much is needed
    hook_every: Seconds = 600.0  # seconds between two calls of the hook


class Storing(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where objects come to rest."""

    prefix: str = "ocfl"  # where the OCFL storage root lies among the objects
    algorithm: Literal["sha512", "sha256"] = "sha512"  # by which OCFL names content: sha512 or sha256
    url: str = ""  # the URL of a storage service over HTTP, in place of our own
    # seconds for which services of a shared tree can read a new version's manifest without a token; 0: never
    signed: Seconds = 30 * DAY


class Minting(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """ARKs of profiles that name no minter."""

    naan: str = "99999"  # the number of the authority; 99999 is for trying things out
    shoulder: str = "fk4"  # what ARKs begin with, after the number
    template: str = "eeddeeddk"  # how the rest is written: d a digit, e a digit or a letter, k the check character


class Access(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Assemblies."""

    small: Positive = 4 * GIGABYTE  # bytes of content up to which an assembly is a small one
    keep: Seconds = 7 * DAY  # seconds: how long the file of an assembly can be fetched
    pace: Positive = 50_000_000  # bytes a second, for the time that is anticipated


class Telling(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Reports, callbacks, events."""

    admins: tuple[str, ...] = ()  # mail addresses that get a copy of reports, and alerts
    callback_timeout: Seconds = 300.0  # seconds that a callback may take to answer
    most_ids: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 10_000  # how many ids of jobs a status report holds


class Audit(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Fixity: content is read again and compared."""

    days: Annotated[float, msgspec.Meta(gt=0)] = 90.0  # days after which content is read again
    portion: Positive = 100  # how many files are read in one round


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    storing: bool = False  # storing is a state of its own, as in newer releases of Merritt
    outside: tuple[str, ...] = ()  # states of jobs that are left to another service, such as "Recording"
    url: str = ""  # where users reach this server; "": where that of this data folder listens, or listened last
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
        raise BadApplication(
            f"The settings [app.ingest] cannot be used: {str(error).rstrip('.')}. `waybill config` shows them."
        ) from None
