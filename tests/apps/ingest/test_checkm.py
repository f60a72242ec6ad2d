"""Checkm manifests: what is read, what is complained about and in which line, and what is written."""

from collections.abc import Iterator
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waybill.apps.ingest.formats.checkm import (
    BadManifest,
    CheckmManifest,
    ManifestComplaint,
    ManifestKind,
    ManifestRow,
    detect_kind,
    read_manifest,
    write_object_manifest,
    write_storage_manifest,
)
from waybill.errors import FormatError

PROFILE = "#%profile | http://uc3.cdlib.org/registry/ingest/manifest/"
PREFIXES = """\
#%prefix | mrt: | http://merritt.cdlib.org/terms#
#%prefix | nfo: | http://www.semanticdesktop.org/ontologies/2007/03/22/nfo#
"""
FILE_FIELDS = (
    "#%fields | nfo:fileUrl | nfo:hashAlgorithm | nfo:hashValue | nfo:fileSize | nfo:fileLastModified | nfo:fileName"
)
OBJECT_FIELDS = f"{FILE_FIELDS} | mrt:mimeType\n"
BATCH_FIELDS = f"{FILE_FIELDS} | mrt:primaryIdentifier | mrt:localIdentifier | mrt:creator | mrt:title | mrt:date\n"
MD5 = "47d321056e60944a06973793c7b5841e"
SHA256 = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
FIRST_ROW = 6  # the line of the first row in what `manifest` makes


def manifest(*rows: str, kind: ManifestKind = ManifestKind.OBJECT) -> bytes:
    fields = OBJECT_FIELDS if kind is ManifestKind.OBJECT else BATCH_FIELDS
    return f"#%checkm_0.7\n{PROFILE}{kind}\n{PREFIXES}{fields}{''.join(row + chr(10) for row in rows)}#%eof\n".encode()


def complaints(data: bytes, kind: ManifestKind | None = None) -> list[ManifestComplaint]:
    with pytest.raises(BadManifest) as caught:
        read_manifest(data, kind=kind)
    assert caught.value.complaints
    assert str(caught.value).startswith(str(caught.value.complaints[0]))
    return caught.value.complaints


def only_complaint(data: bytes) -> ManifestComplaint:
    found = complaints(data)
    assert len(found) == 1, found
    return found[0]


def only_row(row: str, kind: ManifestKind = ManifestKind.OBJECT) -> ManifestRow:
    found = read_manifest(manifest(row, kind=kind))
    assert found.remarks == []
    assert len(found.rows) == 1
    return found.rows[0]


def test_an_object_manifest() -> None:
    found = read_manifest(
        manifest(
            f"https://example.org/d/call.jpg | md5 | {MD5} | 87112 | 2009-09-01T10:00:00Z | images/call.jpg | image/jpeg",
            f"http://example.org/b.txt | SHA-256 | {SHA256.upper()} |  |  | b.txt",
            "https://example.org/c%20d.txt",
        )
    )
    assert found == CheckmManifest(
        ManifestKind.OBJECT,
        [
            ManifestRow(
                6,
                "https://example.org/d/call.jpg",
                "images/call.jpg",
                "md5",
                MD5,
                87112,
                "2009-09-01T10:00:00Z",
                "image/jpeg",
            ),
            ManifestRow(7, "http://example.org/b.txt", "b.txt", "sha256", SHA256),
            ManifestRow(8, "https://example.org/c%20d.txt", "c d.txt"),
        ],
        [],
    )
    assert found.rows[0].digests == {"md5": MD5}
    assert found.rows[2].digests == {}


def test_a_batch_of_manifests() -> None:
    found = read_manifest(
        manifest(
            "https://example.org/big.checkm ||||| big.checkm | ark:/99999/fk42z13f2 | loc 1; loc 2;; loc 1 | Tracy S. | Big | 2009-09-01",
            "https://example.org/api/objects/7 |",
            kind=ManifestKind.MANIFESTS,
        )
    )
    first, second = found.rows
    assert (first.primary_id, first.local_ids) == ("ark:/99999/fk42z13f2", ("loc 1", "loc 2"))
    assert (first.creator, first.title, first.date) == ("Tracy S.", "Big", "2009-09-01")
    assert (second.name, second.local_ids) == ("7", ())


@pytest.mark.parametrize("name", ["a.zip", "a.tar", "a.tar.gz", "a.TGZ", "a.tar.bz2", "a.bz2"])
def test_a_batch_of_containers(name: str) -> None:
    assert only_row(f"https://example.org/x | | | | | {name}", ManifestKind.CONTAINERS).name == name


