"""A submission: what a depositor requested, for a whole batch or for one of its jobs.

It is read and written in two vocabularies. Waybill's own has profile_name, payload_url, payload_type, submission_mode
and erc_what; the services that share the tree have profile, type, update, filename and title. Both are written, so that
each reader finds its own; either is read. Documents of other services may lack fields and hold anything: reading never
fails, it leaves out what it cannot use.

    batch   the document `submission`; and `collections`, if the submission names none
    job     the documents `configuration`, `identifiers` and `metadata`; and `owner` and `collections`, if the configuration names none
"""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import StrEnum
from functools import lru_cache
from typing import Any, Self, TypeVar

import msgspec

from waybill.record import DocumentStruct, Record

T = TypeVar("T", bound=msgspec.Struct)
MAX_LOCAL_ID_LENGTH = 255
MAX_LOCAL_IDS = 100  # of one object
DC_ELEMENTS = (
    *("contributor", "coverage", "creator", "date", "description", "format", "identifier", "language"),
    *("publisher", "relation", "rights", "source", "subject", "title", "type"),
)
NO_TARGET_MESSAGE = "An update needs the object that it updates: give its ARK (the primary identifier), or a local id."
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")


class PayloadType(StrEnum):
    """The type of a payload, by its name in the form that depositors send."""

    FILE = "file"  #: one file, stored as it is, also when it is a zip
    CONTAINER = "container"  #: a zip, a tar or a bag: the files of one object
    OBJECT = "object-manifest"  #: a manifest of the files of one object
    MANIFESTS = "batch-manifest"  #: a manifest of object manifests
    CONTAINERS = "container-batch-manifest"  #: a manifest of containers
    FILES = "single-file-batch-manifest"  #: a manifest of single files

    @property
    def is_batch(self) -> bool:
        """Whether the payload lists objects, each of which becomes a job."""
        return self in (PayloadType.MANIFESTS, PayloadType.CONTAINERS, PayloadType.FILES)


_SERVICE_NAMES = {  # as the services that share the tree write them
    PayloadType.FILE: "file",
    PayloadType.CONTAINER: "container",
    PayloadType.OBJECT: "manifest",
    PayloadType.MANIFESTS: "batchManifest",
    PayloadType.CONTAINERS: "batchManifestContainer",
    PayloadType.FILES: "batchManifestFile",
}
_TYPES_BY_NAME = {
    **{kind.value.replace("-", "").lower(): kind for kind in PayloadType},
    **{written.lower(): kind for kind, written in _SERVICE_NAMES.items()},
}


def payload_type_of(text: str) -> PayloadType | None:
    """The type written in any spelling: object-manifest, object_manifest, manifest, batchManifestFile ..."""
    return _TYPES_BY_NAME.get(text.replace("-", "").replace("_", "").lower())


