"""Rows of one batch that name the same object become its versions in the order of the manifest."""

import threading
from pathlib import Path

import pytest

from tests.apps.ingest.batches import jobs, manifest, profile, submit
from tests.apps.ingest.site import Site
from waybill.apps.ingest.steps import turns
from waybill.apps.ingest.submission import Type
from waybill.record import Record

ARK = "ark:/99999/fk4turns"


def batch_of(site: Site, *rows: tuple[str, str, str]) -> Record:
    """Each row: a name, an ARK, local ids."""
    profile(site)
    lines = (f"{site.web.put(name, name.encode())} |  |  |  |  | {name} | {ark} | {local}" for name, ark, local in rows)
    return submit(site, url=site.web.put("list.checkm", manifest("single-file-batch", *lines)), type=Type.FILES, checked=True)


def versions(site: Site, ark: str) -> list[str]:
    """The file of each version, oldest first."""
    inventory = site.depot.outfit("job").inventory
    found = []
    for row in inventory.versions(ark):
        paths = [each["path"] for each in inventory.files(ark, row["number"]).rows if each["path"].startswith("producer/")]
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


@pytest.mark.parametrize("store", ["sqlite", "postgres", "zookeeper"])
def test_versions_come_in_the_order_of_the_rows(
    tmp_path: Path, store: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns, "LOOK", 0.1)
    url = "" if store == "sqlite" else request.getfixturevalue(f"{'fast_' if store == 'postgres' else ''}{store}_url")
    with Site(tmp_path, store=url) as site:
        batch = batch_of(site, ("1.txt", ARK, ""), ("2.txt", ARK, "x"), ("3.txt", "", "other"), ("4.txt", "", "x; y"), ("5.txt", ARK, ""))
        go = late(site, "1.txt")
        with site.workers(), site.engine() as engine:
            while not any(job.state == "Completed" for job in jobs(site, batch)):  # the row of another object does not wait
                engine.store.watch(0.2)
            while "stands above it in the manifest" not in jobs(site, batch)[1].message:
                engine.store.watch(0.2)
            go.set()
            site.wait("batch", batch.id, "Completed")
        assert versions(site, ARK) == ["1.txt", "2.txt", "4.txt", "5.txt"]


def test_nobody_waits_for_a_row_that_failed_is_held_or_was_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
