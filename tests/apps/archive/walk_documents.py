"""The documents with which records of archive begin in the random walks."""

from __future__ import annotations

from typing import Any

from waybill.apps.archive.machine import (
    DeleteRequest,
    GetRequest,
    MigrationDocument,
    MoveRequest,
    QuotaDocument,
    RequestDocument,
)

REACHES_EVERY_STATE = False  # the arrows of a migration are acts of its requests: test_arrows.py
WALK_DOCUMENTS: dict[str, Any] = {
    "archive-migration": (MigrationDocument(1, "default", "local", "migration-0000000001", "req0000000001"),),
    "archive-request": (
        RequestDocument(1, "PUT", "mig0000000001", 1, "default", "local"),
        GetRequest("/restored"),
        DeleteRequest(0.0, "ON_STORAGE"),
        MoveRequest("tape", "migration-0000000001"),
    ),
    "archive-quota": (QuotaDocument("default", "local"),),
}
