"""What is done for lots without anybody asking.

lots-overdue      tells of lots that were due and are not there, once, and again when they are
lots-starts       starts runs that a lost commit, or an arc that was just declared, has left out
lots-superseded   removes the data of generations that others have replaced, some time after
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import ClassVar

from msgspec.structs import replace

from waybill.apps.lots.catalogue import LotTables
from waybill.apps.lots.catalogue.calendar import LETTERS
from waybill.apps.lots.declaration.documents import ArcDeclaration, DatasetDeclaration
from waybill.apps.lots.declaration.project_file import minute_of_begin
from waybill.apps.lots.lot_events import LOT_OVERDUE, LOT_RECOVERED
from waybill.apps.lots.lot_manifests import LotManifest, LotManifestWriter, encode_manifest, iter_entries, read_manifest
from waybill.apps.lots.machine import RUN, run_id_of
from waybill.apps.lots.publishing import iter_source_lots, lot_key_of, prepare_run
from waybill.apps.lots.reports import LotReports
from waybill.apps.lots.resources import LotsResources
from waybill.apps.lots.subjects import ArcSubject, DatasetSubject, begin_of
from waybill.apps.lots.units import Lot, format_instant
from waybill.events import Event
from waybill.maintenance import MaintenanceContext
from waybill.notify import make_mail
from waybill.record import Finding, RecordNotFound, Ref
from waybill.step import New

ROUND_SIZE = 200
WINDOW = 7 * 1440  # minutes that a round looks back
THERE = (LETTERS["complete"], LETTERS["empty"], LETTERS["stale"])


def _resources_of(context: MaintenanceContext) -> LotsResources:
    found: LotsResources = context.resources_of("lots")
    return found


def _read_reports(context: MaintenanceContext, tables: LotTables) -> LotReports:
    return LotReports.read(context.store, tables, datetime.fromtimestamp(context.store.now(), UTC))


def _recent(reports: LotReports, subject: DatasetSubject | ArcSubject, until: Lot) -> tuple[Lot, Lot]:
    begin = begin_of(subject, reports.applied, reports.starts)
    first = max(until.minute - WINDOW, begin or 0, 0)
    return Lot(subject.unit, first - first % subject.unit.minutes), until


@dataclass(frozen=True)
class OverdueLotRoutine:
    """Safe to repeat: a message has the name of what it tells, and the note that it was told is written after it."""

    name: str = "lots-overdue"
    description: str = "Tells of lots that were due and are not there, once, and again when they are."
    poll_interval: float = 30.0
    per_host: bool = False
    has_routine_findings: bool = True
    overdue: ClassVar[str] = "lot is overdue"
    recovered: ClassVar[str] = "overdue lot is there"

    def check(self, context: MaintenanceContext) -> Iterator[Finding]:
        with _resources_of(context).open_catalogue() as tables:
            reports = _read_reports(context, tables)
            found = [
                finding
                for dataset in reports.applied.datasets.values()
                if dataset.due > 0
                for finding in self._check_dataset(reports, tables, dataset)
            ]
        yield from found[:ROUND_SIZE]

    def _check_dataset(self, reports: LotReports, tables: LotTables, dataset: DatasetDeclaration) -> Iterator[Finding]:
        subject = DatasetSubject(dataset, reports.applied, tables)
        due_until = Lot.at(datetime.fromtimestamp(reports.now.timestamp() - dataset.due, UTC), subject.unit)
        told = set(tables.list_overdue(dataset.id, subject.unit))
        for day in subject.iter_days(*_recent(reports, subject, due_until)):
            for place, letter in enumerate(day.letters):
                lot = Lot(subject.unit, day.first + place * subject.unit.minutes)
                if letter not in THERE and lot not in told:
                    yield Finding(
                        self.overdue, f"{dataset.id} {lot}", f"{lot} of {dataset.title} was due.", "tell of it"
                    )
        for lot in sorted(told):
            row = tables.find_lot(dataset.id, lot)
            if row is not None:
                yield Finding(
                    self.recovered, f"{dataset.id} {lot}", f"{lot} of {dataset.title} is there.", "tell of it"
                )

    def repair(self, context: MaintenanceContext, finding: Finding) -> bool:
        resources = _resources_of(context)
        dataset_id, _, lot_name = finding.where.partition(" ")
        lot = Lot.parse(lot_name)
        with resources.open_catalogue() as tables:
            reports = _read_reports(context, tables)
            dataset = reports.applied.datasets.get(dataset_id)
            if dataset is None:
                return False
            is_overdue = finding.rule == self.overdue
            cause = ""
            if is_overdue:
                subject = DatasetSubject(dataset, reports.applied, tables)
                (run,) = reports.iter_runs(subject, lot, lot.next)
                cause = run.cause or f"it is {run.name}"
            data = {"datasetId": dataset.title, "lot": str(lot), "cause": cause or None}
            event = Event(LOT_OVERDUE if is_overdue else LOT_RECOVERED, f"{dataset.title}/{lot}", data)
            mails = tuple(self._make_mail(resources, dataset, lot, is_overdue, cause, context.store.now()))
            # A crash before the note below: the mail is known by its key, and nothing is written again. Without a mail the
            # event is told again.
            context.engine.submit_all(mails, events=(event,), who=context.who)
            if is_overdue:
                tables.note_overdue(dataset.id, lot, at=format_instant(reports.now))
            else:
                tables.forget_overdue(dataset.id, lot)
        return True

    def _make_mail(
        self, resources: LotsResources, dataset: DatasetDeclaration, lot: Lot, is_overdue: bool, cause: str, now: float
    ) -> Iterator[New]:
        word = "overdue" if is_overdue else "there"
        # a lot may be overdue again after it was removed; within an hour it is the same message
        key = f"lots-{word} {dataset.id} {lot} {int(now // 3600) if not is_overdue else ''}".strip()
        recipients = (*dataset.notify, *resources.settings.notify)
        if recipients:
            text = f"{lot} of {dataset.title} ({format_instant(lot.start)} to {format_instant(lot.end)}) is {word}."
            text += f"\n\n{cause[:1].upper()}{cause[1:]}." if cause else ""
            mail = make_mail(to=recipients, subject=f"{dataset.title} {lot} is {word}", text=text, key=key, at=now)
            yield _named(mail, key)


def _named(new: New, key: str) -> New:
    from dataclasses import replace as with_fields

    return with_fields(new, idempotency_key=key)


@dataclass(frozen=True)
class RunStartRoutine:
    """Safe to repeat: the catalogue says which run the sources need, and its record has one name."""

    name: str = "lots-starts"
    description: str = "Starts runs of lots whose sources are there and that nobody has started."
    poll_interval: float = 60.0
    per_host: bool = False
    has_routine_findings: bool = True
    rule: ClassVar[str] = "lot without a run"

    def check(self, context: MaintenanceContext) -> Iterator[Finding]:
        with _resources_of(context).open_catalogue() as tables:
            reports = _read_reports(context, tables)
            found = [
                Finding(
                    self.rule,
                    f"{arc.id} {lot}",
                    f"The sources of {arc.title} have {lot}, and it has no run.",
                    "start it",
                )
                for arc in reports.applied.arcs.values()
                for lot in self._find_lots(context, reports, tables, arc)
            ]
        yield from found[:ROUND_SIZE]

    def _find_lots(
        self, context: MaintenanceContext, reports: LotReports, tables: LotTables, arc: ArcDeclaration
    ) -> Iterator[Lot]:
        subject = ArcSubject(arc, reports.applied, tables)
        begin = minute_of_begin(reports.starts.get(arc.id, format_instant(reports.now)))
        for day in subject.iter_days(*_recent(reports, subject, Lot.at(reports.now, subject.unit))):
            for place, letter in enumerate(day.letters):
                lot = Lot(subject.unit, day.first + place * subject.unit.minutes)
                if lot.minute + lot.unit.minutes <= begin:
                    continue
                if letter == LETTERS["never"]:
                    if all(row is not None for *_, row in iter_source_lots(tables, arc, lot)):
                        yield lot
                elif letter in (LETTERS["waiting"], LETTERS["stale"]):
                    row = tables.find_run(arc.id, lot)
                    if (
                        row is not None
                        and row.state == "waiting"
                        and not _has_record(context, arc, lot, row.generation)
                    ):
                        yield lot

    def repair(self, context: MaintenanceContext, finding: Finding) -> bool:
        arc_id, _, lot_name = finding.where.partition(" ")
        lot = Lot.parse(lot_name)
        with _resources_of(context).open_catalogue() as tables:
            reports = _read_reports(context, tables)
            arc = reports.applied.arcs.get(arc_id)
            if arc is None:
                return False
            new, generation = prepare_run(tables, arc, lot, at=format_instant(reports.now))
            if new is None or _has_record(context, arc, lot, generation):
                return False
            context.engine.submit(_named(new, str(new.id)), who=context.who, why="its sources are there")
        return True


def _has_record(context: MaintenanceContext, arc: ArcDeclaration, lot: Lot, generation: int) -> bool:
    try:
        context.store.get(*Ref(RUN.name, run_id_of(arc.id, lot, generation)))
    except RecordNotFound:
        return False
    return True


@dataclass(frozen=True)
class SupersededDataRoutine:
    """Safe to repeat: the manifest that says `removed` is written first, what is gone is gone, and the catalogue is told last.

    Only what an arc made is removed: what arrived belongs to whoever brought it.
    """

    name: str = "lots-superseded"
    description: str = "Removes the data of generations that were replaced longer ago than their dataset keeps them."
    poll_interval: float = 300.0
    per_host: bool = False
    has_routine_findings: bool = True
    rule: ClassVar[str] = "superseded generation"

    def check(self, context: MaintenanceContext) -> Iterator[Finding]:
        now = context.store.now()
        found: list[Finding] = []
        with _resources_of(context).open_catalogue() as tables:
            applied = _read_reports(context, tables).applied
            for dataset in applied.datasets.values():
                if dataset.keep is None or not dataset.owner.startswith("arc "):
                    continue
                before = format_instant(datetime.fromtimestamp(now - dataset.keep, UTC))
                for row in tables.tables.query("superseded", dataset=dataset.id, before=before, row_limit=ROUND_SIZE):
                    lot = Lot(dataset.lot_unit, row["minute"])
                    if not self._is_read(tables, applied.list_readers(dataset.id), applied.arcs, lot):
                        where = f"{dataset.id} {lot} {row['generation']}"
                        found.append(
                            Finding(
                                self.rule, where, f"Another generation of {lot} has replaced it.", "remove its data"
                            )
                        )
        yield from found

    def _is_read(self, tables: LotTables, readers: list[str], arcs: dict[str, ArcDeclaration], lot: Lot) -> bool:
        """Whether a run that has begun and not ended may read it."""
        for id in readers:
            row = tables.find_run(id, lot.coarsen(arcs[id].lot_unit))
            while row is not None:
                if row.state in ("running", "partial"):
                    return True
                row = (
                    tables.find_run(id, lot.coarsen(arcs[id].lot_unit), row.generation - 1)
                    if row.generation > 1
                    else None
                )
        return False

    def repair(self, context: MaintenanceContext, finding: Finding) -> bool:
        resources = _resources_of(context)
        dataset_id, lot_name, generation = finding.where.split(" ")
        with resources.open_catalogue() as tables:
            dataset = _read_reports(context, tables).applied.datasets.get(dataset_id)
            lot = Lot.parse(lot_name)
            row = tables.find_lot(dataset_id, lot, int(generation))
            if dataset is None or row is None or row.state == "removed":
                return False
            key = lot_key_of(dataset, lot)._replace(generation=int(generation), state="removed")
            old = read_manifest(resources.objects, row.manifest)
            head = replace(old, state="removed", uris=(), objects=(), children=(), count=None, bytes=None)
            self._write_removed(resources, key.key, key.folder, row.manifest, old, head)
            folder = resources.locations.find_folder(dataset.path)
            base = resources.locations.absolute(dataset.path)
            for entry in iter_entries(resources.objects, row.manifest, old):
                if entry.uri.startswith(base):
                    name = entry.uri[len(base) :]
                    folder.objects.delete("/".join(part for part in (folder.name, name) if part))
            tables.mark_lot(dataset_id, lot, int(generation), state="removed", manifest=key.key)
            resources.objects.delete(row.manifest)
        return True

    def _write_removed(
        self, resources: LotsResources, name: str, folder: str, manifest: str, old: LotManifest, head: LotManifest
    ) -> None:
        writer = LotManifestWriter(resources.objects, f"{folder}pages", head)
        writer.add_all(iter_entries(resources.objects, manifest, old))
        resources.objects.put(name, encode_manifest(writer.build()))


ROUTINES = (OverdueLotRoutine(), RunStartRoutine(), SupersededDataRoutine())
