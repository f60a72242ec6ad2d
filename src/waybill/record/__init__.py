"""The values that every store holds and the verbs that every store has, shared by all other modules and imported from
here.

A `Record` (record.py) is changed only by a `Change`, a pair (before, after); a `CommitGroup` of changes is written
completely or not at all (commits.py). A worker opens a session, claims records under it, and commits the outcomes of
its steps:

    open_session -> claim -> (renew_session ...) -> commit: save | continue | release -> ... -> close_session

`Store` (store.py) has these verbs; its errors are in errors.py. A store knows no rule of any machine, and of documents
(documents.py) only the bytes.
"""

from waybill.record.commits import (
    FOREIGN_CAUSE,
    MAX_CHANGES,
    MAX_DOCUMENT,
    MAX_GROUP,
    MAX_MESSAGE,
    MAX_PAGE,
    SERVER_ABOUT,
    ActionRequest,
    Change,
    ClaimedRecord,
    CommitAnswer,
    CommitGroup,
    CommitResult,
    DueWaits,
    Finding,
    HistoryEntry,
    IdleParents,
    OwnedLock,
    Page,
    SessionInfo,
    SessionRenewal,
    Visibility,
    WorkQueue,
    check_group_size,
)
from waybill.record.documents import (
    DOCUMENT_ERRORS,
    NO_DOCUMENTS,
    Document,
    Documents,
    DocumentStruct,
    RecordDocuments,
    StructType,
    document_of,
    encode_document,
    is_json,
)
from waybill.record.errors import (
    BadStore,
    ClaimLost,
    CommitOutcomeUnknown,
    CommitTooLarge,
    Conflict,
    DocumentError,
    LockUnavailable,
    RecordExists,
    RecordNotFound,
    SessionLost,
    StoreError,
    StoreUnavailable,
)
from waybill.record.record import BlockedBy, Record, Ref, prepare_decoders
from waybill.record.store import Store

__all__ = [
    "DOCUMENT_ERRORS",
    "FOREIGN_CAUSE",
    "MAX_CHANGES",
    "MAX_DOCUMENT",
    "MAX_GROUP",
    "MAX_MESSAGE",
    "MAX_PAGE",
    "NO_DOCUMENTS",
    "SERVER_ABOUT",
    "ActionRequest",
    "BadStore",
    "BlockedBy",
    "Change",
    "ClaimLost",
    "ClaimedRecord",
    "CommitAnswer",
    "CommitGroup",
    "CommitOutcomeUnknown",
    "CommitResult",
    "CommitTooLarge",
    "Conflict",
    "Document",
    "DocumentError",
    "DocumentStruct",
    "Documents",
    "DueWaits",
    "Finding",
    "HistoryEntry",
    "IdleParents",
    "LockUnavailable",
    "OwnedLock",
    "Page",
    "Record",
    "RecordDocuments",
    "RecordExists",
    "RecordNotFound",
    "Ref",
    "SessionInfo",
    "SessionLost",
    "SessionRenewal",
    "Store",
    "StoreError",
    "StoreUnavailable",
    "StructType",
    "Visibility",
    "WorkQueue",
    "check_group_size",
    "document_of",
    "encode_document",
    "is_json",
    "prepare_decoders",
]
