"""Manifests: written and read back, faults found with their line, vectors that no code of ours computed."""

import hashlib
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from waybill import manifests
from waybill.manifests import LONGEST_LINE, ManifestEntry, ManifestError, ManifestReader
from waybill.objects import DirectoryObjects, ObjectExists, ObjectNotFound

ABC = hashlib.sha256(b"abc").hexdigest()
EMPTY = hashlib.sha256(b"").hexdigest()

# Written by hand; the digests are those of `printf '...' | sha256sum`.
HEADER = b'{"waybill":"manifest","v":1}\n'
LINES = (
    b'{"uri":"a.txt","size":3,"sha256":"ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"}\n'
    b'{"uri":"\xc3\xbc/\\"b\\"\\n\\u0001.txt","size":0,"sha256":"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",'
    b'"mime":"text/plain","tags":["x",null,true,-1,{"a":1,"b":2}]}\n'
)
ENTRIES = [
    ManifestEntry("a.txt", 3, ABC),
    ManifestEntry('ü/"b"\n\x01.txt', 0, EMPTY, {"tags": ["x", None, True, -1, {"b": 2, "a": 1}], "mime": "text/plain"}),
]
LAST = (
    f'{{"waybill":"end","count":2,"bytes":3,"sha256":"{hashlib.sha256(LINES).hexdigest()}",'
    f'"header":"{hashlib.sha256(HEADER).hexdigest()}"}}\n'
).encode()
WHOLE = HEADER + LINES + LAST


@pytest.fixture
def objects(tmp_path: Path) -> Iterator[DirectoryObjects]:
    with DirectoryObjects(tmp_path, fsync=False) as objects:
        yield objects


def parse(data: bytes, chunk: int = 1 << 20) -> list[ManifestEntry]:
    return list(ManifestReader(data[at : at + chunk] for at in range(0, len(data), chunk)))


def content(objects: DirectoryObjects, name: str) -> bytes:
    with objects.get(name) as body:
        return body.read()


def test_the_vector_is_what_is_written(objects: DirectoryObjects) -> None:
    written = manifests.write_manifest(objects, "m", ENTRIES)
    assert content(objects, "m") == WHOLE
    assert written.info.sha256 == hashlib.sha256(WHOLE).hexdigest()
    assert (written.totals.count, written.totals.bytes) == (2, 3)


def test_a_vector_in_figures() -> None:
    """The digest of one known line, so that the vector above cannot change with the code of this file."""
    line = f'{{"uri":"a.txt","size":3,"sha256":"{ABC}"}}\n'
    assert ABC == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert (
        hashlib.sha256(line.encode()).hexdigest() == "7ded18ad3c5b714022e0eea6cd19f8c09894736828c3e23bd6e0e18f98aa1229"
    )
    assert hashlib.sha256(HEADER).hexdigest() == "60d555d2887e6a3f6dcd0f4e23f3ebfb132ec917673905e57dd1d256e8e136ff"


@pytest.mark.parametrize("chunk", [1, 7, 100, 1 << 20])
def test_the_vector_is_read_in_any_portions(chunk: int) -> None:
    assert parse(WHOLE, chunk) == ENTRIES


def test_an_empty_manifest(objects: DirectoryObjects) -> None:
    totals = manifests.write_manifest(objects, "m", []).totals
    assert (totals.count, totals.bytes, totals.sha256) == (0, 0, EMPTY)
    assert manifests.verify_manifest(objects, "m") == manifests.read_stated_totals(objects, "m") == totals


def test_order_and_words_about_it(objects: DirectoryObjects) -> None:
    manifests.write_manifest(
        objects,
        "m",
        [ManifestEntry("a", 1, ABC), ManifestEntry("b", 2, ABC), ManifestEntry("é", 3, ABC)],
        ordered=True,
        about={"for": "people", "a": 1},
    )
    assert content(objects, "m").startswith(
        b'{"waybill":"manifest","v":1,"order":"uri","about":{"a":1,"for":"people"}}\n'
    )
    with manifests.open_manifest(objects, "m") as reader:
        assert (reader.header.ordered, reader.header.about) == (True, {"a": 1, "for": "people"})
        with pytest.raises(ManifestError, match="not read yet"):
            _ = reader.totals
        assert [entry.uri for entry in reader] == ["a", "b", "é"]
        assert reader.totals.bytes == 6


