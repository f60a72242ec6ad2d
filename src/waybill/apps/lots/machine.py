"""The machines of lots.

    dataset    Active -> Ended                      a place with an owner; it knows which arcs read it
    boundary   Watching -> Ended                    closes each interval and publishes its lot
    arc        Active -> Ended                      how lots are made from lots
    arc-run    Waiting -> Running -> Complete       one lot of one generation through one arc
                          Running -> Partial -> Retrying -> Running
                                     Partial -> Cleaning -> Missing -> Retrying
    arc-part   Working -> Complete or Partial       one part of a run
    backfill   Feeding -> Done or Cancelled         starts runs of a range, some at a time

From outside a run shows one of four states (running, complete, partial, missing): a waiting one has none, a retrying one is
running, one that is being cleaned is partial. What a run came to stays in the catalogue when its record is removed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

import msgspec

from waybill.apps.lots.declaration.documents import (
    ArcDeclaration,
    BoundaryDeclaration,
    DatasetDeclaration,
    DatasetSubscribers,
)
from waybill.apps.lots.units import Lot, parse_instant
from waybill.errors import ActionRefused, InputError
from waybill.machine import STAY, Backoff, Document, LockFamily, Machine, action, end, join, rest, work
from waybill.record import Documents, DocumentStruct, Record
from waybill.step import SpawnedChildren

T = TypeVar("T", bound=msgspec.Struct)
DAY = 86400.0
SYSTEM_BACKOFF = Backoff(0.5, 2, 60)  # after trouble of the system; a workload that fails has the arc's own
SYSTEM_TRIES = 20
LIVE_PRIORITY = 5
BACKFILL_PRIORITY = 50
MAX_ATTEMPTS_KEPT = 20  # of one part, in its document


# --- documents


class ArcStart(DocumentStruct, frozen=True):
    """From which lot on an arc is started by what arrives; earlier lots are backfilled. A lot or an instant."""

    begin: str


class BoundaryPosition(DocumentStruct, frozen=True):
    """How far a boundary has come. Minutes since the beginning of year 1; -1: nothing yet."""

    open_since: str  # since when it takes arrivals without a break
    closed: int = -1  # the first lot that is not closed yet
    listed: float = 0.0  # when the last complete listing began
    doubtful: int = (
        -1
    )  # up to here a silent interval proves nothing, because objects of unknown time were found after it
    late: tuple[int, ...] = ()  # closed lots that are being published again


class RunDocument(DocumentStruct, frozen=True):
    """Which lot of which arc a run is of."""

    arc: str  # id
    lot: str
    generation: int
    limit: int = 1
    reason: str = ""  # why it runs, if not because its sources were published: "backfill NAME"

    @property
    def parsed_lot(self) -> Lot:
        return Lot.parse(self.lot)


class RunSources(DocumentStruct, frozen=True):
    """What a run reads, fixed when it begins: "ROLE LOT" -> [generation, manifest]."""

    read: tuple[tuple[str, str, int, str], ...] = ()  # role, lot, generation, manifest
    absent: tuple[str, ...] = ()  # "NAME/VERSION LOT" that was not there when a roll-up started without it
    workload: str = ""  # the digest of the workload that its parts run


class PartDocument(DocumentStruct, frozen=True):
    """What a part works on: the manifests, one for each role, that hold its entries."""

    arc: str
    lot: str
    generation: int
    number: int
    partition: str
    inputs: tuple[tuple[str, str], ...]  # role, manifest
    workload: str  # the digest of workload and parameters that it was made for
    count: int = 0
    bytes: int = 0


class SinkPart(DocumentStruct, frozen=True):
    """What an attempt left in one sink."""

    role: str
    prefix: str  # URI of the attempt's own folder
    manifest: str = ""  # the name of its manifest
    sha256: str = ""
    count: int = 0
    bytes: int = 0


class PartAttempt(DocumentStruct, frozen=True):
    """One attempt of a part, written before it begins to write anything."""

    id: str
    state: str  # running, complete, partial, removed
    workload: str
    sinks: tuple[SinkPart, ...]
    began: float
    ended: float = 0.0
    host: str = ""
    exit_code: int | None = None
    message: str = ""
    stdout: str = ""  # the names of objects
    stderr: str = ""


class PartAttempts(DocumentStruct, frozen=True):
    """The attempts of a part, the last one last; of many, the first are forgotten once their data are gone."""

    attempts: tuple[PartAttempt, ...] = ()
    failures: int = 0  # since it was last begun or retried by hand

    @property
    def last(self) -> PartAttempt | None:
        return self.attempts[-1] if self.attempts else None


class BackfillRequest(DocumentStruct, frozen=True):
    """Which lots of an arc run again."""

    arc: str
    first: str
    after: str
    which: str  # missing, failed, stale, all
    reason: str = ""
    at_once: int = 10
    a_minute: int = 0  # 0: no limit


class BackfillProgress(DocumentStruct, frozen=True):
    """How far a backfill is. `next`: the minute of the next lot that it looks at."""

    next: int
    started: int = 0
    looked: int = 0
    failed: int = 0
    window: float = 0.0  # when the present minute of the limit began
    in_window: int = 0
    open: tuple[str, ...] = ()  # the runs that it started and that have not ended


# --- functions of the tables


def _read_declaration(args: Mapping[str, Any], type: type[T]) -> T:
    """Only `waybill lots apply` has what these actions need."""
    try:
        return msgspec.convert(args.get("declaration"), type)
    except msgspec.ValidationError as error:
        raise ActionRefused(f"That is no declaration: {error}. `waybill lots apply FILE` takes this action.") from None


def _read_start(args: Mapping[str, Any]) -> str:
    started = args.get("started")
    try:
        parse_instant(started if isinstance(started, str) else "")
    except InputError as error:
        raise ActionRefused(f"{error} `waybill lots apply FILE` takes this action.") from None
    return str(started)


def _write_declaration(record: Record, args: Mapping[str, Any]) -> Documents:
    return (_read_declaration(args, _DECLARATIONS[record.kind]),)


def _begin_boundary(record: Record, args: Mapping[str, Any]) -> Documents:
    """What arrived while it was ended is nobody's: it is open from now on."""
    position = record.find_document(BoundaryPosition)
    closed = position.closed if position is not None else -1
    return (*_write_declaration(record, args), BoundaryPosition(open_since=_read_start(args), closed=closed))


