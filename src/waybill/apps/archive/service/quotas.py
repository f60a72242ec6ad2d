"""The quotas of workspaces: one record for each workspace and storage, made by the first request that needs it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from waybill.apps.archive.machine import QUOTA, QuotaDocument
from waybill.engine import Engine
from waybill.errors import ActionRefused
from waybill.record import RecordExists, RecordNotFound, Ref
from waybill.step import New

if TYPE_CHECKING:
    from waybill.apps.archive.resources import ArchiveResources


def quota_ref(workspace: str, storage: str) -> Ref:
    return Ref(QUOTA.name, f"{workspace}.{storage}")


def ensure_quota(
    engine: Engine, resources: ArchiveResources, workspace: str, storage: str, *, who: str
) -> QuotaDocument:
    """The quota, made if there is none. Safe to repeat, and to race: the second maker finds the first one's."""
    ref, limit = quota_ref(workspace, storage), resources.get_limit(workspace, storage)
    try:
        return engine.store.get(*ref).document(QuotaDocument)
    except RecordNotFound:
        document = QuotaDocument(workspace, storage, limit)
        try:
            return engine.submit(New(QUOTA.name, (document,), id=ref.id), who=who).document(QuotaDocument)
        except RecordExists:
            return engine.store.get(*ref).document(QuotaDocument)


def refuse_if_used_up(quota: QuotaDocument, limit: int) -> None:
    """Raise ActionRefused when nothing more fits. How much a request needs is known, and reserved, when it has listed."""
    if limit and quota.used + quota.reserved >= limit:
        raise ActionRefused(
            f"The quota of workspace {quota.workspace} on {quota.storage} is used up. Delete a migration, or ask the workspace's "
            "manager for a larger quota.",
            code="quota-used-up",
        )
