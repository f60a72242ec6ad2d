"""What can go wrong with a file: each error says what to do, and nothing is half written."""

import errno
import os
import resource
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import apsw
import pytest
from msgspec.structs import replace

from waybill.index import open_index
from waybill.record import (
    BadStore,
    Change,
    CommitGroup,
    CommitOutcomeUnknown,
    CommitResult,
    Record,
    Store,
    StoreError,
    StoreUnavailable,
    WorkQueue,
)
from waybill.stores import open_store
from waybill.stores.sqlite import SqliteStore
from waybill.stores.sqlite.database import check_library, path_of

NOBODY = 65534


def draft() -> CommitGroup:
    return CommitGroup(
        (
            Change(
                None,
                Record("parcel", "pcl*", "Packing"),
                cause="create",
                documents={"label": b'"' + b"x" * 20_000 + b'"'},
            ),
        )
    )


def refusal(path: Path | str, migrate: bool = True) -> str:
    with pytest.raises(BadStore) as raised:
        open_store(f"sqlite:///{path}", migrate=migrate)
    return str(raised.value)


def test_urls_name_relative_and_absolute_files_and_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert path_of("sqlite:///data/store.db") == "data/store.db"
    assert path_of("sqlite:////var/lib/store.db") == "/var/lib/store.db"
    assert path_of("sqlite:///my%20store%3F.db") == "my store?.db"
    assert path_of("sqlite://") == ""
    monkeypatch.chdir(tmp_path)
    open_store("sqlite:///here.db").close()
    assert (tmp_path / "here.db").exists()


@pytest.mark.parametrize("url", ["sqlite:///", "sqlite://host/store.db", "sqlite:///a.db?mode=ro"])
def test_a_url_that_names_no_file_is_refused(url: str) -> None:
    with pytest.raises(BadStore, match=r"sqlite:///relative/path|%3F"):
        path_of(url)


def test_a_database_in_memory_is_a_store() -> None:
    store = open_store("sqlite://")
    assert isinstance(store, Store)
    (answer,) = store.commit([draft()])
    assert store.count_by_state("parcel") == {"Packing": 1}
    assert store.watch(0) is False
    store.close()
    assert not isinstance(answer, StoreError)


