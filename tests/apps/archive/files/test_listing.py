"""Which paths a request names, and what is found there."""

import os
import socket
import subprocess
from pathlib import Path

import pytest

from tests.apps.archive.files.trees import Cycle
from waybill.apps.archive.files import AccessRefused, FileAccess, FileFailure, FileSetChanged, listing, open_access


def list_names(*paths: Path | str) -> tuple[str, list[str]]:
    file_set, names = listing.find_file_set([str(path) for path in paths])
    return file_set.folder, names


def test_the_folder_of_a_set_is_what_its_paths_have_in_common(place: Path) -> None:
    for path in ("a/b1/x", "a/b2/y", "c"):
        (place / path).mkdir(parents=True)
    (place / "a/b1/x/file").touch()
    root = str(place)
    assert list_names(place / "a") == (f"{root}/a", ["."])
    assert list_names(place / "a/b1", place / "a/b2") == (f"{root}/a", ["b1", "b2"])  # not by characters
    assert list_names(place / "a/b1/x/file") == (f"{root}/a/b1/x", ["file"])
    assert list_names(place / "a/b1/x/file", f"{root}//a/./b1/x/../x/file") == (f"{root}/a/b1/x", ["file"])
    assert list_names(place / "a/b1/x/file", place / "a", place / "a/b2") == (f"{root}/a", ["."])
    assert list_names(place / "a/b1/x/file", place / "c") == (root, ["a/b1/x/file", "c"])


def test_links_on_the_way_are_followed_once_and_a_link_itself_is_kept(place: Path) -> None:
    (place / "real/folder").mkdir(parents=True)
    (place / "way").symlink_to("real")
    assert list_names(place / "way/folder") == (f"{place}/real/folder", ["."])
    assert list_names(place / "way") == (str(place), ["way"])
    cycle = Cycle(open_access(None))
    cycle.list(place / "way")
    assert [(entry.path, entry.kind, entry.target) for entry in cycle.found] == [("way", "symlink", "real")]


@pytest.mark.parametrize(
    ("paths", "message"),
    [
        (["relative"], "not an absolute path"),
        ([], "No path was given"),
        (["/no/such/path"], "No such file or directory"),
        (["/etc/hostname", "/usr/bin"], "no folder in common but the root"),
        (["/"], "no folder in common but the root"),
        (["/a\0b"], "not a path"),
    ],
)
def test_paths_that_name_no_set_are_refused(access: FileAccess, paths: list[str], message: str) -> None:
    with pytest.raises(AccessRefused, match=message):
        access.find_file_set(paths)
    access.find_file_set(["/usr"])  # the conversation goes on


def test_directories_stay_together_in_one_order(place: Path) -> None:
    for path in ("b/2", "b/1", "a", "c/d/e", "c/f"):
        (place / "tree" / path).parent.mkdir(parents=True, exist_ok=True)
        (place / "tree" / path).touch()
    cycle = Cycle(open_access(None))
    cycle.list(place / "tree")
    assert [entry.path for entry in cycle.found] == [".", "a", "b", "b/1", "b/2", "c", "c/f", "c/d", "c/d/e"]


def test_fifos_sockets_and_devices_are_refused_by_name(home: Path, access: FileAccess) -> None:
    os.mkfifo(home / "fifo", 0o666)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(home / "socket"))
        os.mknod(home / "null", 0o020666, os.makedev(1, 3))
        os.mknod(home / "loop\nname", 0o060666, os.makedev(7, 0))
        cycle = Cycle(access)
        cycle.list(home)
    assert cycle.reasons() == {
        "fifo": "It is a named pipe, which cannot be archived.",
        "socket": "It is a socket, which cannot be archived.",
        "null": "It is a character device, which cannot be archived.",
        "loop\\nname": "It is a block device, which cannot be archived.",
    }
    assert [entry.path for entry in cycle.found] == ["."]


def test_a_directory_inside_itself_by_a_mount_is_refused(place: Path) -> None:
    (place / "tree/a/b/again").mkdir(parents=True)
    (place / "tree/a/file").touch()
    subprocess.run(["mount", "--bind", place / "tree/a", place / "tree/a/b/again"], check=True)
    try:
        cycle = Cycle(open_access(None))
        cycle.list(place / "tree")
    finally:
        subprocess.run(["umount", place / "tree/a/b/again"], check=True)
    assert cycle.reasons() == {"a/b/again": "It is a directory that lies inside itself, by a mount."}
    assert [entry.path for entry in cycle.found] == [".", "a", "a/file", "a/b"]