@pytest.mark.parametrize(
    ("uris", "line", "what"),
    [(["b", "a"], 3, "out of order"), (["a", "b", "b"], 4, "repeats"), (["é", "z"], 3, "order")],
)
def test_a_broken_promise_of_order(objects: DirectoryObjects, uris: list[str], line: int, what: str) -> None:
    entries = [ManifestEntry(uri, 0, EMPTY) for uri in uris]
    with pytest.raises(ManifestError, match=what) as raised:
        manifests.write_manifest(objects, "m", entries, ordered=True)
    assert raised.value.line == line
    assert list(objects.list()) == []
    manifests.write_manifest(objects, "m", entries)  # nothing was promised
    head = b'{"waybill":"manifest","v":1,"order":"uri"}\n'
    unordered = content(objects, "m")
    forged = unordered.replace(HEADER, head).replace(
        hashlib.sha256(HEADER).hexdigest().encode(), hashlib.sha256(head).hexdigest().encode()
    )
    with pytest.raises(ManifestError, match=what) as raised:
        parse(forged)
    assert raised.value.line == line


def test_order_is_kept_across_batches(objects: DirectoryObjects) -> None:
    entries = [ManifestEntry(f"{number:09}", 1, ABC) for number in range(5_000)]
    manifests.write_manifest(objects, "m", entries, ordered=True)
    with manifests.open_manifest(objects, "m") as reader:
        assert list(reader) == entries
    with pytest.raises(ManifestError) as raised:
        manifests.write_manifest(objects, "m", [*entries, entries[0]], ordered=True)
    assert raised.value.line == 5_002


def line_of(**fields: Any) -> bytes:
    return (
        json.dumps({"uri": "a", "size": 1, "sha256": ABC, **fields}, separators=(",", ":"), ensure_ascii=False).encode()
        + b"\n"
    )


def sealed(lines: bytes, count: int, size: int, header: bytes = HEADER) -> bytes:
    end = {"waybill": "end", "count": count, "bytes": size, "sha256": hashlib.sha256(lines).hexdigest()}
    return (
        header
        + lines
        + json.dumps({**end, "header": hashlib.sha256(header).hexdigest()}, separators=(",", ":")).encode()
        + b"\n"
    )


