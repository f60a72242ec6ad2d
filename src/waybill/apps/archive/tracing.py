"""The way of a migration, as `waybill trace` shows it: the thing of another application that it is a copy of, if it is one.

A migration is found by its number, `migration 17`, or by the id of its record.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, cast

from waybill.apps.archive.machine import MIGRATION
from waybill.apps.archive.resources import ArchiveResources
from waybill.apps.archive.service.requests import migration_ref
from waybill.record import RecordNotFound, Store
from waybill.tracing import TraceEdge, TraceNode, key_of, name_in
from waybill.views import format_time

if TYPE_CHECKING:
    from waybill.environment import Environment

APPLICATION = "archive"
MAX_MIGRATIONS = 50  # of one thing
_NUMBER = re.compile(r"(?:migration |mig)0*([0-9]{1,18})")


class ArchiveTracer:
    """Its nodes are migrations."""

    def __init__(self, environment: Environment, store: Store) -> None:
        self._resources = cast(ArchiveResources, environment.resources_of(APPLICATION))
        self._store = store

    def find(self, text: str) -> Iterator[str]:
        match = _NUMBER.fullmatch(text)
        if match is not None and self._resources_know(int(match[1])):
            yield key_of(APPLICATION, "migration", match[1])

    def describe(self, key: str) -> TraceNode | None:
        number = _number_in(key)
        if number is None:
            return None
        with self._resources.connections.open() as tables:
            row = tables.find_migration(number)
        if row is None:
            return None
        state, at = "removed", row.removed or row.made
        try:
            record = self._store.get(MIGRATION.name, migration_ref(number).id)
            state, at = record.state, record.updated
        except RecordNotFound:
            pass  # retention has removed it; the catalogue still knows it
        return TraceNode(
            key,
            "migration",
            f"{number} {row.label}",
            APPLICATION,
            state=state,
            at=format_time(at) or "",
            page=f"/records/{MIGRATION.name}/{migration_ref(number).id}",
            owner=row.owner,
            scope=f"archive/workspace/{row.workspace}",
        )

    def list_edges(self, key: str) -> Iterable[TraceEdge]:
        number = _number_in(key)
        with self._resources.connections.open() as tables:
            if number is not None:
                origin = tables.find_origin(number)
                return [TraceEdge(origin[0], key, f"archived version {origin[1]}")] if origin is not None else []
            return [
                TraceEdge(key, key_of(APPLICATION, "migration", str(migration)), f"archived version {version}")
                for migration, version in tables.list_migrations_of(key, MAX_MIGRATIONS)
            ]

    def _resources_know(self, number: int) -> bool:
        with self._resources.connections.open() as tables:
            return tables.find_migration(number) is not None


def _number_in(key: str) -> int | None:
    name = name_in(key, APPLICATION, "migration")
    return int(name) if name is not None and name.isdecimal() else None
