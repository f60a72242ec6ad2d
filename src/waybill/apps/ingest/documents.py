"""The types of the documents of jobs, batches and assemblies; those that say what was submitted are in submission.py.

`space_needed`, `store` and `inventory` of a job, `status-report` of a batch and `token` of an assembly are shared with
Merritt's services and written byte for byte as those do. What another service wrote may hold anything: what cannot be
used is left out when it is read. All other documents are Waybill's own.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Literal

import msgspec

from waybill.apps.ingest.submission import PayloadType, fields_of
from waybill.files.names import to_file_name
from waybill.manifests.record_lists import RecordList, read_list
from waybill.objects import Objects
from waybill.record import DocumentStruct
from waybill.step import SpawnedChildren

# --- of a job, shared with other services


class SpaceNeeded(msgspec.Struct, frozen=True):
    """The bytes that a job needs on the working disk; None if unknown. It is a bare number: 0 and -1 are unknown."""

    byte_count: int | None

    @classmethod
    def parse(cls, raw: bytes) -> SpaceNeeded:
        try:
            needed = msgspec.json.decode(raw, type=int)
        except ValueError:
            return cls(None)
        return cls(needed if needed > 0 else None)

    def render(self) -> int:
        return -1 if self.byte_count is None else max(1, self.byte_count)


class StoreRequest(msgspec.Struct, frozen=True):
    """What storage is asked to write."""

    manifest_url: str = ""
    mode: str = ""  # such as update/9502/ark:/99999/fk4x
    delete: str = ""  # the URL of a list of files


class InventoryRequest(msgspec.Struct, frozen=True):
    """The manifest from which the inventory is written."""

    manifest_url: str = ""
    mode: str = ""


# --- of a job


class MintedArk(DocumentStruct, frozen=True):
    ark: str


class AdjustedPriority(msgspec.Struct, frozen=True):
    first: int  # before it was adjusted
    last: int


class PayloadFiles(RecordList, frozen=True, kw_only=True):
    """The files to fetch: a list of `ManifestRow`."""

    type: PayloadType
    priority: AdjustedPriority | None = None


class DownloadedFiles(RecordList, frozen=True, kw_only=True):
    """The fetched files: a list of `StagedFile`."""

    attempt: int
    bytes: int


class JobWarnings(DocumentStruct, frozen=True):
    count: int
    first: tuple[str, ...]  # a sentence for each of the first files


class CallbackAnswer(DocumentStruct, frozen=True):
    status: int
    at: float
    version: int | None = None  # of the object


class Refusal(DocumentStruct, frozen=True):
    """Why the submission was refused."""

    final: bool  # only a new submission helps
    reason: str
    reasons: tuple[str, ...] = ()  # the first ones
    list: RecordList | None = None  # all of them, if they are many


class JobRestarts(DocumentStruct, frozen=True):
    count: int


# --- of a batch


class BatchPlan(RecordList, frozen=True, kw_only=True):
    """The objects of a batch, a list of `ManifestRow`, if several commits are needed to create their jobs; and what is
    known of jobs that another service creates.
    """

    count: int = 0
    type: PayloadType | None = None  # of the payload; None: there is no list
    max_document_bytes: int = 0  # of the documents of one job
    remarks: tuple[str, ...] = ()
    foreign_jobs: int = 0  # jobs that another service has created before these
    waiting_since: float | None = None  # since when no job was added by it
    jobs: int = 0  # how many there were then
    compared: int = 0  # how many there were when all rows had one
    unsaid: bool = False  # the service has not confirmed that these are all


class BatchJobs(SpawnedChildren, frozen=True):
    """How many jobs, and mails, Waybill has created."""

    jobs: int = 0  # the jobs alone, with those of another service
    remarks: tuple[str, ...] = ()  # on the manifest, each with its line


class BatchFailure(DocumentStruct, frozen=True):
    """Why there are no jobs, or not all."""

    reason: str
    reasons: tuple[str, ...]  # the first ones
    count: int  # of all


class JobCounts(msgspec.Struct):
    completed: int = 0
    failed: int = 0
    deleted: int = 0

    @property
    def total(self) -> int:
        return self.completed + self.failed + self.deleted


class ReportedChanges(msgspec.Struct, frozen=True):
    """What has changed since the report before."""

    last_modified: str  # when that was written
    completed: int
    deleted: int
    unresolved: int


class BatchReport(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The last report: counts, the first ids, and where the full list is."""

    last_modified: str
    status: str
    report: int  # its number
    counts: JobCounts
    failed_jobs: tuple[str, ...]
    successful_jobs: tuple[str, ...]
    whole: bool  # whether these are all ids
    manifest_url: str  # of the list of all jobs
    jobs: RecordList | None  # the same list; None if another service wrote the report
    since: ReportedChanges | None = None
    warnings: int = 0  # jobs completed with warnings
    reason: str = ""
    remark: str = ""

    @classmethod
    def parse(cls, raw: bytes) -> BatchReport:
        try:
            return msgspec.json.decode(raw, type=cls)
        except ValueError:  # another service wrote it
            last_modified = str(fields_of(raw).get("last_modified", ""))
            return cls(
                last_modified=last_modified,
                status="",
                report=1,
                counts=JobCounts(),
                failed_jobs=(),
                successful_jobs=(),
                whole=False,
                manifest_url="",
                jobs=None,
            )


