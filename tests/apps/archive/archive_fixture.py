"""Archive in a test: its application on a store, with files to archive, and the services that users call.

with ArchiveFixture(tmp_path) as archive:
    put = archive.put(kind="MIGRATE")
    archive.run_until(put, "PUT_COMPLETED")
    assert archive.list_originals() == {}
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from waybill.apps.archive.application import APPLICATION
from waybill.apps.archive.machine import MIGRATION, REQUEST, MigrationDocument, QuotaDocument, RequestDocument
from waybill.apps.archive.machine.quota import QUOTA
from waybill.apps.archive.service.access import Caller
from waybill.apps.archive.service.migrations import ArchiveMigrations
from waybill.apps.archive.service.requests import ArchiveRequests
from waybill.engine import Engine
from waybill.record import Record, Ref
from waybill.testing import StepTester
from waybill.worker import StepTransition

FILES = {
    "run/one.dat": b"one" * 1000,
    "run/two.dat": b"two" * 2000,
    "run/deep/three.dat": b"three" * 3000,
    "empty": b"",
}


class ArchiveFixture:
    """Sources and the storage are in the data folder, so that `crash_at_every_call` puts them back too."""

    def __init__(
        self,
        folder: Path,
        *,
        store: str = "",
        app: Mapping[str, Any] | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        self.tester = StepTester(APPLICATION, folder, store=store, app=app, settings=settings)
        self.data = self.tester.config.data
        self.source, self.target = self.data / "home" / "set", self.data / "home" / "restored"
        self.storage_root = self.data / "archive-storage"
        self.caller = Caller("root")
        for name, content in FILES.items():
            path = self.source / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        (self.source / "link").symlink_to("run/one.dat")
        (self.source / "run" / "two.dat").chmod(0o640)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.tester.close()

    # --- services

    @contextmanager
    def open_engine(self) -> Iterator[Engine]:
        yield self.tester.engine

    @property
    def requests(self) -> ArchiveRequests:
        return ArchiveRequests(self.tester.resources, self.open_engine, "test")

    @property
    def migrations(self) -> ArchiveMigrations:
        return ArchiveMigrations(self.tester.resources, self.open_engine)

    def put(self, *paths: Path, **options: Any) -> Record:
        return self.requests.put(self.caller, [str(path) for path in paths or (self.source,)], **options)

    def get(self, number: int = 1, **options: Any) -> Record:
        target = options.pop("target", str(self.target))
        return self.requests.get(self.caller, number, target, **options)

    def delete(self, number: int = 1, **options: Any) -> Record:
        return self.requests.delete(self.caller, number, **options)

    # --- steps

    def step(self, record: Record) -> StepTransition:
        return self.tester.step(record)

    def run_until(self, record: Record, *states: str) -> Record:
        return self.tester.run_until(record, *states)

    def put_until(self, state: str, **options: Any) -> Record:
        """A PUT that rests before the work of a state."""
        return self.run_until(self.put(**options), state)

    def store_migration(self, **options: Any) -> Record:
        """A migration that is on storage."""
        self.put_until("PUT_COMPLETED", **options)
        return self.migration()

    # --- looking

    def state_of(self, record: Record) -> str:
        return self.tester.get(record).state

    def migration(self, number: int = 1) -> Record:
        return self.tester.get(Ref(MIGRATION.name, f"mig{number:010d}"))

    def migration_document(self, number: int = 1) -> MigrationDocument:
        return self.migration(number).document(MigrationDocument)

    def find_requests(self, kind: str) -> list[Record]:
        found = self.tester.find_all(REQUEST.name)
        return [record for record in found if record.document(RequestDocument).kind == kind]

    def quota(self, storage: str = "local") -> tuple[int, int]:
        """The bytes that are used and reserved."""
        quota = self.tester.get(Ref(QUOTA.name, f"default.{storage}")).document(QuotaDocument)
        return quota.used, quota.reserved

    def list_stored(self, number: int = 1) -> list[str]:
        folder = self.storage_root / f"migration-{number:010d}"
        return sorted(os.listdir(folder)) if folder.exists() else []

    def archive_path(self, archive: int = 1, number: int = 1) -> Path:
        return self.storage_root / f"migration-{number:010d}" / f"archive_{archive:010d}.tar"


def read_tree(root: Path) -> dict[str, tuple[int, bytes | str]]:
    """All that is below a folder: modes and contents by relative path."""
    found: dict[str, tuple[int, bytes | str]] = {}
    for path in sorted(root.rglob("*")):
        mode = path.lstat().st_mode
        content: bytes | str = os.readlink(path) if path.is_symlink() else path.read_bytes() if path.is_file() else ""
        found[str(path.relative_to(root))] = (mode, content)
    return found
