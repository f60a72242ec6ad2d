"""Containers: what is unpacked, byte for byte, and everything that is refused, with nothing written elsewhere."""

import bz2
import gzip
import hashlib
import io
import os
import random
import stat
import struct
import subprocess
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waybill.files.containers import (
    BadContainer,
    ContainerComplaint,
    ContainerKind,
    ContainerLimits,
    ContainerMember,
    UnpackedFile,
    kind_of,
    list_members,
    unpack,
)

NOISE = random.Random(1).randbytes(700_000)
FILES = {
    "a.txt": b"hello\n",
    "empty": b"",
    "d/e/f.bin": NOISE,
    "d/zeros": bytes(1_000_000),
    "d/Grüße ملف 😀.txt": "😀".encode(),
    "x" * 120 + "/" + "y" * 200: b"long",
}


def zip_of(files: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return buffer.getvalue()


def tar_of(files: dict[str, bytes], format: int = tarfile.PAX_FORMAT, **more: object) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=format) as archive:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            for key, value in more.items():
                setattr(info, key, value)
            archive.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


def unpacked(data: bytes, folder: Path, limits: ContainerLimits | None = None) -> list[UnpackedFile]:
    """Unpack into folder/into, and see that nothing came to lie beside it."""
    path, into = folder / "container", folder / "into"
    path.write_bytes(data)
    into.mkdir()
    try:
        return list(unpack(path, into, limits))
    finally:
        assert sorted(os.listdir(folder)) == ["container", "into"]
        assert not [each for each in into.rglob("*") if each.is_symlink()]


def complaints(data: bytes, folder: Path, limits: ContainerLimits | None = None) -> list[ContainerComplaint]:
    with pytest.raises(BadContainer) as caught:
        unpacked(data, folder, limits)
    assert caught.value.complaints
    assert all(each.text.endswith(".") for each in caught.value.complaints)
    return caught.value.complaints


def only_complaint(data: bytes, folder: Path, limits: ContainerLimits | None = None) -> ContainerComplaint:
    found = complaints(data, folder, limits)
    assert len(found) == 1, found
    return found[0]


def check(data: bytes, folder: Path) -> None:
    found = unpacked(data, folder)
    assert found == [UnpackedFile(name, len(data), hashlib.sha256(data).hexdigest()) for name, data in FILES.items()]
    assert {
        str(each.relative_to(folder / "into")): each.read_bytes()
        for each in (folder / "into").rglob("*")
        if each.is_file()
    } == FILES
    assert list(list_members(folder / "container")) == [
        ContainerMember(name, len(data)) for name, data in FILES.items()
    ]


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2])
def test_a_zip(tmp_path: Path, method: int) -> None:
    data = zip_of(FILES, method)
    assert kind_of(data[:512]) is ContainerKind.ZIP
    check(data, tmp_path)


@pytest.mark.parametrize("format", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT])
@pytest.mark.parametrize(
    ("pack", "kind"),
    [(bytes, ContainerKind.TAR), (gzip.compress, ContainerKind.TAR_GZ), (bz2.compress, ContainerKind.TAR_BZ2)],
)
def test_a_tar(tmp_path: Path, format: int, pack: Callable[[bytes], bytes], kind: ContainerKind) -> None:
    data = pack(tar_of(FILES, format))
    assert kind_of(data[:512]) is kind
    check(data, tmp_path)


@pytest.mark.parametrize("format", ["v7", "ustar", "gnu", "oldgnu", "posix"])
def test_a_tar_by_the_tar_program(tmp_path: Path, format: str) -> None:
    source = tmp_path / "source"
    (source / "d" / ("e" * 80)).mkdir(parents=True)
    (source / "d" / "empty").mkdir()
    (source / "d" / ("e" * 80) / "f.txt").write_bytes(b"f" * 600)
    (source / "ü").write_bytes(b"u")
    data = subprocess.run(
        ["tar", "-c", f"--format={format}", "-C", source, "."], check=True, capture_output=True
    ).stdout
    folder = tmp_path / "unpacked"
    folder.mkdir()
    assert sorted((file.name, file.size) for file in unpacked(data, folder)) == [(f"d/{'e' * 80}/f.txt", 600), ("ü", 1)]


