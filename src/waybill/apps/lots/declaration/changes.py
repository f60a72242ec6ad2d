"""What applying a project changes, and the one commit that changes it.

    find_changes    compares the project with what is in force: what is new, changed, ended, or as it was
    apply_changes   writes all of it in one commit, or nothing of it

Applying is idempotent: what is as declared is not touched. A dataset, boundary or arc that the project no longer has ends;
its lots, its runs and their manifests stay.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

import msgspec

from waybill.apps.lots.declaration.checks import AppliedDeclarations, check_project
from waybill.apps.lots.declaration.documents import (
    ArcDeclaration,
    BoundaryDeclaration,
    DatasetDeclaration,
    DatasetSubscribers,
    ProjectDeclaration,
)
from waybill.apps.lots.machine import ARC, BOUNDARY, DATASET, BoundaryPosition
from waybill.apps.lots.units import Lot, format_instant
from waybill.engine import Engine
from waybill.record import Record, RecordNotFound, Ref, Store
from waybill.step import Act, New

ChangeName = Literal["create", "change", "end"]
IN_FORCE = "Active"


class DeclarationChange(NamedTuple):
    """One dataset, boundary or arc that applying a project changes."""

    name: ChangeName
    kind: str
    id: str
    fields: tuple[str, ...] = ()  # of a change: "field: before -> after"

    def describe(self) -> str:
        return f"{self.name} {self.kind} {self.id}" + (f" ({'; '.join(self.fields)})" if self.fields else "")


_TYPES = {DATASET.name: DatasetDeclaration, BOUNDARY.name: BoundaryDeclaration, ARC.name: ArcDeclaration}


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


def _pairs(project: ProjectDeclaration, applied: AppliedDeclarations) -> Iterator[tuple[str, Sequence[DatasetDeclaration | BoundaryDeclaration | ArcDeclaration], dict[str, DatasetDeclaration | BoundaryDeclaration | ArcDeclaration]]]:  # fmt: skip
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
    from datetime import UTC, datetime

    applied = read_applied(engine.store)
    changes = find_changes(project, applied)
    after = applied.with_project(project)
    instant = datetime.fromtimestamp(now, UTC)
    new: list[New] = []
    acts: list[Act] = []
    wakes: list[Ref] = []
    for change in changes:
        ref = Ref(change.kind, change.id)
        if change.name == "end":
            acts.append(Act(ref, "end", {}, f"the project {project.name} no longer declares it"))
            continue
        declaration = _find(after, change.kind, change.id)
        if change.name == "change":
            acts.append(
                Act(ref, "change", {"declaration": msgspec.to_builtins(declaration)}, "; ".join(change.fields)[:500])
            )
            wakes.append(ref)
            continue
        if isinstance(declaration, ArcDeclaration) and not declaration.begin:
            # `from = "now"` is decided once, when it is applied
            declaration_start = format_instant(Lot.at(instant, declaration.lot_unit).start)
        else:
            declaration_start = ""
        if _exists(engine.store, ref):
            acts.append(
                Act(
                    ref,
                    "begin",
                    {
                        "declaration": msgspec.to_builtins(declaration),
                        "started": declaration_start or format_instant(instant),
                    },
                )
            )
            wakes.append(ref)
            continue
        new.append(
            _make_record(
                change, declaration, instant_text=format_instant(instant), start=declaration_start, after=after
            )
        )
    acts += _subscriber_acts(applied, after, {change.id for change in changes if change.kind == DATASET.name and change.name == "create"} if not acts else {n.id or "" for n in new if n.kind == DATASET.name})  # fmt: skip
    if new or acts:
        engine.submit_all(new, acts=acts, wakes=wakes, who=who, why=f"project {project.name}")
    return changes


def _find(after: AppliedDeclarations, kind: str, id: str) -> DatasetDeclaration | BoundaryDeclaration | ArcDeclaration:
    if kind == DATASET.name:
        return after.datasets[id]
    return after.boundaries[id] if kind == BOUNDARY.name else after.arcs[id]


def _exists(store: Store, ref: Ref) -> bool:
    """A record that has ended begins again: its history, and where it stopped, stay."""
    try:
        store.get(*ref)
    except RecordNotFound:
        return False
    return True


def _make_record(change: DeclarationChange, declaration: DatasetDeclaration | BoundaryDeclaration | ArcDeclaration, *, instant_text: str, start: str, after: AppliedDeclarations) -> New:  # fmt: skip
    from waybill.apps.lots.machine import ArcStart

    if isinstance(declaration, DatasetDeclaration):
        return New(DATASET.name, (declaration, DatasetSubscribers(after.list_subscribers(change.id))), id=change.id)
    if isinstance(declaration, BoundaryDeclaration):
        return New(BOUNDARY.name, (declaration, BoundaryPosition(open_since=instant_text)), id=change.id)
    return New(ARC.name, (declaration, ArcStart(declaration.begin or start)), id=change.id)


def _subscriber_acts(before: AppliedDeclarations, after: AppliedDeclarations, created: set[str]) -> Iterator[Act]:
    for id in after.datasets:
        if id not in created and (
            id not in before.datasets or before.list_subscribers(id) != after.list_subscribers(id)
        ):
            yield Act(Ref(DATASET.name, id), "subscribe", {"arcs": list(after.list_subscribers(id))})
