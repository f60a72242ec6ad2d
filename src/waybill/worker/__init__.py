"""Workers claim records, run their steps and commit the outcomes.

core/                   the decisions: pure, no I/O, no clock, no threads
messages.py             what the core receives (messages) and returns (commands)
worker.py               the owner thread: drives the core and carries out its commands
store_commands.py       the commands that are calls of the store
step_threads.py         the threads that run steps; step_context.py is what a step receives
working_folders.py      the files of steps on this host
worker_group.py         several workers in one process
single_step_worker.py   one step, then exit
"""

from waybill.worker.core.worker_settings import queues_of
from waybill.worker.single_step_worker import StepTransition, run_one_step
from waybill.worker.worker import Worker
from waybill.worker.working_folders import clear_folder, iterate_folders

__all__ = ["StepTransition", "Worker", "clear_folder", "iterate_folders", "queues_of", "run_one_step"]
