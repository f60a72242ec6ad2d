"""Validating: whether a bag holds what it says.

1. The declaration. Without it there is no bag, and nothing else is looked at.
2. What is there: every file below the folder, none through a link.
3. What is said: manifests and tag manifests, into one list of digests for each file.
4. Said and not there, there and not said; then each file is read once, for all its digests.
5. Sums: Payload-Oxum, and what is to be fetched.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import unicodedata
from collections.abc import Callable
from pathlib import Path

from waybill.apps.ingest import names
from waybill.apps.ingest.bagit.report import Problem, Report
from waybill.apps.ingest.bagit.tagfiles import (
    BadTagFile,
    Version,
    decoded,
    read_declaration,
    read_fetch,
    read_info,
    read_manifest,
)
from waybill.digests import Digests, UnknownDigest, algorithm, promised

MOST_PROBLEMS = 1000

_PAYLOAD = "data/"
_MANIFEST = re.compile(r"(tag)?manifest-([A-Za-z0-9_-]+)\.txt")
_WEAK = {"adler32", "crc32"}
_OXUM = re.compile(r"([0-9]{1,19})\.([0-9]{1,19})")
_GONE = {errno.ENOENT, errno.ENOTDIR, errno.ELOOP}
_PORTION = 1024 * 1024
_BESIDE = {"__MACOSX", ".DS_Store"}  # what a Mac puts beside the folder that was packed


class _Enough(Exception):
    """Too many problems."""


def find(folder: Path) -> Path | None:
    """The bag in an unpacked container: the folder itself, or the only one in it; None if there is none."""
    if _is_bag(folder):
        return folder
    inside = [entry for entry in os.scandir(folder) if entry.name not in _BESIDE]
    if len(inside) == 1 and inside[0].is_dir(follow_symlinks=False) and _is_bag(Path(inside[0].path)):
        return Path(inside[0].path)
    return None


def validate(folder: Path, *, came: Callable[[int], None] = lambda count: None) -> Report:
    """The report. `came` is told of every portion of bytes that was read, and may raise to stop."""
    validating = _Validating(folder, came)
    try:
        validating.run()
    except _Enough:
        validating.report.problems.append(
            Problem("", f"Nothing more was looked at: there are {MOST_PROBLEMS} problems already.")
        )
    return validating.report


class _Validating:
    def __init__(self, folder: Path, came: Callable[[int], None]) -> None:
        self._folder, self._came = folder, came
        self._there: dict[str, int] = {}  # every file and its size
        # every name with composed characters -> as it is on the disk, where that differs
        self._plain: dict[str, str] = {}
        self._said: dict[str, dict[str, str]] = {}  # file -> algorithm -> digest
        self._fetched: set[str] = set()
        self.report = Report()

    def run(self) -> None:
        if not _is_bag(self._folder):
            self._problem("bagit.txt", "is missing, so this is no bag")
            return
        try:
            version, encoding = read_declaration(self._open)
        except BadTagFile as error:
            self._problem("bagit.txt", str(error))
            return
        self.report.version = str(version)
        if not Version(0, 93) <= version <= Version(1, 0):
            self._problem("bagit.txt", f"is of version {version}, and versions 0.93 to 1.0 are read")
            return
        self._look(self._folder, "")
        if not (self._folder / "data").is_dir():
            self._problem("data", "is missing: it is the folder of the payload")
        self._read_fetch(encoding)
        self._read_manifests(version, encoding)
        self._compare()
        self._read_info(encoding)

    def _look(self, folder: Path, prefix: str) -> None:
        for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
            name = prefix + entry.name
            if entry.is_dir(follow_symlinks=False):
                self._look(Path(entry.path), f"{name}/")
            elif entry.is_file(follow_symlinks=False):
                fault = names.fault(name)
                if fault:
                    self._problem(name, "cannot be the name of a file: " + fault)
                self._there[name] = size = entry.stat(follow_symlinks=False).st_size
                composed = unicodedata.normalize("NFC", name)
                if composed != name:
                    self._plain[composed] = name
                if name.startswith(_PAYLOAD):
                    self.report.files += 1
                    self.report.octets += size
            else:
                self._problem(name, "is a link or a device, and only files count")

    def _read_manifests(self, version: Version, encoding: str) -> None:
        payload: dict[str, set[str]] = {}
        for name in sorted(name for name in self._there if "/" not in name):
            found = _MANIFEST.fullmatch(name)
            if found is None:
                continue
            try:
                key = algorithm(found[2])
                if key in _WEAK:
                    raise UnknownDigest
            except UnknownDigest:
                self._remark(name, "is of an algorithm that is not known, and was not looked at")
                continue
            listed = self._read_manifest(name, key, encoding, tag=bool(found[1]))
            if not found[1]:
                payload[name] = listed
        if not payload:
            self._problem("manifest-sha256.txt", "or one of another known algorithm is missing: it lists the payload")
            return
        for name in filter(lambda name: name.startswith(_PAYLOAD), self._there):
            silent = [manifest for manifest, listed in payload.items() if name not in listed]
            if len(silent) == len(payload):
                self._problem(name, "is in the payload, and no manifest lists it")
            elif silent and version >= Version(1, 0):
                self._problem(
                    name, f"is not listed in {silent[0]}: in version 1.0 each manifest lists the whole payload"
                )

    def _read_manifest(self, manifest: str, key: str, encoding: str, *, tag: bool) -> set[str]:
        listed: set[str] = set()
        try:
            for line, digest, written in read_manifest(self._open, manifest, encoding):
                name = self._found(written)
                if names.fault(name) or not (tag or name.startswith(_PAYLOAD)):
                    where = "of a bag" if tag else "in data/"
                    self._problem(
                        manifest, f"lists in line {line} what cannot be a file {where}: {names.shown(written)}"
                    )
                    continue
                try:
                    value = promised({key: digest})[key]
                except UnknownDigest as error:
                    self._problem(manifest, f"is wrong in line {line}: {error}".rstrip("."))
                    continue
                listed.add(name)
                if self._said.setdefault(name, {}).setdefault(key, value) != value:
                    self._problem(name, f"has two different digests of the same algorithm; {manifest} has one of them")
        except BadTagFile as error:
            self._problem(manifest, str(error))
        return listed

    def _found(self, written: str) -> str:
        """The file that is meant: as version 1.0 writes it; else as it stands there; else with accents composed
        otherwise.
        """
        name = decoded(written).removeprefix("./")
        if name in self._there or name in self._fetched:
            return name
        if written in self._there:
            self._remark(written, "is listed without the escapes that BagIt asks for (%25 for %)")
            return written
        other = self._plain.get(unicodedata.normalize("NFC", name), unicodedata.normalize("NFC", name))
        if other in self._there:
            self._remark(other, "is listed with its accents composed otherwise")
            return other
        return name

    def _compare(self) -> None:
        for name, digests in self._said.items():
            if name not in self._there:
                missing = (
                    "is to be fetched from elsewhere (fetch.txt): fetch it first"
                    if name in self._fetched
                    else "is listed, and is not there"
                )
                self._problem(name, missing)
                continue
            try:
                fault = self._read(name, list(digests)).fault(None, digests)
            except OSError as error:
                if error.errno not in _GONE:
                    raise
                fault = "it was taken away or replaced meanwhile"
            if fault:
                self._problem(name, f"is not what the bag says: {fault}")

    def _read(self, name: str, algorithms: list[str]) -> Digests:
        digests = Digests(algorithms)
        with os.fdopen(self._open(name), "rb", buffering=0) as file:
            while portion := file.read(_PORTION):
                digests.update(portion)
                self._came(len(portion))
        return digests

    def _read_fetch(self, encoding: str) -> None:
        if "fetch.txt" not in self._there:
            return
        try:
            for fetch in read_fetch(self._open, encoding):
                if names.fault(fetch.name) or not fetch.name.startswith(_PAYLOAD):
                    self._problem("fetch.txt", f"names what cannot be a file in data/: {names.shown(fetch.name)}")
                else:
                    self.report.fetch.append(fetch)
                    self._fetched.add(fetch.name)
        except BadTagFile as error:
            self._problem("fetch.txt", str(error))

    def _read_info(self, encoding: str) -> None:
        if "bag-info.txt" not in self._there:
            return
        try:
            self.report.info = read_info(self._open, encoding)
        except BadTagFile as error:
            self._problem("bag-info.txt", str(error))
            return
        sums = [value for label, value in self.report.info if label.lower() == "payload-oxum"]
        for value in sums:
            found = _OXUM.fullmatch(value)
            if found is None:
                self._problem("bag-info.txt", f"has a Payload-Oxum that is none: {names.shown(value)}")
            elif (int(found[1]), int(found[2])) != (self.report.octets, self.report.files):
                there = f"{self.report.octets} bytes in {self.report.files} files are there"
                self._problem("bag-info.txt", f"promises {found[1]} bytes in {found[2]} files, and {there}")

    def _open(self, name: str) -> int:
        """A file, with no link on the way to it."""
        *folders, last = name.split("/")
        fd = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        for step, flags in [*((folder, os.O_DIRECTORY) for folder in folders), (last, 0)]:
            try:
                below = os.open(step, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | flags, dir_fd=fd)
            finally:
                os.close(fd)
            fd = below
        return fd

    def _problem(self, name: str, what: str) -> None:
        self.report.problems.append(Problem(name, f"{names.shown(name)} {what.rstrip('.')}."))
        if len(self.report.problems) == MOST_PROBLEMS:
            raise _Enough

    def _remark(self, name: str, what: str) -> None:
        if len(self.report.remarks) < MOST_PROBLEMS:
            self.report.remarks.append(Problem(name, f"{names.shown(name)} {what}."))


def _is_bag(folder: Path) -> bool:
    try:
        return stat.S_ISREG(os.stat(folder / "bagit.txt", follow_symlinks=False).st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False