def _begin_arc(record: Record, args: Mapping[str, Any]) -> Documents:
    declaration = _read_declaration(args, ArcDeclaration)
    return (declaration, ArcStart(declaration.begin or _read_start(args)))


def _write_subscribers(record: Record, args: Mapping[str, Any]) -> Documents:
    arcs = args.get("arcs")
    if not isinstance(arcs, list) or not all(isinstance(each, str) for each in arcs):
        raise ActionRefused('Name the arcs that read it: {"arcs": [...]}. `waybill lots apply FILE` takes this action.')
    return (DatasetSubscribers(tuple(arcs)),)


def _lot_lock_of(run: Record) -> Iterable[str]:
    about = run.document(RunDocument)
    return (f"{about.arc}/{about.lot}",)


def _arc_lock_of(run: Record) -> Iterable[str]:
    return (run.document(RunDocument).arc,)


def _limit_of(run: Record) -> int:
    return max(1, run.document(RunDocument).limit)


def arc_hold_of(arc: str) -> str:
    """The hold that pauses an arc: its runs stay in Waiting."""
    return f"arc/{arc}"


def _hold_names_of_run(run: Record) -> Iterable[str]:
    return (arc_hold_of(run.document(RunDocument).arc),)


def _reset_failures(part: Record, args: Mapping[str, Any]) -> Documents:
    attempts = part.find_document(PartAttempts) or PartAttempts()
    return (msgspec.structs.replace(attempts, failures=0),)


