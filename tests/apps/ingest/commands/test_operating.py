"""What operators do from the command line: hold and release, pause, fail, delete, lock, audit, rebuild, pack, take
over old queues.
"""

import hashlib
import os
import sqlite3
import struct
import tarfile
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.apps.ingest.commands.conftest import Working
from tests.cli.conftest import Waybill
from tests.servers.process import wait_until
from waybill import config
from waybill.apps.ingest.application import APPLICATION
from waybill.apps.ingest.demo import demonstrate
from waybill.depot import Depot
from waybill.engine import Engine
from waybill.step import New
from waybill.stores.sqlite import SqliteStore


def submit(house: Waybill, name: str = "a.txt", data: bytes = b"a", *more: object) -> str:
    Path(name).write_bytes(data)
    said = house("submit", name, "--profile", "demo", *more, "--json")
    assert said.code == 0, said.err
    return str(said.json["id"])


def deposited(house: Waybill, working: Working, name: str = "a.txt", data: bytes = b"a\n") -> str:
    """The ARK of an object at rest."""
    Path(name).write_bytes(data)
    with working():
        said = house("submit", name, "--profile", "demo", "--title", "At rest", "--watch", "--json")
    assert said.code == 0, said.err
    return str(said.lines[-1]["objects"][0]["object"])


@pytest.fixture
def engine(house: Waybill) -> Iterator[Engine]:
    depot = Depot.of(config.load(env=os.environ), [APPLICATION])
    with closing(depot.open_store()) as store:
        yield depot.engine(store)


def test_a_collection_on_hold_keeps_its_deposits_and_releasing_it_lets_them_go(
    house: Waybill, working: Working
) -> None:
    held = house("hold", "--collection", "maps", "--why", "the curator asked")
    assert (held.code, held.err) == (0, "")
    batch = submit(house)
    with working():
        said = house("watch", batch)
        assert said.code == 1, "nobody knows when it will go on"
        assert "waybill ingest release --collection maps" in said.err
        assert house("batch", batch, "--json").json["state"] == "Held"
        refused = house("release", batch)
        assert (refused.code, "still on hold" in refused.err) == (1, True)
        released = house("release", "--collection", "maps", "--json")
        assert (released.code, released.json["done"], released.json["refused"]) == (0, 1, 0)
        assert house("watch", batch).code == 0
    again = house("release", "--collection", "maps")
    assert (again.code, "'maps' is not on hold" in again.err) == (3, True)


def test_a_name_that_nobody_knows_can_be_held_and_is_remarked_on(house: Waybill) -> None:
    said = house("hold", "--collection", "elsewhere")
    assert said.code == 0
    assert "No collection or profile is called elsewhere" in said.err


def test_a_batch_is_held_and_released_by_its_id(house: Waybill, working: Working) -> None:
    batch = submit(house)
    assert house("hold", batch, "--json").lines[0]["state"] == "Held"
    assert house("hold", batch).code == 1
    assert house("release", batch).code == 0
    with working():
        assert house("watch", batch).code == 0


def test_a_paused_queue_begins_nothing_until_it_is_unpaused(house: Waybill, waybill: Waybill) -> None:
    submit(house)
    assert house("pause", "--why", "maintenance").code == 0
    assert "paused: ingest" in house().out
    assert house("locks", "--json").json["marks"][0]["name"] == "ingest"
    assert waybill("work", "--once", "--role", "batch").code == 3
    assert house("unpause").code == 0
    assert waybill("work", "--once", "--role", "batch", "--json").json["arrow"]["after"] == "Processing"
    assert house("unpause").code == 3


def job_of(house: Waybill, waybill: Waybill, batch: str) -> str:
    """The job of a batch, waiting to begin."""
    for _ in range(2):
        assert waybill("work", "--once", "--role", "batch").code == 0
    (job,) = house("jobs", "--batch", batch, "--json").json["jobs"]
    return str(job["id"])


def test_failing_and_deleting_a_job_of_an_open_batch_must_be_confirmed(house: Waybill, waybill: Waybill) -> None:
    batch = submit(house)
    job = job_of(house, waybill, batch)
    refused = house("fail", job)
    assert (refused.code, "Add --yes" in refused.err) == (1, True)
    assert house("fail", job, "--yes", "--json").lines[0]["state"] == "Failed"
    unsure = house("delete", job)
    assert (unsure.code, "the depositor will not hear of this job" in unsure.err) == (1, True)
    assert house("delete", job, "--yes").code == 0
    assert house("jobs", "--batch", batch, "--state", "Deleted", "--json").json["jobs"][0]["id"] == job


