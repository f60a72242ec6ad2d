"""A submission: what a depositor asked for, for a whole batch or for one of its jobs, read and written in two
vocabularies.

The design says profile_name, payload_url, payload_type, submission_mode, erc_what; the services that share the tree say
profile, type, update, filename, title. Both are written, so that each reader finds its own; either is read. What others
wrote may lack anything and hold anything: reading never fails, it leaves out.

    batch   the document `submission`; and `collections`, of one whose submission names none
    job     the documents `configuration`, `identifiers` and `metadata`; and `owner` and `collections`, where its configuration names none
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from functools import lru_cache
from typing import Any

import msgspec

from waybill.record import Record

LONGEST_LOCAL_ID = 255
MOST_LOCAL_IDS = 100  # of one object
DC = (
    *("contributor", "coverage", "creator", "date", "description", "format", "identifier", "language"),
    *("publisher", "relation", "rights", "source", "subject", "title", "type"),
)
NO_OBJECT = "An update needs the object that it updates: give its ARK (the primary identifier), or a local id."
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")


class Type(StrEnum):
    """What the payload is; by the names of the form that depositors send."""

    FILE = "file"  #: one file, stored as it is, also when it is a zip
    CONTAINER = "container"  #: a zip, a tar or a bag: the files of one object
    OBJECT = "object-manifest"  #: a manifest of the files of one object
    MANIFESTS = "batch-manifest"  #: a manifest of object manifests
    CONTAINERS = "container-batch-manifest"  #: a manifest of containers
    FILES = "single-file-batch-manifest"  #: a manifest of single files

    @property
    def batch(self) -> bool:
        """Whether its payload lists objects, each of which becomes a job."""
        return self in (Type.MANIFESTS, Type.CONTAINERS, Type.FILES)


_WRITTEN = {  # as the services write them
    Type.FILE: "file",
    Type.CONTAINER: "container",
    Type.OBJECT: "manifest",
    Type.MANIFESTS: "batchManifest",
    Type.CONTAINERS: "batchManifestContainer",
    Type.FILES: "batchManifestFile",
}
_READ = {
    **{kind.value.replace("-", "").lower(): kind for kind in Type},
    **{written.lower(): kind for kind, written in _WRITTEN.items()},
}


def type_of(text: str) -> Type | None:
    """In any of the spellings: object-manifest, object_manifest, manifest, batchManifestFile ..."""
    return _READ.get(text.replace("-", "").replace("_", "").lower())


class Submission(msgspec.Struct, frozen=True, kw_only=True):
    profile: str
    url: str  # of the payload; `waybill:` and the name of an object, for what was uploaded
    type: Type | None = None  # None: to be found out from the payload
    filename: str = ""
    size: int | None = None
    digest_type: str = ""  # what the depositor says of the payload
    digest_value: str = ""
    received: dict[str, str] = {}  # digests of an upload, taken as it came: {"sha256": "..."}
    update: bool = False
    submitter: str = ""
    owner: str = ""  # ARK of the owner, from the profile; local ids are his
    collections: tuple[str, ...] = ()  # mnemonics, by which it is held
    creator: str = ""
    title: str = ""
    date: str = ""
    primary_id: str = ""
    local_ids: tuple[str, ...] = ()
    notification: str = ""  # mail addresses in place of the profile's
    notification_format: str = ""
    response_form: str = ""
    note: str = ""
    datacite_type: str = ""
    dc: dict[str, str] = {}  # of DC, the words above
    batch_id: str = ""  # bid-<uuid>
    job_id: str = ""  # jid-<uuid>
    submitted: str = ""  # when, RFC 3339
    retain_target: bool = False  # the ARK goes on leading where it leads
    checked: bool = False  # its profile was there when it was submitted; others name profiles that were never made here
    digests_of_row: dict[str, str] = {}  # what a row of a batch manifest says of its payload: {"md5": "..."}
    deletions: tuple[str, ...] = ()  # files that an update takes away
    # rows of the same manifest for the same object, by the requests that made their jobs: they come first
    follows: tuple[str, ...] = ()

    def document(self) -> dict[str, Any]:
        """As `submission` or `configuration`, in both vocabularies; without what is empty, except for what readers
        insist on.
        """
        both: dict[str, Any] = {
            "batchID": self.batch_id,
            "jobID": self.job_id,
            "profile": self.profile,
            "profile_name": self.profile,
            "type": _WRITTEN[self.type] if self.type else "",
            "payload_type": self.type.value.replace("-", "_") if self.type else "",
            "payload_url": self.url,
            "payload_filename": self.filename,
            "filename": self.filename,
            "size": str(self.size) if self.size is not None else "",
            "submitter": self.submitter,
            "submission_mode": "update" if self.update else "add",
            "responseForm": self.response_form,
            "response_type": self.response_form,
            "creator": self.creator,
            "title": self.title,
            "date": self.date,
            "erc_who": self.creator,
            "erc_what": self.title,
            "erc_when": self.date,
            "erc_where": self.primary_id,
            "objectID": self.primary_id,
            "localID": ";".join(self.local_ids),
            "notification": self.notification,
            "notificationFormat": self.notification_format,
            "digestType": self.digest_type,
            "digestValue": self.digest_value,
            "note": self.note,
            "DataCiteResourceType": self.datacite_type,
            "submissionDate": self.submitted,
            **{f"DC{word}": self.dc.get(word, "") for word in DC},
            "owner": self.owner,
            "collections": list(self.collections),
            "received": self.received,
            "rowDigests": self.digests_of_row,
            "retainTargetURL": self.retain_target or "",
            "delete": list(self.deletions),
            "profileChecked": self.checked,
            "follows": list(self.follows),
        }
        return {name: value for name, value in both.items() if value} | {"update": self.update}

    @property
    def updates_nothing(self) -> bool:
        """Whether it is an update of one object and does not say of which. Of a batch each row says it."""
        return (
            self.update and self.type is not None and not self.type.batch and not self.primary_id and not self.local_ids
        )

    def identifiers(self) -> dict[str, Any]:
        return {"primary_id": self.primary_id, "local_id": list(self.local_ids)}

    def metadata(self) -> dict[str, str]:
        return {"erc_who": self.creator, "erc_what": self.title, "erc_when": self.date, "erc_where": self.primary_id}


def read(document: object) -> Submission:
    """What a `submission` or `configuration` says, whoever wrote it."""
    said: Mapping[str, Any] = document if isinstance(document, dict) else {}

    def text(*names: str) -> str:
        found = (said[name] for name in names if name in said)
        return next((str(value) for value in found if isinstance(value, (str, int)) and str(value)), "")

    def table(name: str) -> dict[str, str]:
        value = said.get(name)
        return {k: v for k, v in value.items() if isinstance(v, str)} if isinstance(value, dict) else {}

    size = text("size", "payload_size")
    mode = text("submission_mode")
    local = said.get("local_id", said.get("localID", ""))
    return Submission(
        profile=text("profile", "profile_name"),
        url=text("payload_url"),
        type=type_of(text("type", "payload_type")),
        filename=text("filename", "payload_filename"),
        size=int(size) if size.isdecimal() and len(size) < 20 else None,
        digest_type=text("digestType"),
        digest_value=text("digestValue"),
        received=table("received"),
        update=said["update"] is True if "update" in said else mode == "update",
        submitter=text("submitter"),
        owner=text("owner"),
        collections=tuple(c for c in _list(said.get("collections")) if c),
        creator=text("creator", "erc_who"),
        title=text("title", "erc_what"),
        date=text("date", "erc_when"),
        primary_id=text("objectID", "primary_id"),
        local_ids=local_ids(local),
        notification=text("notification"),
        notification_format=text("notificationFormat"),
        response_form=text("responseForm", "response_type"),
        note=text("note"),
        datacite_type=text("DataCiteResourceType"),
        dc={word: text(f"DC{word}") for word in DC if text(f"DC{word}")},
        batch_id=text("batchID"),
        job_id=text("jobID"),
        submitted=text("submissionDate"),
        retain_target=said.get("retainTargetURL") in (True, "true"),
        checked=said.get("profileChecked") is True,
        digests_of_row=table("rowDigests"),
        deletions=tuple(name for name in _list(said.get("delete")) if name),
        follows=tuple(_list(said.get("follows"))),
    )


def of_batch(batch: Record) -> Submission:
    said = _read(batch.docs.raw.get("submission", b""))
    return said if said.collections else msgspec.structs.replace(said, collections=_found(batch))


def of_job(job: Record) -> Submission:
    """What the job's documents say together: identifiers found since stand before those submitted, and what another
    service noted of who, what and when stands where the configuration says nothing.
    """
    said = _read(job.docs.raw.get("configuration", b""))
    found = _decoded(job.docs.raw.get("identifiers", b""))
    ids: Mapping[str, Any] = found if isinstance(found, dict) else {}
    primary = ids.get("primary_id") if isinstance(ids.get("primary_id"), str) else ""
    owner = _decoded(job.docs.raw["owner"]) if not said.owner and "owner" in job.docs.raw else {}
    noted = _noted(job) if not (said.creator and said.title and said.date) else {}
    return msgspec.structs.replace(
        said,
        owner=said.owner or owner.get("ark", ""),
        collections=said.collections or _found(job),
        creator=said.creator or noted.get("erc_who", ""),
        title=said.title or noted.get("erc_what", ""),
        date=said.date or noted.get("erc_when", ""),
        primary_id=primary or said.primary_id,
        local_ids=local_ids(ids.get("local_id")) or said.local_ids,
        batch_id=said.batch_id or (job.parent.id if job.parent else ""),
        job_id=said.job_id or job.id,
    )


def _noted(job: Record) -> dict[str, str]:
    """Who, what and when of the job's metadata."""
    found = _decoded(job.docs.raw["metadata"]) if "metadata" in job.docs.raw else None
    return {name: value for name, value in found.items() if isinstance(value, str)} if isinstance(found, dict) else {}


def _found(record: Record) -> tuple[str, ...]:
    """The collections that were found out here."""
    found = _decoded(record.docs.raw["collections"]) if "collections" in record.docs.raw else None
    return tuple(_list(found.get("mnemonics"))) if isinstance(found, dict) else ()


@lru_cache(4096)
def _read(raw: bytes) -> Submission:
    """Kept, because the tables ask for it with every step: of which collection, which object, in which folder."""
    return read(_decoded(raw))


def _decoded(raw: bytes) -> Any:
    """Other services leave nodes empty, or write what is no JSON."""
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError):
        return None


def local_ids(value: object) -> tuple[str, ...]:
    """From a list, or a text parted by semicolons; each once."""
    parts = value.split(";") if isinstance(value, str) else _list(value)
    return tuple(dict.fromkeys(part.strip() for part in parts if part.strip()))


def folder_name(*names: str) -> str:
    """The first of these that can be the name of a folder."""
    return next((name for name in names if _NAME.fullmatch(name)), "unnamed")


def _list(value: object) -> list[str]:
    return [item for item in value if isinstance(item, str)] if isinstance(value, (list, tuple)) else []