def test_a_batch_of_single_files_may_repeat_a_name() -> None:
    row = "https://example.org/x/README |  |  |  |  | README |  |  |  | One"
    assert len(read_manifest(manifest(row, row, kind=ManifestKind.FILES)).rows) == 2


@pytest.mark.parametrize(
    ("kind", "row", "why"),
    [
        (ManifestKind.OBJECT, "", "lists nothing"),
        (ManifestKind.OBJECT, "| md5 | | | | a", "URL is missing"),
        (ManifestKind.OBJECT, "file:///etc/passwd | | | | | a", "only http and https"),
        (ManifestKind.OBJECT, "ftp://example.org/a", "only http and https"),
        (ManifestKind.OBJECT, "s3://bucket/a", "only http and https"),
        (ManifestKind.OBJECT, "a.txt", "only http and https"),
        (ManifestKind.OBJECT, "https://example.org/a b", "%20"),
        (ManifestKind.OBJECT, "https:///a", "names no host"),
        (ManifestKind.OBJECT, "https://[::1/a", "is not a URL"),
        (ManifestKind.OBJECT, "https://example.org:999999/a", "is not a URL"),
        (ManifestKind.OBJECT, "https://me:secret@example.org/a", "user name or password"),
        (ManifestKind.OBJECT, f"https://example.org/a | | {MD5}", "algorithm is missing"),
        (ManifestKind.OBJECT, "https://example.org/a | md5", "value is missing"),
        (ManifestKind.OBJECT, f"https://example.org/a | md6 | {MD5}", "is not a digest"),
        (ManifestKind.OBJECT, f"https://example.org/a | sha-256 | {MD5}", "is not a SHA-256 in hex"),
        (ManifestKind.OBJECT, f"https://example.org/a | md5 | {MD5[:-1]}x", "is not an MD5 in hex"),
        (ManifestKind.OBJECT, "https://example.org/a | | | 12k", "is not a size"),
        (ManifestKind.OBJECT, "https://example.org/a | | | -1", "is not a size"),
        (ManifestKind.OBJECT, "https://example.org/a | | | १२", "is not a size"),
        (ManifestKind.OBJECT, "https://example.org/a | | | 9223372036854775808", "is not a size"),
        (ManifestKind.OBJECT, "https://example.org/a | | | | | /etc/passwd", "begins with a slash"),
        (ManifestKind.OBJECT, "https://example.org/a | | | | | ../a", "'..'"),
        (ManifestKind.OBJECT, "https://example.org/a | | | | | a//b", "two in a row"),
        (ManifestKind.OBJECT, "https://example.org/", "file name is missing"),
        (ManifestKind.OBJECT, "https://example.org/%FF", "file name is missing"),
        (ManifestKind.OBJECT, "https://example.org/..", "file name is missing"),
        (ManifestKind.OBJECT, "https://example.org/a | | | | | a | text/plain | more", "8 columns"),
        (ManifestKind.MANIFESTS, "https://example.org/a | | | | | a.zip", ".checkm"),
        (ManifestKind.CONTAINERS, "https://example.org/a | | | | | a.checkm", ".zip"),
        (ManifestKind.CONTAINERS, "https://example.org/a | | | | | .zip", ".zip"),
        (ManifestKind.FILES, "https://example.org/a | | | | | a | ark:/abc/x", "is not an ARK"),
        (ManifestKind.FILES, "https://example.org/a | | | | | a | ark:/13030/1abc", "is not an ARK"),
        (
            ManifestKind.FILES,
            "https://example.org/a | | | | | a | https://n2t.net/ark:/13030/xf93gt2q",
            "is not an ARK",
        ),
        (ManifestKind.FILES, f"https://example.org/a | | | | | a | | {'x' * 256}", "256 characters; at most 255"),
        (
            ManifestKind.FILES,
            f"https://example.org/a | | | | | a | | {';'.join(map(str, range(101)))}",
            "101 local ids",
        ),
    ],
)
def test_a_row_with_a_fault(kind: ManifestKind, row: str, why: str) -> None:
    found = complaints(manifest(row, kind=kind))
    assert why in found[0].text
    assert found[0].line == (FIRST_ROW if row else 0)


def test_a_password_is_not_repeated() -> None:
    assert "secret" not in str(only_complaint(manifest("https://me:secret@example.org/a")))


