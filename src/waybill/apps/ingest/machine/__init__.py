"""The machines of ingest. A batch is one submission, a job one object of it, an assembly an object packed for a user.

    batch   Pending -> Processing (its jobs are created, and run) -> Reporting -> Completed, or Failed -> UpdateReporting -> ...
    job     Pending -> Estimating -> Provisioning -> Downloading -> Processing -> (Storing ->) Recording -> Notify -> Completed
    access  Pending -> Processing -> Completed

States have the names that Merritt's services write, because they may share the tree. `build_tables` builds the machines
for the settings: with `storing_state`, Storing is a separate state; in a state of `external_states` another service does
the work and moves the record on.

Profiles, collections and minters are records too, so that their changes have a history as deposits have.

Each module keeps the states of its machine in one table. Code outside the tables gets the names of states from the
`StateNames` beside them: BATCH, JOB, ASSEMBLY, MANAGED, OPERATOR_LOCK.
"""

from __future__ import annotations

from collections.abc import Iterable

from waybill.apps.ingest.machine.access import build_access_machine
from waybill.apps.ingest.machine.batch import build_batch_machine
from waybill.apps.ingest.machine.job import JOB, build_job_machine
from waybill.apps.ingest.machine.managed_documents import build_managed_machine, build_minter_machine
from waybill.apps.ingest.machine.operator_lock import build_operator_lock_machine
from waybill.apps.ingest.machine.rebuild import build_rebuild_machine
from waybill.apps.ingest.profile import Collection, Profile
from waybill.machine import Machine

__all__ = ["build_tables"]


def build_tables(*, storing_state: bool = False, external_states: Iterable[str] = ()) -> tuple[Machine, ...]:
    """All machines of ingest."""
    return (
        build_batch_machine(JOB.live), build_job_machine(storing_state, external_states),
        build_access_machine("small"), build_access_machine("large"),
        build_managed_machine(Profile, "profiles", "Settings for all deposits that name it.", secret=("callback.password",)),
        build_managed_machine(Collection, "collections", "Objects that belong together, and can be put on hold together."),
        build_minter_machine(), build_rebuild_machine(), build_operator_lock_machine(),
    )  # fmt: skip
