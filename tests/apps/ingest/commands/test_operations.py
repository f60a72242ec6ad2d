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

from tests.apps.ingest.commands.conftest import RunWorker
from tests.cli.conftest import Waybill
from tests.servers.process import wait_until
from waybill import config
from waybill.apps.ingest.application import APPLICATION
from waybill.apps.ingest.demo import load_demo
from waybill.engine import Engine
from waybill.environment import Environment
from waybill.step import New
from waybill.stores.sqlite import SqliteStore


def submit(ingest_cli: Waybill, name: str = "a.txt", data: bytes = b"a", *more: object) -> str:
    Path(name).write_bytes(data)
    result = ingest_cli("submit", name, "--profile", "demo", *more, "--json")
    assert result.code == 0, result.err
    return str(result.json["id"])


def make_deposit(ingest_cli: Waybill, run_worker: RunWorker, name: str = "a.txt", data: bytes = b"a\n") -> str:
    """The ARK of an object at rest."""
    Path(name).write_bytes(data)
    with run_worker():
        result = ingest_cli("submit", name, "--profile", "demo", "--title", "At rest", "--watch", "--json")
    assert result.code == 0, result.err
    return str(result.lines[-1]["objects"][0]["object"])


@pytest.fixture
def engine(ingest_cli: Waybill) -> Iterator[Engine]:
    environment = Environment.from_config(config.load(env=os.environ), [APPLICATION])
    with closing(environment.open_store()) as store:
        yield environment.make_engine(store)


def test_a_collection_on_hold_keeps_its_deposits_and_releasing_it_lets_them_go(
    ingest_cli: Waybill, run_worker: RunWorker
) -> None:
    held = ingest_cli("hold", "--collection", "maps", "--why", "the curator asked")
    assert (held.code, held.err) == (0, "")
    batch = submit(ingest_cli)
    with run_worker():
        result = ingest_cli("watch", batch)
        assert result.code == 1, "nobody knows when it will go on"
        assert "waybill ingest release --collection maps" in result.err
        assert ingest_cli("batch", batch, "--json").json["state"] == "Held"
        refused = ingest_cli("release", batch)
        assert (refused.code, "still on hold" in refused.err) == (1, True)
        released = ingest_cli("release", "--collection", "maps", "--json")
        assert (released.code, released.json["done"], released.json["refusal_count"]) == (0, 1, 0)
        assert ingest_cli("watch", batch).code == 0
    again = ingest_cli("release", "--collection", "maps")
    assert (again.code, "'maps' is not on hold" in again.err) == (3, True)


def test_a_name_that_nobody_knows_can_be_held_and_is_remarked_on(ingest_cli: Waybill) -> None:
    result = ingest_cli("hold", "--collection", "elsewhere")
    assert result.code == 0
    assert "There is no collection or profile elsewhere" in result.err


def test_a_batch_is_held_and_released_by_its_id(ingest_cli: Waybill, run_worker: RunWorker) -> None:
    batch = submit(ingest_cli)
    assert ingest_cli("hold", batch, "--json").lines[0]["state"] == "Held"
    assert ingest_cli("hold", batch).code == 1
    assert ingest_cli("release", batch).code == 0
    with run_worker():
        assert ingest_cli("watch", batch).code == 0


def test_a_paused_queue_begins_nothing_until_it_is_unpaused(ingest_cli: Waybill, waybill: Waybill) -> None:
    submit(ingest_cli)
    assert ingest_cli("pause", "--why", "maintenance").code == 0
    assert "paused: ingest" in ingest_cli().out
    assert ingest_cli("locks", "--json").json["holds"][0]["name"] == "ingest"
    assert waybill("work", "--once", "--queue", "batch").code == 3
    assert ingest_cli("unpause").code == 0
    assert waybill("work", "--once", "--queue", "batch", "--json").json["transition"]["after"] == "Processing"
    assert ingest_cli("unpause").code == 3


