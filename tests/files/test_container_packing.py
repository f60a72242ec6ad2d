"""Zips and tars as streams are read by programs that know nothing of us, whatever the sizes, names and numbers."""

import hashlib
import io
import subprocess
import tarfile
import unicodedata
import zipfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from waybill.files import names
from waybill.files.containers import (
    MemberNames,
    MemberToPack,
    UploadPartSizes,
    ZipPacker,
    compress_gzip,
    pack_tar,
    store_container,
)
from waybill.files.containers.packer import BUFFERED_FILE_SIZE
from waybill.files.names import to_file_name
from waybill.sim.memory_objects import MemoryObjects, MemoryUpload

LONG = bytes(range(256)) * (BUFFERED_FILE_SIZE // 256) + b"and a little more"
FILES = {
    "top/producer/a.txt": b"hello",
    "top/empty": b"",
    "top/long.bin": LONG,
    "top/noise.bin": bytes((i * i + 7) % 251 for i in range(5000)),
    "top/producer/caf\u00e9/\U0001d11e \u0643\u062a\u0627\u0628.txt": b"four bytes",
    "top/" + "n" * 255: b"a long name",
    "top/" + "/".join(["folder-" + "x" * 90] * 8) + "/deep.txt": b"deep",
}


def split(data: bytes, size: int) -> Iterator[bytes]:
    return (data[at : at + size] for at in range(0, len(data), size))


def members(files: dict[str, bytes], chunk_size: int = 100_000) -> Iterator[MemberToPack]:
    for name, data in files.items():
        yield MemberToPack(name, len(data), 1_700_000_000, partial(split, data, chunk_size))


def unzipped(data: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        assert archive.testzip() is None
        return {info.filename: archive.read(info) for info in archive.infolist()}


@pytest.mark.parametrize("deflate", [True, False])
def test_zip_holds_every_file(deflate: bool) -> None:
    data = b"".join(ZipPacker(deflate=deflate).pack(members(FILES)))
    assert unzipped(data) == FILES
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        methods = {info.filename: info.compress_type for info in archive.infolist()}
    assert methods["top/long.bin"] == (zipfile.ZIP_DEFLATED if deflate else zipfile.ZIP_STORED)
    assert methods["top/empty"] == zipfile.ZIP_STORED


@pytest.mark.parametrize("deflate", [True, False])
@pytest.mark.parametrize(("zip64_size", "zip64_files"), [(0xFFFFFFFF, 3), (1000, 0xFFFF), (10, 2)])
def test_zip64_is_used_beyond_the_limits(deflate: bool, zip64_size: int, zip64_files: int, tmp_path: Path) -> None:
    data = b"".join(ZipPacker(deflate=deflate, zip64_size=zip64_size, zip64_files=zip64_files).pack(members(FILES)))
    assert b"PK\x06\x06" in data
    assert b"PK\x06\x07" in data
    assert unzipped(data) == FILES
    file = tmp_path / "a.zip"
    file.write_bytes(data)
    result = subprocess.run(["unzip", "-tq", file], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr


def test_a_file_that_might_outgrow_32_bits_is_announced_as_large_before_it_is_known(tmp_path: Path) -> None:
    data = b"".join(ZipPacker(deflate=True, zip64_size=BUFFERED_FILE_SIZE).pack(members({"long": LONG})))
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        assert archive.infolist()[0].compress_size < BUFFERED_FILE_SIZE  # and yet it has the long descriptor
    assert unzipped(data) == {"long": LONG}
    file = tmp_path / "a.zip"
    file.write_bytes(data)
    assert subprocess.run(["unzip", "-tq", file], capture_output=True, check=False).returncode == 0


def test_zip_without_need_has_no_zip64() -> None:
    data = b"".join(ZipPacker(deflate=True).pack(members({"a/b": b"c"})))
    assert b"PK\x06\x06" not in data
    assert unzipped(data) == {"a/b": b"c"}


def test_a_zip_of_nothing_is_a_zip() -> None:
    assert unzipped(b"".join(ZipPacker(deflate=True).pack([]))) == {}


def test_zip_with_more_files_than_a_plain_zip_can_have() -> None:
    count = 0x10000 + 5
    data = b"".join(
        ZipPacker(deflate=False).pack(MemberToPack(f"t/{n}", 1, 0, lambda: iter([b"x"])) for n in range(count))
    )
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        assert len(archive.infolist()) == count


@pytest.mark.parametrize("packed", [False, True])
def test_tar_holds_every_file(packed: bool) -> None:
    data = b"".join(compress_gzip(pack_tar(members(FILES))) if packed else pack_tar(members(FILES)))
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:gz" if packed else "r:") as archive:
        found = {info.name: archive.extractfile(info).read() for info in archive}  # type: ignore[union-attr]
        assert {info.mtime for info in archive} == {1_700_000_000}
    assert found == FILES


def test_the_same_content_gives_the_same_bytes() -> None:
    for pack in (lambda: ZipPacker(deflate=True).pack(members(FILES)), lambda: compress_gzip(pack_tar(members(FILES)))):
        assert b"".join(pack()) == b"".join(pack())


LETTERS = st.characters(codec="utf-8", exclude_characters="\0/\\")


@given(st.dictionaries(st.text(LETTERS, min_size=1, max_size=40), st.binary(max_size=2000)))
@settings(max_examples=60, deadline=None)
def test_any_names_and_bytes_come_back(files: dict[str, bytes]) -> None:
    naming = MemberNames("top")
    given = {naming.assign(name): data for name, data in files.items()}
    assert len(given) == len(files)
    assert unzipped(b"".join(ZipPacker(deflate=True, zip64_size=500).pack(members(given)))) == given
    with tarfile.open(fileobj=io.BytesIO(b"".join(pack_tar(members(given))))) as archive:
        assert {info.name: archive.extractfile(info).read() for info in archive} == given  # type: ignore[union-attr]


# --- names


def test_names_that_are_fit_stay_as_they_are() -> None:
    naming = MemberNames("ark_1")
    for path in ("producer/a.txt", "producer/caf\u00e9.txt", "system/\U0001d11e", "x/" + "n" * 255):
        assert naming.assign(path) == f"ark_1/{path}"
    assert naming.renames == []


def test_names_that_a_disk_takes_for_one_stay_two() -> None:
    naming = MemberNames("t")
    composed, apart = "caf\u00e9.txt", "cafe\u0301.txt"
    assert naming.assign(composed) == f"t/{composed}"
    assert naming.assign(apart) == "t/cafe\u0301~2.txt"
    assert naming.renames == [(apart, "cafe\u0301~2.txt")]


def test_a_file_that_is_also_a_folder_is_renamed() -> None:
    naming = MemberNames("t")
    assert naming.assign("a") == "t/a"
    other = naming.assign("a/b")
    assert not other.startswith("t/a/")
    assert names.find_fault(other) is None


@pytest.mark.parametrize(
    "path",
    ["../../etc/passwd", "/etc/passwd", "a/../../b", "a\\..\\b", "", ".", "a\0b", "a\nb", "x" * 300, "\ud800", "a//b"],
)
def test_names_that_lead_elsewhere_are_made_fit(path: str) -> None:
    name = MemberNames("t").assign(path)
    assert names.find_fault(name) is None
    assert name.startswith("t/")
    assert ".." not in name.split("/")


ODD = (
    st.text(max_size=60)
    | st.text("/.\\\u00e9e\u0301\U0001d11e", max_size=20)
    | st.text("\u00fc", min_size=120, max_size=300)
)


@given(st.lists(ODD, max_size=30))
@settings(max_examples=200, deadline=None)
def test_whatever_the_names_they_are_safe_and_unique(paths: list[str]) -> None:
    naming = MemberNames("t")
    given = [naming.assign(path) for path in paths]
    assert len({unicodedata.normalize("NFC", name) for name in given}) == len(paths)
    for name in given:
        parts = name.split("/")
        assert parts[0] == "t"
        assert len(parts) > 1
        assert all(
            part not in ("", ".", "..") and len(part.encode()) <= 255 and "\\" not in part and "\0" not in part
            for part in parts
        )


def test_an_ark_becomes_the_name_of_a_file() -> None:
    assert to_file_name("ark:/99999/fk4abc") == "ark_99999_fk4abc"
    assert to_file_name("../..") == "object"


# --- storing


@pytest.mark.parametrize(("content", "parts"), [(999, 0), (1000, 5)])
def test_a_long_container_is_stored_in_parts(monkeypatch: pytest.MonkeyPatch, content: int, parts: int) -> None:
    objects = MemoryObjects(lambda: 1_700_000_000.0, lambda point: None)
    sizes: list[int] = []
    put_part = MemoryUpload.put_part

    def watch(upload: MemoryUpload, number: int, data: bytes) -> object:
        sizes.append(len(data))
        return put_part(upload, number, data)

    monkeypatch.setattr(MemoryUpload, "put_part", watch)
    data = bytes(1000)
    info = store_container(objects, "a.tar", split(data, 100), content, UploadPartSizes(1000, 200))
    with objects.get("a.tar") as body:
        assert b"".join(body) == data
    assert (info.size, info.sha256) == (1000, hashlib.sha256(data).hexdigest())
    assert sizes == [200] * parts
