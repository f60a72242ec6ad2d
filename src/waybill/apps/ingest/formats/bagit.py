"""BagIt (RFC 8493, versions 0.93 to 1.0): validates a folder that lists its own contents.

    bagit.txt                    the version, and the encoding of the tag files
    manifest-sha256.txt          digest and name of each payload file; there may be several, for several algorithms
    tagmanifest-sha256.txt       the same for the tag files
    bag-info.txt                 about the bag; `Payload-Oxum: bytes.files` is checked
    fetch.txt                    payload files that are elsewhere: listed, never fetched; a bag without them is incomplete
    data/                        the payload

`find_bag` looks for the bag in an unpacked container. `validate_bag` reads everything once and returns a report: every
problem, each a sentence about a file, and remarks on harmless oddities. Links are never followed.
"""

from __future__ import annotations

import codecs
import errno
import os
import re
import stat
import unicodedata
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from waybill.digests import Digests, normalize_algorithm, normalize_digests
from waybill.errors import FormatError, InputError
from waybill.files import names

MAX_PROBLEMS = 1000
LONGEST_LINE = 64 * 1024  # characters
MAX_INFO = 10_000  # elements of bag-info.txt

_VERSION = re.compile(r"BagIt-Version: ([0-9]{1,4})\.([0-9]{1,4})")
_ENCODING = re.compile(r"Tag-File-Character-Encoding: (\S{1,40})")
_ENCODINGS = {"utf-8", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "ascii", "iso8859-1", "iso8859-15", "cp1252"}
_MANIFEST_LINE = re.compile(r"([0-9A-Fa-f]+)[ \t]+\*?(.+)", re.DOTALL)
_FETCH_LINE = re.compile(r"(\S+)[ \t]+([0-9]{1,19}|-)[ \t]+(.+)", re.DOTALL)
_LINE_END = re.compile("%0(A|D)", re.IGNORECASE)
_PAYLOAD = "data/"
_MANIFEST = re.compile(r"(tag)?manifest-([A-Za-z0-9_-]+)\.txt")
_WEAK = {"adler32", "crc32"}
_OXUM = re.compile(r"([0-9]{1,19})\.([0-9]{1,19})")
_MISSING_ERRNOS = {errno.ENOENT, errno.ENOTDIR, errno.ELOOP}
_CHUNK = 1024 * 1024
_IGNORED_NAMES = {"__MACOSX", ".DS_Store"}  # added by macOS beside the packed folder


TagFileOpener = Callable[[str], int]  # opens a file of the bag by name, returns a descriptor


class BagProblem(msgspec.Struct, frozen=True):
    """A problem or a remark; `name` is the file it is about, relative to the bag."""

    name: str
    text: str

    def __str__(self) -> str:
        return self.text


class BagReport(msgspec.Struct):
    version: str = ""
    problems: list[BagProblem] = []
    remarks: list[BagProblem] = []
    files: int = 0  # of the payload
    octets: int = 0  # of the payload
    info: list[tuple[str, str]] = []
    fetch: list[BagFetchEntry] = []

    @property
    def is_valid(self) -> bool:
        return not self.problems


class _TooManyProblems(BaseException):  # not an Exception: no handler of errors takes it for one
    """MAX_PROBLEMS is reached."""


def find_bag(folder: Path) -> Path | None:
    """Return the bag in an unpacked container: the folder itself, or the only folder in it; None if there is none."""
    if _is_bag(folder):
        return folder
    entries = [entry for entry in os.scandir(folder) if entry.name not in _IGNORED_NAMES]
    if len(entries) == 1 and entries[0].is_dir(follow_symlinks=False) and _is_bag(Path(entries[0].path)):
        return Path(entries[0].path)
    return None


def validate_bag(folder: Path, *, on_bytes: Callable[[int], None] = lambda count: None) -> BagReport:
    """Return the report. `on_bytes` is called for every chunk that is read, and may raise to stop."""
    validator = _BagValidator(folder, on_bytes)
    try:
        validator.run()
    except _TooManyProblems:
        validator.report.problems.append(BagProblem("", f"Validation stopped after {MAX_PROBLEMS} problems."))
    return validator.report


