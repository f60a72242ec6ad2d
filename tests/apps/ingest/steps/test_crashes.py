"""A deposit whose process crashes at any call of store, objects or context that its steps make."""

from __future__ import annotations

import hashlib
from pathlib import Path

from waybill.apps.ingest.application import APPLICATION
from waybill.apps.ingest.profile import Profile, to_document
from waybill.apps.ingest.submission import PayloadType, Submission
from waybill.testing import StepTester

NAME = "ingest/payloads/0b6f4c1e-5d7a-5c3e-8f21-6a9d2e4b7c10/a.txt"


def test_a_deposit_is_stored_once_wherever_its_process_crashes(tmp_path: Path) -> None:
    app = {"url": "http://waybill.test", "disk_space": {"keep_free": 0}}
    with StepTester(APPLICATION, tmp_path, app=app) as tester:
        profile = to_document(Profile(name="p", owner="ark:/99999/fk4owner", storage_node=9502))
        tester.submit("profile", {"profile": profile}, id="p")
        tester.environment.objects.put(NAME, b"hello")
        payload = Submission(
            profile="p",
            url=f"waybill:{NAME}",
            filename="a.txt",
            type=PayloadType.FILE,
            received_digests={"sha256": hashlib.sha256(b"hello").hexdigest()},
            batch_id="bid-1",
            job_id="jid-1",
        )
        job = tester.submit("job", payload.to_job_documents())
        points = []
        for point in tester.crash_at_every_call(job, "Completed"):
            done = tester.get(job)
            storage = tester.resources.storage
            ark = done.documents["identifiers"]["primary_id"]
            assert [version.number for version in storage.list_versions(ark)] == [1], point
            assert len(tester.resources.inventory.list_versions(ark)) == 1, point
            assert [object_id for _, object_id in storage.list_objects()] == [ark], point
            points.append(point)
    for call in ("store.commit", "objects.put_new_folder", "ctx.workdir", "resources.get_profile"):
        assert {f"before {call}", f"after {call}"} <= set(points)
