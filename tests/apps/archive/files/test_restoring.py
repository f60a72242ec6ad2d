"""Restoring: what is damaged, what is in the way, what leads out of the target, and what is selected."""

import os
import signal
import subprocess
import threading
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.apps.archive.files.trees import USER, Cycle, compare_trees, cut, make_tree
from waybill.apps.archive.files import (
    ArchiveInvalid,
    ArchiveLimits,
    FileAccess,
    FileEntry,
    FileFailure,
    RestoreOptions,
    Selection,
    TarSource,
    UserIdentity,
    find_link_sources,
    open_access,
    remove_originals,
    unlock_files,
    unpacking,
)
from waybill.apps.archive.files.system_calls import rename_without_replacing
from waybill.apps.archive.storages import SourceChanged
from waybill.errors import WaybillError


@pytest.fixture
def packed(home: Path, access: FileAccess, identity: UserIdentity | None) -> Cycle:
    make_tree(home / "tree", identity)
    cycle = Cycle(access)
    cycle.list(home / "tree")
    cycle.pack()
    return cycle


def pack_small_tree(place: Path) -> Cycle:
    (place / "tree/a").mkdir(parents=True)
    (place / "tree/a/one").write_bytes(b"1" * 700)
    (place / "tree/a/two").write_bytes(b"2" * 200_000)
    (place / "tree/three").write_bytes(b"3")
    (place / "tree/link").symlink_to("/etc/passwd")
    cycle = Cycle(open_access(None))
    cycle.list(place / "tree")
    cycle.pack()
    return cycle


def give(folder: Path, identity: UserIdentity | None) -> None:
    if identity is not None:
        for path in folder.rglob("*"):
            os.lchown(path, identity.uid, identity.gid)


def content_of(root: Path) -> dict[str, bytes | str]:
    return {
        str(path.relative_to(root)): os.readlink(path) if path.is_symlink() else path.read_bytes()
        for path in root.rglob("*")
        if path.is_symlink() or path.is_file()
    }


def test_a_damaged_member_is_named_and_the_others_are_restored(home: Path, packed: Cycle) -> None:
    by_path = {entry.path: entry for entry in packed.entries}
    damaged = bytearray(packed.archives[1])
    damaged[by_path["large"].offset + 200_000] ^= 1  # in its content
    damaged[by_path["zero"].offset + 2] ^= 1  # in its headers
    packed.archives[1] = bytes(damaged)
    packed.get(home / "restored")
    assert packed.reasons() == {
        "large": "It is not there: it was not unpacked, or was removed since.",
        "zero": "It is not there: it was not unpacked, or was removed since.",
    }
    assert any("content is not what was packed" in failure.reason for failure in packed.failures)
    assert any("what describes it is not what was packed" in failure.reason for failure in packed.failures)
    assert content_of(home / "tree").keys() - content_of(home / "restored").keys() == {"large", "zero"}


