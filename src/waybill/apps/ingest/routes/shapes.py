"""What the API of ingest takes and answers; its description is generated from these."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field
from typing_extensions import TypedDict  # pydantic reads these, and before Python 3.12 only in this form

from waybill.apps.ingest.submission import DC, Submission, Type, local_ids
from waybill.http.wire import Body, Text

Short = Annotated[str, Field(max_length=4096)]


class NewBatch(Body):
    """What is submitted. Without a `url` the payload is the file that comes with it."""

    profile: Annotated[str, Field(max_length=128, description="What holds for deposits of its kind.")]
    url: Annotated[str, Field(max_length=8192, description="Where the payload is: http or https.")] = ""
    type: Type | None = Field(
        None, description="What the payload is; without it, guessed from its name and its first bytes."
    )
    filename: Short = ""
    size: int | None = Field(None, ge=0, le=2**63 - 1)
    digest_type: Short = Field("", description="Such as sha-256 or md5.")
    digest_value: Short = ""
    update: bool = Field(False, description="Add to, or replace in, an object that is there already.")
    deletions: list[Annotated[str, Field(max_length=1024)]] = Field(
        default_factory=list, max_length=1000, description="Files that an update takes away."
    )
    submitter: Short = ""
    creator: Short = ""
    title: Short = ""
    date: Short = ""
    primary_id: Short = Field("", description="The object's ARK, if it has one.")
    local_ids: list[Annotated[str, Field(max_length=255)]] = Field(default_factory=list, max_length=100)
    notification: Short = Field("", description="Mail addresses in place of the profile's.")
    notification_format: Short = ""
    note: Short = ""
    datacite_type: Short = ""
    dc: dict[Annotated[str, Field(max_length=20)], Short] = Field(
        default_factory=dict, max_length=len(DC), description=f"Dublin Core: {', '.join(DC)}."
    )
    batch_id: Annotated[str, Field(max_length=100)] = Field("", description="Asked twice with one batchID, made once.")
    retain_target: bool = Field(False, description="The ARK goes on leading where it leads.")

    def said(self) -> Submission:
        given = self.model_dump(exclude={"local_ids", "deletions"})
        return Submission(
            **given, local_ids=local_ids(self.local_ids), deletions=tuple(self.deletions), response_form="json"
        )


class Why(Body):
    why: Text = ""


class Act(Body):
    why: Text = ""
    confirmed: bool = Field(False, description="Whoever asks was told what the action's `confirm` says, and agreed.")


class NewLock(Body):
    key: Annotated[str, Field(max_length=600, description="storage/ARK, inventory/ARK or localid/LOCALID_OWNER.")]
    why: Text = ""


class JobsView(TypedDict):
    total: int
    states: dict[str, int]


class BatchView(TypedDict):
    id: str
    batch_id: str
    state: str
    state_doc: str
    message: str
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
    trouble: Any
    remarks: list[str]  # what is no fault of its manifest but worth knowing
    links: dict[str, str]


class AcceptedView(BatchView):
    repeated: bool  # it was there already
    warnings: list[str]


class BatchesView(TypedDict):
    batches: list[BatchView]
    next: str | None


class KeptView(TypedDict):
    """A profile or a collection. What is secret in its document is not shown."""

    name: str
    state: str
    version: int
    created: str | None
    updated: str | None
    document: Any


class KeptPageView(TypedDict):
    entries: list[KeptView]
    next: str | None


class ImportedView(KeptView):
    remarks: list[str]


class BulkView(TypedDict):
    done: int
    pending: int
    refused: int
    refusals: list[dict[str, str]]


class HoldView(TypedDict):
    sort: Literal["collection", "queue", "other"]
    name: str
    about: str
    mark: str


class HoldsView(TypedDict):
    holds: list[HoldView]


class HeldView(TypedDict):
    name: str
    known: bool  # a collection or a profile of this name is known here


class HolderView(TypedDict):
    kind: str
    id: str


class LockView(TypedDict):
    key: str
    family: str
    name: str
    holder: HolderView | None  # None: another service
    state: str | None
    why: str


class LocksView(TypedDict):
    locks: list[LockView]
    next: str | None


class LockedView(TypedDict):
    id: str
    key: str
    state: str


class NoteView(TypedDict):
    text: str
    line: int | None
    file: str | None


class ReportView(TypedDict):
    good: bool
    sort: Literal["manifest", "container", "bag", "file"]
    type: str | None
    count: int
    octets: int
    complaints: list[NoteView]
    remarks: list[NoteView]
