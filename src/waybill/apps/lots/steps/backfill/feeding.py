"""Feeding: starts the runs of a range, so many at once and so many a minute, in the order of the lots.

Each start and the place behind it are one commit: a crash starts nothing twice, and leaves nothing out. A run that failed is
counted, and the next one starts.
"""

from __future__ import annotations

from datetime import UTC, datetime

from msgspec.structs import replace

from waybill.apps.lots.backfills import BackfillLot, check_which, iter_chosen
from waybill.apps.lots.catalogue import LotTables
from waybill.apps.lots.declaration.documents import ArcDeclaration
from waybill.apps.lots.machine import BACKFILL_PRIORITY, RUN, BackfillProgress, BackfillRequest, run_id_of
from waybill.apps.lots.publishing import find_arc, prepare_run
from waybill.apps.lots.resources import resources_of
from waybill.apps.lots.units import Lot, format_instant
from waybill.errors import ActionRefused
from waybill.record import Record, RecordNotFound, Ref
from waybill.step import Act, Done, Outcome, StepContext, Wait

POLL = 2.0  # seconds between two looks at the runs that it started
STARTS_OF_STEP = 50
ENDED = ("complete", "partial", "missing")


def run_step(backfill: Record, ctx: StepContext) -> Outcome:
    request = backfill.document(BackfillRequest)
    found = find_arc(ctx.get, request.arc)
    if found is None:
        return Done(message="Its arc has ended.")
    with resources_of(ctx).open_catalogue() as tables:
        return _Feeder(ctx, tables, found[0], request, backfill.document(BackfillProgress)).run()


class _Feeder:
    def __init__(
        self,
        ctx: StepContext,
        tables: LotTables,
        arc: ArcDeclaration,
        request: BackfillRequest,
        progress: BackfillProgress,
    ) -> None:
        self._ctx, self._tables, self._arc, self._request, self._progress = ctx, tables, arc, request, progress
        self._after = Lot.parse(request.after)
        self._at = format_instant(datetime.fromtimestamp(ctx.now(), UTC))

    def run(self) -> Outcome:
        self._look_at_open()
        if (room := self._find_room()) > 0:
            self._start(room)
        progress = self._progress
        if progress.next >= self._after.minute and not progress.open:
            return Done((progress,), message=f"{progress.started} lots ran, {progress.failed} of them failed.")
        message = f"{progress.started} lots started, {len(progress.open)} are running, {progress.failed} failed."
        return Wait(POLL, message, (progress,))

    def _look_at_open(self) -> None:
        """Forget the runs that have ended: complete, failed, or another has taken their place."""
        still, failed = [], 0
        for name in self._progress.open:
            lot_name, _, generation = name.partition(" ")
            row = self._tables.find_run(self._arc.id, Lot.parse(lot_name), int(generation))
            if row is not None and row.state not in ENDED and self._is_open(name):
                still.append(name)
            elif row is not None and row.state == "partial":
                failed += 1
        self._progress = replace(self._progress, open=tuple(still), failed=self._progress.failed + failed)

    def _is_open(self, name: str) -> bool:
        lot_name, _, generation = name.partition(" ")
        try:
            return self._ctx.get(RUN.name, run_id_of(self._arc.id, Lot.parse(lot_name), int(generation))).open
        except RecordNotFound:
            return False

    def _find_room(self) -> int:
        progress, now = self._progress, self._ctx.now()
        if now - progress.window >= 60:
            self._progress = progress = replace(progress, window=now, in_window=0)
        room = min(STARTS_OF_STEP, self._request.at_once - len(progress.open))
        return min(room, self._request.a_minute - progress.in_window) if self._request.a_minute else room

    def _start(self, room: int) -> None:
        first = Lot(self._after.unit, self._progress.next)
        if first.minute >= self._after.minute:
            return
        chosen = iter_chosen(self._tables, self._arc, first, self._after, check_which(self._request.which))
        for each in chosen:
            if not each.blocked:
                self._start_one(each)
                room -= 1
            if room <= 0:
                self._progress = replace(self._progress, next=each.lot.next.minute)
                return
        self._progress = replace(self._progress, next=self._after.minute)

    def _start_one(self, each: BackfillLot) -> None:
        self._ctx.check()
        row = self._tables.find_run(self._arc.id, each.lot)
        progress = self._progress
        behind = replace(
            progress, next=each.lot.next.minute, started=progress.started + 1, in_window=progress.in_window + 1
        )
        if row is not None and row.state in ("partial", "missing"):
            note = f"{each.lot} {row.generation}"
            behind = replace(behind, open=(*progress.open, note))
            ref = Ref(RUN.name, run_id_of(self._arc.id, each.lot, row.generation))
            try:
                self._ctx.save((behind,), acts=(Act(ref, "retry", {}, f"backfill {self._ctx.record.id}"),))
            except (ActionRefused, RecordNotFound):
                behind = replace(progress, next=each.lot.next.minute)  # somebody else has taken it up
            self._progress = behind
            return
        new, generation = prepare_run(
            self._tables, self._arc, each.lot, at=self._at, is_replay=row is not None and row.state == "complete",
            priority=BACKFILL_PRIORITY, reason=f"backfill {self._ctx.record.id}",
        )  # fmt: skip
        if new is None:
            self._progress = replace(progress, next=each.lot.next.minute)
            return
        self._progress = replace(behind, open=(*progress.open, f"{each.lot} {generation}"))
        self._ctx.spawn([new], (self._progress,))
