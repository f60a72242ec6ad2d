"""The same commands on every store: deposit, follow, list, hold, resume, lock, and find a batch by the id that its
depositor knows.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.apps.ingest.commands.conftest import ARK as MAPS
from tests.apps.ingest.commands.conftest import RunWorker
from tests.apps.ingest.ingest_fixture import FileServer
from tests.cli.conftest import Waybill
from tests.servers.postgres import PostgresServer
from tests.servers.process import wait_until


@pytest.fixture(params=["postgres", "zookeeper"])
def elsewhere(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, environment: None) -> None:
    """The store of every command is another one than the embedded default, which all other tests have."""
    monkeypatch.setenv("WAYBILL_STORE", request.getfixturevalue(f"{request.param}_url"))


@pytest.mark.usefixtures("elsewhere")
def test_the_commands_do_the_same_on_every_store(ingest_cli: Waybill, run_worker: RunWorker, data: Path) -> None:
    for name in ("a", "b", "c"):
        Path(f"{name}.txt").write_text(name)
    with run_worker():
        good = ingest_cli("submit", "a.txt", "--profile", "demo", "--title", "Good", "--watch", "--json")
        bad = ingest_cli("submit", "b.txt", "--profile", "demo", "--digest", f"md5:{'0' * 32}", "--watch", "--json")
        ingest_cli("hold", "--collection", "maps")
        held = ingest_cli("submit", "c.txt", "--profile", "demo", "--watch", "--json")
    assert [(said.code, said.lines[-1]["state"]) for said in (good, bad, held)] == [
        (0, "Completed"),
        (1, "Failed"),
        (1, "Held"),
    ]
    ids = [said.lines[-1]["id"] for said in (good, bad, held)]
    assert [row["id"] for row in ingest_cli("batches", "--json").json["batches"]] == ids[::-1]
    assert [row["id"] for row in ingest_cli("batches", "--state", "Failed", "--json").json["batches"]] == [ids[1]]
    assert ingest_cli("batch", bad.lines[-1]["batch_id"], "--json").json["failures"][0]["can_be_resumed"] is False
    assert ingest_cli("report", ids[0], "--json").json["counts"] == {"completed": 1, "failed": 0, "deleted": 0}
    assert [row["title"] for row in ingest_cli("search", "--json").json["objects"]] == ["Good"]
    assert [hold["name"] for hold in ingest_cli("locks", "--json").json["holds"]] == ["maps"]
    with run_worker():
        assert ingest_cli("release", "--collection", "maps", "--json").json["done"] == 1
        assert ingest_cli("watch", ids[2]).code == 0
    assert ingest_cli("delete", ids[1], "--yes").code == 0
    tallies = {kind["kind"]: kind for kind in ingest_cli("--json").json["kinds"]}
    assert {state["state"]: state["count"] for state in tallies["batch"]["states"] if state["count"]} == {
        "Completed": 2,
        "Deleted": 1,
    }
    assert not (data / "waybill.db").exists(), "it was another store"


@pytest.mark.usefixtures("elsewhere")
def test_a_second_report_is_sent_after_mending_on_every_store(
    ingest_cli: Waybill, run_worker: RunWorker, web: FileServer
) -> None:
    profile = "http://uc3.cdlib.org/registry/ingest/manifest/mrt-single-file-batch-manifest"
    rows = "".join(f"{web.url}/{name}.txt |  |  |  |  | {name}.txt\n" for name in ("here", "missing", "late"))
    Path("batch.checkm").write_text(f"#%checkm_0.7\n#%profile | {profile}\n{rows}#%eof\n")
    web.put("here.txt", b"here")
    with run_worker():
        first = ingest_cli("submit", "batch.checkm", "--profile", "demo", "--watch", "--json")
        assert (first.code, first.lines[-1]["state"]) == (1, "Failed")
        batch = first.lines[-1]["id"]
        before = ingest_cli("report", batch, "--json").json
        assert (before["report"], before["counts"]) == (1, {"completed": 1, "failed": 2, "deleted": 0})
        assert [row["state"] for row in ingest_cli("report", batch, "--jobs", "--json").json["jobs"]].count(
            "Failed"
        ) == 2
        web.put("late.txt", b"late")
        assert ingest_cli("resume", "--batch", batch).code == 0
        wait_until(lambda: settled(ingest_cli, batch), "its jobs have settled")
        sent = ingest_cli("report", batch, "--send", "--why", "all that could be mended is", "--json")
        assert (sent.code, sent.json) == (0, {"id": batch, "state": "UpdateReporting"})
        wait_until(lambda: ingest_cli("report", batch, "--json").json["report"] == 2, "the second report is written")
    after = ingest_cli("report", batch, "--json").json
    assert after["counts"] == {"completed": 2, "failed": 1, "deleted": 0}
    assert [after["since"][name] for name in ("completed", "deleted", "unresolved")] == [1, 0, 1]
    assert "unresolved" in ingest_cli("report", batch).out


def settled(ingest_cli: Waybill, batch: str) -> bool:
    return {row["state"] for row in ingest_cli("jobs", "--batch", batch, "--json").json["jobs"]} <= {
        "Completed",
        "Failed",
    }


@pytest.fixture(params=["C", "en-US-x-icu"])
def ordered(
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    environment: None,
    fast_postgres_server: PostgresServer,
) -> Iterator[None]:
    """A database that orders text by its bytes; and one that orders it as people do, capitals beside small letters,
    signs passed over.
    """
    url = fast_postgres_server.create_database(request.param)
    monkeypatch.setenv("WAYBILL_STORE", url)
    yield
    fast_postgres_server.drop_database(url)


@pytest.mark.usefixtures("ordered")
def test_the_inventory_is_paged_through_on_postgresql(ingest_cli: Waybill, run_worker: RunWorker) -> None:
    Path("a.txt").write_text("a")
    names = ["99999/fk4ab", "99999/fk4a1", "9999900/fk4b", "12345/z9", "99999/b2", "99999/b10"]
    arks = [f"ark:/{name}" for name in names]
    with run_worker():
        for ark in arks:
            result = ingest_cli(
                "submit", "a.txt", "--profile", "demo", "--primary-id", ark, "--title", "A map", "--watch", "--json"
            )
            assert (result.code, result.lines[-1]["state"]) == (0, "Completed"), result
    for asked in ((), ("map",), ("--collection", MAPS)):
        found, after = [], ""
        while True:
            page = ingest_cli("search", *asked, "--limit", "2", *(("--after", after) if after else ()), "--json").json
            found += [row["ark"] for row in page["objects"]]
            if not (after := page["next"]):
                break
        assert sorted(found) == sorted(arks)
        assert len(found) == len(set(found))
