"""The documents with which the walks create records of ingest: enough for their locks, holds and folders."""

from typing import Any

_SUBMISSION = {"profile": "demo", "owner": "ark:/99999/owner", "collections": ["demo"], "localID": "a;b"}
WALK_DOCUMENTS: dict[str, dict[str, Any]] = {
    "batch": {"submission": _SUBMISSION},
    "job": {"configuration": _SUBMISSION},
}
