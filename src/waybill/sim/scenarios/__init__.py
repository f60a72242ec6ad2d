"""The built-in scenarios: five small examples of machines, steps and invariants of their own.

crates      parents, children and grandchildren that settle at the same time
galleries   shared and counted locks beside exclusive ones
transfers   exclusive locks that survive waits, failures and crashes
admissions  commits that change several records, all or nothing
bulletins   events, and subscribers that create, act and fail

Applications bring theirs with the entry-point group `waybill.scenarios`.
"""

from waybill.sim.scenarios.admissions import AdmissionsScenario
from waybill.sim.scenarios.bulletins import BulletinsScenario
from waybill.sim.scenarios.crates import CratesScenario
from waybill.sim.scenarios.galleries import GalleriesScenario
from waybill.sim.scenarios.transfers import TransfersScenario

BUILT_IN = (AdmissionsScenario, BulletinsScenario, CratesScenario, GalleriesScenario, TransfersScenario)
