"""Workers: a pure core (core/), the messages it speaks, the shell that carries them out (shell.py), and its crew
(crew.py).
"""

from waybill.worker.folders import clear_folder
from waybill.worker.once import Arrow, step_once
from waybill.worker.roles import roles_of
from waybill.worker.shell import Worker

__all__ = ["Arrow", "Worker", "clear_folder", "roles_of", "step_once"]
