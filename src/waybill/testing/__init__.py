"""For the tests of an application: run its steps, crash them at every call, and walk its machines.

    step_tester   `StepTester`: an application on the model store, with a clock that the test moves; runs one step, or
                  steps until a record is in a state
    crashes       `StepTester.crash_at_every_call`: the same steps, once for each call that they make, with a crash there
    walks         `walk_machines`: random outcomes, actions, holds and lost sessions; nothing may happen that the machines
                  do not declare

    def test_a_loaf_is_baked(tmp_path):
        tester = StepTester(BAKERY, tmp_path)
        loaf = tester.submit("loaf", {"dough": {"flour": "rye"}})
        assert tester.step(loaf).after == "Baked"

Nothing here runs in another thread or process, sleeps, or uses a network. A driver for another store or object storage
is tested by `waybill.stores.conformance` and `waybill.objects.conformance`; whole systems by `waybill.sim`.
"""

from waybill.testing.crashes import SimulatedCrash
from waybill.testing.step_tester import StepTester
from waybill.testing.walks import MachineWalk, walk_machines

__all__ = ["MachineWalk", "SimulatedCrash", "StepTester", "walk_machines"]
