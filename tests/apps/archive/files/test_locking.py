"""The lock of the originals, their owner and mode given back, and the originals removed."""

import fcntl
import os
import stat
import subprocess
from pathlib import Path

import pytest

from tests.apps.archive.files.trees import USER, Cycle, compare_trees, make_tree
from waybill.apps.archive.files import (
    FileAccess,
    FileSetChanged,
    RestoreOptions,
    SourceTree,
    TarSource,
    UserIdentity,
    find_changed,
    open_access,
    plan_archives,
    remove_originals,
    unlock_files,
)
from waybill.apps.archive.files.locking import is_open_for_writing
from waybill.apps.archive.storages import SourceChanged


def owners_and_modes(root: Path) -> dict[str, tuple[int, int, int]]:
    paths = [root, *root.rglob("*")]
    return {
        str(path): (path.lstat().st_uid, path.lstat().st_gid, path.lstat().st_mode)
        for path in paths
        if not path.is_symlink()
    }


def run_as_user(*command: str | Path) -> int:
    return subprocess.run(command, user=USER.uid, group=USER.gid, extra_groups=[], capture_output=True).returncode


@pytest.fixture
def tree(home: Path, identity: UserIdentity | None) -> Path:
    make_tree(home / "tree", identity)
    return home / "tree"


def test_nobody_can_change_what_is_locked_and_all_is_given_back(tree: Path, access: FileAccess) -> None:
    os.chmod(tree / "deep/text", 0o6755)
    before = owners_and_modes(tree)
    cycle = Cycle(access)
    cycle.list(tree)
    assert owners_and_modes(tree) == before  # listing changes nothing
    cycle.lock()
    assert cycle.failures == []
    for path, (uid, _, mode) in owners_and_modes(tree).items():
        assert uid == os.geteuid()
        assert not mode & 0o222, path
        assert not (stat.S_ISREG(mode) and mode & 0o6000), path
    for path in ("deep/new", "deep/text"):
        assert run_as_user("sh", "-c", f"echo >> {tree}/{path}") != 0
    assert run_as_user("mv", tree / "deep/text", tree / "deep/other") != 0
    assert run_as_user("chmod", "u+w", tree / "deep/text") != 0
    unlock_files(cycle.file_set, cycle.found, cycle.failures.append)
    assert owners_and_modes(tree) == before
    assert unlock_files(cycle.file_set, cycle.found, cycle.failures.append) == 0  # again: nothing is to be done
    assert cycle.failures == []


def test_locking_again_after_a_kill_changes_nothing(tree: Path, access: FileAccess) -> None:
    before = owners_and_modes(tree)
    cycle = Cycle(access)
    cycle.list(tree)
    locking = access.lock_files(cycle.file_set, cycle.found, cycle.failures.append)
    for _ in range(7):
        next(locking)
    locking.close()  # killed in the middle
    with open_access(None) as later:
        cycle.access = later
        cycle.lock()
        locked = cycle.locked
        cycle.lock()
    assert cycle.locked == locked
    assert cycle.failures == []
    unlock_files(cycle.file_set, cycle.found, cycle.failures.append)
    assert owners_and_modes(tree) == before


def test_the_owner_that_is_recorded_is_the_one_before_the_lock(tree: Path, access: FileAccess) -> None:
    cycle = Cycle(access)
    cycle.list(tree)
    cycle.lock()
    assert [(e.path, e.uid, e.gid, e.mode) for e in cycle.locked] == [
        (e.path, e.uid, e.gid, e.mode) for e in cycle.found
    ]


def test_a_file_that_a_program_has_open_for_writing_is_refused(tree: Path, access: FileAccess) -> None:
    cycle = Cycle(access)
    cycle.list(tree)
    with (tree / "large").open("ab"):
        cycle.lock()
    assert cycle.reasons() == {"large": "A program has it open for writing."}
    assert "large" not in {entry.path for entry in cycle.locked}
    before = (tree / "deep/text").stat().st_uid
    assert unlock_files(cycle.file_set, cycle.found, cycle.failures.append)
    assert (tree / "large").stat().st_mode & 0o200
    assert before == 0