_CHANGE = "Declare it anew."
_BEGIN = "A project declares it again."
_END = "No project declares it any more."
_FORGOTTEN = end("Forgotten", keep=DAY, description="To be removed; its lots and runs stay in the catalogue.")
_FORGET = action("forget", "Ended", "Forgotten", "Remove the record.", confirm="Its history is removed with it.")

DATASET = Machine(
    name="dataset", plural="datasets", description="A dataset, which grows lot by lot.", made_by="waybill lots apply",
    states=(
        rest("Active", description="Its owner makes lots of it."),
        rest("Ended", description="No project declares it any more; its lots stay.", settled=True),
        _FORGOTTEN,
    ),
    actions=(
        action("change", "Active", STAY, _CHANGE, writes=_write_declaration),
        action("subscribe", "Active", STAY, "Say which arcs read it.", writes=_write_subscribers),
        action("end", "Active", "Ended", _END, confirm="Nothing makes lots of it any more."),
        action("begin", "Ended", "Active", _BEGIN, writes=_write_declaration),
        _FORGET,
    ),
    documents=(
        Document("dataset", DatasetDeclaration, "service", "What its project says of it."),
        Document("subscribers", DatasetSubscribers, "service", "The arcs that read it."),
    ),
)  # fmt: skip

BOUNDARY = Machine(
    name="boundary", plural="boundaries", description="Turns what arrives into lots of a dataset.", made_by="waybill lots apply",
    steps="waybill.apps.lots.steps.boundary",
    states=(
        work("Watching", to="Ended", on_fail=None, backoff=SYSTEM_BACKOFF, description="Closes each interval and publishes its lot."),
        rest("Ended", description="Takes nothing any more.", settled=True),
        _FORGOTTEN,
    ),
    actions=(
        action("change", "Watching", STAY, _CHANGE, writes=_write_declaration, when_claimed="wait"),
        action("end", "Watching", "Ended", _END, confirm="What arrives from now on is in no lot.", when_claimed="wait"),
        action("begin", "Ended", "Watching", _BEGIN, writes=_begin_boundary),
        _FORGET,
    ),
    documents=(
        Document("boundary", BoundaryDeclaration, "service", "What its project says of it."),
        Document("position", BoundaryPosition, "step", "How far it has come."),
    ),
)  # fmt: skip

ARC = Machine(
    name="arc", plural="arcs", description="Makes lots of its sinks from lots of its sources.", made_by="waybill lots apply",
    states=(
        rest("Active", description="Starts when its sources have a new lot."),
        rest("Ended", description="No project declares it any more; what it made stays.", settled=True),
        _FORGOTTEN,
    ),
    actions=(
        action("change", "Active", STAY, _CHANGE, writes=_write_declaration),
        action("end", "Active", "Ended", _END, confirm="Its waiting runs are given up."),
        action("begin", "Ended", "Active", _BEGIN, writes=_begin_arc),
        _FORGET,
    ),
    documents=(
        Document("arc", ArcDeclaration, "service", "What its project says of it."),
        Document("start", ArcStart, "service", "From which lot on it runs by itself."),
    ),
)  # fmt: skip