class Submission(msgspec.Struct, frozen=True, kw_only=True):
    profile: str
    url: str  # of the payload; `waybill:` and the name of an object for an upload
    type: PayloadType | None = None  # None: the payload decides
    filename: str = ""
    size: int | None = None
    digest_type: str = ""  # of the payload, as the depositor declares it
    digest_value: str = ""
    received_digests: dict[str, str] = {}  # digests of an upload, computed on receipt: {"sha256": "..."}
    update: bool = False
    submitter: str = ""
    owner: str = ""  # ARK of the owner, from the profile; local ids belong to the owner
    collections: tuple[str, ...] = ()  # mnemonics; a hold on one of them holds the deposit
    creator: str = ""
    title: str = ""
    date: str = ""
    primary_id: str = ""
    local_ids: tuple[str, ...] = ()
    notification: str = ""  # mail addresses that replace the profile's
    notification_format: str = ""
    response_form: str = ""
    note: str = ""
    datacite_type: str = ""
    dc: dict[str, str] = {}  # Dublin Core elements, by the names of DC_ELEMENTS
    batch_id: str = ""  # bid-<uuid>
    job_id: str = ""  # jid-<uuid>
    submitted_at: str = ""  # RFC 3339
    retain_target: bool = False  # the target URL of the ARK is not changed
    # the profile existed when this was submitted; other services may name profiles that never existed here
    is_profile_checked: bool = False
    row_digests: dict[str, str] = {}  # digests of the payload in a row of a batch manifest: {"md5": "..."}
    deletions: tuple[str, ...] = ()  # files that an update deletes
    # idempotency keys of the jobs of earlier rows for the same object: those jobs go first
    follows: tuple[str, ...] = ()

    @classmethod
    def from_document(cls, document: object) -> Self:
        """Read a `submission` or `configuration`, whoever wrote it."""
        return cls.parse(msgspec.json.encode(document))

    @classmethod
    @lru_cache(4096)  # the machines need it with every step: for hold names, lock names and the working folder
    def parse(cls, raw: bytes) -> Self:
        fields = fields_of(raw)

        def first_text(*names: str) -> str:
            values = (fields[name] for name in names if name in fields)
            return next((str(value) for value in values if isinstance(value, (str, int)) and str(value)), "")

        def text_table(name: str) -> dict[str, str]:
            value = fields.get(name)
            return {k: v for k, v in value.items() if isinstance(v, str)} if isinstance(value, dict) else {}

        size = first_text("size", "payload_size")
        mode = first_text("submission_mode")
        local = fields.get("local_id", fields.get("localID", ""))
        return cls(
            profile=first_text("profile", "profile_name"),
            url=first_text("payload_url"),
            type=payload_type_of(first_text("type", "payload_type")),
            filename=first_text("filename", "payload_filename"),
            size=int(size) if size.isdecimal() and len(size) < 20 else None,
            digest_type=first_text("digestType"),
            digest_value=first_text("digestValue"),
            received_digests=text_table("received"),
            update=fields["update"] is True if "update" in fields else mode == "update",
            submitter=first_text("submitter"),
            owner=first_text("owner"),
            collections=tuple(c for c in _strings_of(fields.get("collections")) if c),
            creator=first_text("creator", "erc_who"),
            title=first_text("title", "erc_what"),
            date=first_text("date", "erc_when"),
            primary_id=first_text("objectID", "primary_id"),
            local_ids=parse_local_ids(local),
            notification=first_text("notification"),
            notification_format=first_text("notificationFormat"),
            response_form=first_text("responseForm", "response_type"),
            note=first_text("note"),
            datacite_type=first_text("DataCiteResourceType"),
            dc={element: first_text(f"DC{element}") for element in DC_ELEMENTS if first_text(f"DC{element}")},
            batch_id=first_text("batchID"),
            job_id=first_text("jobID"),
            submitted_at=first_text("submissionDate"),
            retain_target=fields.get("retainTargetURL") in (True, "true"),
            is_profile_checked=fields.get("profileChecked") is True,
            row_digests=text_table("rowDigests"),
            deletions=tuple(name for name in _strings_of(fields.get("delete")) if name),
            follows=tuple(_strings_of(fields.get("follows"))),
        )

    @classmethod
    def from_batch(cls, batch: Record) -> Submission:
        document = batch.find_document(BatchSubmission) or BatchSubmission.parse(b"")
        return document.submission._with_collections(batch)

    @classmethod
    def from_job(cls, job: Record) -> Submission:
        """Combine the documents of a job.

        Identifiers that were found since take precedence over those submitted. Who, what and when that another service
        wrote into `metadata` count where the configuration has none.
        """
        submission = (job.find_document(JobConfiguration) or JobConfiguration.parse(b"")).submission
        identifiers = job.find_document(JobIdentifiers) or JobIdentifiers()
        owner = job.find_document(DepositOwner) if not submission.owner else None
        complete = submission.creator and submission.title and submission.date
        metadata = (None if complete else job.find_document(JobMetadata)) or JobMetadata()
        return msgspec.structs.replace(
            submission._with_collections(job),
            owner=owner.ark if owner is not None else submission.owner,
            creator=submission.creator or metadata.erc_who,
            title=submission.title or metadata.erc_what,
            date=submission.date or metadata.erc_when,
            primary_id=identifiers.primary_id or submission.primary_id,
            local_ids=identifiers.local_id or submission.local_ids,
            batch_id=submission.batch_id or (job.parent.id if job.parent else ""),
            job_id=submission.job_id or job.id,
        )

    def _with_collections(self, record: Record) -> Submission:
        """With those that a step found by the profile, if the submission names none."""
        found = None if self.collections else record.find_document(DepositCollections)
        return self if found is None else msgspec.structs.replace(self, collections=found.mnemonics)

    def to_document(self) -> dict[str, Any]:
        """The document `submission` or `configuration`, in both vocabularies, without empty fields; `update` is always
        there, because readers require it.
        """
        both: dict[str, Any] = {
            "batchID": self.batch_id,
            "jobID": self.job_id,
            "profile": self.profile,
            "profile_name": self.profile,
            "type": _SERVICE_NAMES[self.type] if self.type else "",
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
            "submissionDate": self.submitted_at,
            **{f"DC{element}": self.dc.get(element, "") for element in DC_ELEMENTS},
            "owner": self.owner,
            "collections": list(self.collections),
            "received": self.received_digests,
            "rowDigests": self.row_digests,
            "retainTargetURL": self.retain_target or "",
            "delete": list(self.deletions),
            "profileChecked": self.is_profile_checked,
            "follows": list(self.follows),
        }
        return {name: value for name, value in both.items() if value} | {"update": self.update}

    def to_job_documents(self) -> tuple[JobConfiguration, JobIdentifiers, JobMetadata]:
        """The documents of a new job."""
        return (
            JobConfiguration(self),
            JobIdentifiers(self.primary_id, self.local_ids),
            JobMetadata(self.creator, self.title, self.date, self.primary_id),
        )

    @property
    def is_update_without_target(self) -> bool:
        """Whether it is an update of one object that does not name the object. In a batch each row names its own."""
        return (
            self.update
            and self.type is not None
            and not self.type.is_batch
            and not self.primary_id
            and not self.local_ids
        )


