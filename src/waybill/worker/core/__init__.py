"""The worker's pure core: `on(event)`, then `tick() -> commands`. No I/O, no clock, no threads, no locks: shell and
simulator drive it.

The life of a task, which is one run of a step under a claim:

    Claimed -> (Looked, if a join) -> Start -> [Saving -> Commit -> Reply]* -> Ended -> Commit -> Answered -> gone, or
    the next Start

and where each part of it is decided:

    lease.py      the session under which all claims are held, and its life
    lookout.py    when to look for work, and in which queues
    pace.py       how much to claim ahead
    claims.py     what begins with a claim
    outcomes.py   what becomes of a task whose step saves or has ended
    answers.py    what the store's answer to a commit means for the task
    bench.py      what lies between them: the tasks, and what is on its way to the store and to the shell

`Core` (decisions.py) puts them together.
"""

from waybill.worker.core.decisions import Core
from waybill.worker.core.lookout import LOOK_AGAIN, LOOK_SLOWLY
from waybill.worker.core.outcomes import KEEP_SECONDS, KEEP_STATES

__all__ = ["KEEP_SECONDS", "KEEP_STATES", "LOOK_AGAIN", "LOOK_SLOWLY", "Core"]