def test_every_complaint_of_every_row_is_there() -> None:
    found = complaints(
        manifest(
            "ftp://a | md5 | 1 | x | | ../a",
            "https://example.org/b",
            "https://example.org/b",
            "https://example.org/c/..",
        )
    )
    assert [each.line for each in found] == [6, 6, 6, 6, 8, 9]
    assert "twice" in found[4].text


@pytest.mark.parametrize(
    ("one", "other", "why"),
    [
        ("a/b", "a/b", "twice"),
        ("caf\u00e9", "cafe\u0301", "twice"),
        ("a", "a/b", "a file"),
        ("a/b", "a", "the folder of"),
    ],
)
def test_names_that_cannot_stand_side_by_side(one: str, other: str, why: str) -> None:
    rows = [f"https://example.org/{n} | | | | | {name}" for n, name in enumerate([one, other])]
    found = only_complaint(manifest(*rows))
    assert (found.line, why in found.text) == (7, True)


def test_case_and_folders_make_different_names() -> None:
    rows = [f"https://example.org/{n} | | | | | {name}" for n, name in enumerate(["a/x.txt", "b/x.txt", "b/X.txt"])]
    assert len(read_manifest(manifest(*rows)).rows) == 3


@pytest.mark.parametrize("name", ["😀.jpg", "ملف.txt", "Grüße aus Köln.txt", "a.txt;b"])
def test_names_in_all_languages(name: str) -> None:
    assert only_row(f"https://example.org/x | | | | | {name}").name == name


@pytest.mark.parametrize(
    ("row", "name"),
    [
        ("https://example.org/a | | | | | a | |", "a"),
        ("https://example.org/a|md5|" + MD5 + "|||a", "a"),
        ("https://example.org/a | | | | - | a", "a"),
    ],
)
def test_harmless_differences(row: str, name: str) -> None:
    found = only_row(row)
    assert (found.name, found.modified) == (name, "")


def test_rows_of_a_batch_that_name_one_object_are_remarked_with_both_lines() -> None:
    ids = [
        " | x; y",
        "ark:/99999/fk4abc | z",
        " | y",
        "ark:/99999/fk4abc | y",
        " | other",
        " | ark:/99999/fk4abc",
        " | ",
    ]
    rows = [f"https://example.org/{n} | | | | | {n}.txt | {each}" for n, each in enumerate(ids)]
    found = read_manifest(manifest(*rows, kind=ManifestKind.FILES))
    first, second = found.rows[0].line, found.rows[1].line
    assert [str(each).split(" too:")[0] for each in found.remarks] == [
        f"Line {first + 2}: 'y' is named in line {first}",
        f"Line {first + 3}: 'ark:/99999/fk4abc' is named in line {second}",
    ]
    assert [row.follows for row in found.rows] == [(), (), (first,), (second, first + 2), (), (), ()]
    more = [" | a", " | b", " | a; b", " | b", "ark:/99999/fk4abc | b", "ark:/99999/fk4abc"]
    chained = read_manifest(
        manifest(
            *(f"https://example.org/{n} | | | | | {n}.txt | {each}" for n, each in enumerate(more)),
            kind=ManifestKind.FILES,
        )
    ).rows
    assert [row.follows for row in chained] == [(), (), (first, second), (first + 2,), (first + 3,), (first + 4,)]


def test_windows_line_ends_a_mark_and_a_missing_last_newline_are_remarked() -> None:
    data = b"\xef\xbb\xbf" + manifest("https://example.org/a").replace(b"\n", b"\r\n").removesuffix(b"\r\n")
    found = read_manifest(data)
    assert [row.name for row in found.rows] == ["a"]
    assert sorted((each.line, each.text.split()[0]) for each in found.remarks) == [
        (1, "Lines"),
        (1, "The"),
        (7, "There"),
    ]


def test_empty_lines_comments_and_a_shouted_end() -> None:
    data = manifest("", "# a comment", "https://example.org/a", "   ", "#%unknown | x").replace(b"#%eof", b"#%EOF  ")
    assert [row.line for row in read_manifest(data + b"\n\n").rows] == [8]


def test_a_manifest_without_declaration_prefixes_and_fields() -> None:
    found = read_manifest(f"{PROFILE}mrt-ingest-manifest\nhttps://example.org/a\n#%eof\n".encode())
    assert [each.line for each in found.remarks] == [1]


def test_an_older_registry_and_columns_without_prefixes() -> None:
    data = b"#%checkm_0.7\n#%profile | http://uc3.cdlib.org/registry/mrt/mrt-batch-manifest\n#%columns | fileURL | hashAlgorithm\nhttps://example.org/a\n#%eof\n"
    assert read_manifest(data).kind is ManifestKind.MANIFESTS