def test_folders_are_passed_over_and_names_made_plain(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, kind in [
            ("./", tarfile.DIRTYPE),
            ("./d", tarfile.DIRTYPE),
            ("./d/a", tarfile.REGTYPE),
            ("d/", tarfile.DIRTYPE),
            ("e", tarfile.DIRTYPE),
        ]:
            info = tarfile.TarInfo(name)
            info.type = kind
            archive.addfile(info)
    assert [file.name for file in unpacked(buffer.getvalue(), tmp_path)] == ["d/a"]
    assert sorted(os.listdir(tmp_path / "into")) == ["d"]


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("../evil", "'..'"),
        ("a/../../evil", "'..'"),
        ("/etc/evil", "begins with a slash"),
        ("//evil", "begins with a slash"),
        ("a/\x01", "position 2"),
        ("y" * 256, "255 bytes"),
        ("d/" * 70 + "x", "folders deep"),
        (".partial/x", "unfinished"),
    ],
)
@pytest.mark.parametrize("pack", [zip_of, tar_of])
def test_names_that_are_refused(tmp_path: Path, name: str, why: str, pack: Callable[[dict[str, bytes]], bytes]) -> None:
    found = only_complaint(pack({"good": b"x", name: b"evil", "also good": b"y"}), tmp_path)
    assert why in found.text
    assert found.name.strip("/") == name.strip("/")


def test_every_refusal_is_told_and_nothing_is_written_after_the_first(tmp_path: Path) -> None:
    found = complaints(tar_of({"../a": b"1", "b": b"2", "/c": b"3", "d/../e": b"4", "f": b"5"}), tmp_path)
    assert [each.name for each in found] == ["../a", "c", "d/../e"]
    assert os.listdir(tmp_path / "into") == []


@pytest.mark.parametrize("pack", [zip_of, tar_of])
def test_refusals_are_known_before_anything_is_unpacked(
    tmp_path: Path, pack: Callable[[dict[str, bytes]], bytes]
) -> None:
    (tmp_path / "container").write_bytes(pack({"../a": b"1", "b": b"2", "/c": b"3"}))
    with pytest.raises(BadContainer) as caught:
        list(list_members(tmp_path / "container"))
    assert [each.name for each in caught.value.complaints] == ["../a", "c"]


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        (tarfile.SYMTYPE, "is a symbolic link"),
        (tarfile.LNKTYPE, "is a link to another file"),
        (tarfile.CHRTYPE, "is a device"),
        (tarfile.BLKTYPE, "is a device"),
        (tarfile.FIFOTYPE, "is a pipe"),
        (tarfile.GNUTYPE_SPARSE, "sparse"),
        (b"Z", "unknown type"),
    ],
)
def test_tars_with_other_things_than_files(tmp_path: Path, kind: bytes, why: str) -> None:
    found = only_complaint(tar_of({"thing": b""}, type=kind, linkname="/etc/passwd"), tmp_path)
    assert (found.name, why in found.text) == ("thing", True)


@pytest.mark.parametrize("kind", [stat.S_IFLNK, stat.S_IFCHR, stat.S_IFBLK, stat.S_IFIFO, stat.S_IFSOCK])
def test_zips_with_other_things_than_files(tmp_path: Path, kind: int) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        info = zipfile.ZipInfo("thing")
        info.create_system, info.external_attr = 3, (kind | 0o777) << 16
        archive.writestr(info, "/etc/passwd")
    assert only_complaint(buffer.getvalue(), tmp_path).name == "thing"


def test_a_link_that_is_planted_is_not_followed(tmp_path: Path) -> None:
    outside, into, path = tmp_path / "outside", tmp_path / "into", tmp_path / "container"
    outside.mkdir()
    into.mkdir()
    (into / "d").symlink_to(outside)
    (into / "f").symlink_to(outside / "f")
    for name in ("d/x", "f"):
        path.write_bytes(zip_of({name: b"evil"}))
        with pytest.raises(BadContainer, match="cannot be stored under this name"):
            list(unpack(path, into))
    assert os.listdir(outside) == []


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "into").mkdir()
    (tmp_path / "into" / "a").write_bytes(b"mine")
    (tmp_path / "container").write_bytes(zip_of({"a": b"other"}))
    with pytest.raises(BadContainer, match="File exists"):
        list(unpack(tmp_path / "container", tmp_path / "into"))
    assert (tmp_path / "into" / "a").read_bytes() == b"mine"


@pytest.mark.parametrize(
    ("names", "why"),
    [(["a/b", "./a/b"], "twice"), (["é", "e\u0301"], "twice"), (["a", "a/b"], "a file"), (["a/b", "a"], "folder of")],
)
def test_names_that_cannot_stand_side_by_side(tmp_path: Path, names: list[str], why: str) -> None:
    found = only_complaint(tar_of(dict.fromkeys(names, b"x")), tmp_path)
    assert why in found.text


