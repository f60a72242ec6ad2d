"""Ingest whose working disk is set by the test, for jobs that wait for disk space."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.apps.ingest.ingest_fixture import IngestFixture
from tests.apps.ingest.steps.new_jobs import resume_after
from tests.apps.ingest.steps.new_jobs import step as run_step
from tests.disk_space.fake_disk import FakeDisk
from waybill.disk_space import WorkingDisk
from waybill.record import Record


class DiskSpaceFixture:
    """Ingest with a working disk whose free space the test sets."""

    def __init__(
        self, folder: Path, *, free: int, total: int = 10_000, disk_space: dict[str, Any] | None = None, **settings: Any
    ) -> None:
        limits = {
            "keep_free": 0,
            "unknown_size_bytes": 500,
            "poll_interval": 0.0,
            "patience": 3600.0,
            **(disk_space or {}),
        }
        self.ingest = IngestFixture(
            folder, settings={"external_states": ["Processing"], "disk_space": limits, **settings}
        )
        self.disk = FakeDisk(total, free)
        self.set_disk(self.disk)

    def set_disk(self, disk: FakeDisk) -> None:
        environment, resources = self.ingest.environment, self.ingest.resources
        resources.working_disk = WorkingDisk(
            self.ingest.root,
            environment.host,
            environment.machines,
            resources.settings.disk_space,
            admins=resources.settings.notifications.admins,
            measure_disk=disk,
        )
        self.reservations = resources.working_disk.reservations

    def job(self, size: int) -> Record:
        """A job in Provisioning that needs so many bytes; -1: unknown."""
        return resume_after(self.ingest, "Estimating", f"{self.ingest.web.url}/a", {"space_needed": size})

    def step(self, job: Record) -> Record:
        run_step(self.ingest, job)
        return self.ingest.get("job", job.id)

    def fail(self, job: Record) -> None:
        with self.ingest.engine() as engine:
            engine.act(job.ref, "fail", confirmed=True)

    def list_mail(self) -> list[dict[str, Any]]:
        with self.ingest.engine() as engine:
            return [record.documents["mail"] for record in engine.store.find("mail", documents=True).records]