def test_the_last_store_of_a_file_may_be_closed_twice(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/w.db"
    store = SqliteStore(url)
    store.close()
    store.close()
    with closing(SqliteStore(url)) as again:
        assert again.count_by_state("parcel") == {}


def test_a_missing_folder(tmp_path: Path) -> None:
    message = refusal(tmp_path / "no" / "store.db")
    assert message == f"The folder {tmp_path}/no does not exist. Make it, or name another place for the store."


def test_a_folder_instead_of_a_file(tmp_path: Path) -> None:
    assert "is a folder. Name a file in it" in refusal(tmp_path)


def test_a_file_that_is_no_database_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_bytes(b"these are my notes, and they are longer than a header of a database would be. " * 20)
    before = path.read_bytes()
    assert "is no SQLite database. Move it away or name another file" in refusal(path)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["notes.txt"]


def test_a_database_of_another_program_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    with apsw.Connection(str(path)) as db:
        db.execute("create table theirs (a)")
    db.close()
    assert "is a database of another program" in refusal(path)
    db = apsw.Connection(str(path))
    assert db.execute("select name from sqlite_schema").fetchall() == [("theirs",)]


@pytest.mark.parametrize("first", [2, 40])
def test_a_damaged_file(tmp_path: Path, first: int) -> None:
    """Whether it is noticed when it is opened or only when it is used."""
    path = tmp_path / "store.db"
    store = SqliteStore(f"sqlite:///{path}")
    for _ in range(20):
        store.commit([draft()])
    store.close()
    with path.open("r+b") as file:
        for page in range(first, path.stat().st_size // 4096):
            file.seek(page * 4096)
            file.write(b"\xff" * 512)
    with pytest.raises(
        BadStore, match=r"is damaged \(.*\)\. Stop everything that uses it, keep a copy .* restore a backup"
    ):
        SqliteStore(f"sqlite:///{path}").find("parcel", documents=True)


def test_a_newer_schema_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    open_store(f"sqlite:///{path}").close()
    db = apsw.Connection(str(path))
    db.execute("pragma user_version = 9999")
    db.close()
    assert "was written by a newer Waybill (schema 9999; this one knows up to 1)" in refusal(path)


def test_an_old_schema_is_not_migrated_without_leave(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    assert "has schema 0; this Waybill needs 1. Let one process open it that may migrate it." in refusal(
        path, migrate=False
    )
    open_store(f"sqlite:///{path}").close()
    open_store(f"sqlite:///{path}", migrate=False).close()


@pytest.mark.parametrize("version", ["3.7.0", "3.40.1", "3.51.2"])
def test_a_library_that_can_corrupt_the_log_is_refused(version: str) -> None:
    with pytest.raises(BadStore, match=f"{version}, which can corrupt a database .* Install apsw from its wheel"):
        check_library(version)
    check_library("3.51.3")
    check_library("3.54.1")


def test_a_full_disk_writes_nothing_and_work_goes_on_when_there_is_room(tmp_path: Path) -> None:
    store = SqliteStore(f"sqlite:///{tmp_path}/store.db")
    store.commit([draft()])
    pages = store._db.db.pragma("page_count")
    store._db.db.pragma("max_page_count", pages + 8)
    with pytest.raises(
        StoreUnavailable, match=r"no space for .*store\.db on its disk; nothing was written\. Free some space"
    ):
        store.commit([draft() for _ in range(40)])
    assert store.count_by_state("parcel") == {"Packing": 1}
    assert list(store.check()) == []
    store._db.db.pragma("max_page_count", 1_000_000)
    store.commit([draft() for _ in range(40)])
    assert store.count_by_state("parcel") == {"Packing": 41}
    store.close()


@pytest.mark.parametrize(
    ("number", "sentence"),
    [
        (
            errno.ENOSPC,
            "There is no space for {} on its disk; nothing was written. Free some space; the work goes on by itself.",
        ),
        (
            errno.EDQUOT,
            "There is no space for {} on its disk; nothing was written. Free some space; the work goes on by itself.",
        ),
        (errno.EIO, "The disk of {} failed (disk I/O error); nothing was written. Look at the system's log."),
    ],
)
def test_a_disk_without_room_for_the_files_beside_the_log_is_no_broken_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, sentence: str
) -> None:
    """As SQLite says it to the first process that opens the file: it cannot make the log's index."""

    class FailingConnection(apsw.Connection):
        system_errno = number

        def pragma(self, *_: object, **__: object) -> object:
            raise apsw.IOError("disk I/O error")

    path = tmp_path / "store.db"
    open_store(f"sqlite:///{path}").close()
    monkeypatch.setattr("waybill.stores.sqlite.database.apsw.Connection", FailingConnection)
    assert refusal(path) == sentence.format(path)


@contextmanager
def as_nobody() -> Iterator[None]:
    """As a user who may do little: root may do everything."""
    me = os.geteuid()
    if me == 0:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(me)


@pytest.fixture
def open_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that everybody may look into; pytest's own are closed to others."""
    folder = tmp_path_factory.mktemp("shared")
    for parent in [folder, *folder.parents]:
        if parent.stat().st_uid == os.geteuid() and "pytest" in str(parent):
            parent.chmod(0o755)
    return folder


def test_a_file_that_may_not_be_written(open_folder: Path) -> None:
    path = open_folder / "store.db"
    open_store(f"sqlite:///{path}").close()
    path.chmod(0o444)
    with as_nobody():
        message = refusal(path)
    assert message == f"{path} may not be written by this user. Give it, and its folder, to the user that runs Waybill."


def test_a_file_system_that_is_mounted_read_only(open_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = open_folder / "store.db"
    open_store(f"sqlite:///{path}").close()
    path.chmod(0o444)
    mounted = os.statvfs_result([4096] * 8 + [os.ST_RDONLY, 255])
    monkeypatch.setattr(os, "statvfs", lambda _: mounted)
    with as_nobody():
        message = refusal(path)
    assert message.startswith(f"{path} is on a file system that is mounted read-only. Mount it for writing")


def test_a_folder_that_may_not_be_written(open_folder: Path) -> None:
    folder = open_folder / "closed"
    folder.mkdir()
    folder.chmod(0o555)
    with as_nobody():
        message = refusal(folder / "store.db")
    assert "must be readable and writable for this user" in message


def test_a_writer_that_never_ends(tmp_path: Path) -> None:
    store = SqliteStore(f"sqlite:///{tmp_path}/store.db", patience=0.05)
    other = apsw.Connection(f"{tmp_path}/store.db")
    other.execute("begin immediate")
    with pytest.raises(
        StoreUnavailable, match=r"Another process has been writing to .* for more than 0\.05 s; nothing was written"
    ):
        store.commit([draft()])
    assert store.count_by_state("parcel") == {}
    other.execute("rollback")
    store.commit([draft()])
    assert store.count_by_state("parcel") == {"Packing": 1}


def test_a_write_waits_for_another_that_ends(tmp_path: Path) -> None:
    store = SqliteStore(f"sqlite:///{tmp_path}/store.db", patience=120)
    other = apsw.Connection(f"{tmp_path}/store.db")
    other.execute("begin immediate")
    waiting = threading.Event()
    wait = store._db._wait_for_writer
    store._db.db.set_busy_handler(lambda tries: waiting.set() or wait(tries))  # type: ignore[func-returns-value]
    writer = threading.Thread(target=store.commit, args=([draft()],))
    writer.start()
    assert waiting.wait(60)
    other.execute("commit")
    writer.join(60)
    assert store.count_by_state("parcel") == {"Packing": 1}


def test_two_hosts_cannot_share_a_file(tmp_path: Path) -> None:
    now = [1_000.0]
    store = SqliteStore(f"sqlite:///{tmp_path}/store.db", clock=lambda: now[0])
    session = store.open_session(host="one", ttl=30, about={})
    store.open_session(host="one", ttl=30, about={})
    with pytest.raises(
        BadStore, match=r"A process of the host one uses .*; this is two\. Two machines cannot share .*in 30 s"
    ):
        store.open_session(host="two", ttl=30, about={})
    assert [info.host for info in store.list_sessions()] == ["one", "one"]
    now[0] += 31
    assert store.open_session(host="two", ttl=30, about={}) != session


def test_a_clock_that_is_behind_the_newest_write_is_refused(tmp_path: Path) -> None:
    now = [1_000.0]
    store = SqliteStore(f"sqlite:///{tmp_path}/store.db", clock=lambda: now[0])
    store.commit([draft()])
    now[0] -= 59
    store.open_session(host="one", ttl=30, about={})
    now[0] -= 2
    with pytest.raises(BadStore, match=r"The clock here is 61 s behind the newest write to .*Set the clock"):
        store.open_session(host="one", ttl=30, about={})


def test_a_clock_that_was_wrong_once_does_not_keep_workers_out_for_ever(tmp_path: Path) -> None:
    now = [1_000_000.0]
    store = SqliteStore(f"sqlite:///{tmp_path}/store.db", clock=lambda: now[0])
    (made,) = store.commit([draft()])
    assert isinstance(made, CommitResult)
    session = store.open_session(host="one", ttl=30, about={})
    (claimed,) = store.claim([WorkQueue("parcel", "Packing")], session, 1)
    waits = replace(claimed.record, session=None, blocked_by="wait")
    store.commit([CommitGroup((Change(claimed.record, waits, "", delay=60.0),))])
    now[0] = 1_000.0
    assert [finding.rule for finding in store.check()] == ["clock"]
    assert all(store.repair(finding) for finding in store.check())
    assert list(store.check()) == []
    store.open_session(host="one", ttl=30, about={})
    assert store.release_due_waits().released_count == 1


def test_a_session_of_before_the_clock_was_set_back_is_reaped_when_it_is_not_renewed(tmp_path: Path) -> None:
    now = [5_000.0]
    store = SqliteStore(f"sqlite:///{tmp_path}/store.db", clock=lambda: now[0])
    store.commit([draft()])
    dead, alive = (store.open_session(host="one", ttl=30, about={}) for _ in range(2))
    (claimed,) = store.claim([WorkQueue("parcel", "Packing")], dead, 1)
    now[0] = 1_400.0
    for _ in range(4):
        assert store.reap_sessions() == []
        now[0] += 9
        assert store.renew_session(alive).alive
    assert store.reap_sessions() == [dead]
    assert store.get(*claimed.record.ref).session is None


def test_a_disk_that_fails_in_the_commit_leaves_nothing_half_written(tmp_path: Path) -> None:
    """Here the log may not grow any further: the system refuses the write in the middle of the commit."""
    store = SqliteStore(f"sqlite:///{tmp_path}/store.db")
    store.commit([draft()])
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, hard))
    try:
        with pytest.raises(
            CommitOutcomeUnknown,
            match=r"The disk of .* failed in the middle of a commit .*: it may or may not have been written",
        ):
            store.commit([draft() for _ in range(40)])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert store.count_by_state("parcel") in ({"Packing": 1}, {"Packing": 41})
    assert list(store.check()) == []
    before = store.count_by_state("parcel")["Packing"]
    store.commit([draft()])
    assert store.count_by_state("parcel") == {"Packing": before + 1}
    store.close()


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_the_files_are_for_their_owner_alone_also_in_a_folder_open_to_all(tmp_path: Path, umask: int) -> None:
    tmp_path.chmod(0o755)
    url, index_url = f"sqlite:///{tmp_path}/waybill.db", f"sqlite:///{tmp_path}/waybill-index.db"
    before = os.umask(umask)
    try:
        with closing(open_store(url)), closing(open_index(index_url)):
            modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
    finally:
        os.umask(before)
    assert {"waybill.db", "waybill.db-wal", "waybill.db-shm", "waybill-index.db", "waybill-index.db-wal"} <= set(modes)
    assert set(modes.values()) == {0o600}


def test_a_file_that_was_there_keeps_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "waybill.db"
    open_store(f"sqlite:///{path}").close()
    path.chmod(0o640)
    with closing(open_store(f"sqlite:///{path}")):
        assert {each.stat().st_mode & 0o777 for each in tmp_path.iterdir()} == {0o640}


def test_a_writer_that_stopped_while_it_changed_the_log_makes_others_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite gives up after ten seconds, with an error of its own kind, which must not end a worker."""

    def stopped(*_: object) -> None:
        raise apsw.ProtocolError("ProtocolError: locking protocol")

    with closing(SqliteStore(f"sqlite:///{tmp_path}/waybill.db")) as store:
        monkeypatch.setattr(store._db, "execute", stopped)
        with pytest.raises(StoreUnavailable, match="Another process has been writing"):
            store.list_holds()