class _BagValidator:
    def __init__(self, folder: Path, on_bytes: Callable[[int], None]) -> None:
        self._folder, self._on_bytes = folder, on_bytes
        self._sizes: dict[str, int] = {}  # of every file
        # names with composed characters -> names on disk, where they differ
        self._names_on_disk: dict[str, str] = {}
        self._promised_digests: dict[str, dict[str, str]] = {}  # file -> algorithm -> digest
        self._fetch_names: set[str] = set()
        self.report = BagReport()

    def run(self) -> None:
        if not _is_bag(self._folder):
            self._add_problem("bagit.txt", "is missing, so this is not a bag")
            return
        try:
            version, encoding = read_declaration(self._open)
        except FormatError as error:
            self._add_problem("bagit.txt", str(error))
            return
        self.report.version = str(version)
        if not BagVersion(0, 93) <= version <= BagVersion(1, 0):
            self._add_problem("bagit.txt", f"is of version {version}, but only versions 0.93 to 1.0 are read")
            return
        self._list_files(self._folder, "")
        if not (self._folder / "data").is_dir():
            self._add_problem("data", "is missing: it is the payload folder")
        self._read_fetch(encoding)
        self._read_manifests(version, encoding)
        self._compare_digests()
        self._read_info(encoding)

    def _list_files(self, folder: Path, prefix: str) -> None:
        for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
            name = prefix + entry.name
            if entry.is_dir(follow_symlinks=False):
                self._list_files(Path(entry.path), f"{name}/")
            elif entry.is_file(follow_symlinks=False):
                fault = names.find_fault(name)
                if fault:
                    self._add_problem(name, "cannot be the name of a file: " + fault)
                self._sizes[name] = size = entry.stat(follow_symlinks=False).st_size
                composed = unicodedata.normalize("NFC", name)
                if composed != name:
                    self._names_on_disk[composed] = name
                if name.startswith(_PAYLOAD):
                    self.report.files += 1
                    self.report.octets += size
            else:
                self._add_problem(name, "is a link or a device, and only files are allowed")

    def _read_manifests(self, version: BagVersion, encoding: str) -> None:
        payload: dict[str, set[str]] = {}
        for name in sorted(name for name in self._sizes if "/" not in name):
            found = _MANIFEST.fullmatch(name)
            if found is None:
                continue
            try:
                key = normalize_algorithm(found[2])
                if key in _WEAK:
                    raise InputError(code="unknown-digest")
            except InputError:
                self._add_remark(name, "is of an unknown algorithm and was ignored")
                continue
            listed = self._read_manifest(name, key, encoding, tag=bool(found[1]))
            if not found[1]:
                payload[name] = listed
        if not payload:
            self._add_problem(
                "manifest-sha256.txt", "or a manifest of another known algorithm is missing: it lists the payload"
            )
            return
        for name in filter(lambda name: name.startswith(_PAYLOAD), self._sizes):
            unlisting = [manifest for manifest, listed in payload.items() if name not in listed]
            if len(unlisting) == len(payload):
                self._add_problem(name, "is in the payload, but no manifest lists it")
            elif unlisting and version >= BagVersion(1, 0):
                self._add_problem(
                    name, f"is not listed in {unlisting[0]}: in version 1.0 each manifest lists the whole payload"
                )

    def _read_manifest(self, manifest: str, key: str, encoding: str, *, tag: bool) -> set[str]:
        listed: set[str] = set()
        try:
            for line, digest, written in read_manifest(self._open, manifest, encoding):
                name = self._resolve_name(written)
                if names.find_fault(name) or not (tag or name.startswith(_PAYLOAD)):
                    where = "of a bag" if tag else "in data/"
                    self._add_problem(
                        manifest, f"lists in line {line} what cannot be a file {where}: {names.quote_text(written)}"
                    )
                    continue
                try:
                    value = normalize_digests({key: digest})[key]
                except InputError as error:
                    self._add_problem(manifest, f"is wrong in line {line}: {error}".rstrip("."))
                    continue
                listed.add(name)
                if self._promised_digests.setdefault(name, {}).setdefault(key, value) != value:
                    self._add_problem(
                        name, f"has two different digests of the same algorithm; {manifest} has one of them"
                    )
        except FormatError as error:
            self._add_problem(manifest, str(error))
        return listed

    def _resolve_name(self, written: str) -> str:
        """Return the file that a manifest means: with the escapes of version 1.0; else as written; else with accents
        composed differently.
        """
        name = decode_name(written).removeprefix("./")
        if name in self._sizes or name in self._fetch_names:
            return name
        if written in self._sizes:
            self._add_remark(written, "is listed without the escapes that BagIt requires (%25 for %)")
            return written
        other = self._names_on_disk.get(unicodedata.normalize("NFC", name), unicodedata.normalize("NFC", name))
        if other in self._sizes:
            self._add_remark(other, "is listed with its accents composed differently")
            return other
        return name

    def _compare_digests(self) -> None:
        for name, digests in self._promised_digests.items():
            if name not in self._sizes:
                missing = (
                    "is to be fetched from elsewhere (fetch.txt): fetch it first"
                    if name in self._fetch_names
                    else "is listed but does not exist"
                )
                self._add_problem(name, missing)
                continue
            try:
                fault = self._digest_file(name, list(digests)).find_mismatch(None, digests)
            except OSError as error:
                if error.errno not in _MISSING_ERRNOS:
                    raise
                fault = "it was removed or replaced meanwhile"
            if fault:
                self._add_problem(name, f"does not match its manifest: {fault}")

    def _digest_file(self, name: str, algorithms: list[str]) -> Digests:
        digests = Digests(algorithms)
        with os.fdopen(self._open(name), "rb", buffering=0) as file:
            while chunk := file.read(_CHUNK):
                digests.update(chunk)
                self._on_bytes(len(chunk))
        return digests

    def _read_fetch(self, encoding: str) -> None:
        if "fetch.txt" not in self._sizes:
            return
        try:
            for fetch in read_fetch(self._open, encoding):
                if names.find_fault(fetch.name) or not fetch.name.startswith(_PAYLOAD):
                    self._add_problem(
                        "fetch.txt", f"names what cannot be a file in data/: {names.quote_text(fetch.name)}"
                    )
                else:
                    self.report.fetch.append(fetch)
                    self._fetch_names.add(fetch.name)
        except FormatError as error:
            self._add_problem("fetch.txt", str(error))

    def _read_info(self, encoding: str) -> None:
        if "bag-info.txt" not in self._sizes:
            return
        try:
            self.report.info = read_info(self._open, encoding)
        except FormatError as error:
            self._add_problem("bag-info.txt", str(error))
            return
        sums = [value for label, value in self.report.info if label.lower() == "payload-oxum"]
        for value in sums:
            found = _OXUM.fullmatch(value)
            if found is None:
                self._add_problem("bag-info.txt", f"has an invalid Payload-Oxum: {names.quote_text(value)}")
            elif (int(found[1]), int(found[2])) != (self.report.octets, self.report.files):
                actual = f"there are {self.report.octets} bytes in {self.report.files} files"
                self._add_problem("bag-info.txt", f"promises {found[1]} bytes in {found[2]} files, but {actual}")

    def _open(self, name: str) -> int:
        """Open a file without following any link."""
        *folders, last = name.split("/")
        fd = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        for step, flags in [*((folder, os.O_DIRECTORY) for folder in folders), (last, 0)]:
            try:
                below = os.open(step, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | flags, dir_fd=fd)
            finally:
                os.close(fd)
            fd = below
        return fd

    def _add_problem(self, name: str, what: str) -> None:
        self.report.problems.append(BagProblem(name, f"{names.quote_text(name)} {what.rstrip('.')}."))
        if len(self.report.problems) == MAX_PROBLEMS:
            raise _TooManyProblems

    def _add_remark(self, name: str, what: str) -> None:
        if len(self.report.remarks) < MAX_PROBLEMS:
            self.report.remarks.append(BagProblem(name, f"{names.quote_text(name)} {what}."))


