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
from tests.apps.ingest.site import Site
from tests.notify.mailbox import Mailbox
from waybill.apps.ingest.inventory import Inventory
from waybill.apps.ingest.outfit import Outfit
from waybill.apps.ingest.profile import Callback, Mail, Minter
from waybill.apps.ingest.steps.admitting import job_id
from waybill.apps.ingest.submission import Type, of_job

OWNER = "ark:/99999/j2owner"


def fetched(site: Site, ark: str, path: str) -> bytes:
    """As a user who knows the ARK gets a file: by a connection of his own."""
    outfit: Outfit = site.depot.outfit("job")
    with closing(site.depot.open_index()) as index:
        inventory = Inventory(index)
        (version,) = inventory.versions(ark)
        assert inventory.file(ark, version["number"], path) is not None
    with outfit.storage.open(ark, path) as body:
        return b"".join(body)


@pytest.mark.parametrize("store", ["sqlite", "postgres", "zookeeper"])
def test_an_object_can_be_had_when_the_callback_and_the_mail_come(
    tmp_path: Path, store: str, request: pytest.FixtureRequest
) -> None:
    url = "" if store == "sqlite" else request.getfixturevalue(f"{'fast_' if store == 'postgres' else ''}{store}_url")
    called: dict[str, bytes] = {}
    mailed: dict[str, bytes] = {}
    with Mailbox() as box, Site(tmp_path, store=url, mail__url=box.url) as site:

        def receive(handler: Any) -> None:
            told = json.loads(handler.rfile.read(int(handler.headers["Content-Length"])))["job:jobState"]
            called[told["job:primaryID"]] = fetched(site, told["job:primaryID"], f"producer/{told['job:packageName']}")
            handler.send_response(200)
            handler.send_header("Content-Length", "0")
            handler.end_headers()

        def read(message: EmailMessage) -> None:
            (part,) = message.iter_attachments()
            for row in json.loads(part.get_content())["completedJobs"]:
                mailed[row["primary_id"]] = fetched(site, row["primary_id"], f"producer/{row['filename']}")

        box.reads = read
        profile(
            site,
            owner=OWNER,
            minter=Minter(naan="99999", shoulder="fk4"),
            mail=Mail(to=("jane@example.org",)),
            callback=Callback(url=f"{site.web.url}/told"),
        )
        for number in range(3):
            site.web.put(f"{number}.txt", f"file {number}".encode())
        manifest = files(3).replace(b"http://127.0.0.1/", f"{site.web.url}/".encode())
        batch = submit(site, url=site.web.put("list.checkm", manifest), type=Type.FILES, owner=OWNER)
        for row in range(4, 7):
            site.web.answers[f"/told/mc/{job_id('bid-1', row)}"] = receive
        with site.workers():
            site.wait("batch", batch.id, "Completed", "Failed")
            (came,) = box.wait()
        arks = [of_job(job).primary_id for job in jobs(site, batch)]
        assert site.get("batch", batch.id).state == "Completed"
        assert came.message["Subject"] == "OK: 3 of 3 completed: bid-1"
        text = came.message.get_body().get_content()
        assert all(f"  {ark} ('{number}.txt'" in text for number, ark in enumerate(arks)), text
        assert called == mailed == {ark: f"file {number}".encode() for number, ark in enumerate(arks)}
