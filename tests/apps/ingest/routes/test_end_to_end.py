"""The whole way: what curl posts ends as a verified object in the inventory, and its upload is gone when the batch
has ended.
"""

import hashlib
import io
import json
import zipfile
from pathlib import Path

from tests.apps.ingest.ingest_fixture import IngestFixture
from tests.apps.ingest.routes.ingest_server import API, IngestServer, write
from waybill.apps.ingest.maintenance import UploadRemovalRoutine
from waybill.maintenance import MaintenanceContext, run_round


def test_a_zip_posted_by_curl_is_stored_recorded_and_fetched_again(tmp_path: Path) -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as made:
        made.writestr("letters/one.txt", "dear all")
    path = write(tmp_path, "letters.zip", packed.getvalue())
    with IngestFixture(tmp_path / "ingest") as ingest, IngestServer(ingest).open() as ingest_server:
        posted = ingest_server.curl(
            *("-F", f"file=@{path}", "-F", "profile=demo", "-F", "title=Letters", "-F", "localIdentifier=box-7"),
            *(
                "-F",
                "digestType=SHA-256",
                "-F",
                f"digestValue={hashlib.sha256(packed.getvalue()).hexdigest()}",
                "-F",
                "responseForm=json",
            ),
            path="/poster/submit",
        )
        state = posted.json()["bat:batchState"]
        with ingest.workers():
            batch = ingest.wait("batch", state["bat:queueID"], "Completed", "Failed")
        assert batch.state == "Completed", batch.message
        with ingest_server.client("reader") as client:
            view = client.get(f"{API}/batches/{state['bat:batchID']}").json()
            assert view["jobs"] == {"total": 1, "states": {"Completed": 1}}
            (job,) = client.get(f"{API}/batches/{batch.id}/report").text.splitlines()
            assert json.loads(job) == {
                "id": batch.documents["status-report"]["successful_jobs"][0],
                "state": "Completed",
            }
            (found,) = client.get("/api/v1/ingest/objects", params={"local_id": "box-7"}).json()["objects"]
            files = client.get(f"{found['url']}/versions/0/files").json()["files"]
            (letter,) = (each for each in files if each["path"].endswith("letters/one.txt"))
            assert client.get(letter["url"]).content == b"dear all"
        assert len(ingest_server.payloads()) == 1
        with ingest.engine() as engine:
            assert (
                run_round(
                    UploadRemovalRoutine(),
                    MaintenanceContext(engine.store, engine.machines, "h", ingest.root, ingest.environment.objects),
                )
                == 1
            )
        assert ingest_server.payloads() == []


def test_a_digest_that_does_not_match_fails_the_job_for_good(tmp_path: Path) -> None:
    path = write(tmp_path, "a.txt", b"hello")
    with IngestFixture(tmp_path / "ingest") as ingest, IngestServer(ingest).open() as ingest_server:
        wrong = hashlib.md5(b"other").hexdigest()
        posted = ingest_server.curl(
            *(
                "-F",
                f"file=@{path}",
                "-F",
                "profile=demo",
                "-F",
                "digestType=MD5",
                "-F",
                f"digestValue={wrong}",
                "-F",
                "responseForm=json",
            ),
            path="/poster/submit",
        )
        with ingest.workers():
            batch = ingest.wait("batch", posted.json()["bat:batchState"]["bat:queueID"], "Completed", "Failed")
        assert batch.state == "Failed"
        with ingest_server.client("operator") as client:
            (job,) = client.get("/api/v1/records/job", params={"parent": f"batch:{batch.id}"}).json()["records"]
            assert (job["state"], wrong in job["message"]) == ("Failed", True)
            (told,) = client.get(f"{API}/batches/{batch.id}/report").text.splitlines()
            assert json.loads(told) == {"id": job["id"], "state": "Failed", "message": job["message"], "reasons": []}
            resumed = client.post(f"/api/v1/records/job/{job['id']}/resume")
            assert (resumed.status_code, "submit it again" in resumed.json()["error"]["message"]) == (409, True)


def test_the_signature_of_a_url_is_used_and_shown_to_nobody(tmp_path: Path) -> None:
    """Whoever has it can fetch the file from the depositor's own store."""
    with IngestFixture(tmp_path / "ingest") as ingest, IngestServer(ingest).open() as ingest_server:
        url = ingest.web.put("a.txt?X-Amz-Date=20261116&X-Amz-Signature=hunter2", b"hello")
        with ingest_server.client("submitter") as client:
            answers = [client.post(f"{API}/batches", json={"profile": "demo", "url": url, "filename": "a.txt"})]
        batch = answers[0].json()["id"]
        with ingest.workers():
            assert ingest.wait("batch", batch, "Completed", "Failed").state == "Completed"
        with ingest_server.client("admin") as client:
            listed = client.get("/api/v1/records/job", params={"parent": f"batch:{batch}"})
            job = f"/api/v1/records/job/{listed.json()['records'][0]['id']}"
            own = f"/api/v1/records/batch/{batch}"
            answers += [
                listed,
                *(
                    client.get(path)
                    for path in (f"{API}/batches/{batch}", own, f"{own}/history", job, f"{job}/history")
                ),
            ]
            shown = client.get(job).json()["documents"]["configuration"]["payload_url"]
        assert shown == f"{ingest.web.url}/a.txt?X-Amz-Date=***&X-Amz-Signature=***"
        assert [answer.status_code for answer in answers] == [201] + [200] * 6
        assert not [str(answer.url) for answer in answers if "hunter2" in answer.text]
