"""Inventory: objects, versions, files, local ids, owners and collections in SQL, searchable, and rebuilt from storage
at any time.
"""

from waybill.apps.ingest.inventory.catalogue import (
    ConcurrentRecording,
    InventoryCatalogue,
    InventoryConflict,
    InventoryDescription,
    LocalIdTaken,
    StoredElsewhereError,
    VersionSource,
)
from waybill.apps.ingest.inventory.inventory import (
    Inventory,
    InventoryPage,
    RebuildResult,
    rebuild_object,
    rebuild_page,
)

__all__ = [
    "ConcurrentRecording",
    "Inventory",
    "InventoryCatalogue",
    "InventoryConflict",
    "InventoryDescription",
    "InventoryPage",
    "LocalIdTaken",
    "RebuildResult",
    "StoredElsewhereError",
    "VersionSource",
    "rebuild_object",
    "rebuild_page",
]
