"""Watching: closes the intervals that are over, in order, and publishes their lots; then those to which late data came.

    list what is there, if it watches a folder or a bucket
    for each interval that is over, some at a time: publish its lot, and start the runs of all of them in one commit
    the same for lots that are closed already and have new arrivals: a new generation

Everything may run twice: a lot is published once for each generation, and a run has one name.
"""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import islice

from msgspec.structs import replace

from waybill.apps.lots.arrivals import list_arrivals
from waybill.apps.lots.boundary_lots import (
    DueLot,
    find_first_lot,
    is_silence_certain,
    iter_due_lots,
    publish_arrivals,
    seconds_to_close,
)
from waybill.apps.lots.catalogue import LotTables
from waybill.apps.lots.declaration.documents import BoundaryDeclaration, DatasetDeclaration
from waybill.apps.lots.lot_events import make_lot_event
from waybill.apps.lots.machine import BoundaryPosition
from waybill.apps.lots.publishing import find_starts, read_dataset
from waybill.apps.lots.resources import LotsResources, resources_of
from waybill.apps.lots.units import Lot, format_instant
from waybill.record import Record
from waybill.step import Outcome, StepContext, Wait

PAGE_SIZE = 50  # lots that are published before a commit
MAX_WAIT = 60.0  # seconds; a declaration that changes wakes it, and a clock that jumps is seen


def run_step(boundary: Record, ctx: StepContext) -> Outcome:
    resources, declared = resources_of(ctx), boundary.document(BoundaryDeclaration)
    dataset = read_dataset(ctx.get, declared.dataset).document(DatasetDeclaration)
    with resources.open_catalogue() as tables:
        return _BoundaryRound(ctx, resources, tables, declared, dataset, boundary.document(BoundaryPosition)).run()


class _BoundaryRound:
    """One run of the step."""

    def __init__(self, ctx: StepContext, resources: LotsResources, tables: LotTables, boundary: BoundaryDeclaration,
                 dataset: DatasetDeclaration, position: BoundaryPosition) -> None:  # fmt: skip
        self._ctx, self._resources, self._tables = ctx, resources, tables
        self._boundary, self._dataset, self._position = boundary, dataset, position
        # what was stamped before the end of a lot may be written a moment after it
        self._margin = resources.settings.margin if boundary.time == "arrival" and not boundary.watch else 0.0

    def run(self) -> Outcome:
        if self._boundary.watch:
            self._list()
        count = 0
        while due := list(islice(iter_due_lots(self._boundary, self._position, self._now(), self._margin), PAGE_SIZE)):
            count += self._publish(due, closed=due[-1].next.minute)
        first_open = find_first_lot(self._boundary, self._position)
        while late := self._list_late(first_open):
            count += self._publish(late, closed=self._position.closed)
        seconds = min(MAX_WAIT, seconds_to_close(self._boundary, first_open, self._now(), self._margin))
        if self._boundary.watch:
            seconds = min(seconds, self._boundary.poll)
        return Wait(max(0.05, seconds), f"{count} lots published" if count else "", (self._position,))

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self._ctx.now(), UTC)

    def _list(self) -> None:
        """A listing that fails proves nothing: the step fails, and no interval is closed."""
        now = self._now()
        since = datetime.fromtimestamp(self._position.listed, UTC) if self._position.listed else None
        listed = list_arrivals(
            self._tables, self._resources.locations, self._dataset, self._boundary, since=since, now=now
        )
        doubtful = (
            Lot.at(now, self._boundary.lot_unit).minute
            if listed.has_doubtful and since is not None
            else self._position.doubtful
        )
        self._position = replace(self._position, listed=now.timestamp(), doubtful=doubtful)

    def _list_late(self, first_open: Lot) -> list[Lot]:
        """Return closed lots to which something came. They are noted before they are published: once they are, nothing tells
        any more that their runs are still to be started.
        """
        unit = self._boundary.lot_unit
        if not self._position.late:
            found = self._tables.list_lots_with_new_arrivals(self._dataset.id, unit)
            late = tuple(lot.minute for lot in found if lot.minute < first_open.minute)[:PAGE_SIZE]
            if not late:
                return []
            self._position = replace(self._position, late=late)
            self._ctx.save((self._position,))
        return [Lot(unit, minute) for minute in self._position.late]

    def _publish(self, lots: list[Lot], *, closed: int) -> int:
        """Publish some lots; one commit has where the boundary has come to, and all that starts."""
        self._ctx.check()
        at = format_instant(self._now())
        due = [DueLot(lot, is_silence_certain(self._boundary, self._position, lot)) for lot in lots]
        published = publish_arrivals(self._resources.objects, self._tables, self._dataset, self._boundary, due, at=at)
        self._position = replace(self._position, closed=max(closed, self._position.closed), late=())
        starts = find_starts(self._ctx.get, self._tables, self._dataset.id, (each.lot for each in published), at=at)
        events = [make_lot_event(self._resources, each) for each in published]
        # Safe to repeat: a run that exists is the run, and the events are in the commit that moves the position.
        self._ctx.save((self._position,), spawn=starts.runs, wakes=starts.wakes, events=events)
        return len(published)
