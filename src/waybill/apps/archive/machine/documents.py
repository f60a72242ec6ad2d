"""The documents of migrations, requests and quotas.

Whatever grows with the number of files is a list in an object, or rows of the catalogue; documents only name it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from waybill.apps.archive.files import FileSet
from waybill.apps.archive.storages import Batch, UploadCheckpoint
from waybill.errors import ActionRefused
from waybill.manifests.record_lists import RecordList
from waybill.record import DocumentStruct


def require_args(args: Mapping[str, Any], *names: str) -> None:
    """Raise ActionRefused unless the arguments are there: these actions are taken by requests, in their own commits."""
    if missing := [name for name in names if name not in args]:
        raise ActionRefused(f"A request takes this action; it needs {', '.join(missing)}.")


RequestKind = Literal["PUT", "MIGRATE", "GET", "DELETE", "MOVE"]

# --- of a migration


class MigrationDocument(DocumentStruct, frozen=True):
    """Which files, of which workspace, on which storage."""

    number: int  # lasting; the client of JDMA knows it by this
    workspace: str
    storage: str
    container: str  # of the storage
    request: str  # the id of the PUT or MIGRATE that made it
    removes_originals: bool = False  # it was made by a MIGRATE
    label: str = ""  # as it was first; the catalogue has the present one
    common_path: str = ""  # the deepest folder that all its paths have in common
    is_only_copy: bool = False  # originals may have been removed: what the storage has may exist nowhere else
    failure: str = ""  # why it is FAILED


class MigrationCharge(DocumentStruct, frozen=True):
    """How many bytes of its workspace's quota it holds. Changed only together with the quota."""

    storage: str
    reserved: int = 0
    used: int = 0


class MigrationFiles(DocumentStruct, frozen=True):
    """Its files as they were listed, and the owners and modes that they have to get back."""

    file_set: FileSet | None = None
    found: RecordList | None = None  # the entries as they were before the first one was locked
    locked: RecordList | None = None  # the same after that: what they are compared with later
    is_locked: bool = False  # owner and mode of the files may be ours
    plan: str = ""  # of the archives
    archives: int = 0
    files: int = 0
    bytes: int = 0  # of all archives


# --- of a request


class Notice(DocumentStruct, frozen=True):
    """Who gets a mail when it is done, or when it failed; empty: nobody."""

    to: tuple[str, ...] = ()


class RequestDocument(DocumentStruct, frozen=True):
    """Who wants what of which migration."""

    number: int  # lasting
    kind: RequestKind
    migration: str
    migration_number: int
    workspace: str
    storage: str
    paths: RecordList | None = None  # of a PUT or MIGRATE: absolute paths, one string each
    exclude: tuple[str, ...] = ()  # globs


class GetSelection(DocumentStruct, frozen=True):
    """Which files of a migration; nothing given: all of them."""

    globs: tuple[str, ...] = ()
    regexes: tuple[str, ...] = ()
    paths: RecordList | None = None  # absolute paths as they were, or paths below the common path


class GetRequest(DocumentStruct, frozen=True):
    """What is restored, and where."""

    target: str  # "": back to where the files were
    selection: GetSelection = GetSelection()
    overwrite: bool = False


class StoppedRequest(DocumentStruct, frozen=True):
    id: str
    state: str  # in which it was


class DeleteRequest(DocumentStruct, frozen=True):
    """When a DELETE begins, and what an undelete must bring back."""

    not_before: float
    migration_state: str
    stopped: tuple[StoppedRequest, ...] = ()


class MoveRequest(DocumentStruct, frozen=True):
    to_storage: str
    container: str


class GetPlan(DocumentStruct, frozen=True):
    """Which archives a GET needs, in the order of their numbers, and how much is restored of them."""

    archives: RecordList
    files: int
    bytes: int  # of these archives


class PutAttempts(DocumentStruct, frozen=True):
    """How often a PUT began anew because a file changed while it was sent."""

    restarts: int = 0


class Progress(DocumentStruct, frozen=True):
    """Where a step goes on when it is run again. Reset whenever a stage is done."""

    last_archive: int = 0  # archives up to this number are done in this stage
    upload: UploadCheckpoint | None = None  # how far the next archive is
    batch: Batch | None = None  # of the storage, opened in the stage before
    is_closed: bool = False  # nothing more is asked of the batch: it is polled
    source: Batch | None = None  # of a MOVE: on the storage that it comes from
    is_asked: bool = False  # everything is asked of the source


class MoveCharge(DocumentStruct, frozen=True):
    """The bytes that a MOVE has reserved on the other storage."""

    reserved: int


class Released(DocumentStruct, frozen=True):
    """The files have their owner and mode back, so they must be locked and compared again before the request goes on."""

    at: float


class Failing(DocumentStruct, frozen=True):
    """The request has failed, and is giving back what it took."""

    why: str
    is_told: bool = False  # the mail about it is made


class Cancelled(DocumentStruct, frozen=True):
    why: str


class RequestReport(DocumentStruct, frozen=True):
    """What became of the files that need to be told of."""

    failures: RecordList | None = None  # FileFailure rows
    kept: int = 0  # originals that were kept because they had changed
    removed: int = 0  # originals that were removed
    skipped: int = 0  # files that were not packed, or not restored
    restored: int = 0
    dropped: int = 0  # restored files without their owner or special bits, as the settings have it
    bytes: int = 0


# --- of a quota


class QuotaDocument(DocumentStruct, frozen=True):
    """The bytes of a workspace on a storage. `limit`: as the settings had it when it was last asked; 0: none."""

    workspace: str
    storage: str
    limit: int = 0
    used: int = 0
    reserved: int = 0
