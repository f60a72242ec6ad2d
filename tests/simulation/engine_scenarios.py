"""The scenarios that test the engine: those that the package ships as examples, and those that only the tests need."""

from tests.simulation.faulty_steps import FaultyStepsScenario
from tests.simulation.orders import OrdersScenario
from waybill.sim.scenario import Scenario
from waybill.sim.scenarios import BUILT_IN

SCENARIOS: tuple[type[Scenario], ...] = (*BUILT_IN, FaultyStepsScenario, OrdersScenario)
NAMES = {
    scenario: scenario.name if scenario in BUILT_IN else f"{scenario.__module__}:{scenario.__qualname__}"
    for scenario in SCENARIOS
}  # as `waybill sim --scenario` takes them
