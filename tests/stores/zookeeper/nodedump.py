"""A check of Merritt's tree, written from what its own orphan test (NodeDump) and its readers expect, without our code.

`faults(client)` walks the whole tree and describes what Merritt's services would fail on.
"""

import json
import re
import time

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

STATES = {
    "Pending": "batch-processing",
    "Held": "batch-processing",
    "Estimating": "batch-processing",
    "Provisioning": "batch-processing",
    "Downloading": "batch-processing",
    "Processing": "batch-processing",
    "Storing": "batch-processing",
    "Recording": "batch-processing",
    "Notify": "batch-processing",
    "Failed": "batch-failed",
    "Completed": "batch-completed",
    "Deleted": "batch-deleted",
}
BATCH_STATES = {"Pending", "Held", "Processing", "Reporting", "UpdateReporting", "Failed", "Completed", "Deleted"}
FOLDERS = ("batch-processing", "batch-failed", "batch-completed", "batch-deleted")
WHEN = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d .\d{4}")


def children(zk: KazooClient, path: str) -> list[str]:
    try:
        return sorted(zk.get_children(path))
    except NoNodeError:
        return []


def text(zk: KazooClient, path: str) -> str | None:
    try:
        data, _ = zk.get(path)
    except NoNodeError:
        return None
    return (data or b"").decode()


def faults(zk: KazooClient) -> list[str]:
    return [*_uuids(zk), *_batches(zk), *_jobs(zk), *_queues(zk)]


def _uuids(zk: KazooClient) -> list[str]:
    found = []
    for uuid in children(zk, "/batch-uuids"):
        batch = text(zk, f"/batch-uuids/{uuid}")
        if not zk.exists(f"/batches/{batch}"):
            found.append(f"uuid {uuid} names {batch}, which is not there")
    return found


def _batches(zk: KazooClient) -> list[str]:
    found = []
    for batch in children(zk, "/batches"):
        home = f"/batches/{batch}"
        if not re.fullmatch(r"bid\d{10}", batch):
            found.append(f"{home} is no name of a batch")
        found += _status(zk, home, BATCH_STATES, {"status", "last_modified", "message"})
        submission = json.loads(text(zk, f"{home}/submission") or "{}")
        uuid = submission.get("batchID") if isinstance(submission, dict) else None
        if uuid and text(zk, f"/batch-uuids/{uuid}") != batch:
            found.append(f"{home} has batchID {uuid}, which does not lead to it")
        if zk.exists(f"{home}/states") and not children(zk, f"{home}/states"):
            found.append(f"{home}/states has no children")
        for folder in FOLDERS:
            listed = children(zk, f"{home}/states/{folder}")
            found += [f"{home} lists {job}, which is not there" for job in listed if not zk.exists(f"/jobs/{job}")]
        found += _lock(zk, home)
    return found


def _jobs(zk: KazooClient) -> list[str]:
    found = []
    for job in children(zk, "/jobs"):
        if job == "states":
            continue
        home = f"/jobs/{job}"
        if not re.fullmatch(r"jid\d{10}", job):
            found.append(f"{home} is no name of a job")
        batch = text(zk, f"{home}/bid")
        if not batch or not zk.exists(f"/batches/{batch}"):
            found.append(f"{home} has bid {batch}, which is not there")
        wrong = _status(
            zk, home, set(STATES), {"status", "last_successful_status", "retry_count", "last_modified", "message"}
        )
        found += wrong
        for name in ("priority", "space_needed"):
            if not re.fullmatch(r"-?\d+", text(zk, f"{home}/{name}") or ""):
                found.append(f"{home}/{name} is no number")
        try:
            json.loads(text(zk, f"{home}/configuration") or "")
        except ValueError:
            found.append(f"{home}/configuration is no JSON")
        if wrong:
            continue
        state = json.loads(text(zk, f"{home}/status") or "")["status"]
        here = [folder for folder in FOLDERS if job in children(zk, f"/batches/{batch}/states/{folder}")]
        if here != [STATES[state]]:
            found.append(f"{home} is {state} and its batch lists it in {here}")
        priority = int(text(zk, f"{home}/priority") or -1)
        if not zk.exists(f"/jobs/states/{state.lower()}/{priority:02d}-{job}"):
            found.append(f"{home} is {state} and not queued as {priority:02d}-{job}")
        found += _lock(zk, home)
    return found


def _queues(zk: KazooClient) -> list[str]:
    found: list[str] = []
    places: dict[str, str] = {}
    if sorted(children(zk, "/jobs/states")) != sorted(state.lower() for state in STATES):
        found.append(f"/jobs/states has {children(zk, '/jobs/states')}")
    for folder in children(zk, "/jobs/states"):
        for entry in children(zk, f"/jobs/states/{folder}"):
            job = entry.partition("-")[2]
            if job in places:
                found.append(f"{job} is queued in {places[job]} and in {folder}")
            places[job] = folder
            if not zk.exists(f"/jobs/{job}"):
                found.append(f"{folder}/{entry} stands for no job")
    return found


def _status(zk: KazooClient, home: str, states: set[str], keys: set[str]) -> list[str]:
    body = text(zk, f"{home}/status")
    if body is None:
        return [f"{home} has no status"]
    try:
        status = json.loads(body)
    except ValueError:
        return [f"{home}/status is no JSON: {body!r}"]
    if status.get("status") not in states:
        return [f"{home} is {status.get('status')}, which is no state"]
    found = [f"{home}/status lacks {key}" for key in keys - status.keys()]
    if not WHEN.fullmatch(status.get("last_modified", "")):
        found.append(f"{home}/status was modified at {status.get('last_modified')!r}")
    if not isinstance(status.get("message"), str):
        found.append(f"{home}/status has no message")
    return found


def _lock(zk: KazooClient, home: str) -> list[str]:
    stat = zk.exists(f"{home}/lock")
    return [f"{home} is locked for more than two minutes"] if stat and time.time() - stat.ctime / 1000 > 120 else []
