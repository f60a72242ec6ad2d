"""What is wrong with a project beside all others that are applied: each problem is a sentence.

A dataset has one owner, whoever declares it; paths of two datasets never overlap, because then the objects of one would be
those of the other; arcs form no circle, or no lot could be the first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TypeVar

from waybill.apps.lots.declaration.documents import (
    ArcDeclaration,
    BoundaryDeclaration,
    DatasetDeclaration,
    ProjectDeclaration,
    title_of_dataset,
)
from waybill.errors import InputError

Declaration = DatasetDeclaration | BoundaryDeclaration | ArcDeclaration
DeclarationT = TypeVar("DeclarationT", DatasetDeclaration, BoundaryDeclaration, ArcDeclaration)


@dataclass
class AppliedDeclarations:
    """Everything that is in force, of all projects, by id."""

    datasets: dict[str, DatasetDeclaration] = field(default_factory=dict)
    boundaries: dict[str, BoundaryDeclaration] = field(default_factory=dict)
    arcs: dict[str, ArcDeclaration] = field(default_factory=dict)

    def with_project(self, project: ProjectDeclaration) -> AppliedDeclarations:
        """Return what is in force after this project is applied in place of its earlier form."""
        return AppliedDeclarations(
            _replace_those_of(project.name, self.datasets, project.datasets),
            _replace_those_of(project.name, self.boundaries, project.boundaries),
            _replace_those_of(project.name, self.arcs, project.arcs),
        )

    def find(self, kind: str, id: str) -> Declaration:
        """Return what is declared of a record."""
        if kind == "dataset":
            return self.datasets[id]
        return self.boundaries[id] if kind == "boundary" else self.arcs[id]

    def list_subscribers(self, dataset: str) -> tuple[str, ...]:
        return tuple(sorted(arc.id for arc in self.arcs.values() if any(s.dataset == dataset for s in arc.subscribed)))

    def list_readers(self, dataset: str) -> list[str]:
        return sorted(arc.id for arc in self.arcs.values() if any(s.dataset == dataset for s in arc.sources))

    @property
    def units(self) -> dict[str, str]:
        return {id: dataset.unit for id, dataset in self.datasets.items()}


def _replace_those_of(
    project: str, present: dict[str, DeclarationT], new: Iterable[DeclarationT]
) -> dict[str, DeclarationT]:
    return {id: each for id, each in present.items() if each.project != project} | {each.id: each for each in new}


def check_project(project: ProjectDeclaration, applied: AppliedDeclarations) -> AppliedDeclarations:
    """Return what is in force after it is applied; raises InputError with every problem, one on each line."""
    after = applied.with_project(project)
    problems = [
        *_find_foreign_owners(project, applied),
        *_find_overlaps(after.datasets.values()),
        *_find_lost_sources(after),
        *_find_circles(after),
    ]
    if problems:
        raise InputError("\n".join(dict.fromkeys(problems)))
    return after


def _find_foreign_owners(project: ProjectDeclaration, applied: AppliedDeclarations) -> Iterator[str]:
    for dataset in project.datasets:
        other = applied.datasets.get(dataset.id)
        if other is not None and other.project != project.name:
            yield (
                f"{dataset.title} has two owners: {dataset.owner} here, and {other.owner} of the project {other.project}. "
                "A dataset has one; give this one another name or version."
            )


def _find_overlaps(datasets: Iterable[DatasetDeclaration]) -> Iterator[str]:
    by_path = sorted(datasets, key=lambda each: (_normal(each.path), each.id))
    for n, first in enumerate(by_path):
        for second in by_path[n + 1 :]:
            if not _normal(second.path).startswith(_normal(first.path)):
                break
            yield (
                f"The path of {second.title}, {second.path}, lies within that of {first.title}, {first.path}; "
                "give each dataset a folder of its own."
            )


def _normal(path: str) -> str:
    return path.rstrip("/") + "/"


def _find_lost_sources(after: AppliedDeclarations) -> Iterator[str]:
    for arc in after.arcs.values():
        for source in arc.sources:
            dataset = after.datasets.get(source.dataset)
            if dataset is None:
                yield (
                    f"{arc.title} reads {title_of_dataset(source.dataset)}, which would have no owner any "
                    "more; leave it declared, or end that arc first."
                )
            elif not dataset.lot_unit.nests_in(arc.lot_unit):
                yield (
                    f"{arc.title} makes lots of {arc.unit}, and its source {dataset.title} would have lots of "
                    f"{dataset.unit}, which do not nest in them."
                )
            elif dataset.unit != source.unit:
                yield (
                    f"{arc.title} was applied when {dataset.title} had lots of {source.unit}; apply its "
                    f"project again after the unit is {dataset.unit}."
                )


def _find_circles(after: AppliedDeclarations) -> Iterator[str]:
    reads = {
        sink.dataset: [(arc, source.dataset) for source in arc.sources]
        for arc in after.arcs.values()
        for sink in arc.sinks
    }
    done: set[str] = set()
    for start in reads:
        path: list[str] = []
        stack = [(start, 0)]
        while stack:
            dataset, place = stack.pop()
            del path[place:]
            if dataset in path:
                circle = [*path[path.index(dataset) :], dataset]
                yield (
                    "Datasets are made from each other in a circle: "
                    f"{' from '.join(map(title_of_dataset, circle))}; no lot could ever be the first."
                )
                break
            if dataset in done:
                continue
            path.append(dataset)
            stack += [(source, place + 1) for _, source in reads.get(dataset, ())]
        done.add(start)
