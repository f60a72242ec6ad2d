"""The built-in scenarios: generic tables that use everything that the engine offers."""

from waybill.sim.scenarios.crates import Crates
from waybill.sim.scenarios.mistakes import Mistakes
from waybill.sim.scenarios.orders import Orders
from waybill.sim.scenarios.transfers import Transfers

BUILT_IN = (Crates, Mistakes, Orders, Transfers)
