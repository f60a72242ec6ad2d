"""The same commands on every store: deposit, follow, list, hold, resume, lock, and find a batch by the id that its depositor knows."""

from pathlib import Path

import pytest

from tests.apps.ingest.commands.conftest import Working
from tests.cli.conftest import Waybill


@pytest.fixture(params=["postgres", "zookeeper"])
def elsewhere(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, environment: None) -> None:
    """The store of every command is another one than the embedded default, which all other tests have."""
    monkeypatch.setenv("WAYBILL_STORE", request.getfixturevalue(f"{request.param}_url"))


@pytest.mark.usefixtures("elsewhere")
def test_the_commands_do_the_same_on_every_store(house: Waybill, working: Working, data: Path) -> None:
    for name in ("a", "b", "c"):
        Path(f"{name}.txt").write_text(name)
    with working():
        good = house("submit", "a.txt", "--profile", "demo", "--title", "Good", "--watch", "--json")
        bad = house("submit", "b.txt", "--profile", "demo", "--digest", f"md5:{'0' * 32}", "--watch", "--json")
        house("hold", "--collection", "maps")
        held = house("submit", "c.txt", "--profile", "demo", "--watch", "--json")
    assert [(said.code, said.lines[-1]["state"]) for said in (good, bad, held)] == [(0, "Completed"), (1, "Failed"), (1, "Held")]
    ids = [said.lines[-1]["id"] for said in (good, bad, held)]
    assert [row["id"] for row in house("batches", "--json").json["batches"]] == ids[::-1]
    assert [row["id"] for row in house("batches", "--state", "Failed", "--json").json["batches"]] == [ids[1]]
    assert house("batch", bad.lines[-1]["batch_id"], "--json").json["failures"][0]["can_be_resumed"] is False
    assert house("report", ids[0], "--json").json["counts"] == {"completed": 1, "failed": 0, "deleted": 0}
    assert [row["title"] for row in house("search", "--json").json["objects"]] == ["Good"]
    assert [mark["name"] for mark in house("locks", "--json").json["marks"]] == ["maps"]
    with working():
        assert house("release", "--collection", "maps", "--json").json["done"] == 1
        assert house("watch", ids[2]).code == 0
    assert house("delete", ids[1], "--yes").code == 0
    tallies = {kind["kind"]: kind for kind in house("--json").json["kinds"]}
    assert {state["state"]: state["count"] for state in tallies["batch"]["states"] if state["count"]} == {"Completed": 2, "Deleted": 1}
    assert not (data / "waybill.db").exists(), "it was another store"
