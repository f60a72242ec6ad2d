"""The simulator: the real engine, worker, duties and stores in a world that one seed decides, with everything that
can go wrong.

    fibers      threads that run one at a time, and the virtual clock
    process     simulated processes, and the real worker in one of them
    wire        what happens to a call on its way to the store and back
    faults      which accidents a seed has
    people      who submits and who acts meanwhile
    world       side effects, files of hosts, points where anything may happen
    ledger      the invariants, checked with every answer
    audit       the end: is all quiet, and does the store tell the same story
    scenario    what is simulated: machines, steps, submissions, invariants of their own
    simulation  one seed          run  many seeds          command  `waybill sim`

It needs the package greenlet (`waybill[sim]`). `docs/concepts/simulator.md` says what it can find and how to write a
scenario.
"""

from waybill.sim.command import main_sim

__all__ = ["main_sim"]
