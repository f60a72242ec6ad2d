"""An intake: objects of another application on their way into a migration.

    Gathering -> Submitted

The objects are copied into a folder, each compared with the size and digest that its application says, and a MIGRATE of that
folder is made: it stores the copies, and removes them when they have been read back from the storage. The objects themselves
stay where they are.
"""

from __future__ import annotations

from waybill.apps.archive.machine.request import BACKOFF, KEEP
from waybill.machine import Document, Machine, end, work
from waybill.record import DocumentStruct

MAX_TRIES = 50  # about half a day: an object store or a storage that is away comes back


class IntakeDocument(DocumentStruct, frozen=True):
    """What is to be archived, and where."""

    origin: str  # the key of the thing, as `waybill trace` has it
    version: int  # of an object, or the generation of a lot
    workspace: str
    storage: str = ""
    label: str = ""


class IntakeResult(DocumentStruct, frozen=True):
    """What became of it."""

    migration: int
    request: str
    files: int
    bytes: int


INTAKE = Machine(
    name="archive-intake", plural="archive-intakes", prefix="take",
    description="Objects of another application on their way into a migration.", made_by="an event of that application",
    steps="waybill.apps.archive.steps.intake",
    states=(
        work("Gathering", to="Submitted", max_tries=MAX_TRIES, backoff=BACKOFF,
             description="Copies the objects into a folder, and makes the MIGRATE that stores and then removes the copies."),
        end("Submitted", keep=KEEP, description="Its migration is made; that says what becomes of it."),
    ),
    documents=(
        Document("intake", IntakeDocument, "service", "What is archived, and where."),
        Document("result", IntakeResult, "step", "Which migration it became."),
    ),
)  # fmt: skip