RUN = Machine(
    name="arc-run", plural="arc-runs", description="One lot of one generation through one arc.",
    made_by="the publication of a lot of its sources",
    steps="waybill.apps.lots.steps.arc_run",
    hold_names=_hold_names_of_run,
    hold_prefixes=(arc_hold_of(""),),
    states=(
        work("Waiting", to="Running", or_to=("Superseded",), on_fail=None, backoff=SYSTEM_BACKOFF, blocks_on_hold=True,
             description="Until every source has its lot, and the arc may run it."),
        join("Running", to="Complete", or_to=("Partial", "Superseded"), locks=("arc-lot", "arc-slot"), children_document="spawned",
             description="Its parts are at work; then its lots are published."),
        work("Retrying", to="Running", or_to=("Superseded",), on_fail="Partial", max_tries=SYSTEM_TRIES, backoff=SYSTEM_BACKOFF,
             locks=("arc-lot", "arc-slot"), description="Removes what failed parts had written, and takes them up again."),
        rest("Partial", description="A part failed; what it wrote is listed, and what others made stands.", settled=True),
        work("Cleaning", to="Missing", on_fail="Partial", max_tries=SYSTEM_TRIES, backoff=SYSTEM_BACKOFF, locks=("arc-lot",),
             description="Removes all that was written, and marks its manifests."),
        rest("Missing", description="A gap that is known: nothing of it is there.", settled=True),
        end("Complete", keep=7 * DAY, description="Its lots are published."),
        end("Superseded", keep=DAY, description="A later run of the same lot has taken its place."),
    ),
    actions=(
        action("retry", "Partial Missing", "Retrying", "Run what failed again, and only that."),
        action("clean", "Partial", "Cleaning", "Remove what it left.", confirm="What its good parts made is removed too."),
    ),
    locks=(
        LockFamily("arc-lot", "A lot is in one run of an arc at a time.", names_of=_lot_lock_of),
        LockFamily("arc-slot", "An arc runs so many lots at once.", names_of=_arc_lock_of, limit_of=_limit_of),
    ),
    documents=(
        Document("run", RunDocument, "step", "Which lot of which arc."),
        Document("sources", RunSources, "step", "What it reads."),
        Document("spawned", SpawnedChildren, "step", "How many parts it has."),
    ),
)  # fmt: skip

PART = Machine(
    name="arc-part", plural="arc-parts", description="One part of a run.", parent=RUN.name, made_by="its run",
    steps="waybill.apps.lots.steps.arc_part",
    states=(
        work("Working", to="Complete", or_to=("Partial",), on_fail="Partial", max_tries=SYSTEM_TRIES, backoff=SYSTEM_BACKOFF,
             description="Runs the workload into a folder of its own."),
        rest("Partial", description="It failed; what it wrote is listed.", settled=True),
        rest("Complete", description="What it made is listed in its manifest.", settled=True),
        end("Discarded", description="Given up: its run can only be cleaned."),
    ),
    actions=(
        action("retry", "Partial Complete", "Working", "Run it again.", writes=_reset_failures),
        action("discard", "Partial", "Discarded", "Give it up.", confirm="Its run can then only be cleaned."),
    ),
    documents=(
        Document("part", PartDocument, "service", "What it works on."),
        Document("attempts", PartAttempts, "step", "Its attempts, and what they wrote."),
    ),
)  # fmt: skip

BACKFILL = Machine(
    name="backfill", plural="backfills", prefix="backfill", description="Runs a range of lots of an arc, some at a time.",
    made_by="waybill lots backfill, replay",
    steps="waybill.apps.lots.steps.backfill",
    states=(
        work("Feeding", to="Done", on_fail=None, backoff=SYSTEM_BACKOFF, poll_interval=5.0, description="Starts runs as others end."),
        rest("Paused", description="Starts no more runs; those that were started go on."),
        end("Done", keep=30 * DAY, description="All its lots were run."),
        end("Cancelled", keep=30 * DAY, description="An operator ended it; the lots that it had started went on."),
    ),
    actions=(
        action("pause", "Feeding", "Paused", "Start no more runs.", when_claimed="wait"),
        action("resume", "Paused", "Feeding", "Go on."),
        action("cancel", "Feeding Paused", "Cancelled", "Start no more runs, for good.", when_claimed="wait"),
    ),
    documents=(
        Document("request", BackfillRequest, "service", "Which lots."),
        Document("progress", BackfillProgress, "step", "How far it is."),
    ),
)  # fmt: skip

_DECLARATIONS: dict[str, type[msgspec.Struct]] = {
    DATASET.name: DatasetDeclaration,
    BOUNDARY.name: BoundaryDeclaration,
    ARC.name: ArcDeclaration,
}
MACHINES = (DATASET, BOUNDARY, ARC, RUN, PART, BACKFILL)


def run_id_of(arc: str, lot: Lot, generation: int) -> str:
    """The name of the one record of a lot of an arc in a generation."""
    return f"{arc}:{lot}:g{generation}"
