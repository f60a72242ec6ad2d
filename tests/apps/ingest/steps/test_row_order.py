"""Rows of one batch that name the same object become its versions in the order of the manifest."""

import threading
from pathlib import Path

import pytest

from tests.apps.ingest.batches import jobs, manifest, profile, submit
from tests.apps.ingest.ingest_fixture import IngestFixture
from waybill.apps.ingest import batch_jobs
from waybill.apps.ingest.inventory import Inventory
from waybill.apps.ingest.submission import PayloadType
from waybill.record import Record, StoreUnavailable

ARK = "ark:/99999/fk4turns"


def batch_of(ingest: IngestFixture, *rows: tuple[str, str, str], known: bool = False, **fields: str) -> Record:
    """Each row: a name, an ARK, local ids. `known`: the profile is there."""
    if not known:
        profile(ingest)
    lines = (
        f"{ingest.web.put(name, name.encode())} |  |  |  |  | {name} | {ark} | {local}" for name, ark, local in rows
    )
    return submit(
        ingest,
        url=ingest.web.put("list.checkm", manifest("single-file-batch", *lines)),
        type=PayloadType.FILES,
        is_profile_checked=True,
        **fields,
    )


def versions(ingest: IngestFixture, ark: str) -> list[str]:
    """The file of each version, oldest first."""
    inventory = ingest.resources.inventory
    found = []
    for row in inventory.list_versions(ark):
        paths = [
            each["path"]
            for each in inventory.list_files(ark, row["number"]).rows
            if each["path"].startswith("producer/")
        ]
        found += [path.removeprefix("producer/") for path in paths]
    return found


def late(ingest: IngestFixture, name: str) -> threading.Event:
    """A file that only comes when the test says so."""
    go = threading.Event()

    def answer(handler: object) -> None:
        go.wait(60)
        del ingest.web.answers[f"/{name}"]
        handler._answer(body=handler.command == "GET")  # type: ignore[attr-defined]

    ingest.web.answers[f"/{name}"] = answer
    return go


def ended_in_turn(ingest: IngestFixture, batch: Record, go: threading.Event) -> None:
    """Work until the row of another object has not waited and the second has; then let the first go on."""
    with ingest.workers(), ingest.engine() as engine:
        while not any(job.state == "Completed" for job in jobs(ingest, batch)):
            engine.store.watch(0.2)
        while "precedes it in the manifest" not in jobs(ingest, batch)[1].message:
            engine.store.watch(0.2)
        go.set()
        ingest.wait("batch", batch.id, "Completed")


@pytest.mark.parametrize("store", ["sqlite", "postgres", "zookeeper"])
def test_versions_come_in_the_order_of_the_rows(
    tmp_path: Path, store: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_jobs, "SECONDS_PER_ROW_AHEAD", 0.1)
    url = "" if store == "sqlite" else request.getfixturevalue(f"{'fast_' if store == 'postgres' else ''}{store}_url")
    with IngestFixture(tmp_path, store=url) as ingest:
        batch = batch_of(
            ingest,
            ("1.txt", ARK, ""),
            ("2.txt", ARK, "x"),
            ("3.txt", "", "other"),
            ("4.txt", "", "x; y"),
            ("5.txt", ARK, ""),
        )
        go = late(ingest, "1.txt")
        ended_in_turn(ingest, batch, go)
        assert versions(ingest, ARK) == ["1.txt", "2.txt", "4.txt", "5.txt"]


@pytest.mark.parametrize("store", ["sqlite", "postgres", "zookeeper"])
def test_rows_that_are_one_object_by_the_inventory_alone_are_its_versions_in_their_order(
    tmp_path: Path, store: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_jobs, "SECONDS_PER_ROW_AHEAD", 0.1)
    url = "" if store == "sqlite" else request.getfixturevalue(f"{'fast_' if store == 'postgres' else ''}{store}_url")
    with IngestFixture(tmp_path, store=url) as ingest:
        with ingest.workers():
            before = batch_of(ingest, ("0.txt", ARK, "x; y"))
            ingest.wait("batch", before.id, "Completed")
        rows = (("1.txt", "", "x"), ("2.txt", ARK, ""), ("3.txt", "", "other"), ("4.txt", "", "y"))
        batch = batch_of(ingest, *rows, batch_id="bid-2", known=True)
        go = late(ingest, "1.txt")
        ended_in_turn(ingest, batch, go)
        assert versions(ingest, ARK) == ["0.txt", "1.txt", "2.txt", "4.txt"]
        remarks = ingest.get("batch", batch.id).documents["spawned"]["remarks"]
        assert [each.partition(" ")[2].partition(":")[0] for each in remarks] == ["5", "7"]
        assert all(ARK in each for each in remarks)


def test_while_the_inventory_is_unavailable_no_jobs_are_made_out_of_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with IngestFixture(tmp_path) as ingest:
        batch = batch_of(ingest, ("1.txt", "", "x"), ("2.txt", ARK, ""))
        ingest.step_until(batch.ref, "Processing")

        def fail(inventory: Inventory, owner: str, localid: str) -> str | None:
            raise StoreUnavailable("The index is unavailable.")

        with monkeypatch.context() as patch:
            patch.setattr(Inventory, "ark_of", fail)
            patch.setattr(batch_jobs, "POLL_SECONDS", 0.0)
            for _ in range(20):
                ingest.step(batch.ref)
            assert ingest.get(*batch.ref).state == "Processing"
            assert "The index is unavailable." in ingest.get(*batch.ref).message
            assert jobs(ingest, batch) == []
        ingest.step(batch.ref)
        assert len(jobs(ingest, batch)) == 2


def test_nobody_waits_for_a_row_that_failed_is_held_or_was_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_jobs, "SECONDS_PER_ROW_AHEAD", 0.0)
    with IngestFixture(tmp_path) as ingest:
        batch = batch_of(ingest, *((f"{n}.txt", ARK, "") for n in range(5)))
        ingest.step_until(batch.ref, "Processing")
        ingest.step(batch.ref)
        zero, one, two, three, four = (job.ref for job in jobs(ingest, batch))
        ingest.step_until(four, "Provisioning")

        def waits_for() -> str:
            ingest.step(four)
            job = ingest.get(*four)
            return job.message if job.state == "Provisioning" else ""

        with ingest.engine() as engine:
            assert f"waits for {three.id}" in waits_for()
            engine.act(three, "hold", who="op")
            assert f"waits for {two.id}" in waits_for()
            engine.act(two, "fail", who="op", confirmed=True)
            assert f"waits for {one.id}" in waits_for()
            engine.act(one, "fail", who="op", confirmed=True)
            engine.act(one, "delete", who="op", confirmed=True)
            assert f"waits for {zero.id}" in waits_for(), "those passed over hide nobody above them"
            engine.act(zero, "fail", who="op", confirmed=True)
            assert waits_for() == ""
