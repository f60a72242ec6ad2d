"""Batches. One without the node `states` is pending; one whose batch-processing is empty is taken to be finished."""

from typing import Any

from tests.interop.merritt.client import Client, Invalid
from tests.interop.merritt.items import Item
from tests.interop.merritt.jobs import Job
from tests.interop.merritt.states import BATCH

FOLDERS = ("batch-processing", "batch-failed", "batch-completed", "batch-deleted")


class Batch(Item):
    table = BATCH

    def __init__(self, client: Client, id: str) -> None:
        super().__init__(client, id)
        self.submission: dict[str, Any] = {}
        self.has_failure = False

    @property
    def home(self) -> str:
        return f"/batches/{self.id}"

    @classmethod
    def create(cls, client: Client, submission: dict[str, Any]) -> "Batch":
        batch = cls(client, client.create("/batches/bid", sequence=True).rpartition("/")[2])
        batch.submission = submission
        if uuid := submission.get("batchID"):
            client.create(f"/batch-uuids/{uuid}", batch.id)
        client.create(f"{batch.home}/submission", submission)
        batch.set_status("Pending")
        return batch

    def _load_properties(self, writes: bool) -> None:
        read = self.client.json if self.client.ruby else self.client.optional_json
        self.submission = read(f"{self.home}/submission")
        self.load_has_failure()

    def load_has_failure(self) -> None:
        self.has_failure = bool(self.client.children(f"{self.home}/states/batch-failed"))

    @classmethod
    def acquire_pending(cls, client: Client) -> "Batch | None":
        """What it throws, it throws with the lock in place."""
        for name in client.children("/batches"):
            if client.exists(f"/batches/{name}/states"):
                continue
            batch = cls(client, name)
            if client.ruby:
                batch.load()
            if batch.lock():
                return batch.take()
        return None

    def take(self) -> "Batch":
        """Locked, and on its way to Processing."""
        if self.client.ruby:
            self.client.create_or_set(f"{self.home}/states", None)
        else:
            self.load()
            self.client.create(f"{self.home}/states")
        self.set_status("Processing")
        return self

    @classmethod
    def acquire_for_reporting(cls, client: Client) -> "Batch | None":
        """Ruby takes one that is to be reported anew as well."""
        passed = ("Completed", "Failed") if client.ruby else ("Completed", "Failed", "UpdateReporting")
        return cls._acquire_finished(client, lambda state: state not in passed, "Reporting")

    @classmethod
    def acquire_update_for_reporting(cls, client: Client) -> "Batch | None":
        return cls._acquire_finished(client, lambda state: state == "UpdateReporting", "UpdateReporting")

    @classmethod
    def _acquire_finished(cls, client: Client, fits: Any, then: str) -> "Batch | None":
        for name in client.children("/batches"):
            folder = f"/batches/{name}/states/batch-processing"
            if not client.exists(folder) or client.children(folder):
                continue
            batch = cls(client, name).load()
            if fits(batch.status) and batch.lock():
                batch.set_status(then)
                return batch
        return None

    def report(self) -> None:
        """Tell the depositor, then: failed if a job failed."""
        self.load_has_failure()
        if self.has_failure:
            self.fail()
        else:
            self.success()
        self.unlock()

    def delete(self) -> None:
        """Every job is loaded, which writes, and deleted; Ruby goes on when one cannot be. Then the batch itself."""
        assert self.status is not None
        if not self.table.deletable(self.status):
            raise Invalid(f"Can not delete Batch: {self.home} ({self.status})")
        for folder in FOLDERS:
            for name in self.client.children(f"{self.home}/states/{folder}"):
                try:
                    Job(self.client, name, self.id).load().delete()
                except Invalid:
                    if not self.client.ruby:
                        raise
        if uuid := self.submission.get("batchID"):
            self.client.delete(f"/batch-uuids/{uuid}")
        self.client.delete_all(self.home)

    def jobs(self, folder: str) -> list[str]:
        return self.client.children(f"{self.home}/states/{folder}")


def delete_completed_batches(client: Client) -> list[str]:
    deleted = []
    for name in client.children("/batches"):
        folder = f"/batches/{name}/states/batch-processing"
        if (not client.ruby and not client.exists(folder)) or client.children(folder):
            continue
        batch = Batch(client, name).load()
        if batch.status in ("Completed", "Deleted"):
            batch.delete()
            deleted.append(name)
    return deleted


def find_by_uuid(client: Client, uuid: str) -> Batch | None:
    path = f"/batch-uuids/{uuid}"
    return Batch(client, client.text(path)).load() if client.exists(path) else None


def list_batches(client: Client) -> list[Batch]:
    return [Batch(client, name).load() for name in client.children("/batches")]
