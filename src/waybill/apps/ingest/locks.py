"""The machine of locks that operators set: a record holds a key as a job does while it writes, so that the two keep
each other out.
"""

from __future__ import annotations

from waybill.machine import Document, Keys, Machine, action, end, rest, work

KIND = "lock"
FAMILIES = ("localid", "storage", "inventory")  # those of jobs, in the order in which they may be taken
KEEP = 30 * 86400.0


def lock_machine() -> Machine:
    return Machine(
        name=KIND,
        plural="locks",
        prefix="lck",
        doc="An operator keeps everybody from writing one object, or from minting for one local id.",
        made_by="POST /api/v1/ingest/locks, or by `waybill ingest lock`",
        states=(
            work(
                "Asking", "Set", "Waits until whoever holds the key now has let go of it.", fails=None, needs=FAMILIES
            ),
            rest("Set", "In force.", settled=True, needs=FAMILIES),
            end("Released", "Others may go on.", keep=KEEP),
        ),
        actions=(action("release", "Asking Set", "Released", "Let others go on.", claimed="wait"),),
        keys=(
            Keys("localid", "One at a time looks up or mints for a local id of an owner."),
            Keys("storage", "One writer for an object in storage."),
            Keys("inventory", "One writer for an object in the inventory."),
        ),
        documents=(Document("lock", "service", "The key, and why it is locked."),),
    )