def test_an_archive_that_ends_too_early_gives_what_is_whole(home: Path, packed: Cycle) -> None:
    packed.archives[1] = packed.archives[1][: len(packed.archives[1]) // 2]
    with pytest.raises(ArchiveInvalid, match="ends after"):
        packed.get(home / "restored")
    restored = content_of(home / "restored")
    assert restored
    whole = content_of(home / "tree")
    assert all(whole[path] == content for path, content in restored.items())


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_whatever_an_archive_holds_nothing_wrong_is_restored(place: Path, data: st.DataObject) -> None:
    """Bytes changed, cut, repeated or put together anyhow: each file that has its name is right, and nothing is outside."""
    cycle = _small_cycle(place)
    archive = bytearray(cycle.archives[1])
    for _ in range(data.draw(st.integers(1, 4))):
        kind = data.draw(st.sampled_from(["flip", "cut", "insert", "remove", "swap"]))
        at = data.draw(st.integers(0, max(len(archive) - 1, 0)))
        if kind == "flip" and archive:
            archive[at] ^= data.draw(st.integers(1, 255))
        elif kind == "cut":
            del archive[at:]
        elif kind == "insert":
            archive[at:at] = data.draw(st.binary(min_size=1, max_size=2000))
        elif kind == "remove":
            del archive[at : at + data.draw(st.integers(1, 3000))]
        else:
            archive[at:at], _ = archive[at // 2 : at // 2 + 512], None
    target = place / f"target-{len(list(place.iterdir()))}"
    folder = cycle.access.make_target(str(target))
    failures: list[FileFailure] = []
    chunk = data.draw(st.sampled_from([1, 100, 511, 4096, 1_000_000])) if len(archive) < 5000 else 4096
    try:
        cycle.access.unpack_archive(
            cut(bytes(archive), chunk), cycle.members_of(1), folder, RestoreOptions(), failures.append
        )
    except ArchiveInvalid:
        failures.append(FileFailure("", "it ended"))
    whole, restored = content_of(place / "tree"), content_of(target)
    assert all(whole[path] == content for path, content in restored.items())
    assert failures or restored == whole


def _small_cycle(place: Path) -> Cycle:
    if (place / "tree").exists():
        cycle = Cycle(open_access(None))
        cycle.list(place / "tree")
        cycle.pack()
        return cycle
    return pack_small_tree(place)


@pytest.mark.parametrize("path", ["../out", "/tmp/out", "a/../../out", "a//b", "", "..", "./x", "a/.", "a\0b"])
def test_a_catalogue_that_leads_out_of_the_target_is_refused(place: Path, path: str) -> None:
    """Its entries may come from a catalogue file on a storage, which anybody could have written."""
    cycle = pack_small_tree(place)
    cycle.entries = [msgspec.structs.replace(entry, path=path) for entry in cycle.entries if entry.path == "three"]
    folder = cycle.access.make_target(str(place / "target"))
    counts = cycle.access.unpack_archive(
        [cycle.archives[1]], cycle.entries, folder, RestoreOptions(), cycle.failures.append
    )
    assert (counts.files, counts.failed) == (0, 1)
    assert list((place / "target").iterdir()) == []
    assert not (place / "out").exists()


def test_nothing_is_written_through_a_link(home: Path, packed: Cycle) -> None:
    (home / "outside").mkdir(mode=0o777)
    packed.access.make_target(str(home / "restored"))
    for name in ("deep", "links"):
        (home / "restored" / name).symlink_to(home / "outside")
    packed.get(home / "restored")
    assert list((home / "outside").iterdir()) == []
    assert "lies something that is no directory" in packed.reasons()["deep/er"] or packed.reasons()["deep"]


def test_a_hard_link_is_not_made_to_what_somebody_put_in_the_place_of_the_content(place: Path) -> None:
    (place / "tree").mkdir()
    (place / "tree/a").write_text("content")
    os.link(place / "tree/a", place / "tree/b")
    cycle = Cycle(open_access(None))
    cycle.list(place / "tree")
    cycle.pack()
    (place / "secret").write_text("secret")
    folder = cycle.access.make_target(str(place / "target"))
    (place / "target/a").symlink_to(place / "secret")
    cycle.access.unpack_archive(
        [cycle.archives[1]], cycle.members_of(1), folder, RestoreOptions(), cycle.failures.append
    )
    assert cycle.reasons().keys() == {"a", "b"}
    assert not (place / "target/b").exists()


def test_what_exists_is_not_overwritten_without_being_told(
    home: Path, packed: Cycle, identity: UserIdentity | None
) -> None:
    packed.access.make_target(str(home / "restored"))
    (home / "restored/large").write_text("mine")
    (home / "restored/links").mkdir()
    (home / "restored/links/dangling").write_text("mine")
    (home / "restored/zero").mkdir()
    give(home / "restored", identity)
    packed.get(home / "restored")
    reasons = packed.reasons()
    assert {"large", "links/dangling", "zero"} <= reasons.keys()
    assert (home / "restored/large").read_text() == "mine"

    packed.failures.clear()
    packed.get(home / "restored", RestoreOptions(overwrite=True))
    assert "Where it belongs lies a directory." in [failure.reason for failure in packed.failures]
    assert (home / "restored/large").stat().st_size == 640_000
    assert (home / "restored/links/dangling").is_symlink()


def test_a_directory_that_was_there_keeps_its_mode(home: Path, packed: Cycle, identity: UserIdentity | None) -> None:
    packed.access.make_target(str(home / "restored"))
    (home / "restored/deep").mkdir(mode=0o750)
    give(home / "restored", identity)
    (home / "restored/deep").chmod(0o2750)
    packed.get(home / "restored")
    assert (home / "restored/deep").stat().st_mode & 0o7777 == 0o2750
    assert (home / "restored/deep/er").stat().st_mode & 0o7777 == 0o755


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"globs": ("deep/*",)}, {"deep/text", "deep/er/still/block"}),
        ({"globs": ("**/*lock",)}, {"deep/er/still/block"}),
        ({"globs": ("*[ue]",)}, {"ünïcode", "hole", "large", "sparse", os.fsdecode(b"bad \xff\xfe name")}),
        ({"regexes": (r"^deep/.*k$", "^zero$")}, {"deep/er/still/block", "zero"}),
        ({"paths": ("deep/er", "./zero", "links/second")}, {"deep/er/still/block", "zero", "links/second"}),
        ({"paths": (os.fsdecode(b"bad \xff\xfe name"),)}, {os.fsdecode(b"bad \xff\xfe name")}),
        ({"paths": ("links/first", "links/second")}, {"links/first", "links/second"}),
    ],
)
def test_some_are_restored(home: Path, packed: Cycle, options: dict, expected: set[str]) -> None:
    packed.get(home / "restored", RestoreOptions(**options))
    assert packed.failures == []
    assert content_of(home / "restored").keys() == expected
    for path in expected:
        assert (home / "restored" / path).read_bytes() == (home / "tree" / path).read_bytes()
    for folder in (home / "restored").rglob("*"):
        if folder.is_dir():  # those above what was selected, too
            assert folder.stat().st_mode == (home / "tree" / folder.relative_to(home / "restored")).stat().st_mode
    if "links/first" in expected:
        assert (home / "restored/links/first").samefile(home / "restored/links/second")


