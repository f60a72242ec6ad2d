"""What is put is what is gotten: trees compared by rsync, archives read by GNU tar and bsdtar."""

import io
import os
import subprocess
import tarfile
from pathlib import Path

import pytest

from tests.apps.archive.files.trees import USER, Cycle, compare_trees, make_tree
from waybill.apps.archive.files import (
    ArchiveLimits,
    FileAccess,
    RestoreOptions,
    UserIdentity,
    decode_entries,
    encode_entries,
    from_manifest_entry,
    open_access,
    to_manifest_entry,
    unlock_files,
)
from waybill.manifests import ManifestHeader, ManifestReader, ManifestWriter

SMALL_ARCHIVES = ArchiveLimits(min_size=4_000, max_size=20_000, max_count=5)


def keep_all() -> RestoreOptions:
    return RestoreOptions(foreign_owners="keep", setuid="keep")


@pytest.mark.parametrize("limits", [ArchiveLimits(), SMALL_ARCHIVES], ids=["one", "many"])
def test_a_tree_is_restored_exactly(
    home: Path, access: FileAccess, identity: UserIdentity | None, limits: ArchiveLimits
) -> None:
    make_tree(home / "tree", identity)
    cycle = Cycle(access, limits)
    cycle.put(home / "tree")
    assert len(cycle.archives) == 1 if limits is not SMALL_ARCHIVES else len(cycle.archives) > 3
    assert unlock_files(cycle.file_set, cycle.found, cycle.failures.append) > 10
    cycle.get(home / "restored")
    assert cycle.failures == []
    assert compare_trees(home / "tree", home / "restored") == []
    assert (home / "restored/sparse").stat().st_blocks < 1000
    assert not list(home.rglob(".waybill*"))


def test_getting_twice_changes_nothing(home: Path, access: FileAccess, identity: UserIdentity | None) -> None:
    make_tree(home / "tree", identity)
    cycle = Cycle(access, SMALL_ARCHIVES)
    cycle.put(home / "tree")
    unlock_files(cycle.file_set, cycle.found, cycle.failures.append)
    cycle.get(home / "restored")
    before = {path: path.lstat().st_ino for path in (home / "restored").rglob("*")}
    cycle.get(home / "restored")
    assert cycle.failures == []
    assert {path: path.lstat().st_ino for path in (home / "restored").rglob("*")} == before
    assert compare_trees(home / "tree", home / "restored") == []


def test_owners_setuid_and_capabilities_come_back_where_they_are_allowed(place: Path) -> None:
    make_tree(place / "tree", USER)
    os.lchown(place / "tree/links/dangling", 111, 222)
    os.chown(place / "tree/large", 111, 222)
    os.chmod(place / "tree/large", 0o6755)
    os.chown(place / "tree/sticky", 0, 333)
    os.chmod(place / "tree/sticky", 0o3775)
    os.chmod(place / "tree/ünïcode", 0o4755)
    os.setxattr(place / "tree/large", "security.capability", bytes.fromhex("0100000200100000000000000000000000000000"))
    (place / "home").mkdir()
    os.chown(place / "home", USER.uid, USER.gid)
    with open_access(USER) as access:
        cycle = Cycle(access)
        cycle.put(place / "tree")
        assert not (place / "tree/large").stat().st_mode & 0o6000  # never a program of root that was the user's
        unlock_files(cycle.file_set, cycle.found, cycle.failures.append)
        cycle.get(place / "home/kept", keep_all())
        assert cycle.failures == []
        assert compare_trees(place / "tree", place / "home/kept") == []

        cycle.get(place / "home/dropped")
        reasons = cycle.reasons()
        assert reasons.keys() == {"large", "sticky", "links/dangling", "ünïcode"}
        assert "setuid and setgid bits" in reasons["ünïcode"]
        assert "Its owner 0:333 is not restored" in reasons["sticky"]
        for name in ("large", "ünïcode"):
            found = (place / "home/dropped" / name).stat()
            assert (found.st_uid, found.st_mode & 0o6000) == (USER.uid, 0)


def test_tar_programs_read_it(place: Path) -> None:
    make_tree(place / "tree")
    os.utime(place / "tree/links/long", ns=(1, 1), follow_symlinks=False)
    cycle = Cycle(open_access(None))
    cycle.list(place / "tree")
    cycle.pack()
    archive = place / "a.tar"
    archive.write_bytes(cycle.archives[1])
    for name, command in {
        "gnu": ["tar", "--acls", "--xattrs", "--xattrs-include=*", "--numeric-owner", "-xpf"],
        "bsd": ["bsdtar", "--acls", "--xattrs", "--numeric-owner", "-xpf"],
    }.items():
        (place / name).mkdir()
        subprocess.run([*command, archive, "-C", place / name], check=True, capture_output=True)
        # bsdtar makes the last directory's time new, when it is the folder that it was told to extract into
        changed = [line for line in compare_trees(place / "tree", place / name) if line != ".d..t...... ./"]
        assert changed == [], name
    with tarfile.open(fileobj=io.BytesIO(cycle.archives[1])) as tar:
        members = {os.fsencode(member.name): member for member in tar}
        assert members.keys() == {os.fsencode(entry.path) for entry in cycle.entries}
        for entry in cycle.entries:
            member = members[os.fsencode(entry.path)]
            if entry.kind == "file":
                assert member.size == entry.size


def test_a_file_of_nine_gibibytes_with_holes(place: Path) -> None:
    with open(place / "huge", "wb") as file:
        file.truncate(9 * 2**30)
        file.seek(8 * 2**30 + 5)
        file.write(b"far")
    with open_access(None) as access:
        cycle = Cycle(access)
        cycle.put(place / "huge")
        assert cycle.planned[0].size < 20_000
        assert cycle.planned[0].content_size == 9 * 2**30
        (place / "a.tar").write_bytes(cycle.archives[1])
        cycle.get(place / "restored")
    assert cycle.failures == []
    restored = place / "restored/huge"
    assert restored.stat().st_size == 9 * 2**30
    assert restored.stat().st_blocks < 100
    with restored.open("rb") as file:
        file.seek(8 * 2**30 + 4)
        assert file.read(5) == b"\0far\0"
    listed = subprocess.run(["tar", "tvf", place / "a.tar"], check=True, capture_output=True, text=True).stdout
    assert str(9 * 2**30) in listed


def test_entries_are_the_same_after_they_were_stored(place: Path) -> None:
    make_tree(place / "tree")
    cycle = Cycle(open_access(None))
    cycle.list(place / "tree")
    cycle.pack()
    assert decode_entries(encode_entries(cycle.entries)) == cycle.entries
    for entry in cycle.entries:
        read = from_manifest_entry(to_manifest_entry(entry))
        assert (read.device, read.inode, read.ctime_ns) == (0, 0, 0)
        for field in entry.__struct_fields__:
            if field not in ("device", "inode", "ctime_ns"):
                assert getattr(read, field) == getattr(entry, field)


def test_a_set_is_restored_from_what_its_container_holds(place: Path) -> None:
    """When the catalogue of the server is lost."""
    make_tree(place / "tree")
    cycle = Cycle(open_access(None))
    cycle.list(place / "tree")
    cycle.pack()
    lines = b"".join(ManifestWriter(ManifestHeader(loose=True)).iter_chunks(map(to_manifest_entry, cycle.entries)))
    cycle.entries = [from_manifest_entry(line) for line in ManifestReader([lines], loose=True)]
    cycle.get(place / "restored", keep_all())
    assert cycle.failures == []
    assert compare_trees(place / "tree", place / "restored") == []
