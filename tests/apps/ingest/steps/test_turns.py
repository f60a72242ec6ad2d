"""Rows of one batch that name the same object become its versions in the order of the manifest."""

import threading
from pathlib import Path

import pytest

from tests.apps.ingest.batches import jobs, manifest, profile, submit
from tests.apps.ingest.site import Site
from waybill.apps.ingest.inventory import Inventory
from waybill.apps.ingest.steps import admitting, turns
from waybill.apps.ingest.submission import Type
from waybill.record import Record, Unavailable

ARK = "ark:/99999/fk4turns"


def batch_of(site: Site, *rows: tuple[str, str, str], known: bool = False, **said: str) -> Record:
    """Each row: a name, an ARK, local ids. `known`: the profile is there."""
    if not known:
        profile(site)
    lines = (f"{site.web.put(name, name.encode())} |  |  |  |  | {name} | {ark} | {local}" for name, ark, local in rows)
    return submit(
        site,
        url=site.web.put("list.checkm", manifest("single-file-batch", *lines)),
        type=Type.FILES,
        checked=True,
        **said,
    )


def versions(site: Site, ark: str) -> list[str]:
    """The file of each version, oldest first."""
    inventory = site.depot.outfit("job").inventory
    found = []
    for row in inventory.versions(ark):
        paths = [
            each["path"] for each in inventory.files(ark, row["number"]).rows if each["path"].startswith("producer/")
        ]
        found += [path.removeprefix("producer/") for path in paths]
    return found


def late(site: Site, name: str) -> threading.Event:
    """A file that only comes when the test says so."""
    go = threading.Event()

    def answer(handler: object) -> None:
        go.wait(60)
        del site.web.answers[f"/{name}"]
        handler._answer(body=handler.command == "GET")  # type: ignore[attr-defined]

    site.web.answers[f"/{name}"] = answer
    return go


def ended_in_turn(site: Site, batch: Record, go: threading.Event) -> None:
    """Work until the row of another object has not waited and the second has; then let the first go on."""
    with site.workers(), site.engine() as engine:
        while not any(job.state == "Completed" for job in jobs(site, batch)):
            engine.store.watch(0.2)
        while "stands above it in the manifest" not in jobs(site, batch)[1].message:
            engine.store.watch(0.2)
        go.set()
        site.wait("batch", batch.id, "Completed")


@pytest.mark.parametrize("store", ["sqlite", "postgres", "zookeeper"])
def test_versions_come_in_the_order_of_the_rows(
    tmp_path: Path, store: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns, "LOOK", 0.1)
    url = "" if store == "sqlite" else request.getfixturevalue(f"{'fast_' if store == 'postgres' else ''}{store}_url")
    with Site(tmp_path, store=url) as site:
        batch = batch_of(
            site,
            ("1.txt", ARK, ""),
            ("2.txt", ARK, "x"),
            ("3.txt", "", "other"),
            ("4.txt", "", "x; y"),
            ("5.txt", ARK, ""),
        )
        go = late(site, "1.txt")
        ended_in_turn(site, batch, go)
        assert versions(site, ARK) == ["1.txt", "2.txt", "4.txt", "5.txt"]


@pytest.mark.parametrize("store", ["sqlite", "postgres", "zookeeper"])
def test_rows_that_are_one_object_by_the_inventory_alone_are_its_versions_in_their_order(
    tmp_path: Path, store: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns, "LOOK", 0.1)
    url = "" if store == "sqlite" else request.getfixturevalue(f"{'fast_' if store == 'postgres' else ''}{store}_url")
    with Site(tmp_path, store=url) as site:
        with site.workers():
            before = batch_of(site, ("0.txt", ARK, "x; y"))
            site.wait("batch", before.id, "Completed")
        rows = (("1.txt", "", "x"), ("2.txt", ARK, ""), ("3.txt", "", "other"), ("4.txt", "", "y"))
        batch = batch_of(site, *rows, batch_id="bid-2", known=True)
        go = late(site, "1.txt")
        ended_in_turn(site, batch, go)
        assert versions(site, ARK) == ["0.txt", "1.txt", "2.txt", "4.txt"]
        remarks = site.get("batch", batch.id).docs["spawned"]["remarks"]
        assert [each.partition(" ")[2].partition(":")[0] for each in remarks] == ["5", "7"]
        assert all(ARK in each for each in remarks)


def test_while_the_inventory_is_away_no_jobs_are_made_out_of_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Site(tmp_path) as site:
        batch = batch_of(site, ("1.txt", "", "x"), ("2.txt", ARK, ""))
        site.lead(batch.ref, "Processing")

        def away(inventory: Inventory, owner: str, localid: str) -> str | None:
            raise Unavailable("The index is away.")

        with monkeypatch.context() as patch:
            patch.setattr(Inventory, "ark_of", away)
            patch.setattr(admitting, "LOOK", 0.0)
            for _ in range(20):
                site.step(batch.ref)
            assert site.get(*batch.ref).state == "Processing"
            assert "The index is away." in site.get(*batch.ref).message
            assert jobs(site, batch) == []
        site.step(batch.ref)
        assert len(jobs(site, batch)) == 2


def test_nobody_waits_for_a_row_that_failed_is_held_or_was_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns, "LOOK", 0.0)
    with Site(tmp_path) as site:
        batch = batch_of(site, *((f"{n}.txt", ARK, "") for n in range(5)))
        site.lead(batch.ref, "Processing")
        site.step(batch.ref)
        zero, one, two, three, four = (job.ref for job in jobs(site, batch))
        site.lead(four, "Provisioning")

        def waits_for() -> str:
            site.step(four)
            job = site.get(*four)
            return job.message if job.state == "Provisioning" else ""

        with site.engine() as engine:
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