def _is_bag(folder: Path) -> bool:
    try:
        return stat.S_ISREG(os.stat(folder / "bagit.txt", follow_symlinks=False).st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False


class BagVersion(NamedTuple):
    major: int
    minor: int

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"


class BagFetchEntry(NamedTuple):
    """A payload file that is to be fetched."""

    url: str
    size: int | None
    name: str


def read_declaration(opener: TagFileOpener) -> tuple[BagVersion, str]:
    """Return the version and encoding that bagit.txt declares."""
    lines = [line for _, line in _iter_lines(opener, "bagit.txt", "utf-8") if line.strip()]
    version = _VERSION.fullmatch(lines[0].rstrip()) if lines else None
    encoding = _ENCODING.fullmatch(lines[1].rstrip()) if len(lines) > 1 else None
    if version is None or encoding is None or len(lines) > 2:
        raise FormatError("must have two lines, `BagIt-Version: 1.0` and `Tag-File-Character-Encoding: UTF-8`")
    try:
        codec = codecs.lookup(encoding[1]).name
    except LookupError:
        codec = ""
    if codec not in _ENCODINGS:
        raise FormatError(f"names an unknown encoding, {encoding[1]!a}")
    return BagVersion(int(version[1]), int(version[2])), codec


def read_manifest(opener: TagFileOpener, name: str, encoding: str) -> Iterator[tuple[int, str, str]]:
    """Yield line number, digest in lower case, and name as written, of a manifest or tag manifest."""
    for line, text in _iter_lines(opener, name, encoding):
        if not text.strip():
            continue
        found = _MANIFEST_LINE.fullmatch(text.strip("\n"))
        if found is None:
            raise FormatError(f"line {line}: must have a digest in hex, a space, and the name of a file")
        yield line, found[1].lower(), found[2]


def read_fetch(opener: TagFileOpener, encoding: str) -> Iterator[BagFetchEntry]:
    for line, text in _iter_lines(opener, "fetch.txt", encoding):
        if not text.strip():
            continue
        found = _FETCH_LINE.fullmatch(text.strip("\n"))
        if found is None:
            raise FormatError(f"line {line}: must have a URL, a length or -, and the name of a file")
        yield BagFetchEntry(found[1], None if found[2] == "-" else int(found[2]), decode_name(found[3]))


def read_info(opener: TagFileOpener, encoding: str) -> list[tuple[str, str]]:
    """Return the elements of bag-info.txt; a line that begins with a space continues the one before."""
    elements: list[tuple[str, str]] = []
    for line, text in _iter_lines(opener, "bag-info.txt", encoding):
        if not text.strip():
            continue
        if text[0] in " \t" and elements:
            label, value = elements.pop()
            elements.append((label, f"{value} {text.strip()}"))
            continue
        label, colon, value = text.partition(":")
        if not colon or not label.strip():
            raise FormatError(f"line {line}: must have a label, a colon and a value")
        elements.append((label.strip(), value.strip()))
        if len(elements) > MAX_INFO:
            raise FormatError(f"line {line}: has more than {MAX_INFO:,} elements")
    return elements


def decode_name(name: str) -> str:
    """Decode a name of version 1.0: only %0A, %0D and %25 are escapes."""
    return _LINE_END.sub(lambda found: "\n" if found[1] in "Aa" else "\r", name).replace("%25", "%")


def _iter_lines(opener: TagFileOpener, name: str, encoding: str) -> Iterator[tuple[int, str]]:
    """Yield line numbers and lines, which may end with LF, CR or both."""
    with os.fdopen(opener(name), encoding=encoding, newline=None) as file:
        line = 0
        while True:
            line += 1
            try:
                text = file.readline(LONGEST_LINE)
            except UnicodeError:
                what = f"or one soon after it is not {encoding.upper()}, the declared encoding"
                raise FormatError(f"line {line}: {what}") from None
            if not text:
                return
            if len(text) == LONGEST_LINE:
                raise FormatError(f"line {line}: is longer than {LONGEST_LINE:,} characters")
            if line == 1 and text.startswith("\ufeff"):
                raise FormatError(f"line {line}: begins with a byte order mark, which BagIt does not allow")
            yield line, text.rstrip("\n")
