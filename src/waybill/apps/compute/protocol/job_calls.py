"""Jobs: the paths of Manta's clients (`live/...`) and those of the design page, which mean the same.

POST jobs                                 make one
POST jobs/ID/live/in [/end]               add keys; end the input              (also jobs/ID/in, jobs/ID/end)
POST jobs/ID/live/cancel                  cancel                               (also jobs/ID/cancel)
GET  jobs/ID/live/status                  how it is            (also jobs/ID, when only application/json is accepted)
GET  jobs/ID/live/{in,out,err,fail}       the latest keys, or all once it is done           (also jobs/ID/out ...)
GET  jobs/ID/metrics                      counts and timings
GET  jobs [?state=running] [?name=N]      a directory; the most recent of some
"""

from __future__ import annotations

import json
import re

import msgspec

from waybill.apps.compute.access import check_access, may_act_for
from waybill.apps.compute.archive import JobArchiver, JobMetrics
from waybill.apps.compute.errors import MantaError, not_found
from waybill.apps.compute.job_tables import JobRow, JobTables
from waybill.apps.compute.jobs import LISTS, Jobs, job_path
from waybill.apps.compute.manifest import MAX_BODY, read_manifest
from waybill.apps.compute.protocol.app import Call
from waybill.apps.compute.protocol.requests import Reply, StorageRequest
from waybill.apps.compute.protocol.storage_calls import StorageCalls
from waybill.apps.compute.resources import ComputeResources
from waybill.apps.compute.storage import iso_time

MAX_LISTED = 1000
LIST_TYPES = {"err": "application/x-json-stream; type=job-error"}
_JOB_NAME = re.compile(r"[\w-]{1,1024}", re.ASCII)


class JobCalls:
    def __init__(self, resources: ComputeResources, jobs: Jobs, storage: StorageCalls) -> None:
        self._resources, self._jobs, self._storage = resources, jobs, storage

    def find_call(self, request: StorageRequest) -> Call | None:
        """The call of a job, or None: then its path is ordinary storage."""
        method, names = request.method, request.path.segments
        if not names:
            if method == "POST":
                return self.create
            return (
                self.list if method in ("GET", "HEAD") and request.query.keys() & {"state", "status", "name"} else None
            )
        below = names[2:] if names[1:2] == ("live",) else names[1:]
        if method == "POST":
            calls = {
                ("in",): self.add_input,
                ("end",): self.end_input,
                ("in", "end"): self.end_input,
                ("cancel",): self.cancel,
            }
            return calls.get(below)
        if method == "GET":
            if names[1:] in (("live", "status"), ("metrics",)):
                return self.status if names[1] == "live" else self.metrics
            if len(below) == 1 and below[0] in LISTS and len(names) > 1:
                return self.read_list
            if len(names) == 1 and request.headers.get("accept", "").partition(";")[0].strip() == "application/json":
                return self.status
        if method == "DELETE" and len(names) <= 2:
            return self.delete
        return None

    def _find(self, request: StorageRequest) -> JobRow:
        path = request.path
        if not request.caller.account:
            check_access(request.caller, path, "read")
        if not may_act_for(request.caller, path.account):
            raise not_found(str(path))
        return self._jobs.find(path.account, path.job_id)

    def create(self, request: StorageRequest) -> Reply:
        path = request.path
        if not may_act_for(request.caller, path.account) or request.caller.job:
            check_access(request.caller, path, "write")
        manifest = read_manifest(request.read_body(MAX_BODY, "RequestEntityTooLarge"))
        job = self._jobs.make(path.account, manifest, who=request.caller.account)
        return Reply(201, {"Location": str(job_path(path.account, job))})

    def add_input(self, request: StorageRequest) -> Reply:
        row = self._find(request)
        self._jobs.add_input(row, request.iter_body())
        if request.query.get("end") == "true":
            self._jobs.end_input(row)
        return Reply(204)

    def end_input(self, request: StorageRequest) -> Reply:
        row = self._find(request)
        request.read_body(MAX_BODY, "RequestEntityTooLarge")
        self._jobs.end_input(row)
        return Reply(202)

    def cancel(self, request: StorageRequest) -> Reply:
        row = self._find(request)
        request.read_body(MAX_BODY, "RequestEntityTooLarge")
        self._jobs.cancel(row)
        return Reply(202)

    def status(self, request: StorageRequest) -> Reply:
        return Reply(
            200, {"Content-Type": "application/json"}, json.dumps(self._jobs.read_status(self._find(request))).encode()
        )

    def read_list(self, request: StorageRequest) -> Reply:
        name = request.path.segments[-1]
        row = self._find(request)
        if row.archived:  # the object, as it is: with its length
            request.path = job_path(row.account, row.job, f"{name}.txt")
            request.headers["accept"] = "*/*"
            return self._storage.get(request)
        body = b"".join(self._jobs.iter_live(row, name))
        return Reply(200, {"Content-Type": LIST_TYPES.get(name, "text/plain")}, body)

    def metrics(self, request: StorageRequest) -> Reply:
        row = self._find(request)
        if row.archived:
            request.path = job_path(row.account, row.job, "metrics.json")
            request.headers["accept"] = "*/*"
            return self._storage.get(request)
        metrics = JobMetrics(len(row.read_manifest().phases))
        for task in JobArchiver(self._resources, row, lambda: None).iter_tasks():
            metrics.add(task)
        return Reply(200, {"Content-Type": "application/json"}, metrics.encode(row))

    def list(self, request: StorageRequest) -> Reply:
        if not request.caller.account:
            check_access(request.caller, request.path, "read")
        if not may_act_for(request.caller, request.path.account):
            check_access(request.caller, request.path, "read")
        state = request.query.get("state") or request.query.get("status") or ""
        name = request.query.get("name", "")
        if state and state not in ("live", "running"):
            raise MantaError("InvalidParameter", f"state={state[:40]} is invalid: must be running")
        if name and _JOB_NAME.fullmatch(name) is None:
            raise MantaError("InvalidParameter", f"name={name[:40]} is invalid")
        with self._resources.connections.open() as tables:
            jobs = JobTables(tables)
            found = (
                jobs.list_named(request.path.account, name, MAX_LISTED)
                if name
                else jobs.list_running(request.path.account, MAX_LISTED)
            )
            if name and state:
                running = {row["job"] for row in jobs.list_running(request.path.account, MAX_LISTED)}
                found = [row for row in found if row["job"] in running]
        lines = [
            msgspec.json.encode({"name": row["job"], "type": "directory", "mtime": iso_time(row["created"])}) + b"\n"
            for row in found
        ]
        return Reply(200, {"Content-Type": "application/x-json-stream; type=job"}, b"".join(lines))

    def delete(self, request: StorageRequest) -> Reply:
        """The directory of a job, or a file in it: refused while the job is live, but for its storage."""
        path = request.path
        check_access(request.caller, path, "delete")
        row = self._resources.find_job(path.job_id)
        if row is not None and row.state == "running" and row.account == path.account:
            raise MantaError(
                "InvalidJobState", f"job {row.job} is in state 'running': only what is below its stor can be deleted"
            )
        reply = self._storage.delete(request)
        if row is not None and len(path.segments) == 1:
            self._jobs.forget(row.job, who=request.caller.account)
        return reply