@pytest.mark.parametrize(
    ("data", "line", "why"),
    [
        (b"", 0, "empty"),
        (b"\n\n", 2, "without #%eof"),
        (manifest("https://example.org/a").removesuffix(b"#%eof\n"), 6, "without #%eof"),
        (manifest("https://example.org/a")[:-3], 7, "without #%eof"),
        (manifest("https://example.org/a") + b"https://example.org/b\n", 8, "after #%eof in line 7"),
        (b"#%checkm_0.7\nhttps://example.org/a\n#%eof\n", 2, "#%profile must come before"),
        (b"#%checkm_0.7\n#%eof\n", 0, "#%profile is missing"),
        (
            b"#%checkm_0.7\n#%profile | http://example.org/mrt-ingest-manifest\nhttps://example.org/a\n#%eof\n",
            2,
            "is not the profile",
        ),
        (
            b"#%checkm_0.7\n#%profile | http://uc3.cdlib.org/registry/ingest/manifest/mrt-other\nx\n#%eof\n",
            2,
            "is not the profile",
        ),
        (b"#%checkm_0.7\n#%profile\nx\n#%eof\n", 2, "is not the profile"),
        (
            manifest("https://example.org/a").replace(b"fileUrl | nfo:hashAlgorithm", b"hashAlgorithm | nfo:fileUrl"),
            5,
            "another order",
        ),
        (manifest(f"{PROFILE}{ManifestKind.OBJECT}", "https://example.org/a"), 6, "twice"),
        (manifest("https://example.org/a").decode().encode("utf-16"), 0, "UTF-16"),
        (
            manifest("https://example.org/a | | | | | caf\u00e9").decode().encode("latin-1"),
            6,
            "Byte 36 (0xe9) is not UTF-8",
        ),
        (manifest("https://example.org/a | | | | | caf\ufffd"), 6, "replacement character"),
        (manifest("https://example.org/a | | | | | a\x00b"), 6, "control character"),
        (manifest("https://example.org/a").replace(b"\n", b"\r"), 1, "carriage return"),
        (b"PK\x03\x04abc", 0, "file of another kind"),
        (b"<!DOCTYPE html>\n", 0, "file of another kind"),
    ],
)
def test_a_manifest_with_a_fault(data: bytes, line: int, why: str) -> None:
    found = complaints(data)[0]
    assert why in found.text
    assert found.line == line


def test_a_row_that_cannot_be_read_is_all_that_is_wrong() -> None:
    data = manifest("https://example.org/a | | | | | caf\u00e9").decode().encode("latin-1")
    assert [each.line for each in complaints(data)] == [6]


def test_it_was_sent_as_something_else() -> None:
    data = manifest("https://example.org/a")
    assert read_manifest(data, kind=ManifestKind.OBJECT).kind is ManifestKind.OBJECT
    found = complaints(data, kind=ManifestKind.CONTAINERS)
    assert (found[0].line, "was sent as mrt-container-batch-manifest" in found[0].text) == (2, True)


def test_a_manifest_that_is_too_long_is_not_read_to_its_end() -> None:
    asked = 0

    def long() -> Iterator[bytes]:
        nonlocal asked
        yield manifest("https://example.org/a")[:-6]
        while asked < 100:
            asked += 1
            yield b"x" * 100_000

    with pytest.raises(BadManifest, match="longer than 5,000,000 bytes"):
        read_manifest(long())
    assert asked == 50


def test_the_limit_counts_every_byte() -> None:
    data = manifest("https://example.org/a")
    assert read_manifest(data, limit=len(data)).rows
    with pytest.raises(BadManifest, match="longer than"):
        read_manifest(data, limit=len(data) - 1)


def test_after_a_thousand_complaints_nobody_reads_on() -> None:
    found = complaints(manifest(*["ftp://example.org/a"] * 3000))
    assert len(found) == 1001
    assert "Reading stopped here" in found[-1].text


def test_it_is_read_in_portions_of_any_size(tmp_path_factory: pytest.TempPathFactory) -> None:
    data = manifest("https://example.org/\u00e9", "https://example.org/b")
    whole = read_manifest(data)
    for size in (1, 2, 3, 7, 100):
        assert read_manifest(data[at : at + size] for at in range(0, len(data), size)) == whole
    path = tmp_path_factory.mktemp("manifest") / "a.checkm"
    path.write_bytes(data)
    with path.open("rb") as file:
        assert read_manifest(file) == whole


