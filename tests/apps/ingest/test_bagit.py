"""Bags: valid ones of both versions, and every way in which one may not hold what it says."""

import hashlib
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waybill.apps.ingest.formats.bagit import BagFetchEntry, find_bag, validate_bag

DECLARATION = "BagIt-Version: {}\nTag-File-Character-Encoding: UTF-8\n"
PAYLOAD = {"data/a.txt": b"hello", "data/d/Grüße 😀.txt": b"world!", "data/empty": b""}


def digest(data: bytes, algorithm: str = "sha256") -> str:
    return hashlib.new(algorithm, data).hexdigest()


def lines(files: dict[str, bytes], algorithm: str = "sha256") -> str:
    return "".join(f"{digest(data, algorithm)}  {name.replace('%', '%25')}\n" for name, data in files.items())


def bag(
    folder: Path, version: str = "1.0", payload: dict[str, bytes] | None = None, **tags: str | bytes | None
) -> Path:
    """A valid bag. `tags` replace or add files beside the payload (`_` is `-` in their names, `.txt` follows); None
    takes one away.
    """
    payload = PAYLOAD if payload is None else payload
    octets = sum(map(len, payload.values()))
    texts: dict[str, str | bytes | None] = {
        "bagit": DECLARATION.format(version),
        "manifest-sha256": lines(payload),
        "bag-info": f"Source-Organization: Example\n  University\nPayload-Oxum: {octets}.{len(payload)}\n",
        **{name.replace("_", "-"): text for name, text in tags.items()},
    }
    (folder / "data").mkdir(parents=True, exist_ok=True)
    for name, data in payload.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    for name, text in texts.items():
        if text is not None:
            (folder / f"{name}.txt").write_bytes(text.encode() if isinstance(text, str) else text)
    return folder


def problems(folder: Path) -> list[tuple[str, str]]:
    found = validate_bag(folder)
    assert found.is_valid == (not found.problems)
    assert all(each.text.endswith(".") and each.name.encode(errors="replace") for each in found.problems)
    return [(each.name, each.text) for each in found.problems]


@pytest.mark.parametrize("version", ["0.93", "0.97", "1.0"])
def test_a_valid_bag(tmp_path: Path, version: str) -> None:
    folder = bag(tmp_path, version)
    tags = {name: (folder / name).read_bytes() for name in ("bagit.txt", "bag-info.txt", "manifest-sha256.txt")}
    (folder / "tagmanifest-md5.txt").write_text(lines(tags, "md5"))
    found = validate_bag(folder)
    assert (found.is_valid, found.problems, found.remarks) == (True, [], [])
    assert (found.version, found.files, found.octets) == (version, 3, 11)
    assert found.info[0] == ("Source-Organization", "Example University")


def test_several_algorithms_are_checked_in_one_reading(tmp_path: Path) -> None:
    read: list[int] = []
    folder = bag(
        tmp_path,
        manifest_md5=lines(PAYLOAD, "md5"),
        manifest_sha512=lines(PAYLOAD, "sha512"),
        manifest_sha1=lines(PAYLOAD, "sha1"),
    )
    assert validate_bag(folder, on_bytes=read.append).is_valid
    assert sum(read) == 11


def test_windows_line_ends_upper_case_and_asterisks(tmp_path: Path) -> None:
    text = (
        lines(PAYLOAD)
        .replace("  ", " *")
        .replace("\n", "\r\n")
        .replace("a", "A")
        .replace("dAtA/A", "data/a")
        .replace("dAtA", "data")
    )
    assert problems(bag(tmp_path, manifest_sha256=text, bagit=DECLARATION.format("1.0").replace("\n", "\r\n"))) == []


def test_another_encoding(tmp_path: Path) -> None:
    declaration = "BagIt-Version: 0.97\nTag-File-Character-Encoding: ISO-8859-1\n"
    payload = {"data/Grüße": b"x"}
    assert (
        problems(bag(tmp_path, payload=payload, bagit=declaration, manifest_sha256=lines(payload).encode("iso-8859-1")))
        == []
    )


