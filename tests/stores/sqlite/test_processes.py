"""Several processes on one file: opening at once, writing at once, killed in the middle, and watching each other."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from waybill.record import Change, CommitGroup, Record
from waybill.stores.sqlite import SqliteStore, database

WORKER = """
import sys
from waybill.record import Change, CommitGroup, Record
from waybill.stores import open_store

store = open_store("sqlite:///" + sys.argv[1])
print("open", flush=True)
sys.stdin.readline()
for i in range(int(sys.argv[2])):
    changes = [Change(None, Record("parcel", "pcl*", "Packing"), cause="create", documents={"label": b"1"}) for _ in range(5)]
    (answer,) = store.commit([CommitGroup(tuple(changes))])
    print(answer.records[0].id, flush=True)
"""


def worker(path: Path, n: int) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", WORKER, str(path), str(n)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )


def begin(process: "subprocess.Popen[str]") -> None:
    assert process.stdin is not None
    process.stdin.write("go\n")
    process.stdin.flush()


def test_a_fresh_file_is_opened_and_written_by_several_processes_at_once(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    workers = [worker(path, 20) for _ in range(4)]
    for process in workers:
        assert process.stdout is not None
        assert process.stdout.readline() == "open\n"
    for process in workers:
        begin(process)
    printed = [process.communicate(timeout=120)[0].split() for process in workers]
    assert [process.returncode for process in workers] == [0, 0, 0, 0]
    assert len({name for names in printed for name in names}) == 80
    store = SqliteStore(f"sqlite:///{path}")
    assert store.count_by_state("parcel") == {"Packing": 400}
    assert list(store.check()) == []
    store.close()


def test_a_killed_process_leaves_whole_groups_and_all_that_it_was_answered(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    for round in range(3):
        process = worker(path, 100_000)
        assert process.stdout is not None
        assert process.stdout.readline() == "open\n"
        begin(process)
        answered = [process.stdout.readline().strip() for _ in range(10 + round)]
        os.kill(process.pid, signal.SIGKILL)
        answered += [line for line in process.stdout.read().split("\n")[:-1] if line]
        process.wait(60)
        store = SqliteStore(f"sqlite:///{path}")
        for name in answered:
            assert store.get("parcel", name).documents["label"] == 1
        assert store.count_by_state("parcel")["Packing"] % 5 == 0
        assert list(store.check()) == []
        store.close()


def test_watch_sees_another_process(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    store = SqliteStore(f"sqlite:///{path}")
    process = worker(path, 1)
    assert process.stdout is not None
    assert process.stdout.readline() == "open\n"
    while store.watch(0):
        pass
    heard: list[bool] = []
    watcher = threading.Thread(target=lambda: heard.append(store.watch(120)))
    watcher.start()
    begin(process)
    watcher.join(60)
    assert heard == [True]
    process.communicate(timeout=60)
    store.close()


def test_a_claim_that_finds_nothing_writes_nothing(tmp_path: Path) -> None:
    """Otherwise each poll of an idle worker would wake all others, for ever."""
    store, other = (SqliteStore(f"sqlite:///{tmp_path}/store.db") for _ in range(2))
    session = store.open_session(host="h", ttl=60, about={})
    while other.watch(0):
        pass
    assert store.claim([], session, 5) == []
    store.reap_sessions()
    store.release_due_waits()
    assert store.maintain_indexes() == 0
    assert other.watch(0) is False


def test_the_log_stays_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "CHECKPOINT_PAGES", 100)
    monkeypatch.setattr(database, "OVERDUE_PAGES", 400)
    store = SqliteStore(f"sqlite:///{tmp_path}/store.db")
    log = tmp_path / "store.db-wal"
    largest = 0
    for _ in range(60):
        write(store)
        largest = max(largest, log.stat().st_size)
    assert largest < 300 * 4096


def test_a_reader_in_the_way_lets_the_log_grow_and_stops_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "CHECKPOINT_PAGES", 50)
    monkeypatch.setattr(database, "OVERDUE_PAGES", 100)
    store, reader = (SqliteStore(f"sqlite:///{tmp_path}/store.db") for _ in range(2))
    write(store)
    with reader._db.read() as execute:
        execute("select count(*) from record").fetchall()
        for _ in range(8):
            write(store)
        assert store._db._log_pages > 100
    for _ in range(8):
        write(store)
    assert store._db._log_pages < 150, "it began anew"
    assert store.count_by_state("parcel") == {"Packing": 17}


def write(store: SqliteStore) -> None:
    """About thirty pages."""
    record = Record("parcel", "pcl*", "Packing")
    store.commit(
        [CommitGroup((Change(None, record, cause="create", documents={"label": b'"' + b"x" * 100_000 + b'"'}),))]
    )