def test_the_report_says_why_a_job_was_stopped_by_hand(house: Waybill, waybill: Waybill) -> None:
    batch = submit(house)
    job = job_of(house, waybill, batch)
    assert house("fail", job, "--yes", "--why", "wrong collection").code == 0
    assert "wrong collection" in house("batch", batch).out
    while waybill("work", "--once", "--role", "batch").code == 0:
        pass
    (failed,) = house("report", batch, "--jobs", "--json").json["jobs"]
    assert (
        failed["id"],
        failed["message"].startswith("fail by "),
        failed["message"].endswith(": wrong collection"),
    ) == (job, True, True)


def made_elsewhere(kind: str, docs: dict[str, Any]) -> str:
    """A record that another service has made, and which has ended."""
    depot = Depot.of(config.load(env=os.environ), [APPLICATION])
    with closing(depot.open_store()) as store:
        made = Engine(store, depot.machines).submit(New(kind, docs, state="Completed"), who="another service").id
    depot.close()
    return made


@pytest.mark.parametrize(("when", "size"), [("soon", 12), (12, "twelve"), ("2026-13-45T00:00:00Z", None)])
def test_assemblies_are_listed_whatever_other_services_wrote_into_their_tokens(
    house: Waybill, when: object, size: object
) -> None:
    made = made_elsewhere(
        "access-small", {"token": {"cloud-content-byte": size, "url": 5, "anticipated-availability-time": when}}
    )
    listed, shown = house("access"), house("access", "show", made)
    assert (listed.code, made in listed.out, shown.code) == (0, True, 0)
    assert ("soon" in listed.out) is (when == "soon")


def test_batches_are_listed_whatever_other_services_wrote_as_their_date(house: Waybill) -> None:
    made = made_elsewhere("batch", {"submission": {"submissionDate": "last week"}})
    listed, shown = house("batches"), house("batch", made)
    assert (listed.code, "last week" in listed.out, shown.code, "last week" in shown.out) == (0, True, 0, True)


def test_a_state_in_which_no_batch_is_gets_no_advice_to_submit_one(house: Waybill) -> None:
    submit(house)
    assert house("batches", "--state", "Failed").err.strip() == "No batch is Failed; `waybill ingest` counts them."


def test_deleting_a_batch_must_be_confirmed(house: Waybill) -> None:
    batch = submit(house)
    house("hold", batch)
    refused = house("delete", batch)
    assert (refused.code, "The depositor will not be told" in refused.err) == (1, True)
    assert house("delete", batch, "--yes", "--json").lines[0]["state"] == "Deleted"


@pytest.mark.parametrize(
    ("arguments", "code", "part"),
    [
        (("batch", "bid0000000099"), 3, "There is no batch"),
        (("watch", "nothing"), 3, "There is no batch"),
        (("report", "bid0000000099"), 3, "There is no batch"),
        (("jobs", "--state", "Flying"), 3, "A job has no state 'Flying'"),
        (("jobs", "--token", "x"), 2, "Begin again without a token."),
        (("resume",), 2, "Give JOB..., or --batch BATCH, or --all."),
        (("resume", "jid0000000099"), 3, "There is no job"),
        (("release",), 2, "Give JOB|BATCH or --collection."),
        (("hold", "jid1", "--collection", "x"), 2, "Give JOB|BATCH or --collection."),
        (("delete",), 2, "Give the id of at least one job or batch."),
        (("object", "ark:/99999/nothing"), 3, "There is no object ark:/99999/nothing"),
        (("get", "ark:/99999/nothing", "-o", "x"), 3, "There is no object"),
        (("audit", "ark:/99999/nothing"), 3, "There is no object"),
        (("audit", "--all"), 2, "--all needs --now."),
        (("rebuild",), 2, "Give an ARK, or --all."),
        (("search", "a", "--local-id", "b"), 2, "one of them at a time"),
        (("access", "request", "ark:/99999/nothing"), 3, "There is no object"),
        (("access", "show", "qid0000000099"), 3, "There is no assembly"),
        (("lock", "colour/red"), 1, "is not a key"),
        (("unlock", "storage/ark:/99999/fk4x"), 3, "Nothing locks"),
        (("unlock", "storage/ark:/99999/x"), 1, "its name 'x' must be 2 to 127 characters"),
        (("import-legacy", "nowhere"), 1, "nowhere is no folder"),
    ],
)
def test_each_mistake_has_its_code_and_its_sentence(
    house: Waybill, arguments: tuple[str, ...], code: int, part: str
) -> None:
    said = house(*arguments)
    assert (said.code, said.out) == (code, "")
    assert part in said.err
    assert house(*arguments, "--json").error["message"]