def test_globs_and_regular_expressions() -> None:
    for glob, path, is_selected in [
        ("a", "a/b/c", True),
        ("a/", "a/b/c", True),
        ("a/**", "a/b/c", True),
        ("**/c", "c", True),
        ("*", "a", True),
        ("*.txt", "a/b.txt", False),
        ("a/?", "a/bc", False),
        ("a/[!b]", "a/b", False),
        ("a/[!b]", "a/c", True),
        ("a[", "a[", True),
        ("a.c", "abc", False),
    ]:
        assert Selection(globs=(glob,)).has_path(path) is is_selected, (glob, path)
    assert Selection().has_path("anything")
    assert Selection(paths=(".",)).has_path("anything/at/all")
    with pytest.raises(WaybillError, match="cannot be read"):
        Selection(regexes=("(",))


def test_links_without_their_content_are_found_across_archives(place: Path) -> None:
    entries = [
        FileEntry("a", "file", 0o644, 0, 0, 1, 0, 1, 1, 0),
        FileEntry("b", "hardlink", 0o644, 0, 0, 0, 0, 1, 1, 0, target="a"),
        FileEntry("c", "hardlink", 0o644, 0, 0, 0, 0, 1, 1, 0, target="a"),
    ]
    assert find_link_sources(entries, Selection(paths=("b", "c"))) == {"a": "b"}
    assert find_link_sources(entries, Selection(paths=("a", "b"))) == {}
    assert find_link_sources(entries, Selection()) == {}


def restore_and_die(cycle: Cycle, target: Path, after: int) -> bool:
    """Restore in a process that is killed after so many of its system calls that change something."""
    child = os.fork()
    if child == 0:
        seen = 0
        calls = ("rename", "mkdir", "unlink", "write", "pwrite", "utime", "fchmod", "link", "symlink", "chown")

        def count(call):
            def counted(*args, **kwargs):
                nonlocal seen
                result = call(*args, **kwargs)
                seen += 1
                if seen == after:
                    os.kill(os.getpid(), signal.SIGKILL)
                return result

            return counted

        for name in calls:
            setattr(os, name, count(getattr(os, name)))
        unpacking.rename_without_replacing = count(rename_without_replacing)  # type: ignore[attr-defined]
        try:
            cycle.get(target)
        finally:
            os._exit(len(cycle.failures))
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in (0, -signal.SIGKILL)
    return code == 0