@pytest.mark.parametrize("kind", list(ManifestKind))
def test_a_glance_tells_the_kind(kind: ManifestKind) -> None:
    assert detect_kind(b"\xef\xbb\xbf" + manifest(kind=kind)[:120].replace(b"\n", b"\r\n")) is kind


@pytest.mark.parametrize("head", [b"", b"hello", b"\xff\xfe\x00", b"#%profile | x\n"])
def test_a_glance_at_something_else(head: bytes) -> None:
    assert detect_kind(head) is None


def test_what_is_written_is_read_again() -> None:
    rows = [
        ManifestRow(6, "https://example.org/a", "a b/é.txt", "sha512", "0" * 128, 0, "2009-09-01", "text/plain"),
        ManifestRow(7, "https://example.org/b", "b"),
    ]
    assert read_manifest(b"".join(write_object_manifest(rows))) == CheckmManifest(ManifestKind.OBJECT, rows, [])


def test_a_storage_manifest() -> None:
    row = ManifestRow(0, "http://127.0.0.1/q/producer/a.txt", "producer/a.txt", "sha256", SHA256, 3, mime="text/plain")
    assert b"".join(write_storage_manifest([row])).decode() == (
        "#%checkm_0.7\n"
        "#%profile | http://uc3.cdlib.org/registry/store/manifest/mrt-add-manifest\n"
        "#%prefix | nfo:<http://www.semanticdesktop.org/ontologies/2007/03/22/nfo#>\n"
        "#%prefix | nie:<http://www.semanticdesktop.org/ontologies/2007/01/19/nie/#>\n"
        "#%prefix | mrt:<http://merritt.cdlib.org/terms#>\n"
        "#%columns | nfo:fileURL | nfo:hashAlgorithm | nfo:hashValue | nfo:fileSize | nfo:fileLastModified | nfo:fileName | nie:mimeType\n"
        f"http://127.0.0.1/q/producer/a.txt | sha-256 | {SHA256} | 3 |  | producer/a.txt | text/plain\n"
        "#%eof\n"
    )


@pytest.mark.parametrize(
    "row",
    [ManifestRow(0, "u", "a"), ManifestRow(0, "u", "a", "md5", MD5, 3), ManifestRow(0, "u", "a", "sha256", SHA256)],
)
def test_storage_is_told_sizes_and_digests(row: ManifestRow) -> None:
    with pytest.raises(FormatError, match="storage needs both"):
        list(write_storage_manifest([row]))


@pytest.mark.parametrize("name", ["a|b", "a\nb", " a", "a ", "a\ud83d"])
def test_what_the_format_cannot_express_is_not_written(name: str) -> None:
    with pytest.raises(FormatError, match="cannot be written"):
        list(write_object_manifest([ManifestRow(0, "u", name)]))


CELL = st.text(alphabet=st.sampled_from("ab|é😀 \t#%./:;-\r\n\x00\ufffd0aA"), max_size=12)
LINE = st.one_of(
    st.sampled_from(
        [
            "#%checkm_0.7",
            "#%eof",
            *(f"{PROFILE}{kind}" for kind in ManifestKind),
            OBJECT_FIELDS,
            BATCH_FIELDS,
            "#%profile",
            "#%fields |",
        ]
    ),
    st.lists(
        st.one_of(CELL, st.sampled_from(["https://example.org/a", "md5", MD5, "12", "a.zip", "ark:/99999/fk4x"])),
        max_size=13,
    ).map(" | ".join),
)


@given(
    st.one_of(st.binary(), st.lists(LINE, max_size=12).map(lambda lines: "\n".join(lines).encode())),
    st.sampled_from([None, *ManifestKind]),
)
def test_any_bytes_are_read_or_complained_about(data: bytes, kind: ManifestKind | None) -> None:
    with suppress(BadManifest):
        found = read_manifest(data, kind=kind)
        assert found.rows
        assert read_manifest([data[:5], data[5:]]) == found
    assert detect_kind(data) in (None, *ManifestKind)


@given(st.lists(st.tuples(CELL, CELL), max_size=4))
def test_what_can_be_written_is_read_as_it_was(cells: list[tuple[str, str]]) -> None:
    rows = [
        ManifestRow(FIRST_ROW + at, "https://example.org/a", name, modified=modified)
        for at, (name, modified) in enumerate(cells)
    ]
    with suppress(FormatError, BadManifest):
        written = b"".join(write_object_manifest(rows))
        assert [(row.name, row.modified) for row in read_manifest(written).rows] == [
            (row.name or "a", "" if row.modified == "-" else row.modified) for row in rows
        ]
