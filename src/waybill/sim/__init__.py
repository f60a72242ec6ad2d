"""The simulator: the real engine, worker, maintenance and stores in a simulated world, with all faults drawn from one
seed.

    fibers                  threads that run one at a time, and the virtual clock
    process                 simulated processes, and the real worker in one of them
    cluster                 all processes on their hosts: started, ended and replaced
    fault_injecting_store   faults of a call on its way to the store and back; fault_injecting_reads is its read half
    faults                  which faults a seed has
    simulated_clients       who submits and who acts meanwhile
    simulated_maintenance   the maintenance routines, at a pace that fits virtual time
    world                   side effects, files of hosts, points where a fault may be injected
    memory_objects          object storage in memory
    backends                the stores that are simulated
    invariant_checker       the invariants, checked with every answer of the store
    audit                   the end: has everything settled, and does the store agree with the invariant checker
    trace                   one line for everything that happened
    scenario                what is simulated: machines, steps, submissions, invariants of their own
    simulation              one seed
    seed_runs               many seeds
    command                 `waybill sim`

It needs the package greenlet (`waybill-engine[sim]`). `docs/concepts/simulator.md` says what it can find and how to write a
scenario.
"""

from waybill.sim.command import run_sim_command

__all__ = ["run_sim_command"]