def test_a_restore_that_is_killed_anywhere_is_finished_by_the_next(place: Path) -> None:
    (place / "tree/a/b").mkdir(parents=True)
    (place / "tree/a/one").write_bytes(b"1" * 700)
    (place / "tree/a/b/two").write_bytes(b"2" * 200_000)
    os.link(place / "tree/a/one", place / "tree/a/b/again")
    (place / "tree/link").symlink_to("nowhere")
    (place / "tree/a/b").chmod(0o555)
    for path in ("a/b", "a", "."):
        os.utime(place / "tree" / path, ns=(1, 1_234_567_890_123_456_789))
    cycle = Cycle(open_access(None), ArchiveLimits(min_size=1, max_size=5000, max_count=2))
    cycle.list(place / "tree")
    cycle.pack()
    assert len(cycle.archives) > 2
    whole = content_of(place / "tree")
    for number in range(1, 200):
        target = place / f"target-{number}"
        lived = restore_and_die(cycle, target, number)
        restored = content_of(target) if target.exists() else {}
        assert all(whole[path] == content for path, content in restored.items() if ".waybill" not in path), number
        cycle.get(target)
        assert cycle.failures == [], number
        assert compare_trees(place / "tree", target) == [], number
        if lived:
            assert number > 20
            return
    pytest.fail("it is killed every time")


def test_a_user_gets_only_what_that_user_can_read_and_only_where_that_user_can_write(place: Path) -> None:
    make_tree(place / "tree", USER)
    (place / "tree/secret").write_text("of root")
    (place / "tree/secret").chmod(0o600)
    (place / "tree/hidden").mkdir(mode=0o700)
    (place / "tree/hidden/file").write_text("of root")
    (place / "locked").mkdir(mode=0o755)
    os.mkfifo(place / "tree/pipe")
    with open_access(USER) as access:
        cycle = Cycle(access)
        cycle.put(place / "tree")
        assert cycle.reasons() == {
            "secret": "The user cannot read it.",
            "hidden": "The user cannot read it.",
            "pipe": "It is a named pipe, which cannot be archived.",
        }
        assert (place / "tree/secret").stat().st_mode & 0o7777 == 0o600
        with pytest.raises(WaybillError, match=r"The target .*/locked/target cannot be made: Permission denied"):
            access.make_target(str(place / "locked/target"))
        with pytest.raises(WaybillError, match="may not write to the target"):
            access.make_target(str(place / "locked"))
        with pytest.raises(WaybillError, match="hidden/file: Permission denied"):
            access.find_file_set([str(place / "tree/hidden/file")])
        unlock_files(cycle.file_set, cycle.found, cycle.failures.append)
    assert list((place / "locked").iterdir()) == []


def test_the_process_of_a_user_has_no_other_rights(place: Path) -> None:
    with open_access(USER) as access:
        pid = access._process.pid  # type: ignore[attr-defined]
        access.find_file_set([str(place)])
        status = dict(
            line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":" in line
        )
        assert status["Uid"].split() == [str(USER.uid)] * 4
        assert status["Gid"].split() == [str(USER.gid)] * 4
        assert status["Groups"].split() == [str(group) for group in USER.groups]
        assert {status[name].strip() for name in ("CapPrm", "CapEff", "CapAmb")} == {"0" * 16}
        descriptors = {os.readlink(f"/proc/{pid}/fd/{number}") for number in os.listdir(f"/proc/{pid}/fd")}
        assert len([each for each in descriptors if each.startswith("socket:")]) == 1
    assert not Path(f"/proc/{pid}").exists()