def test_an_old_zookeeper_that_is_away_is_one_sentence(house: Waybill, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("waybill.apps.ingest.legacy.sources.PATIENCE", 1.0)
    said = house("import-legacy", "zookeeper://127.0.0.1:1")
    assert (said.code, said.err) == (5, "There is no ZooKeeper at 127.0.0.1:1, or it does not answer.\n")


def test_a_report_that_is_not_there_yet_is_missing(house: Waybill) -> None:
    said = house("report", submit(house))
    assert (said.code, "is Pending and not reported yet" in said.err) == (3, True)


def test_lists_go_on_page_by_page(house: Waybill) -> None:
    made = [submit(house, f"{n}.txt", b"%d" % n) for n in range(5)]
    first = house("batches", "--limit", 3, "--json").json
    second = house("batches", "--limit", 3, "--token", first["next"], "--json").json
    assert [row["id"] for row in first["batches"] + second["batches"]] == made[::-1]
    assert second["next"] is None
    assert house("jobs", "--token", first["next"]).code == 2


def flip(data: Path, content: bytes) -> Path:
    """Damage the stored file that has this content."""
    found = [path for path in (data / "objects" / "ocfl").rglob("*") if path.is_file() and path.read_bytes() == content]
    assert len(found) == 1
    found[0].write_bytes(b"X" + content[1:])
    return found[0]


def test_what_another_storage_service_keeps_is_audited_there(house: Waybill, working: Working, data: Path) -> None:
    ark = deposited(house, working)
    with closing(sqlite3.connect(data / "waybill-index.db")) as index, index:
        index.execute("update inventory_version set place = 'http://store.example.org/' || place")
    said = house("audit", ark)
    assert (said.code, said.err) == (
        1,
        f"Another storage service keeps {ark}, and its bytes are not here: they are audited there.\n",
    )


def test_an_audit_of_everything_says_that_there_is_nothing(house: Waybill) -> None:
    said = house("audit", "--now", "--all")
    assert (said.code, said.err) == (
        0,
        "There is nothing in storage that the inventory knows of: nothing is damaged.\n",
    )
    assert house("audit", "--now").err == "Nothing was due (--all reads everything): nothing is damaged.\n"


def test_an_audit_finds_a_flipped_byte_says_where_and_knows_when_it_is_restored(
    house: Waybill, working: Working, data: Path
) -> None:
    ark = deposited(house, working, data=b"precious\n")
    assert house("audit", "--now", "--all").code == 0
    damaged = flip(data, b"precious\n")
    assert house("audit").code == 0, "nobody has looked yet"
    found = house("audit", "--now", "--all", "--json")
    assert found.code == 1
    (row,) = found.json["damaged"]
    assert (row["object"], row["files"]) == (ark, ["v1 producer/a.txt"])
    assert house("audit", "--json").json["damaged"] == [row], "it stays known"
    assert house("audit", ark).code == 1
    for output in ((), ("-o", "-")):
        piped = house("get", ark, "a.txt", *output)
        assert (piped.code, piped.out, "is damaged" in piped.err) == (1, "", True), "a short file is compared first"
    refused = house("get", ark, "a.txt", "-o", "back.txt")
    assert (refused.code, "is damaged" in refused.err, Path("back.txt").exists()) == (1, True, False)
    damaged.write_bytes(b"precious\n")
    assert house("audit", ark).code == 0
    assert house("audit").code == 0
    flip(data, b"precious\n")
    assert house("audit", ark).code == 1
    assert [row["object"] for row in house("audit", "--json").json["damaged"]] == [ark], (
        "what one reading has found is known to all"
    )
    nothing = house("audit", "--now")
    assert (nothing.code, "Nothing was due" in nothing.err) == (1, True)


def test_the_inventory_is_recorded_again_from_storage(house: Waybill, working: Working, engine: Engine) -> None:
    ark = deposited(house, working)
    with closing(Depot.of(config.load(env=os.environ), [APPLICATION])) as depot:
        depot.outfit("job").inventory.forget(ark)
    assert house("object", ark).code == 3
    with working():
        said = house("rebuild", "--all", "--json")
        assert (said.code, said.json["objects"], said.json["versions"], said.json["troubles"]) == (0, 1, 1, [])
        assert house("object", ark, "--json").json["title"] == "At rest"
        assert house("rebuild", ark).code == 0
        gone = house("rebuild", "ark:/99999/fk4gone")
        assert (gone.code, "is not in storage" in gone.err) == (3, True)
    assert house("rebuild", ark, "--no-wait", "--json").json["waited"] is False


def test_a_file_goes_to_stdout_alone_and_nothing_is_written_over_unasked(
    house: Waybill, working: Working, tmp_path: Path
) -> None:
    ark = deposited(house, working, data=b"a husky\n")
    for said in (house("get", ark, "a.txt", "-o", "-"), house("get", ark, "a.txt")):
        assert (said.code, said.out) == (0, "a husky\n")
        assert hashlib.sha256(b"a husky\n").hexdigest() in said.err
    assert not (tmp_path / "-").exists()
    assert house("get", ark, "a.txt", "-o", "-", "--json").code == 2
    assert house("get", ark, "-o", "-").code == 2
    (tmp_path / "mine.txt").write_text("mine")
    refused = house("get", ark, "a.txt", "-o", "mine.txt")
    assert (refused.code, refused.out) == (1, "")
    assert refused.err == "mine.txt is there already: give another name, or --force to write over it.\n"
    assert (tmp_path / "mine.txt").read_text() == "mine"
    assert house("get", ark, "a.txt", "-o", "mine.txt", "--force").code == 0
    assert (tmp_path / "mine.txt").read_bytes() == b"a husky\n"
    (tmp_path / "there").mkdir()
    assert [house("get", ark, "a.txt", "-o", "there").code for _ in range(2)] == [0, 1]
    assert house("get", ark, "-o", "elsewhere", "--force").code == 2
    os.mkfifo(tmp_path / "pipe")
    assert house("get", ark, "a.txt", "-o", "pipe", "--force").code == 1, (
        "neither a pipe nor a device is replaced by a file"
    )


def test_an_object_is_packed_for_whoever_asks(
    house: Waybill, working: Working, monkeypatch: pytest.MonkeyPatch
) -> None:
    ark = deposited(house, working)
    asked = house("access", "request", ark, "--form", "tar", "--json").json
    assert (asked["state"], asked["object"], asked["queue"]) == ("Pending", ark, "small")
    early = house("access", "get", asked["id"], "-o", "early.tar")
    assert (early.code, "there is no archive of it yet" in early.err, Path("early.tar").exists()) == (3, True, False)
    with working():
        ready = house("access", "request", ark, "--form", "tar", "--watch", "--json")
    assert (ready.code, ready.json["id"], ready.json["state"]) == (0, asked["id"], "Completed"), (
        "asked twice, packed once"
    )
    assert ready.json["url"].startswith("http://waybill.test/")
    assert ready.json["expires"]
    assert house("access", "get", asked["id"], "-o", "back.tar").code == 0
    again = house("access", "get", asked["id"], "-o", "back.tar")
    assert (again.code, "--force" in again.err) == (1, True)
    assert house("access", "get", asked["id"], "-o", "back.tar", "--force").code == 0
    with tarfile.open("back.tar") as archive:
        (file,) = [member for member in archive if member.name.endswith("producer/a.txt")]
        body = archive.extractfile(file)
        assert body is not None
        assert body.read() == b"a\n"
    (listed,) = house("access", "--json").json["assemblies"]
    assert listed["id"] == asked["id"]
    assert house("access", "requeue", asked["id"]).code == 1
    assert ready.json["url"] in house("access", "show", asked["id"]).out
    with monkeypatch.context() as later:
        now = SqliteStore.now
        later.setattr(SqliteStore, "now", lambda store: now(store) + 366 * 86400)
        over = house("access", "show", asked["id"])
        assert ("Completed, expired" in over.out, ready.json["url"] in over.out) == (True, False)
        assert "Completed, expired" in house("access").out
        late = house("access", "get", asked["id"], "-o", "late.tar")
        assert (late.code, "expired" in late.err, "waybill ingest access request ark:/" in late.err) == (3, True, True)
    assert house("access", "delete", asked["id"], "--json").json["state"] == "Deleted"


def test_an_operator_locks_an_object_and_unlocks_it(house: Waybill, working: Working) -> None:
    made = house("lock", "storage/ark:/99999/fk4x", "--why", "it is being moved", "--json").json
    with working():
        wait_until(
            lambda: "Set" in [lock["state"] for lock in house("locks", "--json").json["locks"]], "the lock to be set"
        )
    locks = house("locks", "--json").json["locks"]
    assert [(row["key"], row["holder"]["id"]) for row in locks] == [("storage/ark:/99999/fk4x", made["lock"])]
    assert "it is being moved" in house("locks").out
    assert house("unlock", "storage/ark:/99999/fk4x", "--json").json["ended"] == 1
    assert house("locks", "--json").json["locks"] == []


def entry(status: int, told: bytes) -> bytes:
    return bytes([status]) + struct.pack(">q", int(time.time() * 1000)) + told


def test_old_queues_are_imported_once(house: Waybill, tmp_path: Path) -> None:
    queue = tmp_path / "old" / "ingest"
    queue.mkdir(parents=True)
    told = b'{"batchID": "bid-11111111-1111-4111-8111-111111111111", "jobID": "jid-1", "profile": "demo", "filename": "x", "type": "file"}'
    (queue / "mrtQ-05000000000001").write_bytes(entry(5, told))
    (queue / "mrtQ-05000000000002").write_bytes(b"??")
    dry = house("import-legacy", "old", "--dry-run", "--json")
    assert (dry.code, dry.json["made"], dry.json["refused"]) == (1, {"batch": 1, "job": 1}, 1)
    assert house("batches", "--json").json["batches"] == []
    assert house("import-legacy", "old", "--json").json["made"] == {"batch": 1, "job": 1}
    again = house("import-legacy", "old")
    assert "mrtQ-05000000000002" in again.out
    assert "nothing made" in again.out
    assert house("batch", "11111111-1111-4111-8111-111111111111", "--json").json["jobs"]["states"]["Held"] == 1


def test_a_worker_that_is_gone_is_none(house: Waybill, engine: Engine) -> None:
    host = Depot.of(config.load(env=os.environ), [APPLICATION]).host
    engine.store.open_session(host=host, ttl=1e-9, about={})  # as after kill -9, when the ttl has passed
    assert house("--json").json["workers"] == 0
    assert "No worker is alive" in house().err
    engine.store.open_session(host=host, ttl=60, about={})
    assert house("--json").json["workers"] == 1


def test_the_demonstration_is_made_once_and_shows_every_end(house: Waybill, working: Working, engine: Engine) -> None:
    with closing(Depot.of(config.load(env=os.environ), [APPLICATION])) as depot:
        demonstrate(depot, engine)
        before = sorted(row["id"] for row in house("batches", "--json").json["batches"])
        house("release", "--collection", "atlases")
        demonstrate(depot, engine)
        assert sorted(row["id"] for row in house("batches", "--json").json["batches"]) == before
        assert house("locks", "--json").json["marks"] == [], "what people have released stays released"
        house("hold", "--collection", "atlases")
        with working():
            ends: dict[str, Any] = {
                name: house("watch", f"demo-{name}", "--json").lines[-1]["state"]
                for name in ("photograph", "notebook", "maps", "scan", "atlas")
            }
    assert ends == {
        "photograph": "Completed",
        "notebook": "Completed",
        "maps": "Completed",
        "scan": "Failed",
        "atlas": "Held",
    }
    titles = {row["title"] for row in house("search", "--json").json["objects"]}
    assert titles == {"A husky in the snow", "Field notebook", "Maps of the bay"}
