"""Ingest in the simulator: two scenarios, with ingest's own steps, duties, storage and inventory.

deposits    files and containers on their way in: containers.py draws them, amending.py updates what is there, rebuilding.py records
            again, stored.py judges in the end
assemblies  objects on their way out: holdings.py has them at rest
around      what surrounds both        upkeep      ingest's duties, at a pace that fits virtual time
"""

from waybill.apps.ingest.simulation.assemblies import Assemblies
from waybill.apps.ingest.simulation.deposits import Deposits

__all__ = ["Assemblies", "Deposits"]
