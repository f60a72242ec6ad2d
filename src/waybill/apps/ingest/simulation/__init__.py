"""Ingest in the simulator: two scenarios with ingest's own steps, maintenance routines, storage and inventory.

deposits         files and containers are deposited, updated and rebuilt; deposit_checks compares the result at the end
assemblies       stored objects are requested, packed, fetched, deleted and expire
services         the services around both: a web server, EZID, storage, the inventory
storage_service  storage behind HTTP, in processes of its own
injected_faults  stored content is damaged, and restored by deposits
maintenance      ingest's maintenance routines, with intervals that fit simulated time

`waybill sim deposits` and `waybill sim assemblies` run them.
"""

from waybill.apps.ingest.simulation.assemblies import AssemblyScenario
from waybill.apps.ingest.simulation.deposits import DepositScenario

__all__ = ["AssemblyScenario", "DepositScenario"]
