"""What every store holds, and what every store does: the nouns and the verbs that all other modules share, imported
from here.

A `Record` (thing.py) is one thing in motion. It is only ever moved by a `Change` (change.py), a pair (before, after); a
`Group` of changes is written whole or not at all. A worker opens a session, claims records under it, and commits what
its steps made of them:

    open_session -> claim -> (renew ...) -> commit: save | go on | release -> ... -> close_session

`Store` (store.py) has these verbs; what it answers is in answers.py, and what it refuses with in refusals.py. A store
knows no rule of any machine.
"""

from waybill.record.answers import (
    MAX_PAGE,
    SERVES,
    Answer,
    Ask,
    Claimed,
    Committed,
    Due,
    Finding,
    HeldKey,
    Idle,
    Line,
    Page,
    Renewed,
    Role,
    SessionInfo,
)
from waybill.record.change import MAX_CHANGES, MAX_DOCUMENT, MAX_GROUP, MAX_MESSAGE, Change, Group, check_group
from waybill.record.ready import make_ready
from waybill.record.refusals import (
    BadStore,
    ClaimLost,
    Conflict,
    Exists,
    NotFound,
    SessionLost,
    StoreError,
    Taken,
    TooLarge,
    Unavailable,
    Unknown,
)
from waybill.record.store import Store
from waybill.record.thing import NO_DOCS, Docs, Parked, Record, Ref, encode, is_json

__all__ = [
    "MAX_CHANGES",
    "MAX_DOCUMENT",
    "MAX_GROUP",
    "MAX_MESSAGE",
    "MAX_PAGE",
    "NO_DOCS",
    "SERVES",
    "Answer",
    "Ask",
    "BadStore",
    "Change",
    "ClaimLost",
    "Claimed",
    "Committed",
    "Conflict",
    "Docs",
    "Due",
    "Exists",
    "Finding",
    "Group",
    "HeldKey",
    "Idle",
    "Line",
    "NotFound",
    "Page",
    "Parked",
    "Record",
    "Ref",
    "Renewed",
    "Role",
    "SessionInfo",
    "SessionLost",
    "Store",
    "StoreError",
    "Taken",
    "TooLarge",
    "Unavailable",
    "Unknown",
    "check_group",
    "encode",
    "is_json",
    "make_ready",
]
