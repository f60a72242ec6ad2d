"""A service of Merritt's that writes as its library does: node after node, no transaction, no version, everything polled.

`dies_after=n` kills it after its n-th write: the rest of its operation is never written, and its session ends with its
locks.
"""

import json
import time
from contextlib import suppress
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import NodeExistsError, NoNodeError

BUCKETS = {"Failed": "batch-failed", "Completed": "batch-completed", "Deleted": "batch-deleted"}


class ServiceKilled(Exception):
    """kill -9 between two writes."""


def now() -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S +0000", time.gmtime())


class MerrittService:
    """`ruby`: empty data are null, paths are compared by value, and nothing is locked while it is made."""

    def __init__(self, hosts: str, *, dies_after: int | None = None, ruby: bool = False) -> None:
        self.zk = KazooClient(hosts, timeout=50)  # a process that is paused for a while keeps its locks
        self.zk.start(timeout=60)
        self.left = dies_after
        self.ruby = ruby
        self.writes = 0

    def close(self) -> None:
        self.zk.stop()
        self.zk.close()

    # --- single writes

    def _count_write(self) -> None:
        if self.left is not None:
            if self.left == 0:
                self.close()
                raise ServiceKilled
            self.left -= 1
        self.writes += 1

    def create(self, path: str, data: str = "", **more: Any) -> str:
        self._count_write()
        created: str = self.zk.create(path, data.encode(), **more)
        return created

    def create_if_needed(self, path: str) -> None:
        if not self.zk.exists(path):
            with suppress(NodeExistsError):  # another client created it too
                self.create(path)

    def set(self, path: str, data: str) -> None:
        self._count_write()
        self.zk.set(path, data.encode())

    def delete(self, path: str) -> None:
        self._count_write()
        with suppress(NoNodeError):  # Merritt's delete gives up after three tries, without an error
            self.zk.delete(path)

    # --- batches

    def create_batch(self, submission: dict[str, Any]) -> str:
        path = self.create("/batches/bid", sequence=True)
        self.create(f"{path}/submission", json.dumps(submission))
        self.create(f"{path}/status", json.dumps({"status": "Pending", "last_modified": now(), "message": ""}))
        batch = path.rpartition("/")[2]
        if submission.get("batchID"):
            self.create(f"/batch-uuids/{submission['batchID']}", batch)
        return batch

    def acquire_pending_batch(self) -> str | None:
        for batch in sorted(self.zk.get_children("/batches")):
            if self.zk.exists(f"/batches/{batch}/states") or not self.lock(f"/batches/{batch}"):
                continue
            self.create(f"/batches/{batch}/states")
            self.set_batch_status(batch, "Processing")
            return batch
        return None

    def set_batch_status(self, batch: str, state: str) -> None:
        self.set(f"/batches/{batch}/status", json.dumps({"status": state, "last_modified": now(), "message": ""}))

    # --- jobs

    def create_job(self, batch: str, configuration: dict[str, Any], priority: int = 5) -> str:
        path = self.create("/jobs/jid", sequence=True)
        if not self.ruby:
            self.lock(path)
        job = path.rpartition("/")[2]
        self.create(f"{path}/bid", batch)
        self.create(f"{path}/priority", "5")
        self.create(f"{path}/space_needed", "0")
        self.create(f"{path}/configuration", json.dumps(configuration))
        status = {
            "status": "Pending",
            "last_successful_status": None,
            "retry_count": 0,
            "last_modified": now(),
            "message": "",
        }
        self.create(f"{path}/status", json.dumps(status))
        self.create(f"/jobs/states/pending/05-{job}")
        self.create_if_needed(f"/batches/{batch}/states")
        self.create_if_needed(f"/batches/{batch}/states/batch-processing")
        self.create(f"/batches/{batch}/states/batch-processing/{job}")
        if priority != 5:
            self.set(f"{path}/priority", str(priority))
            self.delete(f"/jobs/states/pending/05-{job}")
            self.create(f"/jobs/states/pending/{priority:02d}-{job}")
        if not self.ruby:
            self.unlock(path)
        return job

    def lock(self, home: str) -> bool:
        try:
            self.create(f"{home}/lock", ephemeral=True)
        except NodeExistsError:
            return False
        return True

    def unlock(self, home: str) -> None:
        self.delete(f"{home}/lock")

    def acquire_job(self, state: str) -> str | None:
        for entry in sorted(self.zk.get_children(f"/jobs/states/{state.lower()}")):
            job = entry[3:]
            if not self.zk.exists(f"/jobs/{job}/lock") and self.lock(f"/jobs/{job}"):
                return job
        return None

    def state(self, job: str) -> str:
        return str(json.loads(self.zk.get(f"/jobs/{job}/status")[0])["status"])

    def set_status(self, job: str, state: str, *, retry: bool = False) -> None:
        """Write status, old entry, new entry, old batch entry, new batch entry: five writes. The batch entry is deleted even
        if it stays the same.
        """
        home = f"/jobs/{job}"
        status = json.loads(self.zk.get(f"{home}/status")[0])
        old = status["status"]
        if state not in ("Failed", "Deleted"):
            status["last_successful_status"] = old
        status |= {"status": state, "last_modified": now(), "retry_count": status["retry_count"] + retry}
        priority = int(self.zk.get(f"{home}/priority")[0])
        batch = self.zk.get(f"{home}/bid")[0].decode()
        self.set(f"{home}/status", json.dumps(status))
        self.delete(f"/jobs/states/{old.lower()}/{priority:02d}-{job}")
        self.create(f"/jobs/states/{state.lower()}/{priority:02d}-{job}")
        was, will = BUCKETS.get(old, "batch-processing"), BUCKETS.get(state, "batch-processing")
        if self.ruby and was == will:
            return
        self.create_if_needed(f"/batches/{batch}/states/{will}")
        self.delete(f"/batches/{batch}/states/{was}/{job}")
        self.create(f"/batches/{batch}/states/{will}/{job}")

    def work(self, state: str, then: str) -> str | None:
        """Run the step of one job, as a consumer daemon does."""
        job = self.acquire_job(state)
        if job is None:
            return None
        if self.state(job) == state:
            self.set_status(job, then)
        self.unlock(f"/jobs/{job}")
        return job
