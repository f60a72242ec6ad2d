"""Trees of files to archive, an outside tool that compares them, and the calls of a PUT and a GET in their order."""

import hashlib
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import msgspec

from waybill.apps.archive.files import (
    ArchiveLimits,
    FileAccess,
    FileEntry,
    FileFailure,
    FileSet,
    PlannedArchive,
    RestoreOptions,
    TarSource,
    UserIdentity,
    find_link_sources,
    plan_archives,
)

USER = UserIdentity("somebody", 54321, 54321, (54321, 54322))
OTHER = 54399
IS_ROOT = os.geteuid() == 0


def make_tree(root: Path, owner: UserIdentity | None = None) -> None:
    """One of everything that is kept."""
    root.mkdir()
    for directory in ("empty", "deep/er/still", "sticky", "closed", "links"):
        (root / directory).mkdir(parents=True)
    (root / "zero").touch()
    (root / "deep/text").write_text("some text\n" * 100)
    (root / "deep/er/still/block").write_bytes(bytes(range(256)) * 2)
    (root / "large").write_bytes(b"".join(hashlib.sha256(b"%d" % n).digest() for n in range(20_000)))
    (root / "ünïcode").write_text("u")
    (root / ("n" * 200)).write_text("a long name")
    for name in (b"bad \xff\xfe name", b"line\nbreak", b" ", b"-rf", b"quote'\"\\"):
        Path(os.fsdecode(os.fsencode(root) + b"/" + name)).write_bytes(name)
    os.link(root / "deep/text", root / "links/first")
    os.link(root / "deep/text", root / "links/second")
    os.symlink("../deep/text", root / "links/relative")
    os.symlink("/nowhere/at all", root / "links/dangling")
    os.symlink(b"\xfe" * 150, os.fsencode(root) + b"/links/long")
    with open(root / "sparse", "wb") as file:
        file.truncate(30_000_000)
        for at in (0, 10_000_000, 29_000_000):
            file.seek(at)
            file.write(b"data")
    with open(root / "hole", "wb") as file:
        file.truncate(5_000_000)
    os.setxattr(root / "deep/text", "user.note", b"a=b\nc\0\xff")
    os.setxattr(root / "empty", "user.folder", b"1")
    subprocess.run(["setfacl", "-m", "u:1234:rw,g:1235:r,m:rw", root / "zero"], check=True)
    subprocess.run(["setfacl", "-d", "-m", "u:1234:rwx", root / "empty"], check=True)
    if owner is not None:
        for folder, directories, files in os.walk(os.fsencode(root)):
            for name in [b".", *directories, *files]:
                os.lchown(os.path.join(folder, name), owner.uid, owner.gid)
    os.chmod(root / "deep/text", 0o640)
    os.chmod(root / "ünïcode", 0o444)
    os.chmod(root / "sticky", 0o1777)
    os.chmod(root / "closed", 0o555)
    for number, path in enumerate(sorted(root.rglob("*"), reverse=True)):
        os.utime(path, ns=(10**18, 1_500_000_000_123_456_789 + number * 1_000_000_007), follow_symlinks=False)
    os.utime(root / "zero", ns=(0, 4_000_000_000_000_000_000))
    os.utime(root, ns=(10**18, 1_400_000_000_000_000_001))


def compare_trees(one: Path, other: Path) -> list[str]:
    """What rsync would change to make the other like the one: contents, owners, modes, times, links, ACLs, attributes."""
    command = ["rsync", "-n", "-aHAXi", "--checksum", "--numeric-ids", "--delete", f"{one}/", f"{other}/"]
    listed = subprocess.run(command, check=True, capture_output=True)
    return listed.stdout.decode(errors="backslashreplace").splitlines()


class Cycle:
    """A PUT and a GET as the steps of a request call them, without storage and store."""

    def __init__(self, access: FileAccess, limits: ArchiveLimits | None = None) -> None:
        self.access = access
        self.limits = limits or ArchiveLimits()
        self.failures: list[FileFailure] = []
        self.file_set = FileSet(b"", 0, 0)
        self.found: list[FileEntry] = []
        self.locked: list[FileEntry] = []
        self.planned: list[PlannedArchive] = []
        self.entries: list[FileEntry] = []
        self.archives: dict[int, bytes] = {}

    def list(self, *paths: Path | str) -> None:
        self.file_set, names = self.access.find_file_set([str(path) for path in paths])
        self.found = list(self.access.list_files(self.file_set, names, self.failures.append))

    def lock(self) -> None:
        self.locked = list(self.access.lock_files(self.file_set, self.found, self.failures.append))

    def pack(self) -> None:
        self.planned = list(plan_archives(self.locked or self.found, self.limits))
        self.entries = []
        for archive in self.planned:
            source = TarSource(self.file_set, archive.entries)
            assert source.size == archive.size
            self.archives[archive.number] = b"".join(bytes(chunk) for chunk in source.iter_chunks())
            assert len(self.archives[archive.number]) == archive.size
            self.entries += source.entries

    def put(self, *paths: Path | str) -> None:
        self.list(*paths)
        self.lock()
        self.pack()

    def get(self, target: Path | str, options: RestoreOptions | None = None, *, chunk: int = 100_000) -> int:
        """Restore everything that is selected; returns how many were finished."""
        options = options or RestoreOptions()
        options = msgspec.structs.replace(
            options, link_sources=find_link_sources(self.in_order, options.make_selection())
        )
        folder = self.access.make_target(str(target))
        for number in sorted(self.archives):
            self.access.unpack_archive(
                cut(self.archives[number], chunk), self.members_of(number), folder, options, self.failures.append
            )
        return self.access.finish_restore(folder, self.in_order, options, self.failures.append)

    def members_of(self, number: int) -> Sequence[FileEntry]:
        return [entry for entry in self.entries if entry.archive == number]

    @property
    def in_order(self) -> Sequence[FileEntry]:
        packed = {entry.path: entry for entry in self.entries}
        return [packed[entry.path] for entry in self.found if entry.path in packed]

    def reasons(self) -> dict[str, str]:
        return {failure.path: failure.reason for failure in self.failures}


def cut(content: bytes, size: int) -> list[bytes]:
    return [content[at : at + size] for at in range(0, len(content), size)]
