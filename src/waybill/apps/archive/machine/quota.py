"""A quota: how many bytes a workspace has on a storage, and has reserved there.

    reserve(bytes, limit)           when files are admitted; refused where it would pass the limit
    settle(reserved, used)          what was reserved becomes what is stored
    give_back(reserved, used)       what is no longer stored, or will not be

Each is an act in the commit of the request that it is for, with the migration's own MigrationCharge in the same commit:
whatever crashes, a byte is counted exactly once. Concurrent requests cannot pass the limit together, because each of these
commits is decided on the quota as it writes it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from waybill.apps.archive.machine.documents import QuotaDocument, require_args
from waybill.errors import ActionRefused
from waybill.machine import STAY, Document, Machine, action, end, rest
from waybill.record import Documents, Record


def format_bytes(count: int) -> str:
    """A number of bytes as a person reads it: 1.5 GB."""
    size = float(count)
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if abs(size) < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} PB"


def _reserve(record: Record, args: Mapping[str, Any]) -> Documents:
    require_args(args, "bytes", "limit")
    quota, more, limit = record.document(QuotaDocument), int(args["bytes"]), int(args["limit"])
    if limit and more > 0 and quota.used + quota.reserved + more > limit:
        raise ActionRefused(
            f"The quota of workspace {quota.workspace} on {quota.storage} is {format_bytes(limit)}; {format_bytes(quota.used)} are "
            f"used, {format_bytes(quota.reserved)} are reserved, and this needs {format_bytes(more)}. Delete a migration, or ask the "
            f"workspace's manager for a larger quota."
        )
    return (replace(quota, limit=limit, reserved=_subtract(quota.reserved, -more, quota)),)


def _settle(record: Record, args: Mapping[str, Any]) -> Documents:
    require_args(args, "reserved", "used")
    quota = record.document(QuotaDocument)
    return (
        replace(
            quota, reserved=_subtract(quota.reserved, int(args["reserved"]), quota), used=quota.used + int(args["used"])
        ),
    )


def _give_back(record: Record, args: Mapping[str, Any]) -> Documents:
    require_args(args, "reserved", "used")
    quota = record.document(QuotaDocument)
    return (
        replace(
            quota,
            reserved=_subtract(quota.reserved, int(args["reserved"]), quota),
            used=_subtract(quota.used, int(args["used"]), quota),
        ),
    )


def _subtract(have: int, less: int, quota: QuotaDocument) -> int:
    if less > have:
        raise ActionRefused(
            f"{less} bytes were to be taken off {have} of the quota {quota.workspace} on {quota.storage}. "
            "`waybill doctor` compares it with its migrations."
        )
    return have - less


def _correct(record: Record, args: Mapping[str, Any]) -> Documents:
    require_args(args, "reserved", "used")
    quota = record.document(QuotaDocument)
    return (replace(quota, reserved=int(args["reserved"]), used=int(args["used"])),)


OPEN = "OPEN"

QUOTA = Machine(
    name="archive-quota", plural="archive-quotas", description="The bytes of a workspace on a storage.",
    made_by="the first request that needs it",
    scope_of=lambda record: f"archive/workspace/{record.document(QuotaDocument).workspace}",
    states=(
        rest(OPEN, description="Counts what is stored and what is reserved."),
        end("CLOSED", description="The workspace has nothing there any more."),
    ),
    actions=(
        action("reserve", OPEN, STAY, "Reserve bytes, if the limit allows it.", role="admin", writes=_reserve),
        action("settle", OPEN, STAY, "What was reserved is stored.", role="admin", writes=_settle),
        action("give_back", OPEN, STAY, "Give bytes back.", role="admin", writes=_give_back),
        action("correct", OPEN, STAY, "Write what its migrations hold.", role="admin", writes=_correct),
        action("close", OPEN, "CLOSED", "Forget it.", role="admin",
               guard=lambda record, store: "It holds bytes." if _holds_bytes(record) else None),
    ),
    documents=(Document("quota", QuotaDocument, "service", "The limit, what is used, what is reserved."),),
)  # fmt: skip


def _holds_bytes(record: Record) -> bool:
    quota = record.document(QuotaDocument)
    return bool(quota.used or quota.reserved)
