"""Request bodies and responses of the ingest API. Its OpenAPI description is generated from them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field
from typing_extensions import TypedDict  # pydantic needs this form before Python 3.12

from waybill.apps.ingest.submission import DC_ELEMENTS, PayloadType, Submission, parse_local_ids
from waybill.http.json_io import RequestBody, Text

ShortText = Annotated[str, Field(max_length=4096)]


class NewBatch(RequestBody):
    """A submission. Without a `url` or an `upload` the payload is the file of the form."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "example": {
                "profile": "demo_content",
                "url": "https://example.org/photo.tif",
                "title": "A husky in the snow",
                "local_ids": ["husky-1"],
            }
        },
    )

    profile: Annotated[str, Field(max_length=128, description="The profile whose rules apply.")]
    url: Annotated[str, Field(max_length=8192, description="The http or https URL of the payload.")] = ""
    upload: Annotated[
        str,
        Field(max_length=4000, description="The token of a file that was uploaded in pieces, and has come completely."),
    ] = ""
    type: PayloadType | None = Field(
        None, description="What the payload is; by default guessed from its name and its first bytes."
    )
    filename: ShortText = ""
    size: int | None = Field(None, ge=0, le=2**63 - 1)
    digest_type: ShortText = Field("", description="Such as sha-256 or md5.")
    digest_value: ShortText = ""
    update: bool = Field(False, description="Add to an existing object, or replace files of it.")
    deletions: list[Annotated[str, Field(max_length=1024)]] = Field(
        default_factory=list, max_length=1000, description="Files that an update deletes."
    )
    submitter: ShortText = ""
    creator: ShortText = ""
    title: ShortText = ""
    date: ShortText = ""
    primary_id: ShortText = Field("", description="The object's ARK, if it has one.")
    local_ids: list[Annotated[str, Field(max_length=255)]] = Field(default_factory=list, max_length=100)
    notification: ShortText = Field("", description="Mail addresses, instead of those of the profile.")
    notification_format: ShortText = ""
    note: ShortText = ""
    datacite_type: ShortText = ""
    dc: dict[Annotated[str, Field(max_length=20)], ShortText] = Field(
        default_factory=dict, max_length=len(DC_ELEMENTS), description=f"Dublin Core: {', '.join(DC_ELEMENTS)}."
    )
    batch_id: Annotated[str, Field(max_length=100)] = Field(
        "", description="Submitting twice with one batchID makes one batch."
    )
    retain_target: bool = Field(False, description="Keep the current target of the ARK.")

    def to_submission(self) -> Submission:
        fields = self.model_dump(exclude={"local_ids", "deletions", "upload"})
        return Submission(
            **fields, local_ids=parse_local_ids(self.local_ids), deletions=tuple(self.deletions), response_form="json"
        )


class NewUpload(RequestBody):
    """A file that will be uploaded in pieces."""

    filename: Annotated[str, Field(min_length=1, max_length=255)]
    size: int = Field(ge=0, le=2**53, description="Its bytes.")
    batch_id: Annotated[str, Field(max_length=100)] = Field(
        "", description="Of the batch that it will be submitted as."
    )


class DocumentActionBody(RequestBody):
    why: Text = ""
    confirmed: bool = Field(False, description="The user has agreed to the action's `confirm` question.")


class NewLock(RequestBody):
    lock: Annotated[str, Field(max_length=600, description="storage/ARK, inventory/ARK or localid/LOCALID_OWNER.")]
    why: Text = ""


class JobsView(TypedDict):
    total: int
    states: dict[str, int]


class BatchView(TypedDict):
    id: str
    batch_id: str
    state: str
    state_description: str
    message: str
    report_due: bool  # a failed batch whose jobs are all done now: only its report is to be sent
    profile: str
    collections: list[str]
    submitter: str
    type: str | None
    update: bool
    filename: str
    size: int | None
    digests: dict[str, str]
    title: str
    creator: str
    date: str
    primary_id: str
    local_ids: list[str]
    note: str
    submitted: str | None
    updated: str | None
    jobs: JobsView
    report: Any
    failure: Any
    remarks: list[str]  # about its manifest; not faults
    links: dict[str, str]


class AcceptedView(BatchView):
    is_repeated: bool  # the batch existed before
    warnings: list[str]


class UploadView(TypedDict):
    upload: str  # its token
    batch_id: str
    filename: str
    size: int
    piece_size: int
    offset: int  # where the next piece begins; the size: all of it has come


class BatchesView(TypedDict):
    batches: list[BatchView]
    next: str | None


class ManagedDocumentView(TypedDict):
    """A profile or a collection; secrets of its document are not shown."""

    name: str
    state: str
    version: int
    created: str | None
    updated: str | None
    document: Any


class ManagedDocumentPageView(TypedDict):
    documents: list[ManagedDocumentView]
    next: str | None


class ImportedProfileView(ManagedDocumentView):
    remarks: list[str]


class BulkView(TypedDict):
    done: int
    pending: int
    refusal_count: int
    refusals: list[dict[str, str]]


class HoldView(TypedDict):
    scope: Literal["collection", "queue", "other"]
    name: str
    about: str
    hold_name: str


class HoldsView(TypedDict):
    holds: list[HoldView]


class CollectionHoldView(TypedDict):
    name: str
    known: bool  # a collection or profile of this name exists here


class LockOwnerView(TypedDict):
    kind: str
    id: str


class LockView(TypedDict):
    lock: str
    family: str
    name: str
    owner: LockOwnerView | None  # None: another service
    state: str | None
    why: str


class LocksView(TypedDict):
    locks: list[LockView]
    next: str | None


class NewLockView(TypedDict):
    id: str
    lock: str
    state: str


class CheckNoteView(TypedDict):
    text: str
    line: int | None
    file: str | None


class CheckReportView(TypedDict):
    is_good: bool
    format: Literal["manifest", "container", "bag", "file"]
    type: str | None
    count: int
    total_bytes: int
    complaints: list[CheckNoteView]
    remarks: list[CheckNoteView]