def test_a_folder_and_a_file_of_one_name(tmp_path: Path) -> None:
    found = only_complaint(zip_of({"a": b"x", "a/": b""}), tmp_path)
    assert "is a folder, and 'a' is a file" in found.text


def test_a_folder_with_content(tmp_path: Path) -> None:
    assert "is a folder with content" in only_complaint(zip_of({"a": b"x", "d/": b"lost"}), tmp_path).text


def test_upper_and_lower_case(tmp_path: Path) -> None:
    data = zip_of({"Readme": b"1", "README": b"2"})
    assert len(unpacked(data, tmp_path)) == 2
    with pytest.raises(BadContainer, match="upper and lower case"):
        list(list_members(tmp_path / "container", ContainerLimits(ignoring_case=True)))


def zip_with_raw_name(raw: bytes, *, system: int, flags: int = 0, extra: bytes = b"") -> bytes:
    """A zip of one file whose name is these bytes."""
    placeholder = "n" * len(raw)
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        info = zipfile.ZipInfo(placeholder)
        info.create_system, info.extra = system, extra
        archive.writestr(info, b"x")
    data = bytearray(buffer.getvalue().replace(placeholder.encode(), raw))
    at = data.index(b"PK\x01\x02")
    data[at + 8 : at + 10] = struct.pack("<H", flags)
    return bytes(data)


@pytest.mark.parametrize(
    ("raw", "system", "flags", "name"),
    [
        ("Grüße".encode("iso-8859-1"), 3, 0, "Grüße"),
        ("Grüße".encode("cp437"), 0, 0, "Grüße"),
        ("Grüße".encode(), 3, 0, "Grüße"),
        ("Grüße 😀".encode(), 0, 0x800, "Grüße 😀"),
        (b"dir\\file", 0, 0, "dir/file"),
    ],
)
def test_names_of_zips_in_their_encodings(tmp_path: Path, raw: bytes, system: int, flags: int, name: str) -> None:
    assert [file.name for file in unpacked(zip_with_raw_name(raw, system=system, flags=flags), tmp_path)] == [name]


@pytest.mark.parametrize(("crc", "name"), [(zlib.crc32(b"??.txt"), "日本.txt"), (0, "??.txt")])
def test_a_name_in_a_further_field(tmp_path: Path, crc: int, name: str) -> None:
    field = struct.pack("<BL", 1, crc) + "日本.txt".encode()
    data = zip_with_raw_name(b"??.txt", system=0, extra=struct.pack("<2H", 0x7075, len(field)) + field)
    assert [file.name for file in unpacked(data, tmp_path)] == [name]


def test_a_name_that_is_not_what_the_zip_says(tmp_path: Path) -> None:
    assert "not UTF-8" in only_complaint(zip_with_raw_name(b"\xff", system=3, flags=0x800), tmp_path).text


def test_names_of_tars_from_before_utf_8(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT, encoding="iso-8859-1") as archive:
        archive.addfile(tarfile.TarInfo("Grüße"))
    assert [file.name for file in unpacked(buffer.getvalue(), tmp_path)] == ["Grüße"]


def test_an_encrypted_zip(tmp_path: Path) -> None:
    data = bytearray(zip_of({"a": b"x", "b": b"y"}))
    data[data.rindex(b"PK\x01\x02") + 8] |= 1
    found = only_complaint(bytes(data), tmp_path)
    assert found == ContainerComplaint("b", "'b' is encrypted.")


def test_a_method_that_is_not_known(tmp_path: Path) -> None:
    assert "unknown method (14)" in only_complaint(zip_of({"a": b"x"}, zipfile.ZIP_LZMA), tmp_path).text


def test_zip64(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        with archive.open("big", "w", force_zip64=True) as file:
            file.write(b"x" * 100_000)
        archive.writestr("small", b"y")
    data = bytearray(buffer.getvalue())
    end = data.rindex(b"PK\x05\x06")
    _, _, _, _, count, length, start, _ = struct.unpack_from("<4s4H2LH", data, end)
    record = struct.pack("<4sQ2H2L4Q", b"PK\x06\x06", 44, 45, 45, 0, 0, count, count, length, start)
    where = struct.pack("<4sLQL", b"PK\x06\x07", 0, end, 1)
    closing = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 0xFFFF, 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0)
    assert [(file.name, file.size) for file in unpacked(bytes(data[:end]) + record + where + closing, tmp_path)] == [
        ("big", 100_000),
        ("small", 1),
    ]


