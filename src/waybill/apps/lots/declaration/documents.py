"""The declaration of one dataset, boundary or arc: what a project file says, complete with its defaults.

These are the documents of the records `dataset`, `boundary` and `arc`. A name is `NAME` within its project; the id of a
dataset is `NAME:VERSION`, that of a boundary or an arc `PROJECT:NAME`. In texts for people and in the catalogue a dataset is
`NAME/VERSION` and an arc `PROJECT/NAME`.
"""

from __future__ import annotations

from typing import Literal

from waybill.apps.lots.units import UNITS, LotUnit
from waybill.record import DocumentStruct

TimeSource = Literal["arrival", "modified", "key"]
QuietPolicy = Literal["empty", "gap"]
EmptyPolicy = Literal["propagate", "run"]
FailurePolicy = Literal["remove", "keep"]
PartPolicy = Literal["partition", "size", "one"]
WorkloadType = Literal["command", "function", "container", "copy"]
ManifestPolicy = Literal["sink", "own"]

MINUTE, HOUR, DAY = 60.0, 3600.0, 86400.0


class DatasetDeclaration(DocumentStruct, frozen=True):
    """A dataset. `owner`: what makes its lots, "boundary ID" or "arc ID ROLE"."""

    project: str
    name: str
    version: str
    path: str  # of its objects: a name in the object store of Waybill, or a URI
    unit: str
    owner: str
    begins: str = ""  # a lot or an instant: nothing is missing before it
    keep: float | None = None  # seconds for which superseded data stay; None: for ever
    due: float = 0.0  # seconds after the end of a lot at which it is overdue; 0: never
    notify: tuple[str, ...] = ()  # mail addresses
    archive: str = ""  # its complete lots are archived in this workspace, WORKSPACE or WORKSPACE@STORAGE

    @property
    def id(self) -> str:
        return f"{self.name}:{self.version}"

    @property
    def title(self) -> str:
        return f"{self.name}/{self.version}"

    @property
    def lot_unit(self) -> LotUnit:
        return UNITS[self.unit]


class DatasetSubscribers(DocumentStruct, frozen=True):
    """The arcs that read a dataset and start when it has a new lot."""

    arcs: tuple[str, ...] = ()


class BoundaryDeclaration(DocumentStruct, frozen=True):
    """What turns arrivals into lots of a dataset."""

    project: str
    name: str
    dataset: str  # id
    unit: str
    time: TimeSource = "arrival"
    pattern: str = ""  # of `time = "key"`: a regular expression with the groups year, month, day, hour, minute
    grace: float = 0.0  # seconds after its end for which a lot stays open; what comes later is late
    quiet: QuietPolicy = "empty"
    watch: str = ""  # a folder or a prefix that is listed; "": arrivals are reported
    poll: float = 10.0  # seconds between two listings
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        return f"{self.project}:{self.name}"

    @property
    def lot_unit(self) -> LotUnit:
        return UNITS[self.unit]


class SourceDeclaration(DocumentStruct, frozen=True):
    role: str
    dataset: str  # id
    unit: str
    subscribe: bool = True

    @property
    def lot_unit(self) -> LotUnit:
        return UNITS[self.unit]


class SinkDeclaration(DocumentStruct, frozen=True):
    role: str
    dataset: str  # id


class WorkloadDeclaration(DocumentStruct, frozen=True):
    """What an arc does with a lot."""

    type: WorkloadType
    command: tuple[str, ...] = ()  # the arguments; of one word, a line for the shell
    function: str = ""  # module:name
    image: str = ""
    props: str = "{}"  # JSON: handed to the workload as it is
    environment: tuple[tuple[str, str], ...] = ()
    include: tuple[str, ...] = ()  # of a copy
    exclude: tuple[str, ...] = ()
    fail_share: float = 0.0  # of a copy: the share of objects that may fail
    network: bool = False
    memory: int = 256 * 1024 * 1024
    disk: int = 1024 * 1024 * 1024
    timeout: float = HOUR
    manifest: ManifestPolicy = "sink"


class ArcDeclaration(DocumentStruct, frozen=True):
    """What makes lots of its sinks from lots of its sources."""

    project: str
    version: str  # of the project
    name: str
    unit: str
    sources: tuple[SourceDeclaration, ...]
    sinks: tuple[SinkDeclaration, ...]
    workload: WorkloadDeclaration
    on_empty: EmptyPolicy = "propagate"
    on_failure: FailurePolicy = "remove"
    parts: PartPolicy = "one"
    part_bytes: int = 1024 * 1024 * 1024  # of `parts = "size"`
    limit: int = 1  # lots that run at once
    retries: int = 0  # of a part, by itself
    backoff: float = 10.0  # seconds before the first of them; doubled for each other
    after: float | None = None  # seconds after the end of a lot at which a roll-up starts without what is missing
    strict: bool = False  # wait for the previous lot
    begin: str = ""  # the first lot; "": the one in which it was applied
    paused: bool = False

    @property
    def id(self) -> str:
        return f"{self.project}:{self.name}"

    @property
    def title(self) -> str:
        return f"{self.project}/{self.name}"

    @property
    def lot_unit(self) -> LotUnit:
        return UNITS[self.unit]

    @property
    def subscribed(self) -> tuple[SourceDeclaration, ...]:
        return tuple(source for source in self.sources if source.subscribe)


class ProjectDeclaration(DocumentStruct, frozen=True):
    """A whole project file."""

    name: str
    version: str
    datasets: tuple[DatasetDeclaration, ...] = ()
    boundaries: tuple[BoundaryDeclaration, ...] = ()
    arcs: tuple[ArcDeclaration, ...] = ()


def title_of_dataset(id: str) -> str:
    return id.replace(":", "/")


def title_of_arc(id: str) -> str:
    return id.replace(":", "/")