def job_of(ingest_cli: Waybill, waybill: Waybill, batch: str) -> str:
    """The job of a batch, waiting to begin."""
    for _ in range(2):
        assert waybill("work", "--once", "--queue", "batch").code == 0
    (job,) = ingest_cli("jobs", "--batch", batch, "--json").json["jobs"]
    return str(job["id"])


def test_failing_and_deleting_a_job_of_an_open_batch_must_be_confirmed(ingest_cli: Waybill, waybill: Waybill) -> None:
    batch = submit(ingest_cli)
    job = job_of(ingest_cli, waybill, batch)
    refused = ingest_cli("fail", job)
    assert (refused.code, "Add --yes" in refused.err) == (1, True)
    assert ingest_cli("fail", job, "--yes", "--json").lines[0]["state"] == "Failed"
    unsure = ingest_cli("delete", job)
    assert (unsure.code, "no report will name this job" in unsure.err) == (1, True)
    assert ingest_cli("delete", job, "--yes").code == 0
    assert ingest_cli("jobs", "--batch", batch, "--state", "Deleted", "--json").json["jobs"][0]["id"] == job


@pytest.mark.parametrize("repair", ["resume", "delete"])
def test_a_repaired_batch_says_that_only_its_report_is_due(
    ingest_cli: Waybill, waybill: Waybill, run_worker: RunWorker, repair: str
) -> None:
    batch = submit(ingest_cli)
    job = job_of(ingest_cli, waybill, batch)
    assert ingest_cli("fail", job, "--yes").code == 0
    with run_worker():
        failed = ingest_cli("watch", batch, "--json")
        assert (failed.code, failed.lines[-1]["report_due"]) == (1, False)
        assert ingest_cli(repair, job, *(["--yes"] if repair == "delete" else [])).code == 0
        wait_until(lambda: ingest_cli("batch", batch, "--json").json["report_due"], "its jobs are done")
        watched = ingest_cli("watch", batch)
        assert (watched.code, f"waybill ingest report {batch} --send" in watched.err) == (0, True)
        assert "the report is due" in ingest_cli("batches").out
        assert ingest_cli("report", batch, "--send").code == 0
        wait_until(lambda: ingest_cli("batch", batch, "--json").json["state"] == "Completed", "its end")
    assert ingest_cli("batch", batch, "--json").json["report_due"] is False


def test_a_hold_that_no_record_heeds_is_refused_with_what_would_work(ingest_cli: Waybill, waybill: Waybill) -> None:
    assert ingest_cli().code == 0
    refused = waybill("hold", "demo")
    assert (refused.code, "collections/demo" in refused.err) == (3, True)
    assert waybill("holds", "--json").json["holds"] == []
    assert waybill("hold", "collections/demo").code == 0


def test_the_report_says_why_a_job_was_stopped_by_hand(ingest_cli: Waybill, waybill: Waybill) -> None:
    batch = submit(ingest_cli)
    job = job_of(ingest_cli, waybill, batch)
    assert ingest_cli("fail", job, "--yes", "--why", "wrong collection").code == 0
    assert "wrong collection" in ingest_cli("batch", batch).out
    while waybill("work", "--once", "--queue", "batch").code == 0:
        pass
    (failed,) = ingest_cli("report", batch, "--jobs", "--json").json["jobs"]
    assert (
        failed["id"],
        failed["message"].startswith("fail by "),
        failed["message"].endswith(": wrong collection"),
    ) == (job, True, True)


def make_foreign_record(kind: str, documents: dict[str, Any]) -> str:
    """A record that another service has made, and which has ended."""
    environment = Environment.from_config(config.load(env=os.environ), [APPLICATION])
    with closing(environment.open_store()) as store:
        made = (
            Engine(store, environment.machines)
            .submit(New(kind, documents, state="Completed"), who="another service")
            .id
        )
    environment.close()
    return made