@pytest.mark.parametrize(
    ("data", "line", "what"),
    [
        (b"", 1, "missing: the file is empty"),
        (b"\n", 1, "missing: the file is empty"),
        (b"\n\n", 1, "not the first line"),
        (LINES + LAST, 1, "not the first line"),
        (b'{"waybill":"manifest","v":2}\n', 1, "version 2"),
        (b'{"waybill":"manifest","v":1,"order":"size"}\n', 1, "unknown order"),
        (b'{"v":1,"waybill":"manifest"}\n', 1, "canonical"),
        (b'{"waybill":"manifest","v":1,"more":1}\n', 1, "canonical"),
        (b'{"waybill":"manifest","v":1,"about":{"x":1.5}}\n', 1, "canonical"),
        (HEADER, 2, "missing: the file was cut"),
        (HEADER + LINES, 4, "missing: the file was cut"),
        (WHOLE[:-1], 4, "cut"),
        (HEADER + LINES[:-30], 3, "cut"),
        (WHOLE + b"\n", 5, "follows the last line"),
        (WHOLE + WHOLE, 5, "follows the last line"),
        (WHOLE.replace(b'"size":3', b'"size":4'), 4, "states bytes 3, and the lines before it have 4"),
        (WHOLE.replace(b"a.txt", b"A.txt"), 4, "states sha256"),
        (WHOLE.replace(b'"count":2', b'"count":1'), 4, "states count 1"),
        (WHOLE.replace(b'"header":"', b'"header":"0')[:-4] + b'"}\n', 4, "states header"),
        (WHOLE.replace(b'"count":2', b'"count": 2'), 4, "canonical"),
        (HEADER + b'{"waybill":"end"}\n', 2, "not the last line"),
        (HEADER + b"\n" + LAST, 2, "is not JSON"),
        (HEADER + LINES + b"\n" + LAST, 4, "is not JSON"),
        (HEADER + LINES + b"{}\n" + LAST, 4, "lacks uri"),
        (HEADER + LINES + b"[]\n" + LAST, 4, "lacks uri"),
        (HEADER + b"\xff\n", 2, "is not JSON"),
        (HEADER + line_of(uri=""), 2, "uri"),
        (HEADER + line_of(uri=5), 2, "uri"),
        (HEADER + line_of(size=-1), 2, "size"),
        (HEADER + line_of(size=1.0), 2, "size"),
        (HEADER + line_of(size=True), 2, "size"),
        (HEADER + line_of(size=2**63), 2, "size"),
        (HEADER + line_of(sha256=ABC.upper()), 2, "sha256"),
        (HEADER + line_of(sha256=ABC[:-1]), 2, "sha256"),
        (HEADER + line_of(sha256=ABC[:-1] + "g"), 2, "sha256"),
        (HEADER + line_of(more=1.5), 2, "neither a string"),
        (HEADER + line_of(more=2**63), 2, "64 bits"),
        (HEADER + line_of(z=1, a=1), 2, "canonical"),
        (HEADER + line_of(more={"b": 1, "a": 1}), 2, "canonical"),
        (HEADER + line_of(more=[{"b": 1, "a": 1}]), 2, "canonical"),
        (HEADER + line_of().replace(b":1,", b": 1,"), 2, "canonical"),
        (HEADER + line_of().replace(b'"a"', b'"\\u0061"'), 2, "canonical"),
        (HEADER + line_of().replace(b'"size":1', b'"size":1,"size":1'), 2, "canonical"),
        (HEADER + b'{"size":1,"uri":"a","sha256":"%s"}\n' % ABC.encode(), 2, "canonical"),
        (HEADER + line_of() + line_of(sha256="x") + line_of(), 3, "sha256"),
        (HEADER + b"[" * 100_000 + b"\n", 2, "is not JSON"),
        (HEADER + b'{"uri":"' + b"x" * LONGEST_LINE, 2, "longer than"),
        (b"x" * (LONGEST_LINE + 1), 1, "longer than"),
    ],
)
def test_what_is_wrong_is_told_with_its_line(data: bytes, line: int, what: str) -> None:
    for chunk in (100_000, 10):
        if chunk == 100_000 or len(data) < 10_000:
            with pytest.raises(ManifestError, match=what) as raised:
                parse(data, chunk)
            assert raised.value.line == line
            assert str(raised.value).startswith(f"Line {line} of the manifest")


@pytest.mark.parametrize(
    "entry",
    [
        ManifestEntry("", 0, ABC),
        ManifestEntry("a", -1, ABC),
        ManifestEntry("a", 2**63, ABC),
        ManifestEntry("a", True, ABC),
        ManifestEntry("a", 1.0, ABC),  # type: ignore[arg-type]
        ManifestEntry("a", 1, ABC.upper()),
        ManifestEntry("a", 1, "abc"),
        ManifestEntry("a", 1, ABC, {"uri": "b"}),
        ManifestEntry("a", 1, ABC, {"x": 1.5}),
        ManifestEntry("a", 1, ABC, {"x": b"bytes"}),
        ManifestEntry("a", 1, ABC, {"x": {1: 2}}),
        ManifestEntry("a", 1, ABC, {"x": 2**63}),
        ManifestEntry("\ud800", 1, ABC),
        ManifestEntry("a", 1, ABC, {"x": "y" * LONGEST_LINE}),
        ManifestEntry("a", 2**63 - 1, ABC),
    ],
)
def test_what_could_not_be_read_is_not_written(objects: DirectoryObjects, entry: ManifestEntry) -> None:
    with pytest.raises(ManifestError) as raised:
        manifests.write_manifest(objects, "m", [ManifestEntry("ok", 1, EMPTY), entry])
    assert raised.value.line == 3
    assert list(objects.list()) == []