# --- the documents


class BatchSubmission(msgspec.Struct, frozen=True):
    """The document `submission` of a batch."""

    submission: Submission

    @classmethod
    def parse(cls, raw: bytes) -> BatchSubmission:
        return cls(Submission.parse(raw))

    def render(self) -> dict[str, Any]:
        return self.submission.to_document()


class JobConfiguration(msgspec.Struct, frozen=True):
    """The document `configuration` of a job."""

    submission: Submission

    @classmethod
    def parse(cls, raw: bytes) -> JobConfiguration:
        return cls(Submission.parse(raw))

    def render(self) -> dict[str, Any]:
        return self.submission.to_document()


class JobIdentifiers(msgspec.Struct, frozen=True):
    """The ARK and the local ids that were found or minted."""

    primary_id: str = ""
    local_id: tuple[str, ...] = ()

    @classmethod
    def parse(cls, raw: bytes) -> JobIdentifiers:
        fields = fields_of(raw)
        primary = fields.get("primary_id")
        return cls(primary if isinstance(primary, str) else "", parse_local_ids(fields.get("local_id")))


class JobMetadata(msgspec.Struct, frozen=True):
    erc_who: str = ""
    erc_what: str = ""
    erc_when: str = ""
    erc_where: str = ""


class DepositOwner(DocumentStruct, frozen=True):
    """The owner of the local ids, from the profile, if another service submitted it."""

    ark: str


class DepositCollections(DocumentStruct, frozen=True):
    """The collections that can hold it, from its profile, if another service submitted it."""

    mnemonics: tuple[str, ...]


def fields_of(raw: bytes) -> dict[str, Any]:
    """Return the fields of what another service wrote; none if it is no JSON object: others leave nodes empty, or write
    something else.
    """
    try:
        return msgspec.json.decode(raw, type=dict[str, Any])
    except (ValueError, RecursionError):
        return {}


def parse_texts(type: type[T]) -> Callable[[bytes], T]:
    """Return the parser of a type whose fields are texts: what is no text is left out."""

    def parse(raw: bytes) -> T:
        fields = fields_of(raw)
        return type(**{name: fields[name] for name in type.__struct_fields__ if isinstance(fields.get(name), str)})

    return parse


def parse_local_ids(value: object) -> tuple[str, ...]:
    """From a list, or a text separated by semicolons; each once."""
    parts = value.split(";") if isinstance(value, str) else _strings_of(value)
    return tuple(dict.fromkeys(part.strip() for part in parts if part.strip()))


def choose_folder_name(*names: str) -> str:
    """The first of these that can be the name of a folder."""
    return next((name for name in names if _NAME.fullmatch(name)), "unnamed")


def _strings_of(value: object) -> list[str]:
    return [item for item in value if isinstance(item, str)] if isinstance(value, (list, tuple)) else []