@pytest.mark.parametrize(
    ("declaration", "why"),
    [
        (None, "is missing, so this is not a bag"),
        ("", "two lines"),
        ("BagIt-Version: 1.0\n", "two lines"),
        (DECLARATION.format("1.0") + "More: x\n", "two lines"),
        (DECLARATION.format("1"), "two lines"),
        (DECLARATION.format("2.0"), "versions 0.93 to 1.0"),
        (DECLARATION.format("0.1"), "versions 0.93 to 1.0"),
        (DECLARATION.format("1.0").replace("UTF-8", "klingon"), "names an unknown encoding"),
        (DECLARATION.format("1.0").replace("UTF-8", "rot13"), "names an unknown encoding"),
        ("\ufeff" + DECLARATION.format("1.0"), "byte order mark"),
        (b"\xff\xfe", "not UTF-8"),
    ],
)
def test_declarations_that_are_none(tmp_path: Path, declaration: str | bytes | None, why: str) -> None:
    [(name, text)] = problems(bag(tmp_path, bagit=declaration))
    assert name == "bagit.txt"
    assert why in text


def test_a_changed_file(tmp_path: Path) -> None:
    folder = bag(tmp_path)
    (folder / "data/a.txt").write_bytes(b"hellO")
    [(name, text)] = problems(folder)
    assert (name, digest(b"hellO") in text, digest(b"hello") in text) == ("data/a.txt", True, True)


def test_a_missing_file(tmp_path: Path) -> None:
    folder = bag(tmp_path)
    (folder / "data/empty").unlink()
    assert problems(folder) == [
        ("data/empty", "'data/empty' is listed but does not exist."),
        ("bag-info.txt", "'bag-info.txt' promises 11 bytes in 3 files, but there are 11 bytes in 2 files."),
    ]


def test_a_file_that_nobody_listed(tmp_path: Path) -> None:
    folder = bag(tmp_path, bag_info=None)
    (folder / "data/more").write_bytes(b"")
    assert problems(folder) == [("data/more", "'data/more' is in the payload, but no manifest lists it.")]


@pytest.mark.parametrize(("version", "count"), [("0.97", 0), ("1.0", 1)])
def test_in_version_1_each_manifest_lists_everything(tmp_path: Path, version: str, count: int) -> None:
    found = problems(bag(tmp_path, version, manifest_md5=lines({"data/a.txt": b"hello", "data/empty": b""}, "md5")))
    assert len(found) == count
    assert all("manifest-md5.txt" in text for _, text in found)


def test_a_changed_tag_file(tmp_path: Path) -> None:
    [(name, text)] = problems(bag(tmp_path, tagmanifest_sha256=lines({"bagit.txt": b"other"})))
    assert name == "bagit.txt"
    assert "does not match its manifest" in text


def test_a_tag_file_in_a_folder(tmp_path: Path) -> None:
    folder = bag(tmp_path, tagmanifest_sha256=lines({"meta/x.xml": b"<x/>"}))
    assert problems(folder) == [("meta/x.xml", "'meta/x.xml' is listed but does not exist.")]
    (folder / "meta").mkdir()
    (folder / "meta/x.xml").write_bytes(b"<x/>")
    assert problems(folder) == []


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("hello", "a digest in hex"),
        (f"{digest(b'')} ", "a digest in hex"),
        ("xyz data/a.txt", "a digest in hex"),
        ("abc  data/a.txt", "is not a SHA-256 in hex"),
        (f"{digest(b'')}  bagit.txt", "cannot be a file in data/"),
        (f"{digest(b'')}  data/../../etc/passwd", "cannot be a file in data/"),
        (f"{digest(b'')}  /etc/passwd", "cannot be a file in data/"),
        (f"{digest(b'')}  data/a%0Ab", "cannot be a file in data/"),
        (f"{digest(b'')}  data/missing", "does not exist"),
        (f"{digest(b'')}  data/a.txt", "two different digests"),
        ("x" * 70_000, "longer than"),
    ],
)
def test_lines_of_manifests_with_a_fault(tmp_path: Path, line: str, why: str) -> None:
    found = problems(bag(tmp_path, manifest_sha256=lines(PAYLOAD) + line + "\n"))
    assert any(why in text for _, text in found), found