@pytest.mark.parametrize(("when", "size"), [("soon", 12), (12, "twelve"), ("2026-13-45T00:00:00Z", None)])
def test_assemblies_are_listed_whatever_other_services_wrote_into_their_tokens(
    ingest_cli: Waybill, when: object, size: object
) -> None:
    made = make_foreign_record(
        "access-small", {"token": {"cloud-content-byte": size, "url": 5, "anticipated-availability-time": when}}
    )
    listed, shown = ingest_cli("access"), ingest_cli("access", "show", made)
    assert (listed.code, made in listed.out, shown.code) == (0, True, 0)
    assert ("soon" in listed.out) is (when == "soon")


def test_batches_are_listed_whatever_other_services_wrote_as_their_date(ingest_cli: Waybill) -> None:
    made = make_foreign_record("batch", {"submission": {"submissionDate": "last week"}})
    listed, shown = ingest_cli("batches"), ingest_cli("batch", made)
    assert (listed.code, "last week" in listed.out, shown.code, "last week" in shown.out) == (0, True, 0, True)


def test_a_state_in_which_no_batch_is_gets_no_advice_to_submit_one(ingest_cli: Waybill) -> None:
    submit(ingest_cli)
    assert ingest_cli("batches", "--state", "Failed").err.strip() == "No batch is Failed; `waybill ingest` counts them."


def test_deleting_a_batch_must_be_confirmed(ingest_cli: Waybill) -> None:
    batch = submit(ingest_cli)
    ingest_cli("hold", batch)
    refused = ingest_cli("delete", batch)
    assert (refused.code, "The depositor gets no report" in refused.err) == (1, True)
    assert ingest_cli("delete", batch, "--yes", "--json").lines[0]["state"] == "Deleted"


@pytest.mark.parametrize(
    ("arguments", "code", "part"),
    [
        (("batch", "bid0000000099"), 3, "There is no batch"),
        (("watch", "nothing"), 3, "There is no batch"),
        (("report", "bid0000000099"), 3, "There is no batch"),
        (("jobs", "--state", "Flying"), 3, "A job has no state 'Flying'"),
        (("jobs", "--page-token", "x"), 2, "Begin again without a token."),
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
        (("lock", "colour/red"), 1, "is not a lock"),
        (("unlock", "storage/ark:/99999/fk4x"), 3, "Nothing locks"),
        (("unlock", "storage/ark:/99999/x"), 1, "its name 'x' must be 2 to 127 characters"),
        (("import-legacy", "nowhere"), 1, "nowhere is not a folder"),
    ],
)
def test_each_mistake_has_its_code_and_its_sentence(
    ingest_cli: Waybill, arguments: tuple[str, ...], code: int, part: str
) -> None:
    result = ingest_cli(*arguments)
    assert (result.code, result.out) == (code, "")
    assert part in result.err
    assert ingest_cli(*arguments, "--json").error["message"]


