"""What applying a project changes, and the one commit that changes it.

    find_changes    compares the project with what is in force: what is new, changed, ended, or as it was
    apply_changes   writes all of it in one commit, or nothing of it

Applying is idempotent: what is as declared is not touched. A dataset, boundary or arc that the project no longer has ends;
its lots, its runs and their manifests stay.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Literal, NamedTuple

import msgspec

from waybill.apps.lots.declaration.checks import AppliedDeclarations, Declaration, check_project
from waybill.apps.lots.declaration.documents import (
    ArcDeclaration,
    BoundaryDeclaration,
    DatasetDeclaration,
    DatasetSubscribers,
    ProjectDeclaration,
)
from waybill.apps.lots.machine import ARC, BOUNDARY, DATASET, ArcStart, BoundaryPosition
from waybill.apps.lots.units import Lot, format_instant, parse_instant
from waybill.engine import Engine
from waybill.record import Record, RecordNotFound, Ref, Store
from waybill.step import Act, New

ChangeName = Literal["create", "change", "end"]


class DeclarationChange(NamedTuple):
    """One dataset, boundary or arc that applying a project changes."""

    name: ChangeName
    kind: str
    id: str
    fields: tuple[str, ...] = ()  # of a change: "field: before -> after"

    def describe(self) -> str:
        return f"{self.name} {self.kind} {self.id}" + (f" ({'; '.join(self.fields)})" if self.fields else "")


def read_applied(store: Store) -> AppliedDeclarations:
    """Return everything that is in force."""
    applied = AppliedDeclarations()
    for record in _iter_active(store, DATASET.name):
        applied.datasets[record.id] = record.document(DatasetDeclaration)
    for record in _iter_active(store, BOUNDARY.name):
        applied.boundaries[record.id] = record.document(BoundaryDeclaration)
    for record in _iter_active(store, ARC.name):
        applied.arcs[record.id] = record.document(ArcDeclaration)
    return applied


def _iter_active(store: Store, kind: str) -> Iterator[Record]:
    for record in store.each(kind, documents=True):
        if record.open:
            yield record


def find_changes(project: ProjectDeclaration, applied: AppliedDeclarations) -> list[DeclarationChange]:
    """Return what applying it changes, in the order of the file. Raises InputError for a project that cannot be applied."""
    check_project(project, applied)
    found: list[DeclarationChange] = []
    for kind, wanted, present in _pairs(project, applied):
        for each in wanted:
            old = present.get(each.id)
            if old is None:
                found.append(DeclarationChange("create", kind, each.id))
            elif old != each:
                found.append(DeclarationChange("change", kind, each.id, tuple(_compare(old, each))))
        ids = {each.id for each in wanted}
        found += [
            DeclarationChange("end", kind, id)
            for id, each in present.items()
            if each.project == project.name and id not in ids
        ]
    return found


def _pairs(
    project: ProjectDeclaration, applied: AppliedDeclarations
) -> Iterator[tuple[str, Sequence[Declaration], dict[str, Declaration]]]:
    yield DATASET.name, project.datasets, dict(applied.datasets)
    yield BOUNDARY.name, project.boundaries, dict(applied.boundaries)
    yield ARC.name, project.arcs, dict(applied.arcs)


def _compare(old: msgspec.Struct, new: msgspec.Struct) -> Iterator[str]:
    before, after = msgspec.to_builtins(old), msgspec.to_builtins(new)
    for key in (*after, *(key for key in before if key not in after)):
        if before.get(key) != after.get(key):
            yield f"{key}: {_show(before.get(key))} -> {_show(after.get(key))}"


def _show(value: object) -> str:
    text = "default" if value is None else msgspec.json.encode(value).decode()
    return text if len(text) <= 60 else f"{text[:57]}..."


def apply_changes(engine: Engine, project: ProjectDeclaration, *, who: str, now: float) -> list[DeclarationChange]:
    """Apply a project in one commit; returns what was changed. Safe to repeat: then nothing is."""
    applied = read_applied(engine.store)
    changes = find_changes(project, applied)
    after = applied.with_project(project)
    instant = format_instant(datetime.fromtimestamp(now, UTC))
    new: list[New] = []
    acts: list[Act] = []
    wakes: list[Ref] = []
    for change in changes:
        ref = Ref(change.kind, change.id)
        if change.name == "end":
            acts.append(Act(ref, "end", {}, f"the project {project.name} no longer declares it"))
            continue
        declaration = after.find(change.kind, change.id)
        if change.name == "create" and not _exists(engine.store, ref):
            new.append(_make_record(declaration, after, instant))
            continue
        args = {"declaration": msgspec.to_builtins(declaration), "started": _start_of(declaration, instant)}
        action = "change" if change.name == "change" else "begin"  # a record that has ended begins again
        acts.append(Act(ref, action, args, "; ".join(change.fields)[:500]))
        wakes.append(ref)
    created = {each.id for each in new if each.kind == DATASET.name}
    acts += _make_subscriber_acts(applied, after, created)
    if new or acts:
        engine.submit_all(new, acts=acts, wakes=wakes, who=who, why=f"project {project.name}")
    return changes


def _exists(store: Store, ref: Ref) -> bool:
    try:
        store.get(*ref)
    except RecordNotFound:
        return False
    return True


def _start_of(declaration: Declaration, instant: str) -> str:
    """Return since when a boundary is open, or an arc runs: `from = "now"` is decided once, when it is applied."""
    if isinstance(declaration, ArcDeclaration):
        return declaration.begin or format_instant(Lot.at(parse_instant(instant), declaration.lot_unit).start)
    return instant


def _make_record(declaration: Declaration, after: AppliedDeclarations, instant: str) -> New:
    if isinstance(declaration, DatasetDeclaration):
        subscribers = DatasetSubscribers(after.list_subscribers(declaration.id))
        return New(DATASET.name, (declaration, subscribers), id=declaration.id)
    if isinstance(declaration, BoundaryDeclaration):
        return New(BOUNDARY.name, (declaration, BoundaryPosition(open_since=instant)), id=declaration.id)
    return New(ARC.name, (declaration, ArcStart(_start_of(declaration, instant))), id=declaration.id)


def _make_subscriber_acts(
    before: AppliedDeclarations, after: AppliedDeclarations, created: set[str | None]
) -> Iterator[Act]:
    """A dataset knows who reads it, so that publishing a lot of it reads one record."""
    for id in after.datasets:
        subscribers = after.list_subscribers(id)
        if id not in created and (id not in before.datasets or before.list_subscribers(id) != subscribers):
            yield Act(Ref(DATASET.name, id), "subscribe", {"arcs": list(subscribers)})
