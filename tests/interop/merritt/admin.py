"""The admin tool, which is Ruby: one click each."""

from tests.interop.merritt.access import Assembly
from tests.interop.merritt.batches import Batch
from tests.interop.merritt.client import Client
from tests.interop.merritt.jobs import Job
from tests.interop.merritt.locks import is_locked, unlock
from tests.interop.merritt.states import RESUMES


class Admin:
    def __init__(self, client: Client) -> None:
        assert client.ruby
        self.client = client

    def hold(self, id: str) -> bool:
        return self._move(id, "Pending", "Held")

    def release(self, id: str) -> bool:
        return self._move(id, "Held", "Pending")

    def requeue(self, id: str) -> bool:
        """False: it does not know where to, and says nothing."""
        job = Job(self.client, id).load()
        then = RESUMES.get(job.last_successful)
        if job.status != "Failed" or then is None or not job.lock():
            return False
        job.set_status_with_retry(then)
        job.unlock()
        return True

    def delete(self, id: str) -> bool:
        return self._move(id, "Failed", "Deleted") or self._move(id, "Completed", "Deleted")

    def _move(self, id: str, source: str, target: str) -> bool:
        job = Job(self.client, id).load()
        if job.status != source or not job.lock():
            return False
        job.set_status(target)
        job.unlock()
        return True

    def force_fail(self, id: str) -> None:
        """Whoever holds it: the status is written, its locks and the locks of its object go."""
        job = Job(self.client, id).load()
        ark = self.client.optional_json(f"{job.home}/identifiers").get("primary_id")
        job.fail("forced by an operator")
        for family in ("storage", "inventory"):
            if ark and is_locked(self.client, family, ark):
                unlock(self.client, family, ark)
        if self.client.exists(f"{job.home}/lock"):
            job.unlock()

    def update_reporting(self, id: str) -> None:
        batch = Batch(self.client, id).load()
        assert batch.status == "Failed"
        batch.set_status("UpdateReporting")

    def delete_batch(self, id: str) -> None:
        batch = Batch(self.client, id).load()
        assert batch.status in ("Failed", "Completed", "Held")
        batch.set_status("Deleted")

    def requeue_assembly(self, size: str, id: str) -> None:
        """To Pending, which the library's own table forbids."""
        assembly = Assembly(self.client, size, id).load()
        assert assembly.status == "Failed"
        assembly.set_status("Pending")

    def delete_assembly(self, size: str, id: str) -> None:
        assembly = Assembly(self.client, size, id).load()
        assembly.set_status("Deleted")
        assembly.delete()
