"""The maintenance routines of ingest: compare inventory and store, audit stored content,
finish interrupted writes, remove expired assemblies and
unneeded uploads, lists and staged files.
"""

from waybill.apps.ingest.maintenance.assembly_expiry import AssemblyExpiryRoutine
from waybill.apps.ingest.maintenance.audit import ContentAuditRoutine
from waybill.apps.ingest.maintenance.inventory_identity import InventoryIdentityRoutine
from waybill.apps.ingest.maintenance.storage_recovery import StorageRecoveryRoutine
from waybill.apps.ingest.maintenance.unneeded_objects import (
    ListRemovalRoutine,
    StagingRemovalRoutine,
    UploadRemovalRoutine,
)

ROUTINES = (
    InventoryIdentityRoutine(),
    ContentAuditRoutine(),
    StorageRecoveryRoutine(),
    AssemblyExpiryRoutine(),
    UploadRemovalRoutine(),
    ListRemovalRoutine(),
    StagingRemovalRoutine(),
)

__all__ = [
    "ROUTINES",
    "AssemblyExpiryRoutine",
    "ContentAuditRoutine",
    "InventoryIdentityRoutine",
    "ListRemovalRoutine",
    "StagingRemovalRoutine",
    "StorageRecoveryRoutine",
    "UploadRemovalRoutine",
]
