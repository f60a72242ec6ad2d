"""Publishing: a folder that was made whole in the attempt's own place becomes the job's.

A late worker may do the same at the same time, so each takes a lock, and looks whether it is still in charge; what
either puts there is whole. Later states compare every file with what the record says, so the folder of a worker that
lost does no harm.
"""

from __future__ import annotations

import fcntl
import os
import shutil

from waybill.step import Context
from waybill.worker.folders import NAME


def publish(ctx: Context, name: str) -> None:
    """`workdir/name` becomes `folder/name`; an older one goes. Safe to repeat: each attempt makes its own, and the
    last is as good.
    """
    made, place, replaced = ctx.workdir / name, ctx.folder / name, ctx.workdir / f"{name}.replaced"
    with open(ctx.folder / NAME, "rb", buffering=0) as lock:  # any file that is there would do
        fcntl.flock(lock, fcntl.LOCK_EX)
        ctx.check()
        try:
            os.rename(place, replaced)
        except FileNotFoundError:
            first = True
        else:
            first = False
        os.rename(made, place)
    if not first:
        shutil.rmtree(replaced)