def test_a_zip_of_more_files_than_an_old_zip_can_list(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for number in range(0x10000):
            archive.writestr(f"{number:x}", b"")
    path = tmp_path / "container"
    path.write_bytes(buffer.getvalue())
    assert sum(1 for _ in list_members(path)) == 0x10000


def test_a_zip_with_a_comment_that_looks_like_an_end(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("a", b"x")
        archive.comment = b"PK\x05\x06" + bytes(30)
    assert [file.name for file in unpacked(buffer.getvalue(), tmp_path)] == ["a"]


@pytest.mark.parametrize(
    "pack", [zip_of, tar_of, lambda files: gzip.compress(tar_of(files)), lambda files: bz2.compress(tar_of(files))]
)
def test_a_container_that_is_cut_anywhere_is_refused(tmp_path: Path, pack: Callable[[dict[str, bytes]], bytes]) -> None:
    data = pack({"a": b"hello" * 200, "b": NOISE[:3000]})
    into = tmp_path / "into"
    into.mkdir()
    # blocks of zeros at the end may be missing
    end = len(data) if data[257:262] != b"ustar" else data.rindex(NOISE[2990:3000]) + 512
    for length in range(0, end, 97):
        (tmp_path / "container").write_bytes(data[:length])
        with pytest.raises(BadContainer):
            list(list_members(tmp_path / "container"))


@pytest.mark.parametrize(("pack", "found_when"), [(zip_of, "unpacked"), (tar_of, "looked at")])
def test_a_damaged_container(tmp_path: Path, pack: Callable[[dict[str, bytes]], bytes], found_when: str) -> None:
    data = bytearray(pack({"a": b"hello" * 2000, "b": b"world" * 2000}))
    at = data.index(b"PK\x03\x04") + 40 if found_when == "unpacked" else data.index(b"b\0\0\0") + 1
    data[at] ^= 0xFF
    found = only_complaint(bytes(data), tmp_path)
    assert "damaged" in found.text
    assert found.name == ("a" if found_when == "unpacked" else "")


def test_a_zip_whose_check_sum_is_wrong(tmp_path: Path) -> None:
    data = bytearray(zip_of({"a": b"hello", "b": b"x"}, zipfile.ZIP_STORED))
    data[data.index(b"hello")] ^= 1
    assert "checksum" in only_complaint(bytes(data), tmp_path).text


def test_a_zip_that_lies_about_lengths(tmp_path: Path) -> None:
    data = bytearray(zip_of({"a": bytes(100_000)}))
    at = data.index(b"PK\x01\x02") + 24
    data[at : at + 4] = struct.pack("<L", 10)
    assert "longer than the 10 bytes" in only_complaint(bytes(data), tmp_path).text
    assert not (tmp_path / "into" / "a").stat().st_size


def test_a_zip_with_two_names_for_one_file(tmp_path: Path) -> None:
    data = zip_of({"a": b"x"})
    at = data.rindex(b"PK\x01\x02") + 46
    assert "has another name in its local header" in only_complaint(data[:at] + b"b" + data[at + 1 :], tmp_path).text


def test_a_zip_whose_files_overlap(tmp_path: Path) -> None:
    data = bytearray(zip_of({"a": b"x" * 100, "b": b"x" * 100}, zipfile.ZIP_STORED))
    at = data.rindex(b"PK\x01\x02") + 42
    data[at : at + 4] = bytes(4)
    assert "share bytes" in only_complaint(bytes(data), tmp_path).text


def test_a_zip_after_something_else(tmp_path: Path) -> None:
    assert "neither a zip" in only_complaint(b"#!/bin/sh\n" + zip_of({"a": b"x"}), tmp_path).text
    (tmp_path / "container").write_bytes(zip_of({"a": b"x"}) + zip_of({"b": b"x"}))
    with pytest.raises(BadContainer, match="directory is not at its declared offset"):
        list(list_members(tmp_path / "container"))


def test_two_tars_put_together(tmp_path: Path) -> None:
    assert (
        "perhaps two tars were concatenated" in only_complaint(tar_of({"a": b"x"}) + tar_of({"b": b"x"}), tmp_path).text
    )


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "is empty"),
        (b"hello", "neither a zip nor a tar"),
        (b"Rar!\x1a\x07\x00", "neither a zip nor a tar"),
        (gzip.compress(b"x" * 1000, mtime=0), "not a tar file"),
        (bz2.compress(b""), "incomplete"),
        (zip_of({}), "no files"),
        (zip_of({"d/": b""}), "no files"),
        (tar_of({}), "neither a zip nor a tar"),
        (gzip.compress(tar_of({}), mtime=0), "no files"),
        (b"PK\x03\x04", "incomplete"),
        (b"BZhello", "cannot be decompressed"),
        (b"\x1f\x8b\x08\0" + b"x" * 100, "cannot be decompressed"),
    ],
)
def test_what_is_no_container(tmp_path: Path, data: bytes, why: str) -> None:
    assert why in only_complaint(data, tmp_path).text


