"""The built-in scenarios: two small examples of machines, steps and invariants of their own.

crates      parents, children and grandchildren that settle at the same time
transfers   exclusive locks that survive waits, failures and crashes

Applications bring theirs with the entry-point group `waybill.scenarios`.
"""

from waybill.sim.scenarios.crates import CratesScenario
from waybill.sim.scenarios.transfers import TransfersScenario

BUILT_IN = (CratesScenario, TransfersScenario)
