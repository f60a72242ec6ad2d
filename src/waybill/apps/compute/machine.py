"""The machines of compute: a job has phases, a phase has chunks of keys or reducers. No record stands for one key.

    job      Running (its phases) -> Archiving -> Done
    phase    Feeding: makes chunks of the keys that come, or its reducers, until nothing more can come -> Settled
    chunk    Ready: runs its tasks, publishes what they put out every second -> Committed
    reducer  Ready: one long task, fed while the phase before runs -> Committed

Keys, outputs and errors are in the logs of the catalogue (job_tables). A record holds a position only.
"""

from __future__ import annotations

from waybill.machine import Backoff, Document, Machine, end, join, work
from waybill.record import DocumentStruct
from waybill.step import SpawnedChildren

DAY = 86400.0
SYSTEM_TRIES = 20  # of a step, whatever the system's trouble; tasks have their own
BACKOFF = Backoff(0.5, 2, 60)


class JobDocument(DocumentStruct, frozen=True):
    account: str
    name: str
    phases: int


class PhaseDocument(DocumentStruct, frozen=True):
    job: str
    number: int
    is_reduce: bool = False
    count: int = 1


class FeedPosition(DocumentStruct, frozen=True):
    """How much of the log of its keys a phase has made chunks of."""

    segment: int = 0
    byte: int = 0  # in that segment
    keys: int = 0  # of all
    whole: bool = False


class ChunkKeys(DocumentStruct, frozen=True):
    """The keys of a chunk: some lines of an object."""

    job: str
    phase: int
    account: str
    object: str
    first: int
    count: int


class PartNote(DocumentStruct, frozen=True):
    """A published part. Its row in the log is written after it is committed here, and again by the next run."""

    object: str
    source: str
    keys: int
    tasks: int
    errors: int
    retries: int = 0


class ChunkProgress(DocumentStruct, frozen=True):
    """Which keys are done, and the last part that says what became of them."""

    done: int = 0
    count: int = -1  # what is left of the chunk after a part of it was given to another slot; -1: all
    parts: tuple[PartNote, ...] = ()


class ReducerDocument(DocumentStruct, frozen=True):
    job: str
    phase: int
    account: str
    number: int
    count: int


JOB = Machine(
    name="compute-job", plural="compute-jobs", description="Commands over objects, in phases.", made_by="POST /:account/jobs",
    steps="waybill.apps.compute.steps.job",
    states=(
        join("Running", to="Archiving", children_document="spawned", description="Its phases are at work."),
        work("Archiving", to="Done", on_fail=None, backoff=BACKOFF, description="Writes its lists as objects."),
        end("Done", keep=7 * DAY, description="Only its objects are left."),
    ),
    documents=(
        Document("job", JobDocument, "service", "Whose it is."),
        Document("spawned", SpawnedChildren, "step", "Its phases."),
    ),
)  # fmt: skip

PHASE = Machine(
    name="compute-phase", plural="compute-phases", description="One phase of a job.", parent=JOB.name, made_by="its job",
    steps="waybill.apps.compute.steps.phase",
    states=(
        join("Feeding", to="Settled", children_document="fed", description="Makes chunks of the keys that come."),
        end("Settled", description="All its tasks are done."),
    ),
    documents=(
        Document("phase", PhaseDocument, "service", "Which phase of which job."),
        Document("fed", FeedPosition, "step", "How many of its keys are in chunks."),
    ),
)  # fmt: skip

CHUNK = Machine(
    name="compute-chunk", plural="compute-chunks", prefix="chunk", description="Some hundred keys of a phase.",
    parent=PHASE.name, made_by="its phase",
    steps="waybill.apps.compute.steps.chunk",
    states=(
        work("Ready", to="Committed", on_fail=None, backoff=BACKOFF, description="Runs one task for each key."),
        end("Committed", description="What became of its keys is published."),
    ),
    documents=(
        Document("keys", ChunkKeys, "service", "Where its keys are."),
        Document("progress", ChunkProgress, "step", "Which of them are done."),
    ),
)  # fmt: skip

REDUCER = Machine(
    name="compute-reducer", plural="compute-reducers", description="One reducer of a phase.", parent=PHASE.name, made_by="its phase",
    steps="waybill.apps.compute.steps.reducer",
    states=(
        work("Ready", to="Committed", on_fail=None, backoff=BACKOFF, description="Feeds its command with what the phase before puts out."),
        end("Committed", description="Its output is published."),
    ),
    documents=(
        Document("reducer", ReducerDocument, "service", "Which reducer of which phase."),
        Document("progress", ChunkProgress, "step", "Whether it is done."),
    ),
)  # fmt: skip

MACHINES = (JOB, PHASE, CHUNK, REDUCER)
