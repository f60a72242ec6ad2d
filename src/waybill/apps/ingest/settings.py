"""The settings of ingest: the table [app.ingest] of the settings file, checked when a process starts.

    [app.ingest]
    url = "https://deposit.example.org"       # where users reach this server
    storing_state = true                      # Storing is a separate state
    external_states = ["Recording"]           # another service does the work of these states

    [app.ingest.fetch]
    allow = ["10.1.0.0/16"]                   # private addresses from which deposits may be fetched

Secrets come from the environment: WAYBILL_INGEST_EZID_USER and WAYBILL_INGEST_EZID_PASSWORD,
WAYBILL_INGEST_STORAGE_TOKEN.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec

from waybill.disk_space import DiskSpaceSettings
from waybill.errors import InputError
from waybill.transfer import AddressPolicy

GIGABYTE = 2**30
DAY = 86400.0

VARIABLES = {
    "WAYBILL_INGEST_EZID_USER": "The user name for EZID, for profiles whose ARKs are registered there.",
    "WAYBILL_INGEST_EZID_PASSWORD": "The password of that user.",
    "WAYBILL_INGEST_STORAGE_TOKEN": "The token that is sent to the storage service of app.ingest.storage.url.",
}

Positive = Annotated[int, msgspec.Meta(ge=1)]
Natural = Annotated[int, msgspec.Meta(ge=0)]
Seconds = Annotated[float, msgspec.Meta(ge=0)]


class FetchSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How payloads are fetched."""

    allow: tuple[str, ...] = ()  # networks, addresses or host names that are not public and may be fetched from
    parallel: Positive = 4  # how many files of one job are fetched at the same time
    max_tries: Positive = 5  # how often the download of a file or a manifest is tried before the job fails
    timeout: Seconds = 30.0  # seconds without an answer after which a request is given up
    max_redirects: Natural = 5  # how many redirects are followed; each target must be an allowed address
    max_bytes: Positive = 5 * 2**40  # bytes of one file, or of one upload; a larger one is refused
    # bytes; a job that needs more is less urgent (its priority number is 10 higher)
    large_job_bytes: Positive = 100 * GIGABYTE

    def build_address_policy(self) -> AddressPolicy:
        """The addresses from which payloads may be fetched."""
        return AddressPolicy(allow=self.allow, setting="app.ingest.fetch.allow")


class StorageSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where objects are stored."""

    prefix: str = "ocfl"  # where the OCFL storage root is among the objects
    algorithm: Literal["sha512", "sha256"] = "sha512"  # the digest algorithm of the OCFL inventories: sha512 or sha256
    url: str = ""  # the URL of a storage service over HTTP, in place of the built-in one
    # seconds for which services of a shared tree can read a new version's manifest without a token; 0: never
    signed_url_seconds: Seconds = 30 * DAY


class MinterSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """ARKs of profiles that name no minter."""

    naan: str = "99999"  # the name assigning authority number; 99999 is for tests
    shoulder: str = "fk4"  # the shoulder of new ARKs, after the number
    template: str = "eeddeeddk"  # of the rest: d a digit, e a digit or a letter, k the check character
    ezid_hosts: tuple[str, ...] = ("ezid.cdlib.org",)  # hosts that may get EZID's password


class AccessSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How assemblies are queued and kept."""

    small_bytes: Positive = 4 * GIGABYTE  # bytes of content up to which an assembly goes to the small queue
    keep_seconds: Seconds = 7 * DAY  # seconds for which the file of an assembly can be fetched
    bytes_per_second: Positive = 50_000_000  # bytes packed a second, to estimate when an assembly is ready


class NotificationSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Reports, alerts, callbacks and events."""

    admins: tuple[str, ...] = ()  # mail addresses that get a copy of reports, and alerts
    callback_timeout: Seconds = 300.0  # seconds that a callback may take to answer
    max_ids: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 10_000  # how many ids of jobs a status report lists


class AuditSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Fixity checks: content is read again and compared with its digests."""

    days: Annotated[float, msgspec.Meta(gt=0)] = 90.0  # days after which content is read again
    files_per_round: Positive = 100  # how many files one round reads


class IngestSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    storing_state: bool = False  # Storing is a separate state, as in newer releases of Merritt
    external_states: tuple[str, ...] = ()  # states of jobs in which another service does the work, such as "Recording"
    # on ZooKeeper: whether batches that other services submit are processed here; must be said, see Migrate from Merritt
    takes_batches_of_others: bool | None = None
    url: str = ""  # where users reach this server; "": the address on which the server of this data folder listens, or last did
    fetch: FetchSettings = FetchSettings()
    disk_space: DiskSpaceSettings = DiskSpaceSettings()
    storage: StorageSettings = StorageSettings()
    minter: MinterSettings = MinterSettings()
    access: AccessSettings = AccessSettings()
    notifications: NotificationSettings = NotificationSettings()
    audit: AuditSettings = AuditSettings()


def read(table: Mapping[str, Any]) -> IngestSettings:
    try:
        return msgspec.convert(dict(table), IngestSettings)
    except msgspec.ValidationError as error:
        raise InputError(
            f"The settings [app.ingest] cannot be used: {str(error).rstrip('.')}. `waybill config` shows them.",
            code="bad-application",
        ) from None
