"""The machine of locks that operators set. The record owns a lock as a job does while it writes an object, so that the
two exclude each other.
"""

from __future__ import annotations

from waybill.apps.ingest.machine.state_names import StateNames
from waybill.machine import Document, LockFamily, Machine, action, end, rest, work

KIND = "operator-lock"
FAMILIES = ("localid", "storage", "inventory")  # those of jobs, in the order in which they may be acquired
KEEP_SECONDS = 30 * 86400.0


_STATES = (
    work(
        "Asking",
        to="Set",
        description="Waits until the present owner of the lock releases it.",
        on_fail=None,
        locks=FAMILIES,
    ),
    rest("Set", description="In force.", settled=True, locks=FAMILIES),
    end("Released", description="Others may go on.", keep=KEEP_SECONDS),
)
OPERATOR_LOCK = StateNames.from_states(_STATES)


def build_operator_lock_machine() -> Machine:
    return Machine(
        name=KIND,
        plural="operator locks",
        prefix="lck",
        steps="waybill.apps.ingest.steps.operator_lock",
        description="Keeps all writers from one object, or from minting for one local id.",
        made_by="POST /api/v1/ingest/locks, or by `waybill ingest lock`",
        states=_STATES,
        actions=(action("release", "Asking Set", "Released", "Let others go on.", when_claimed="wait"),),
        locks=(
            LockFamily("localid", "One at a time looks up or mints for a local id of an owner."),
            LockFamily("storage", "One writer for an object in storage."),
            LockFamily("inventory", "One writer for an object in the inventory."),
        ),
        documents=(Document("operator_lock", None, "service", "The name of the lock, and why it was set."),),
    )