def test_a_source_that_fails_stores_nothing(objects: DirectoryObjects) -> None:
    def broken() -> Iterator[ManifestEntry]:
        yield ENTRIES[0]
        raise EOFError

    with pytest.raises(EOFError):
        manifests.write_manifest(objects, "m", broken())
    assert list(objects.list()) == []


def test_a_manifest_can_be_made_once_only(objects: DirectoryObjects) -> None:
    manifests.write_manifest(objects, "m", ENTRIES, if_absent=True)
    with pytest.raises(ObjectExists):
        manifests.write_manifest(objects, "m", ENTRIES, if_absent=True)
    with pytest.raises(ObjectNotFound):
        manifests.open_manifest(objects, "other")


def test_a_glance_at_what_is_no_manifest(objects: DirectoryObjects) -> None:
    for data in (b"", b"x", WHOLE[:-1], WHOLE + b"\n", HEADER):
        objects.put("m", data)
        with pytest.raises(ManifestError):
            manifests.read_stated_totals(objects, "m")


def test_every_single_flipped_bit_is_found() -> None:
    for position in range(len(WHOLE)):
        for bit in (0, 3, 5):
            damaged = bytearray(WHOLE)
            damaged[position] ^= 1 << bit
            with pytest.raises(ManifestError):
                parse(bytes(damaged))


def test_every_cut_is_found() -> None:
    for end in range(len(WHOLE)):
        with pytest.raises(ManifestError):
            parse(WHOLE[:end])


plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)
entry = st.builds(
    ManifestEntry,
    st.text(min_size=1),
    st.integers(0, 2**59),
    st.binary().map(lambda data: hashlib.sha256(data).hexdigest()),
    st.dictionaries(st.text().filter(lambda name: name not in ("uri", "size", "sha256")), plain, max_size=3),
)


@given(st.lists(entry, max_size=8), st.dictionaries(st.text(), plain, max_size=2), st.integers(1, 300))
def test_what_is_written_is_read(entries: list[ManifestEntry], about: dict[str, Any], chunk: int) -> None:
    with tempfile.TemporaryDirectory() as root, DirectoryObjects(root, fsync=False) as objects:
        totals = manifests.write_manifest(objects, "m", entries, about=about).totals
        data = content(objects, "m")
        assert parse(data, chunk) == entries
        assert manifests.verify_manifest(objects, "m") == manifests.read_stated_totals(objects, "m") == totals
        # An independent reader, by the words of the documentation alone.
        first, *middle, last = data.split(b"\n")[:-1]
        stated = json.loads(last)
        assert stated["count"] == len(middle) == len(entries)
        assert stated["bytes"] == sum(json.loads(line)["size"] for line in middle)
        assert stated["sha256"] == hashlib.sha256(b"".join(line + b"\n" for line in middle)).hexdigest()
        assert stated["header"] == hashlib.sha256(first + b"\n").hexdigest()
        for line in middle:
            found = json.loads(line)
            order = [*found][:3] + sorted([*found][3:])
            assert [*found] == order
            assert json.loads(line.decode()) == json.loads(json.dumps(found))


known = [HEADER, LAST, *LINES.splitlines(keepends=True), b"\n", b"{", b'"', b'{"uri":', b"\xff", b"\0", b"1e999", b"{}"]
pieces_of_manifests = st.lists(st.sampled_from(known) | st.binary(), max_size=8).map(b"".join)


@given(st.binary() | pieces_of_manifests | st.binary().map(lambda data: HEADER + data), st.integers(1, 100))
@example(b'{"waybill":"manifest","v":1}\n{"uri":"a","size":1e400,"sha256":"x"}\n', 10)
@example(b'{"waybill":"manifest","v":99999999999999999999999}\n', 10)
@example(b'{"waybill":"manifest","v":1,"about":null}\n', 10)
def test_any_bytes_are_entries_or_a_manifest_error(data: bytes, chunk: int) -> None:
    try:
        entries = parse(data, chunk)
    except ManifestError as error:
        line = error.line
    else:
        line = len(entries)
    assert 0 <= line <= data.count(b"\n") + 2