def test_a_program_that_opens_a_file_in_that_moment_does_not_end_the_process(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel sends a signal to whom has the lease; by default one that kills."""
    (place / "a").touch()
    calls: list[int] = []

    def open_in_between(file: int, call: int, argument: int) -> int:
        result = real(file, call, argument)
        calls.append(call)
        if (call, argument) == (fcntl.F_SETLEASE, fcntl.F_RDLCK):
            with pytest.raises(BlockingIOError):
                os.open(place / "a", os.O_WRONLY | os.O_NONBLOCK)
        return result

    real = fcntl.fcntl
    monkeypatch.setattr(fcntl, "fcntl", open_in_between)
    file = os.open(place / "a", os.O_RDONLY)
    assert not is_open_for_writing(file)
    os.close(file)
    assert calls.count(fcntl.F_SETLEASE) == 2


def test_of_a_file_that_took_the_place_of_a_large_one_nothing_is_sent(place: Path) -> None:
    (place / "large").write_bytes(bytes(5_000_000))
    cycle = Cycle(open_access(None))
    cycle.list(place / "large")
    cycle.planned = list(plan_archives(cycle.found, cycle.limits))
    (place / "secret").write_bytes(b"secret" * 1_000_000)
    (place / "secret").rename(place / "large")
    sent = bytearray()
    chunks = TarSource(cycle.file_set, cycle.planned[0].entries).iter_chunks()
    with pytest.raises(SourceChanged, match="large was replaced by another one"):
        sent.extend(byte for chunk in chunks for byte in chunk)
    assert b"secret" not in sent


def test_a_set_of_nothing_but_links(home: Path, access: FileAccess) -> None:
    (home / "a").symlink_to("nowhere")
    (home / "b").symlink_to("/elsewhere")
    cycle = Cycle(access)
    cycle.put(home / "a", home / "b")
    assert [entry.target for entry in cycle.entries] == ["nowhere", "/elsewhere"]
    cycle.get(home / "restored", RestoreOptions(foreign_owners="keep"))
    assert os.readlink(home / "restored/b") == "/elsewhere"
    counts = remove_originals(cycle.file_set, cycle.in_order, cycle.failures.append)
    assert (counts.removed, counts.stayed, cycle.failures) == (2, 0, [])
    assert [path.name for path in home.iterdir()] == ["restored"]


def test_a_file_that_was_replaced_after_it_was_listed_is_refused(tree: Path, access: FileAccess) -> None:
    cycle = Cycle(access)
    cycle.list(tree)
    (tree / "large").unlink()
    (tree / "large").symlink_to("/etc/passwd")
    (tree / "zero").rename(tree / "was-zero")
    (tree / "zero").write_text("another")
    (tree / "ünïcode").unlink()
    before = os.stat("/etc/passwd")
    cycle.lock()
    assert cycle.reasons() == {
        "large": "It cannot be opened: Too many levels of symbolic links.",
        "zero": "It was replaced after it was listed.",
        "ünïcode": "It vanished after it was listed.",
    }
    assert os.stat("/etc/passwd") == before
    unlock_files(cycle.file_set, cycle.found, cycle.failures.append)
    assert os.stat("/etc/passwd") == before


def test_another_file_that_got_the_inode_is_not_given_to_the_user(place: Path) -> None:
    """Between the listing and the lock a file of somebody else takes its place."""
    (place / "tree").mkdir()
    (place / "tree/mine").write_text("mine")
    for path in (place / "tree", place / "tree/mine"):
        os.chown(path, USER.uid, USER.gid)
    with open_access(USER) as access:
        cycle = Cycle(access)
        cycle.list(place / "tree")
        os.chown(place / "tree/mine", 0, 0)
        (place / "tree/mine").write_text("a file of root")
        cycle.lock()
        assert cycle.reasons() == {"mine": "Its owner changed after it was listed."}
        os.chown(place / "tree/mine", 77, 77)
        unlock_files(cycle.file_set, cycle.found, cycle.failures.append)
        assert (place / "tree/mine").stat().st_uid == 77
        assert "given to somebody else" in cycle.reasons()["mine"]


def test_a_change_after_the_lock_is_found(place: Path) -> None:
    make_tree(place / "tree")
    cycle = Cycle(open_access(None))
    cycle.list(place / "tree")
    cycle.lock()
    cycle.pack()
    assert list(find_changed(cycle.file_set, cycle.entries)) == []
    text = place / "tree/deep/text"
    times = text.stat()
    content = text.read_bytes()
    text.write_bytes(b"X" + content[1:])
    os.utime(text, ns=(times.st_atime_ns, times.st_mtime_ns))  # size and mtime are as before
    with (place / "tree/large").open("ab") as file:
        file.write(b"more")
    (place / "tree/links/dangling").unlink()
    (place / "tree/links/dangling").symlink_to("elsewhere")
    (place / "tree/sparse").unlink()
    (place / "tree/zero").unlink()
    (place / "tree/zero").mkdir()
    found = {failure.path: failure.reason for failure in find_changed(cycle.file_set, cycle.entries)}
    assert found == {
        "deep/text": "It has another content now.",
        "links/first": "It has another content now.",
        "links/second": "It has another content now.",
        "large": "It had 640000 bytes and has 640004 now.",
        "links/dangling": found["links/dangling"],
        "sparse": "It is gone.",
        "zero": "It is a directory now.",
    }
    with pytest.raises(SourceChanged, match="large had 640000 bytes and has 640004 now"):
        cycle.pack()


def test_a_mode_that_changes_nothing_of_the_content_is_no_change(place: Path) -> None:
    make_tree(place / "tree")
    cycle = Cycle(open_access(None))
    cycle.list(place / "tree")
    cycle.lock()
    cycle.pack()
    os.chmod(place / "tree/large", 0o600)  # its ctime differs: the digest decides
    assert list(find_changed(cycle.file_set, cycle.entries)) == []


def test_the_folder_of_a_set_is_known_by_device_and_inode(place: Path) -> None:
    make_tree(place / "tree")
    cycle = Cycle(open_access(None))
    cycle.list(place / "tree")
    (place / "tree").rename(place / "other")
    with pytest.raises(FileSetChanged, match="cannot be opened"):
        SourceTree(cycle.file_set)
    (place / "tree").symlink_to("other")
    with pytest.raises(FileSetChanged, match="cannot be opened"):
        SourceTree(cycle.file_set)
    (place / "tree").unlink()
    (place / "tree").mkdir()
    with pytest.raises(FileSetChanged, match="moved or replaced"):
        unlock_files(cycle.file_set, cycle.found, cycle.failures.append)


def test_originals_are_removed(tree: Path, access: FileAccess) -> None:
    cycle = Cycle(access)
    cycle.put(tree)
    counts = remove_originals(cycle.file_set, cycle.in_order, cycle.failures.append)
    assert cycle.failures == []
    assert (counts.removed, counts.stayed) == (len(cycle.found), 0)
    assert not tree.exists()
    again = remove_originals(cycle.file_set, cycle.in_order, cycle.failures.append)
    assert (again.removed, again.stayed) == (len(cycle.found), 0)
    cycle.get(tree, None)  # back to where it was
    assert cycle.failures == []


def test_the_links_that_a_killed_removal_left_are_removed_by_the_next(tree: Path, access: FileAccess) -> None:
    cycle = Cycle(access)
    cycle.put(tree)
    (tree / "deep/text").unlink()
    (tree / "links/first").unlink()  # the ctime of the second one is another now
    counts = remove_originals(cycle.file_set, cycle.locked, cycle.failures.append)
    assert (counts.stayed, cycle.failures) == (0, [])
    assert not tree.exists()


def test_what_changed_is_new_or_is_not_ours_stays(tree: Path, access: FileAccess) -> None:
    before = owners_and_modes(tree)
    cycle = Cycle(access)
    cycle.put(tree)
    (tree / "large").write_text("changed")
    (tree / "deep/er/new").write_text("new")
    counts = remove_originals(cycle.file_set, cycle.in_order, cycle.failures.append)
    assert cycle.reasons() == {
        "large": "It stays: it had 640000 bytes and has 7 now.",
        "deep/er": "It stays: it has something in it that was not archived.",
    }
    assert counts.stayed == 4  # these two, and the directories above
    assert sorted(str(path.relative_to(tree)) for path in tree.rglob("*")) == [
        "deep",
        "deep/er",
        "deep/er/new",
        "large",
    ]
    unlock_files(cycle.file_set, cycle.found, cycle.failures.append)
    after = owners_and_modes(tree)
    assert {path: after[path] for path in after if path in before} == {
        path: before[path] for path in before if path in after
    }


def test_single_files_are_removed_and_what_takes_their_place_is_not(place: Path) -> None:
    """The directory above is not locked: somebody may exchange the file at any moment."""
    for name in ("a", "b", "c"):
        (place / name).write_text(name)
    os.link(place / "c", place / "d")
    cycle = Cycle(open_access(None))
    place.chmod(0o777)
    cycle.put(*(place / name for name in "abcd"))
    (place / "b").unlink()
    (place / "b").write_text("b")
    counts = remove_originals(cycle.file_set, cycle.in_order, cycle.failures.append)
    assert (counts.removed, counts.stayed) == (3, 1)
    assert [path.name for path in place.iterdir()] == ["b"]


def test_a_removal_that_was_killed_after_it_moved_a_file_aside_goes_on(place: Path) -> None:
    (place / "a").write_text("a")
    place.chmod(0o777)
    cycle = Cycle(open_access(None))
    cycle.put(place / "a")
    entry = cycle.entries[0]
    (place / "a").rename(place / f".waybill-removed-{entry.device:x}-{entry.inode:x}")
    assert remove_originals(cycle.file_set, cycle.in_order, cycle.failures.append).removed == 1
    assert list(place.iterdir()) == []


def test_not_as_root_write_bits_are_taken_and_given_back(place: Path) -> None:
    """The whole cycle in a process that is not root."""
    make_tree(place / "tree", USER)
    os.chmod(place / "tree/deep/text", 0o4755)
    (place / "home").mkdir()
    os.chown(place / "home", USER.uid, USER.gid)
    before = owners_and_modes(place / "tree")
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.setgroups([])
            os.setresgid(USER.gid, USER.gid, USER.gid)
            os.setresuid(USER.uid, USER.uid, USER.uid)
            with open_access(USER) as access:
                cycle = Cycle(access)
                cycle.put(place / "tree")
                assert not (place / "tree/large").stat().st_mode & 0o222
                unlock_files(cycle.file_set, cycle.found, cycle.failures.append)
                assert owners_and_modes(place / "tree") == before
                cycle.get(place / "home/restored")
                assert cycle.reasons().keys() == {"deep/text"}  # its setuid bit
                cycle.lock()
                cycle.pack()
                assert remove_originals(cycle.file_set, cycle.in_order, cycle.failures.append).stayed == 1
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert list((place / "tree").iterdir()) == []
    make_tree(place / "again", USER)
    os.chmod(place / "again/deep/text", 0o755)
    os.utime(place / "again", ns=(0, 0))
    assert [line for line in compare_trees(place / "again", place / "home/restored") if line != ".d..t...... ./"] == []
