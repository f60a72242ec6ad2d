"""Nobody is told of an object before it can be had: from inside the callback and the mail server it is fetched
through the inventory.
"""

from __future__ import annotations

import json
from contextlib import closing
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import pytest

from tests.apps.ingest.batches import files, jobs, profile, submit
from tests.apps.ingest.ingest_fixture import IngestFixture
from tests.notify.smtp_server import SmtpServer
from waybill.apps.ingest.batch_jobs import job_id_of
from waybill.apps.ingest.inventory import Inventory
from waybill.apps.ingest.profile import ProfileCallback, ProfileMail, ProfileMinter
from waybill.apps.ingest.resources import IngestResources
from waybill.apps.ingest.submission import PayloadType, Submission

OWNER = "ark:/99999/j2owner"


def fetched(ingest: IngestFixture, ark: str, path: str) -> bytes:
    """As a user who knows the ARK gets a file: by a connection of his own."""
    resources: IngestResources = ingest.resources
    with closing(ingest.environment.open_index()) as index:
        inventory = Inventory(index)
        (version,) = inventory.list_versions(ark)
        assert inventory.get_file(ark, version["number"], path) is not None
    with resources.storage.open_file(ark, path) as body:
        return b"".join(body)


@pytest.mark.parametrize("store", ["sqlite", "postgres", "zookeeper"])
def test_an_object_can_be_had_when_the_callback_and_the_mail_come(
    tmp_path: Path, store: str, request: pytest.FixtureRequest
) -> None:
    url = "" if store == "sqlite" else request.getfixturevalue(f"{'fast_' if store == 'postgres' else ''}{store}_url")
    called: dict[str, bytes] = {}
    mailed: dict[str, bytes] = {}
    with SmtpServer() as box, IngestFixture(tmp_path, store=url, mail__url=box.url) as ingest:

        def receive(handler: Any) -> None:
            decoded = json.loads(handler.rfile.read(int(handler.headers["Content-Length"])))["job:jobState"]
            called[decoded["job:primaryID"]] = fetched(
                ingest, decoded["job:primaryID"], f"producer/{decoded['job:packageName']}"
            )
            handler.send_response(200)
            handler.send_header("Content-Length", "0")
            handler.end_headers()

        def read(message: EmailMessage) -> None:
            (part,) = message.iter_attachments()
            for row in json.loads(part.get_content())["completedJobs"]:
                mailed[row["primary_id"]] = fetched(ingest, row["primary_id"], f"producer/{row['filename']}")

        box.on_message = read
        profile(
            ingest,
            owner=OWNER,
            minter=ProfileMinter(naan="99999", shoulder="fk4"),
            mail=ProfileMail(to=("jane@example.org",)),
            callback=ProfileCallback(url=f"{ingest.web.url}/told"),
        )
        for number in range(3):
            ingest.web.put(f"{number}.txt", f"file {number}".encode())
        manifest = files(3).replace(b"http://127.0.0.1/", f"{ingest.web.url}/".encode())
        batch = submit(ingest, url=ingest.web.put("list.checkm", manifest), type=PayloadType.FILES, owner=OWNER)
        for row in range(4, 7):
            ingest.web.answers[f"/told/mc/{job_id_of('bid-1', row)}"] = receive
        with ingest.workers():
            ingest.wait("batch", batch.id, "Completed", "Failed")
            (came,) = box.wait()
        arks = [Submission.from_job(job).primary_id for job in jobs(ingest, batch)]
        assert ingest.get("batch", batch.id).state == "Completed"
        assert came.message["Subject"] == "OK: 3 of 3 completed: bid-1"
        body = came.message.get_body()
        assert body is not None
        text = body.get_content()
        assert all(f"  {ark} ('{number}.txt'" in text for number, ark in enumerate(arks)), text
        assert called == mailed == {ark: f"file {number}".encode() for number, ark in enumerate(arks)}