# --- of an assembly

ALL_VERSIONS = 0
ArchiveForm = Literal["zip", "zip-stored", "tar", "tar.gz"]
ArchiveContent = Literal["full", "producer"]
_ENDINGS = {
    "zip": (".zip", "application/zip"),
    "zip-stored": (".zip", "application/zip"),
    "tar": (".tar", "application/x-tar"),
    "tar.gz": (".tar.gz", "application/gzip"),
}


class AssemblyOrder(DocumentStruct, frozen=True, kw_only=True):
    object: str
    version: int  # or ALL_VERSIONS
    form: ArchiveForm = "zip"  # zip is deflated; zip-stored is faster and larger
    content: ArchiveContent = "full"  # producer: without the files that ingest added
    files: RecordList | None = None  # their names; None: all files
    ignores_embargo: bool = False  # requested by an operator: its URL works despite an embargo

    @property
    def top_folder(self) -> str:
        """The only top-level folder of the archive."""
        return to_file_name(self.object)

    @property
    def file_name(self) -> str:
        """The file name of the archive."""
        return self.top_folder + (f"_v{self.version}" if self.version != ALL_VERSIONS else "") + _ENDINGS[self.form][0]

    @property
    def mime(self) -> str:
        return _ENDINGS[self.form][1]

    def to_request_json(self) -> str:
        """Return the body that requests the same again, without the named files."""
        body = {"object": self.object, "version": self.version, "form": self.form, "content": self.content}
        return msgspec.json.encode(body).decode()

    def is_included(self, path: str) -> bool:
        return self.content == "full" or path.startswith("producer/")

    def read_file_names(self, objects: Objects) -> frozenset[str] | None:
        """Return the named files; None: all files."""
        return None if self.files is None else frozenset(read_list(objects, self.files, str))


class AssemblyToken(msgspec.Struct, frozen=True):
    """The token, the URL and when it is ready, in the vocabulary of the services that share the tree; also of assemblies of
    those services, whose fields are kept as they are.
    """

    fields: dict[str, Any]

    @classmethod
    def create(cls, token: str, url: str, size: int, status: str, ready: float) -> AssemblyToken:
        """Our storage has no node numbers: 0."""
        return cls(
            {
                "token": token,
                "delivery-node": 0,
                "cloud-content-byte": size,
                "status": status,
                "url": url,
                "anticipated-availability-time": to_rfc3339(ready),
            }
        )

    @classmethod
    def parse(cls, raw: bytes) -> AssemblyToken:
        return cls(fields_of(raw))

    def render(self) -> dict[str, Any]:
        return self.fields

    def with_status(self, status: str, ready: float | None = None) -> AssemblyToken:
        return AssemblyToken(
            {
                **self.fields,
                "status": status,
                **({} if ready is None else {"anticipated-availability-time": to_rfc3339(ready)}),
            }
        )

    @property
    def token(self) -> str:
        return self._text("token")

    @property
    def url(self) -> str:
        return self._text("url")

    @property
    def ready_at(self) -> str:
        return self._text("anticipated-availability-time")

    @property
    def content_bytes(self) -> int:
        """0 if it is unknown."""
        size = self.fields.get("cloud-content-byte")
        return size if isinstance(size, int) and size > 0 else 0

    def _text(self, name: str) -> str:
        value = self.fields.get(name)
        return value if isinstance(value, str) else ""


class PackedArchive(DocumentStruct, frozen=True, kw_only=True):
    """The packed file."""

    name: str  # of the object
    size: int
    sha256: str
    files: int
    bytes: int  # of the content
    expires: float
    renamed: tuple[tuple[str, str], ...] = ()  # from, to


def to_rfc3339(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
