"""Inventory: objects, versions, files, local ids, owners and collections in SQL, searchable, and rebuilt from storage
at any time.
"""

from waybill.apps.ingest.inventory.catalogue import (
    InventoryCatalogue,
    InventoryConflict,
    InventoryDescription,
    LocalIdTaken,
    VersionSource,
    words_of,
)
from waybill.apps.ingest.inventory.inventory import (
    MAX_TERMS,
    Inventory,
    InventoryPage,
    RebuildResult,
    rebuild_object,
    rebuild_page,
)

__all__ = [
    "MAX_TERMS",
    "Inventory",
    "InventoryCatalogue",
    "InventoryConflict",
    "InventoryDescription",
    "InventoryPage",
    "LocalIdTaken",
    "RebuildResult",
    "VersionSource",
    "rebuild_object",
    "rebuild_page",
    "words_of",
]
