"""The daemons: each acquires, does its work, sets the status, unlocks."""

from collections.abc import Callable
from typing import Any

from tests.interop.merritt.access import Assembly
from tests.interop.merritt.batches import Batch
from tests.interop.merritt.client import Client
from tests.interop.merritt.jobs import Job
from tests.interop.merritt.locks import is_locked, lock, unlock
from tests.interop.merritt.states import OLD_JOB

LINE = ("Pending", "Estimating", "Provisioning", "Downloading", "Processing", "Storing", "Recording", "Notify")


class Service:
    """`storing`: it knows that state; older ones go from Processing to Recording."""

    def __init__(self, client: Client, *, storing: bool = True) -> None:
        self.client, self.storing = client, storing

    def take_batch(self, configurations: Callable[[dict[str, Any]], list[dict[str, Any]]]) -> Batch | None:
        """The batch consumer: makes the jobs, and says Reporting as soon as they are there."""
        if is_locked(self.client, "queue", "ingest"):
            return None
        batch = Batch.acquire_pending(self.client)
        if batch is not None:
            for configuration in configurations(batch.submission):
                Job.create(self.client, batch.id, configuration)
            batch.set_status("Reporting")
            batch.unlock()
        return batch

    def work(self, state: str, *, fails: str = "") -> Job | None:
        """A consumer of one state: one job, one step. None when there was none, or it had moved."""
        if is_locked(self.client, "queue", "ingest"):
            return None
        job = Job.acquire(self.client, state)
        if job is None:
            return None
        moved = job.status != state
        if not moved:
            self._do(job, fails)
        job.unlock()
        return None if moved else job

    def _do(self, job: Job, fails: str) -> None:
        state = job.status
        ark = (self.client.optional_json(f"{job.home}/identifiers")).get("primary_id")
        if fails:
            job.fail(fails)
        elif state == "Pending":
            held = is_locked(self.client, "collections", str(job.configuration.get("profile", "")) or "none")
            job.set_status("Held" if held else "Estimating")
        elif state == "Estimating":
            job.set_space_needed(1000)
            job.success()
        elif state == "Processing":
            job.set_identifiers({"primary_id": ark or f"ark:/99999/{job.id}", "local_id": []})
            job.set_store("http://ingest/manifest", f"add/9001/{ark}")
            if self.storing:
                job.success()
            else:
                self._without_storing(job)
        elif state == "Storing" and ark:
            if lock(self.client, "storage", ark):
                job.set_inventory("http://store/manifest", "add")
                job.success()
                unlock(self.client, "storage", ark)
        elif state == "Recording" and ark:
            if lock(self.client, "inventory", ark):
                job.success()
                unlock(self.client, "inventory", ark)
        else:
            job.success()

    def _without_storing(self, job: Job) -> None:
        job.set_inventory("http://store/manifest", "add")
        job.table = OLD_JOB
        job.success()

    def report(self) -> Batch | None:
        batch = Batch.acquire_for_reporting(self.client) or Batch.acquire_update_for_reporting(self.client)
        if batch is not None:
            batch.report()
        return batch

    def assemble(self, size: str, *, fails: bool = False) -> Assembly | None:
        if is_locked(self.client, "queue", f"access{size.capitalize()}"):
            return None
        assembly = Assembly.acquire_pending(self.client, size)
        if assembly is not None:
            assembly.set_status("Processing")
            if fails:
                assembly.fail("no room")
            else:
                assembly.success()
            assembly.unlock()
        return assembly