def test_a_manifest_that_is_no_text(tmp_path: Path) -> None:
    assert "not UTF-8" in problems(bag(tmp_path, manifest_sha256=b"\xff" * 10))[0][1]


def test_a_bag_without_manifest(tmp_path: Path) -> None:
    folder = bag(tmp_path, manifest_sha256=None, manifest_sha3=lines(PAYLOAD), manifest_crc32="")
    found = validate_bag(folder)
    assert [each.name for each in found.problems] == ["manifest-sha256.txt"]
    assert [each.name for each in found.remarks] == ["manifest-crc32.txt", "manifest-sha3.txt"]


def test_a_bag_without_payload_folder(tmp_path: Path) -> None:
    folder = bag(tmp_path, payload={})
    assert problems(folder) == []
    (folder / "data").rmdir()
    assert problems(folder)[0][0] == "data"


def test_names_with_percent_signs(tmp_path: Path) -> None:
    payload = {"data/100%.txt": b"x", "data/a%20b": b"y"}
    assert problems(bag(tmp_path, payload=payload)) == []
    careless = validate_bag(bag(tmp_path, payload=payload, manifest_sha256=lines(payload).replace("%25", "%")))
    assert careless.is_valid
    assert careless.remarks == []  # what is no escape of BagIt stands for itself


def test_a_name_that_looks_like_an_escape(tmp_path: Path) -> None:
    payload = {"data/a%25b": b"x"}
    careless = validate_bag(bag(tmp_path, payload=payload, manifest_sha256=lines(payload).replace("%2525", "%25")))
    assert careless.is_valid
    assert "without the escapes" in careless.remarks[0].text


def test_encoded_spaces_are_not_bagits(tmp_path: Path) -> None:
    found = problems(
        bag(tmp_path, payload={"data/a b": b"x"}, manifest_sha256=lines({"data/a%20b": b"x"}).replace("%25", "%"))
    )
    assert [name for name, _ in found] == ["data/a b", "data/a%20b"]


@pytest.mark.parametrize(
    ("listed", "there"), [("data/caf\u00e9", "data/cafe\u0301"), ("data/cafe\u0301", "data/caf\u00e9")]
)
def test_accents_that_were_composed_otherwise(tmp_path: Path, listed: str, there: str) -> None:
    found = validate_bag(bag(tmp_path, payload={there: b"x"}, manifest_sha256=lines({listed: b"x"})))
    assert found.is_valid
    assert "composed differently" in found.remarks[0].text


@pytest.mark.parametrize(
    ("info", "why"),
    [
        ("Payload-Oxum: 12.3\n", "promises 12 bytes in 3 files, but there are 11 bytes in 3 files"),
        ("payload-oxum: 11.4\n", "promises"),
        ("Payload-Oxum: many\n", "an invalid Payload-Oxum"),
        ("no colon\n", "line 1: must have a label"),
        ("A: b\n: c\n", "line 2: must have a label"),
        (b"A: \xff", "not UTF-8"),
    ],
)
def test_bag_info_with_a_fault(tmp_path: Path, info: str | bytes, why: str) -> None:
    [(name, text)] = problems(bag(tmp_path, bag_info=info))
    assert name == "bag-info.txt"
    assert why in text


def test_what_is_to_be_fetched_is_listed_and_missing(tmp_path: Path) -> None:
    listed = {**PAYLOAD, "data/far": b"far"}
    fetch = "https://example.org/far - data/far\nhttps://example.org/a 5 data/a.txt\n"
    folder = bag(tmp_path, bag_info=None, manifest_sha256=lines(listed), fetch=fetch)
    assert problems(folder) == [("data/far", "'data/far' is to be fetched from elsewhere (fetch.txt): fetch it first.")]
    assert validate_bag(folder).fetch == [
        BagFetchEntry("https://example.org/far", None, "data/far"),
        BagFetchEntry("https://example.org/a", 5, "data/a.txt"),
    ]
    (folder / "data/far").write_bytes(b"far")
    assert problems(folder) == []


