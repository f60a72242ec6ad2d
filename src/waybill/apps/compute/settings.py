"""The settings of compute: the table [app.compute] of the settings file, checked when a process starts.

[app.compute]
memory = "8G"            # of the host, for tasks
slots = 4                # tasks at once on this host; 0: one for each core
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec

from waybill.errors import InputError

DAY = 86400.0
GIGABYTE = 2**30

Natural = Annotated[int, msgspec.Meta(ge=0)]
Positive = Annotated[int, msgspec.Meta(ge=1)]
Seconds = Annotated[float, msgspec.Meta(ge=0)]


class ComputeSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    # tasks that run at once on a host, beside the one kept for jobs that have none running; 0: one for each core
    slots: Natural = 0
    reducers: Positive = 8  # reducers that run at once on a host
    memory: Natural = 0  # bytes of the host that tasks may reserve; 0: three quarters of its memory
    # bytes of the host's disk that tasks may reserve; 0: half of what is free when the worker starts
    disk: Natural = 0
    max_wall: Seconds = 7 * DAY  # seconds after which a task is killed
    max_output: Positive = 64 * GIGABYTE  # bytes of the standard output of one task
    # the scheduler of a Dask cluster, tcp://HOST:PORT, whose workers run the tasks of map phases; empty: this host runs them
    dask: str = ""
    input_idle: Seconds = 3600.0  # seconds without new input after which the input of a job is ended
    keep_jobs: Seconds = 7 * DAY  # seconds for which the record of a done job is kept; its files stay
    garbage_seconds: Seconds = 300.0  # seconds for which bytes are kept that no entry names any more
    live_records: Positive = 1000  # the latest keys of a running job that are shown


def read(table: Mapping[str, Any]) -> ComputeSettings:
    try:
        return msgspec.convert(dict(table), ComputeSettings)
    except msgspec.ValidationError as error:
        raise InputError(f"The settings [app.compute] cannot be used: {error}", code="bad-config") from None