def test_a_process_of_a_user_that_dies_says_so(place: Path) -> None:
    make_tree(place / "tree", USER)
    with open_access(USER) as access:
        cycle = Cycle(access)
        cycle.list(place / "tree")
        access._process.kill()  # type: ignore[attr-defined]
        with pytest.raises(RuntimeError, match="acts for somebody ended in the middle"):
            cycle.lock()


def test_a_full_disk_is_waited_for(place: Path, identity: UserIdentity | None) -> None:
    """Out of space in the middle: the restore fails with a transient error, and goes on when there is room again."""
    (place / "tree").mkdir()
    for number in range(60):
        (place / f"tree/{number}").write_bytes(os.urandom(60_000))
    (place / "small").mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m,mode=777", "tmpfs", place / "small"], check=True)
    try:
        with open_access(identity) as access:
            cycle = Cycle(access)
            cycle.list(place / "tree")
            cycle.pack()
            with pytest.raises(OSError, match="No space left on device"):
                cycle.get(place / "small/target")
        whole = content_of(place / "tree")
        assert all(whole[path] == content for path, content in content_of(place / "small/target").items())
        subprocess.run(["mount", "-o", "remount,size=8m", place / "small"], check=True)
        with open_access(identity) as cycle.access:
            cycle.get(place / "small/target", RestoreOptions(foreign_owners="keep"))
        assert cycle.failures == []
        assert content_of(place / "small/target") == whole
    finally:
        subprocess.run(["umount", place / "small"], check=True)


class Swapping:
    """Somebody who exchanges a directory for a link to another one, and back, all the time."""

    def __init__(self, directory: Path, victim: Path) -> None:
        self._directory, self._victim = directory, victim
        self._aside = directory.with_name("aside")
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._swap)

    def _swap(self) -> None:
        while not self._is_over.is_set():
            with suppress(OSError):
                self._directory.rename(self._aside)
                self._directory.symlink_to(self._victim)
            with suppress(OSError):
                if self._directory.is_symlink():
                    self._directory.unlink()
                self._aside.rename(self._directory)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()


def test_a_race_of_links_never_leads_out_of_the_set_or_the_target(place: Path) -> None:
    """As root, the worst case: while a hostile owner exchanges directories for links, all is listed, locked, unlocked,
    packed, removed and restored; files of others are neither read nor changed.
    """
    (place / "tree/a").mkdir(parents=True)
    (place / "victim").mkdir()
    for number in range(30):
        (place / f"tree/a/{number}").write_text("mine")
        (place / f"victim/{number}").write_text("secret")
        (place / f"victim/{number}").chmod(0o4640)
    os.chown(place / "victim/1", 77, 77)
    before = {path.name: path.stat() for path in (place / "victim").iterdir()}
    cycle = Cycle(open_access(None))
    cycle.list(place / "tree")
    found = cycle.found
    cycle.pack()
    folder = cycle.access.make_target(str(place / "target"))
    (place / "target/a").mkdir()
    with Swapping(place / "tree/a", place / "victim"), Swapping(place / "target/a", place / "victim"):
        for _ in range(30):
            cycle.list(place / "tree")
            assert all(not entry.path.startswith("a/") or entry.size in (0, 4) for entry in cycle.found)
            cycle.found = found
            cycle.lock()
            unlock_files(cycle.file_set, found, cycle.failures.append)
            with suppress(SourceChanged):
                for chunk in TarSource(cycle.file_set, cycle.planned[0].entries).iter_chunks():
                    assert b"secret" not in bytes(chunk)
            cycle.access.unpack_archive(
                [cycle.archives[1]], cycle.members_of(1), folder, RestoreOptions(overwrite=True), cycle.failures.append
            )
            cycle.access.finish_restore(folder, cycle.entries, RestoreOptions(), cycle.failures.append)
        remove_originals(cycle.file_set, cycle.entries, cycle.failures.append)
    assert cycle.failures
    after = {path.name: path.stat() for path in (place / "victim").iterdir()}
    assert {name: (each.st_ino, each.st_uid, each.st_mode, each.st_mtime_ns) for name, each in after.items()} == {
        name: (each.st_ino, each.st_uid, each.st_mode, each.st_mtime_ns) for name, each in before.items()
    }