def test_an_old_zookeeper_that_is_away_is_one_sentence(ingest_cli: Waybill, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("waybill.apps.ingest.merritt.queue_sources.CONNECT_TIMEOUT", 1.0)
    result = ingest_cli("import-legacy", "zookeeper://127.0.0.1:1")
    assert (result.code, result.err) == (5, "There is no ZooKeeper at 127.0.0.1:1, or it does not answer.\n")


def test_a_report_that_is_not_there_yet_is_missing(ingest_cli: Waybill) -> None:
    result = ingest_cli("report", submit(ingest_cli))
    assert (result.code, "is Pending and has no report yet" in result.err) == (3, True)


def test_lists_go_on_page_by_page(ingest_cli: Waybill) -> None:
    made = [submit(ingest_cli, f"{n}.txt", b"%d" % n) for n in range(5)]
    first = ingest_cli("batches", "--limit", 3, "--json").json
    second = ingest_cli("batches", "--limit", 3, "--page-token", first["next"], "--json").json
    assert [row["id"] for row in first["batches"] + second["batches"]] == made[::-1]
    assert second["next"] is None
    assert ingest_cli("jobs", "--page-token", first["next"]).code == 2


def flip(data: Path, content: bytes) -> Path:
    """Damage the stored file that has this content."""
    found = [path for path in (data / "objects" / "ocfl").rglob("*") if path.is_file() and path.read_bytes() == content]
    assert len(found) == 1
    found[0].write_bytes(b"X" + content[1:])
    return found[0]


def test_what_another_storage_service_keeps_is_audited_there(
    ingest_cli: Waybill, run_worker: RunWorker, data: Path
) -> None:
    ark = make_deposit(ingest_cli, run_worker)
    with closing(sqlite3.connect(data / "waybill-index.db")) as index, index:
        index.execute("update inventory_version set place = 'http://store.example.org/' || place")
    result = ingest_cli("audit", ark)
    assert (result.code, result.err) == (1, f"{ark} is in another storage service, and is audited there.\n")


def test_an_audit_of_everything_says_that_there_is_nothing(ingest_cli: Waybill) -> None:
    result = ingest_cli("audit", "--now", "--all")
    assert (result.code, result.err) == (
        0,
        "There is nothing in storage that the inventory knows of: nothing is damaged.\n",
    )
    assert ingest_cli("audit", "--now").err == "Nothing was due (--all reads everything): nothing is damaged.\n"


def test_an_audit_finds_a_flipped_byte_says_where_and_knows_when_it_is_restored(
    ingest_cli: Waybill, run_worker: RunWorker, data: Path
) -> None:
    ark = make_deposit(ingest_cli, run_worker, data=b"precious\n")
    assert ingest_cli("audit", "--now", "--all").code == 0
    damaged = flip(data, b"precious\n")
    assert ingest_cli("audit").code == 0, "nobody has looked yet"
    found = ingest_cli("audit", "--now", "--all", "--json")
    assert found.code == 1
    (row,) = found.json["damaged"]
    assert (row["object"], row["files"]) == (ark, ["v1 producer/a.txt"])
    assert ingest_cli("audit", "--json").json["damaged"] == [row], "it stays known"
    assert ingest_cli("audit", ark).code == 1
    for output in ((), ("-o", "-")):
        piped = ingest_cli("get", ark, "a.txt", *output)
        assert (piped.code, piped.out, "is damaged" in piped.err) == (1, "", True), "a short file is compared first"
    refused = ingest_cli("get", ark, "a.txt", "-o", "back.txt")
    assert (refused.code, "is damaged" in refused.err, Path("back.txt").exists()) == (1, True, False)
    damaged.write_bytes(b"precious\n")
    assert ingest_cli("audit", ark).code == 0
    assert ingest_cli("audit").code == 0
    flip(data, b"precious\n")
    assert ingest_cli("audit", ark).code == 1
    assert [row["object"] for row in ingest_cli("audit", "--json").json["damaged"]] == [ark], (
        "what one reading has found is known to all"
    )
    nothing = ingest_cli("audit", "--now")
    assert (nothing.code, "Nothing was due" in nothing.err) == (1, True)


def test_the_inventory_is_recorded_again_from_storage(
    ingest_cli: Waybill, run_worker: RunWorker, engine: Engine
) -> None:
    ark = make_deposit(ingest_cli, run_worker)
    with closing(Environment.from_config(config.load(env=os.environ), [APPLICATION])) as environment:
        environment.resources_of("ingest").inventory.forget(ark)
    assert ingest_cli("object", ark).code == 3
    with run_worker():
        result = ingest_cli("rebuild", "--all", "--json")
        assert (result.code, result.json["objects"], result.json["versions"], result.json["failures"]) == (0, 1, 1, [])
        assert ingest_cli("object", ark, "--json").json["title"] == "At rest"
        assert ingest_cli("rebuild", ark).code == 0
        gone = ingest_cli("rebuild", "ark:/99999/fk4gone")
        assert (gone.code, "is not in storage" in gone.err) == (3, True)
    assert ingest_cli("rebuild", ark, "--no-wait", "--json").json["waited"] is False


def test_a_file_goes_to_stdout_alone_and_nothing_is_written_over_unasked(
    ingest_cli: Waybill, run_worker: RunWorker, tmp_path: Path
) -> None:
    ark = make_deposit(ingest_cli, run_worker, data=b"a husky\n")
    for said in (ingest_cli("get", ark, "a.txt", "-o", "-"), ingest_cli("get", ark, "a.txt")):
        assert (said.code, said.out) == (0, "a husky\n")
        assert hashlib.sha256(b"a husky\n").hexdigest() in said.err
    assert not (tmp_path / "-").exists()
    assert ingest_cli("get", ark, "a.txt", "-o", "-", "--json").code == 2
    assert ingest_cli("get", ark, "-o", "-").code == 2
    (tmp_path / "mine.txt").write_text("mine")
    refused = ingest_cli("get", ark, "a.txt", "-o", "mine.txt")
    assert (refused.code, refused.out) == (1, "")
    assert refused.err == "mine.txt exists: give another name, or --force to overwrite it.\n"
    assert (tmp_path / "mine.txt").read_text() == "mine"
    assert ingest_cli("get", ark, "a.txt", "-o", "mine.txt", "--force").code == 0
    assert (tmp_path / "mine.txt").read_bytes() == b"a husky\n"
    (tmp_path / "there").mkdir()
    assert [ingest_cli("get", ark, "a.txt", "-o", "there").code for _ in range(2)] == [0, 1]
    assert ingest_cli("get", ark, "-o", "elsewhere", "--force").code == 2
    os.mkfifo(tmp_path / "pipe")
    assert ingest_cli("get", ark, "a.txt", "-o", "pipe", "--force").code == 1, (
        "neither a pipe nor a device is replaced by a file"
    )


def test_an_object_is_packed_for_whoever_asks(
    ingest_cli: Waybill, run_worker: RunWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    ark = make_deposit(ingest_cli, run_worker)
    result = ingest_cli("access", "request", ark, "--form", "tar", "--json").json
    assert (result["state"], result["object"], result["queue"]) == ("Pending", ark, "small")
    early = ingest_cli("access", "get", result["id"], "-o", "early.tar")
    assert (early.code, "its archive is not ready yet" in early.err, Path("early.tar").exists()) == (3, True, False)
    with run_worker():
        ready = ingest_cli("access", "request", ark, "--form", "tar", "--watch", "--json")
    assert (ready.code, ready.json["id"], ready.json["state"]) == (0, result["id"], "Completed"), (
        "asked twice, packed once"
    )
    assert ready.json["url"].startswith("http://waybill.test/")
    assert ready.json["expires"]
    assert ingest_cli("access", "get", result["id"], "-o", "back.tar").code == 0
    again = ingest_cli("access", "get", result["id"], "-o", "back.tar")
    assert (again.code, "--force" in again.err) == (1, True)
    assert ingest_cli("access", "get", result["id"], "-o", "back.tar", "--force").code == 0
    with tarfile.open("back.tar") as archive:
        (file,) = [member for member in archive if member.name.endswith("producer/a.txt")]
        body = archive.extractfile(file)
        assert body is not None
        assert body.read() == b"a\n"
    (listed,) = ingest_cli("access", "--json").json["assemblies"]
    assert listed["id"] == result["id"]
    assert ingest_cli("access", "requeue", result["id"]).code == 1
    assert ready.json["url"] in ingest_cli("access", "show", result["id"]).out
    with monkeypatch.context() as later:
        now = SqliteStore.now
        later.setattr(SqliteStore, "now", lambda store: now(store) + 366 * 86400)
        over = ingest_cli("access", "show", result["id"])
        assert ("Completed, expired" in over.out, ready.json["url"] in over.out) == (True, False)
        assert "Completed, expired" in ingest_cli("access").out
        late = ingest_cli("access", "get", result["id"], "-o", "late.tar")
        assert (late.code, "expired" in late.err, "waybill ingest access request ark:/" in late.err) == (3, True, True)
    assert ingest_cli("access", "delete", result["id"], "--json").json["state"] == "Deleted"


def test_an_operator_locks_an_object_and_unlocks_it(ingest_cli: Waybill, run_worker: RunWorker) -> None:
    made = ingest_cli("lock", "storage/ark:/99999/fk4x", "--why", "it is being moved", "--json").json
    with run_worker():
        wait_until(
            lambda: "Set" in [lock["state"] for lock in ingest_cli("locks", "--json").json["locks"]],
            "the lock to be set",
        )
    locks = ingest_cli("locks", "--json").json["locks"]
    assert [(row["lock"], row["owner"]["id"]) for row in locks] == [("storage/ark:/99999/fk4x", made["id"])]
    assert "it is being moved" in ingest_cli("locks").out
    assert ingest_cli("unlock", "storage/ark:/99999/fk4x", "--json").json["ended"] == 1
    assert ingest_cli("locks", "--json").json["locks"] == []


def entry(status: int, told: bytes) -> bytes:
    return bytes([status]) + struct.pack(">q", int(time.time() * 1000)) + told


def test_old_queues_are_imported_once(ingest_cli: Waybill, tmp_path: Path) -> None:
    queue = tmp_path / "old" / "ingest"
    queue.mkdir(parents=True)
    told = b'{"batchID": "bid-11111111-1111-4111-8111-111111111111", "jobID": "jid-1", "profile": "demo", "filename": "x", "type": "file"}'
    (queue / "mrtQ-05000000000001").write_bytes(entry(5, told))
    (queue / "mrtQ-05000000000002").write_bytes(b"??")
    dry = ingest_cli("import-legacy", "old", "--dry-run", "--json")
    assert (dry.code, dry.json["created"], dry.json["refusal_count"]) == (1, {"batch": 1, "job": 1}, 1)
    assert ingest_cli("batches", "--json").json["batches"] == []
    assert ingest_cli("import-legacy", "old", "--json").json["created"] == {"batch": 1, "job": 1}
    again = ingest_cli("import-legacy", "old")
    assert "mrtQ-05000000000002" in again.out
    assert "nothing created" in again.out
    assert ingest_cli("batch", "11111111-1111-4111-8111-111111111111", "--json").json["jobs"]["states"]["Held"] == 1


def test_a_worker_that_is_gone_is_none(ingest_cli: Waybill, engine: Engine) -> None:
    host = Environment.from_config(config.load(env=os.environ), [APPLICATION]).host
    engine.store.open_session(host=host, ttl=1e-9, about={})  # as after kill -9, when the ttl has passed
    assert ingest_cli("--json").json["workers"] == 0
    assert "No worker is alive" in ingest_cli().err
    engine.store.open_session(host=host, ttl=60, about={})
    assert ingest_cli("--json").json["workers"] == 1


def test_the_demonstration_is_made_once_and_shows_every_end(
    ingest_cli: Waybill, run_worker: RunWorker, engine: Engine
) -> None:
    with closing(Environment.from_config(config.load(env=os.environ), [APPLICATION])) as environment:
        load_demo(environment, engine)
        before = sorted(row["id"] for row in ingest_cli("batches", "--json").json["batches"])
        ingest_cli("release", "--collection", "atlases")
        load_demo(environment, engine)
        assert sorted(row["id"] for row in ingest_cli("batches", "--json").json["batches"]) == before
        assert ingest_cli("locks", "--json").json["holds"] == [], "what people have released stays released"
        ingest_cli("hold", "--collection", "atlases")
        with run_worker():
            ends: dict[str, Any] = {
                name: ingest_cli("watch", f"demo-{name}", "--json").lines[-1]["state"]
                for name in ("photograph", "notebook", "maps", "scan", "atlas")
            }
    assert ends == {
        "photograph": "Completed",
        "notebook": "Completed",
        "maps": "Completed",
        "scan": "Failed",
        "atlas": "Held",
    }
    titles = {row["title"] for row in ingest_cli("search", "--json").json["objects"]}
    assert titles == {"A husky in the snow", "Field notebook", "Maps of the bay"}