def test_what_lies_too_deep_is_refused(place: Path) -> None:
    folder = os.open(place, os.O_RDONLY)
    for _ in range(250):
        os.mkdir("d", dir_fd=folder)
        below = os.open("d", os.O_RDONLY, dir_fd=folder)
        os.close(folder)
        folder = below
    os.close(folder)
    cycle = Cycle(open_access(None))
    cycle.list(place)
    assert len(cycle.found) == 200
    assert [failure.reason for failure in cycle.failures] == ["It lies more than 200 directories deep."]
    descriptors = len(os.listdir("/proc/self/fd"))
    cycle.list(place)
    assert len(os.listdir("/proc/self/fd")) == descriptors  # each is closed again


def test_what_vanishes_while_it_is_listed_is_named(place: Path) -> None:
    for name in ("a", "b"):
        (place / "tree" / name).mkdir(parents=True)
        (place / "tree" / name / "file").touch()
    failures: list[FileFailure] = []
    file_set, names = listing.find_file_set([str(place / "tree")])
    entries = listing.list_files(file_set, [*names, "gone"], failures.append)
    assert next(entries).path == "."
    assert next(entries).path == "a"
    (place / "tree/b/file").unlink()
    (place / "tree/b").rmdir()
    (place / "tree/b").symlink_to("/etc")
    assert [entry.path for entry in entries] == ["a/file"]
    assert [failure.path for failure in failures] == ["b", "gone"]


def test_a_directory_that_becomes_a_link_is_never_followed(place: Path) -> None:
    """The folder above a path is replaced between the listing and the lock."""
    (place / "tree/a").mkdir(parents=True)
    (place / "tree/a/passwd").touch()
    cycle = Cycle(open_access(None))
    cycle.list(place / "tree")
    (place / "tree/a").rename(place / "elsewhere")
    (place / "tree/a").symlink_to("/etc")
    before = os.stat("/etc/passwd")
    cycle.lock()
    assert os.stat("/etc/passwd") == before
    assert cycle.reasons().keys() == {"a", "a/passwd"}
    (place / "tree").rename(place / "moved")
    with pytest.raises(FileSetChanged):
        cycle.lock()


def test_many_hard_links_are_recorded_once(place: Path) -> None:
    (place / "tree").mkdir()
    (place / "tree/0").write_text("content")
    for number in range(1, 300):
        os.link(place / "tree/0", place / f"tree/{number}")
    (place / "tree/other").mkdir()
    os.link(place / "tree/0", place / "outside")
    cycle = Cycle(open_access(None))
    cycle.list(place / "tree")
    kinds = [entry.kind for entry in cycle.found]
    assert (kinds.count("file"), kinds.count("hardlink")) == (1, 299)
    assert {entry.target for entry in cycle.found if entry.kind == "hardlink"} == {"0"}


def test_fifty_thousand_paths_in_one_request(place: Path, access: FileAccess) -> None:
    (place / "tree").mkdir()
    paths = [f"{place}/tree/{number:05}" for number in range(50_000)]
    for path in paths:
        os.close(os.open(path, os.O_CREAT, 0o644))
    file_set, names = access.find_file_set(paths)
    assert len(names) == 50_000
    failures: list[FileFailure] = []
    assert sum(1 for _ in access.list_files(file_set, names, failures.append)) == 50_000
    assert failures == []


def test_a_file_in_many_pieces_is_stored_in_few(place: Path) -> None:
    with open(place / "pieces", "wb") as file:
        for number in range(3000):
            file.seek(number * 8192)
            file.write(b"data")
        file.truncate(3000 * 8192 + (number % 7))
    cycle = Cycle(open_access(None))
    cycle.put(place / "pieces")
    assert cycle.found[0].data is not None
    assert len(cycle.found[0].data) <= listing.MAX_DATA_PIECES
    cycle.get(place / "restored")
    assert cycle.failures == []
    assert (place / "restored/pieces").read_bytes() == (place / "pieces").read_bytes()
