"""The machines of ingest: a batch is one submission, a job one object of it, an assembly what a user asked to get back.

    batch   Pending -> Processing (its jobs are made, and done) -> Reporting -> Completed, or Failed -> UpdateReporting -> ...
    job     Pending -> Estimating -> Provisioning -> Downloading -> Processing -> (Storing ->) Recording -> Notify -> Completed
    access  Pending -> Processing -> Completed

States have the names that Merritt's services write, because they may share the tree. `tables` makes the machines as the
settings want them: with `storing`, storing is a state of its own; a state in `outside` is left to another service,
which leads the record on.

Profiles, collections and minters are records too: what holds for deposits has a history as deposits have.
"""

from __future__ import annotations

from collections.abc import Iterable

from waybill.apps.ingest.locks import lock_machine
from waybill.apps.ingest.machine.access import access_machine
from waybill.apps.ingest.machine.batch import batch_machine
from waybill.apps.ingest.machine.job import job_machine
from waybill.apps.ingest.machine.kept import kept_machine, minter_machine
from waybill.apps.ingest.profile import Collection, Profile
from waybill.apps.ingest.rebuilding import rebuild_machine
from waybill.machine import Machine

__all__ = ["tables"]


def tables(*, storing: bool = False, outside: Iterable[str] = ()) -> tuple[Machine, ...]:
    """The machines, without their steps."""
    return (
        batch_machine(), job_machine(storing, outside), access_machine("small"), access_machine("large"),
        kept_machine(Profile, "profiles", "What holds for every deposit of a kind.", secret=("callback.password",)),
        kept_machine(Collection, "collections", "Objects that belong together, and are put on hold together."),
        minter_machine(), rebuild_machine(), lock_machine(),
    )  # fmt: skip