@pytest.mark.parametrize(
    "line", ["https://example.org/x 5 ../x", "https://example.org/x 5 bagit.txt", "https://example.org/x", "a b c"]
)
def test_fetch_lines_with_a_fault(tmp_path: Path, line: str) -> None:
    [(name, _)] = problems(bag(tmp_path, fetch=line + "\n"))
    assert name == "fetch.txt"


def test_links_are_not_followed(tmp_path: Path) -> None:
    folder = bag(tmp_path / "bag")
    (tmp_path / "secret").write_bytes(b"hello")
    (folder / "data/a.txt").unlink()
    (folder / "data/a.txt").symlink_to(tmp_path / "secret")
    os.mkfifo(folder / "data/pipe")
    found = dict(problems(folder))
    assert "is listed but does not exist" in found["data/a.txt"]
    assert "is a link or a device" in found["data/pipe"]


def test_links_that_are_planted_meanwhile_are_not_followed(tmp_path: Path) -> None:
    folder = bag(tmp_path / "bag", payload={"data/a": b"1", "data/b": b"2"})
    (tmp_path / "secret").write_bytes(b"2")

    def plant(count: int) -> None:
        (folder / "data/b").unlink()
        (folder / "data/b").symlink_to(tmp_path / "secret")

    found = validate_bag(folder, on_bytes=plant)
    assert [(each.name, "replaced meanwhile" in each.text) for each in found.problems] == [("data/b", True)]


def test_a_declaration_that_is_a_link_declares_nothing(tmp_path: Path) -> None:
    folder = bag(tmp_path / "bag", bagit=None)
    (tmp_path / "elsewhere").write_text(DECLARATION.format("1.0"))
    (folder / "bagit.txt").symlink_to(tmp_path / "elsewhere")
    assert "not a bag" in problems(folder)[0][1]
    assert find_bag(folder) is None


def test_problems_have_an_end(tmp_path: Path) -> None:
    found = validate_bag(
        bag(tmp_path, manifest_sha256="".join(f"{digest(b'')}  data/{number}\n" for number in range(1500)))
    )
    assert len(found.problems) == 1001
    assert "Validation stopped after" in found.problems[-1].text


def test_the_bag_is_found(tmp_path: Path) -> None:
    assert find_bag(tmp_path) is None
    inner = bag(tmp_path / "mybag")
    assert find_bag(tmp_path) == inner
    assert find_bag(inner) == inner
    (tmp_path / "__MACOSX").mkdir()
    assert find_bag(tmp_path) == inner
    (tmp_path / "other").mkdir()
    assert find_bag(tmp_path) is None


TAG = st.one_of(
    st.binary(max_size=60),
    st.lists(
        st.sampled_from(
            [
                "BagIt-Version: 1.0",
                "BagIt-Version: 0.97",
                "Tag-File-Character-Encoding: UTF-8",
                "Tag-File-Character-Encoding: utf-16",
                digest(b"hello"),
                "  ",
                " *",
                "data/a.txt",
                "data/%0a%25",
                "..",
                "/",
                "\n",
                "\r",
                "\x00",
                "é",
                "http://x/",
                " 5 ",
                " - ",
                "Payload-Oxum: 5.1",
                ":",
            ]
        )
    ).map(lambda parts: "".join(parts).encode()),
)


@given(
    st.dictionaries(
        st.sampled_from(["bagit", "manifest_sha256", "manifest_md5", "tagmanifest_sha1", "bag_info", "fetch"]),
        TAG,
        max_size=3,
    )
)
def test_any_bytes_give_a_report(tmp_path_factory: pytest.TempPathFactory, tags: dict[str, bytes]) -> None:
    folder = bag(tmp_path_factory.mktemp("any"), "1.0", {"data/a.txt": b"hello"}, **tags)
    found = validate_bag(folder)
    assert found.is_valid == (problems(folder) == [])
