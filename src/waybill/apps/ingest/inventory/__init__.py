"""Inventory: objects, versions, files, local ids, owners and collections in SQL, searchable, rebuilt from storage
whenever one likes.
"""

from waybill.apps.ingest.inventory.about import About
from waybill.apps.ingest.inventory.catalogue import Contradiction, InventoryCatalogue, LocalIdTaken, Overtaken, Source
from waybill.apps.ingest.inventory.elsewhere import KeptElsewhere
from waybill.apps.ingest.inventory.inventory import BadSearch, Inventory, Page
from waybill.apps.ingest.inventory.rebuilding import Rebuilt, rebuild_object, rebuild_some

__all__ = [
    "About",
    "BadSearch",
    "Contradiction",
    "Inventory",
    "InventoryCatalogue",
    "KeptElsewhere",
    "LocalIdTaken",
    "Overtaken",
    "Page",
    "Rebuilt",
    "Source",
    "rebuild_object",
    "rebuild_some",
]
