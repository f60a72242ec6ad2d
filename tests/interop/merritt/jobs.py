"""Jobs: two entries besides their own nodes, one in the queue of their state, one in a folder of their batch."""

from typing import Any

from kazoo.exceptions import KazooException

from tests.interop.merritt.client import Client, Invalid
from tests.interop.merritt.items import Item
from tests.interop.merritt.states import BUCKETS, JOB


class Job(Item):
    table = JOB

    def __init__(self, client: Client, id: str, bid: str = "") -> None:
        super().__init__(client, id)
        self.bid, self.priority, self.retry_count, self.space_needed = bid, 5, 0, 0
        self.configuration: dict[str, Any] = {}
        self.last_successful: str | None = None
        self._queued: str | None = None
        self._listed: str | None = None

    @property
    def home(self) -> str:
        return f"/jobs/{self.id}"

    @classmethod
    def create(
        cls,
        client: Client,
        bid: str,
        configuration: dict[str, Any],
        *,
        priority: int = 5,
        identifiers: dict[str, Any] | None = None,
        metadata: dict[str, Any] | None = None,
    ) -> "Job":
        """Java holds the lock meanwhile, and makes both entries twice."""
        job = cls(client, client.create("/jobs/jid", sequence=True).rpartition("/")[2], bid)
        if not client.ruby:
            assert job.lock()
        client.create(f"{job.home}/bid", bid)
        client.create(f"{job.home}/priority", 5)
        client.create(f"{job.home}/space_needed", 0)
        client.create(f"{job.home}/configuration", configuration)
        if identifiers:
            job.set_identifiers(identifiers)
        if metadata:
            client.create_or_set(f"{job.home}/metadata", metadata)
        job.set_status_with_priority("Pending", priority)
        if not client.ruby:
            job._list()
            job._queue()
            job.unlock()
        return job

    @classmethod
    def acquire(cls, client: Client, state: str) -> "Job | None":
        """The first of the queue that can be locked. It may be in another state by now: the caller looks."""
        for entry in client.children(f"/jobs/states/{state.lower()}"):
            job = cls(client, entry[3:])
            if job.lock():
                try:
                    return job.load()
                except (Invalid, KazooException):
                    job.unlock()
                    raise
        return None

    def _load_status(self, status: dict[str, Any]) -> None:
        super()._load_status(status)
        if not isinstance(status.get("retry_count", 0 if self.client.ruby else None), int):
            raise Invalid(f"{self.home}/status has no retry_count")
        self.retry_count = status.get("retry_count", 0)
        self.last_successful = status.get("last_successful_status")

    def _load_properties(self, writes: bool) -> None:
        read = self.client.json if self.client.ruby else self.client.optional_json
        self.configuration = read(f"{self.home}/configuration")
        self.bid = self.client.text(f"{self.home}/bid")
        self.priority = self.client.number(f"{self.home}/priority")
        self.space_needed = self.client.number(f"{self.home}/space_needed")
        for name in ("identifiers", "metadata", "inventory", "store"):
            self.client.optional_json(f"{self.home}/{name}")
        if writes:
            self._queue()
            self._list()

    def _status_object(self, old: dict[str, Any], state: str) -> dict[str, Any]:
        body = {"last_successful_status": None, **super()._status_object(old, state), "retry_count": self.retry_count}
        was = old.get("status")
        kept = ("Failed", "Deleted") if self.client.ruby else ()
        if was not in (None, state, *kept) and state not in ("Failed", "Deleted"):
            body["last_successful_status"] = was
        return body

    def _trigger(self) -> None:
        self._queue()
        self._list()

    def _queue(self) -> None:
        assert self.status is not None
        path = f"/jobs/states/{self.status.lower()}/{self.priority:02d}-{self.id}"
        if self.client.ruby and path == self._queued:  # in Java two equal paths are never the same
            return
        if self._queued is not None:
            self.client.delete(self._queued)
        self._queued = path
        if not self.client.exists(path):
            self.client.create_if_needed(path.rpartition("/")[0])
            self.client.create(path)

    def _list(self) -> None:
        assert self.status is not None
        path = f"/batches/{self.bid}/states/{BUCKETS.get(self.status, 'batch-processing')}/{self.id}"
        if self.client.ruby and path == self._listed:
            return
        if self._listed is not None:
            self.client.delete(self._listed)
        self._listed = path
        if not self.client.exists(path):
            folder = path.rpartition("/")[0]
            self.client.create_if_needed(folder.rpartition("/")[0])
            self.client.create_if_needed(folder)
            self.client.create_if_needed(path)

    # --- single properties

    def set_status_with_retry(self, state: str) -> None:
        self.retry_count += 1
        self.set_status(state)

    def set_status_with_priority(self, state: str, priority: int) -> None:
        if priority != self.priority:
            self.priority = priority
            self.client.set(f"{self.home}/priority", priority)
        self.set_status(state)

    def set_priority(self, priority: int) -> None:
        """Ruby's: the node alone; the entry moves with the next status."""
        self.priority = priority
        self.client.set(f"{self.home}/priority", priority)

    def set_space_needed(self, size: int) -> None:
        if size != self.space_needed:
            self.space_needed = size
            self.client.set(f"{self.home}/space_needed", size)

    def set_identifiers(self, identifiers: dict[str, Any]) -> None:
        self.client.create_or_set(f"{self.home}/identifiers", identifiers)

    def set_inventory(self, url: str, mode: str) -> None:
        self.client.create_or_set(f"{self.home}/inventory", {"manifest_url": url, "mode": mode})

    def set_store(self, url: str, mode: str, delete: str = "") -> None:
        self.client.create_or_set(f"{self.home}/store", {"manifest_url": url, "mode": mode, "delete": delete})

    def delete(self) -> None:
        assert self.status is not None
        if not self.table.deletable(self.status):
            raise Invalid(f"Can not delete Job: {self.home} ({self.status})")
        for path in (self._queued, self._listed):
            if path is not None and self.client.exists(path):
                self.client.delete(path)
        self.client.delete_all(self.home)


def list_jobs(client: Client, state: str | None = None) -> list[Job]:
    """One that cannot be loaded stops Java's listing of all; Ruby leaves it out."""
    found = []
    for name in client.children("/jobs"):
        if name == "states":
            continue
        try:
            job = Job(client, name).load(writes=False)
        except Invalid:
            if not client.ruby:
                raise
            continue
        if state in (None, job.status):
            found.append(job)
    return found


def delete_deleted_jobs(client: Client) -> list[str]:
    deleted = []
    for name in client.children("/jobs"):
        if name != "states":
            job = Job(client, name).load()
            if job.status == "Deleted":
                job.delete()
                deleted.append(name)
    return deleted