@given(st.binary(max_size=200), st.integers(0, len(WHOLE)), st.integers(0, len(WHOLE)))
def test_a_spliced_manifest_is_whole_or_an_error(middle: bytes, start: int, end: int) -> None:
    data = WHOLE[:start] + middle + WHOLE[max(start, end) :]
    try:
        entries = parse(data)
    except ManifestError:
        return
    assert data == WHOLE
    assert entries == ENTRIES


LOOSE_HEADER = b'{"waybill":"manifest","v":1,"loose":true}\n'
LOOSE_LINES = b'{"uri":"a","size":1}\n{"uri_base64":"Yv8=","size":2}\n{"uri":"c","size":3,"mode":420}\n'


def test_a_loose_manifest_is_lines_without_digests_and_names_of_any_bytes(objects: DirectoryObjects) -> None:
    entries = [ManifestEntry("a", 1), ManifestEntry("b\udcff", 2), ManifestEntry("c", 3, extra={"mode": 420})]
    manifests.write_manifest(objects, "m", entries, loose=True)
    assert content(objects, "m").startswith(LOOSE_HEADER + LOOSE_LINES)
    with manifests.open_manifest(objects, "m", loose=True) as reader:
        assert list(reader) == entries
    assert manifests.verify_manifest(objects, "m", loose=True).bytes == 6
    with pytest.raises(ManifestError, match="declares entries without digests, which cannot be used here"):
        manifests.open_manifest(objects, "m")
    for entry in entries[:2]:
        with pytest.raises(ManifestError, match="cannot be written"):
            manifests.write_manifest(objects, "strict", [entry])


@pytest.mark.parametrize(
    "line",
    [
        b'{"uri_base64":"YQ==","size":1}',  # is UTF-8
        b'{"uri_base64":"Yv9=","size":1}',  # another base64 of the same bytes
        b'{"uri_base64":"Yv8","size":1}',
        b'{"uri_base64":7,"size":1}',
        b'{"uri_base64":"","size":1}',
        b'{"uri_base64":"Yv8=","size":1,"uri":"a"}',
        b'{"uri":"a","size":1,"uri_base64":"Yv8="}',
        b'{"uri":"a","size":1,"sha256":""}',
        b'{"uri":"a","size":1,"sha256":null}',
        b'{"uri":"a","sha256":"%s","size":1}' % ABC.encode(),
        b'{"uri":"a"}',
        b'{"uri":"\\udcff","size":1}',
    ],
)
def test_a_loose_manifest_is_canonical_too(line: bytes) -> None:
    data = sealed(line + b"\n", 1, 1, LOOSE_HEADER)
    with pytest.raises(ManifestError, match="Line 2"):
        list(ManifestReader([data], loose=True))


@pytest.mark.parametrize("uri", ["\ud800", "\udcc3\udca9"])  # no byte, and bytes that are UTF-8
def test_a_uri_that_is_no_name_of_a_file_is_not_written(objects: DirectoryObjects, uri: str) -> None:
    with pytest.raises(ManifestError, match=r"not as os\.fsdecode makes it"):
        manifests.write_manifest(objects, "m", [ManifestEntry(uri, 1)], loose=True)


@given(
    st.lists(st.binary(min_size=1, max_size=9).map(lambda name: name.decode("utf-8", "surrogateescape")), max_size=8)
)
def test_any_bytes_come_back_as_the_name_they_were(names: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder, DirectoryObjects(folder, fsync=False) as objects:
        manifests.write_manifest(objects, "m", [ManifestEntry(name, 0) for name in names], loose=True)
        with manifests.open_manifest(objects, "m", loose=True) as reader:
            assert [entry.uri for entry in reader] == names
