"""The worker's pure core: `receive(message)`, then `tick() -> commands`. No I/O, no clock, no threads, no locks: the
worker and the simulator drive it.

The life of a `StepRun`, which is one run of a step under a claim:

    RecordsClaimed -> (ChildrenChecked, if a join) -> StartSteps -> [SaveRequested -> Commit -> Reply]* -> StepEnded ->
    Commit -> CommitAnswered -> forgotten, or the next StartSteps

and where each part of it is decided:

    lease.py                   the session under which all claims are made, and its life
    polling.py                 when to look for work, and in which queues
    claim_sizing.py            how much to claim ahead
    claim_handler.py           what follows a claim
    outcome_handler.py         what is committed when a step saves or ends
    commit_answer_handler.py   what the store's answer to a commit means for the step run
    step_runs.py               what they share: the step runs, and what is on its way to the store and to the worker
    worker_settings.py         the machines, name, host and queues of the worker

`WorkerCore` (worker_core.py) puts them together.
"""

from waybill.worker.core.outcome_handler import MAX_CLAIM_SECONDS, MAX_STATES_PER_CLAIM
from waybill.worker.core.polling import POLL_SECONDS, RECHECK_SECONDS
from waybill.worker.core.worker_core import WorkerCore

__all__ = ["MAX_CLAIM_SECONDS", "MAX_STATES_PER_CLAIM", "POLL_SECONDS", "RECHECK_SECONDS", "WorkerCore"]