SMALL = ContainerLimits(harmless=100_000, ratio=20, total=50_000_000, count=50)


@pytest.mark.parametrize(
    "pack",
    [
        zip_of,
        lambda files: gzip.compress(tar_of(files)),
        lambda files: bz2.compress(tar_of(files)),
        lambda files: zip_of(files, zipfile.ZIP_BZIP2),
    ],
)
def test_a_bomb_is_found_before_it_is_unpacked(tmp_path: Path, pack: Callable[[dict[str, bytes]], bytes]) -> None:
    found = only_complaint(pack({"good": b"x", "zeros": bytes(10_000_000)}), tmp_path, SMALL)
    assert "as a zip bomb does" in found.text
    assert not (tmp_path / "into" / "zeros").exists()


def test_a_bomb_behind_the_end_of_a_tar(tmp_path: Path) -> None:
    found = only_complaint(gzip.compress(tar_of({"a": b"x"}) + bytes(10_000_000)), tmp_path, SMALL)
    assert "as a zip bomb does" in found.text


def test_a_bomb_in_a_name(tmp_path: Path) -> None:
    data = bytearray(tar_of({"x" * 200: b""}, tarfile.GNU_FORMAT))
    data[124:136] = b"77777777777\0"
    data[148:156] = b" " * 8
    data[148:156] = b"%06o\0 " % sum(data[:512])
    assert "longer than any name" in only_complaint(bytes(data), tmp_path).text


def test_too_much_and_too_many(tmp_path: Path) -> None:
    path = tmp_path / "container"
    path.write_bytes(zip_of({"a": NOISE, "b": NOISE}))
    with pytest.raises(BadContainer, match="more than the 1,000,000 bytes"):
        list(list_members(path, ContainerLimits(total=1_000_000)))
    path.write_bytes(tar_of({str(number): b"" for number in range(51)}))
    with pytest.raises(BadContainer, match="more than 50 files"):
        list(list_members(path, SMALL))


def test_complaints_have_an_end(tmp_path: Path) -> None:
    found = complaints(tar_of({f"../{number}": b"" for number in range(1500)}), tmp_path)
    assert len(found) == 1001
    assert "Checking stopped after" in found[-1].text


def test_it_can_be_stopped(tmp_path: Path) -> None:
    class Enough(Exception):
        pass

    def came(count: int) -> None:
        raise Enough

    (tmp_path / "into").mkdir()
    (tmp_path / "container").write_bytes(tar_of(FILES))
    with pytest.raises(Enough):
        list(unpack(tmp_path / "container", tmp_path / "into", on_bytes=came))


def test_a_look_can_be_stopped(tmp_path: Path) -> None:
    class Halt(Exception): ...

    def came(count: int) -> None:
        raise Halt

    (tmp_path / "container").write_bytes(gzip.compress(tar_of(FILES)))
    with pytest.raises(Halt):
        list(list_members(tmp_path / "container", on_bytes=came))


def test_a_full_disk_is_no_fault_of_the_container(tmp_path: Path) -> None:
    (tmp_path / "container").write_bytes(tar_of({"a": b"x"}))
    with pytest.raises(FileNotFoundError):
        list(unpack(tmp_path / "container", tmp_path / "missing"))


SEEDS = [
    zip_of({"a": b"x" * 50, "b/c": b"y"}),
    zip_of({"a": b"xyz"}, zipfile.ZIP_STORED),
    tar_of({"a": b"x", "é" * 60: b"y"}),
    tar_of({"x" * 150: b"y"}, tarfile.GNU_FORMAT),
    gzip.compress(tar_of({"a": b"x"})),
    bz2.compress(tar_of({"a": b"x"})),
]
CHANGES = st.lists(st.tuples(st.integers(0, 3000), st.integers(0, 255)), max_size=6)


@given(st.one_of(st.binary(), st.sampled_from(SEEDS)), CHANGES, st.none() | st.integers(0, 4000))
def test_any_bytes_are_unpacked_or_refused(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, changes: list[tuple[int, int]], cut: int
) -> None:
    changed = bytearray(data)
    for at, value in changes:
        if at < len(changed):
            changed[at] = value
    folder = tmp_path_factory.mktemp("any")
    with suppress(BadContainer):
        unpacked(bytes(changed[:cut]), folder, ContainerLimits(total=10_000_000))
    assert kind_of(data) in (None, *ContainerKind)
