"""Manifests of lots: the form that other tools read, long ones in pages, and what is damaged."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waybill.apps.lots.lot_manifests import (
    ChildManifest,
    LotEntry,
    LotManifest,
    LotManifestWriter,
    ObjectFacts,
    decode_manifest,
    encode_manifest,
    iter_entries,
    read_manifest,
    to_clusterless,
)
from waybill.errors import InputError
from waybill.manifests import ManifestError
from waybill.objects import Objects, open_objects

LOT = "20230227PT5M287"


@pytest.fixture
def objects(tmp_path: Path) -> Iterator[Objects]:
    with open_objects(f"file://{tmp_path}/objects") as opened:
        yield opened


def test_the_five_keys_are_written_as_others_read_them() -> None:
    plain = LotManifest("complete", lotId=LOT, uris=("s3://b/k/a.txt",))
    expected = b'{"state":"complete","comment":null,"lotId":"20230227PT5M287","uriType":"identifier","uris":["s3://b/k/a.txt"]}'
    assert encode_manifest(plain) == expected
    full = LotManifest(
        "complete", lotId=LOT, uris=("s3://b/k/a.txt",), v=2, dataset="d/1", generation=3, objects=(ObjectFacts(3),)
    )
    assert to_clusterless(full) == expected
    assert list(json.loads(encode_manifest(full))) == [
        "state",
        "comment",
        "lotId",
        "uriType",
        "uris",
        "v",
        "dataset",
        "generation",
        "objects",
    ]
    assert decode_manifest(encode_manifest(full), "m") == full
    with pytest.raises(InputError, match="children"):
        to_clusterless(LotManifest("complete", children=(ChildManifest("x", 1),)))


def test_keys_that_nobody_knows_are_no_fault() -> None:
    body = b'{"state":"partial","comment":"half","lotId":"20230227PT5M287","uriType":"path","uris":["s3://b/a b/"],"dataset":"d","x":{}}'
    assert decode_manifest(body, "m") == LotManifest("partial", "half", LOT, "path", ("s3://b/a b/",), dataset="d")


@pytest.mark.parametrize(
    "body", [b"{}", b'{"state":"done"}', b"[]", b"\xff", b'{"state":"complete","uris":["a"],"objects":[{},{}]}']
)
def test_what_is_no_manifest_is_said_to_be_none(body: bytes) -> None:
    with pytest.raises(ManifestError, match="the-name"):
        decode_manifest(body, "the-name")


@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_any_bytes_are_a_manifest_or_refused(body: bytes) -> None:
    try:
        manifest = decode_manifest(body, "m")
    except ManifestError:
        return
    assert manifest.state in ("complete", "partial", "empty", "removed")


def write(objects: Objects, count: int, page_size: int) -> str:
    writer = LotManifestWriter(objects, "lot/pages", LotManifest("complete", lotId=LOT), page_size=page_size)
    writer.add_all(LotEntry(f"file:///d/{i:05}", ObjectFacts(size=i)) for i in range(count))
    objects.put("lot/manifest.json", encode_manifest(writer.build()))
    return "lot/manifest.json"


@pytest.mark.parametrize("count", [0, 9, 10, 11, 35])
def test_a_long_manifest_is_a_root_and_its_pages(objects: Objects, count: int) -> None:
    name = write(objects, count, 10)
    root = read_manifest(objects, name)
    assert (root.count, root.bytes) == (count, sum(range(count)))
    assert len(root.children) == (0 if count <= 10 else -(-count // 10))
    assert [(entry.uri, entry.facts.size) for entry in iter_entries(objects, name)] == [
        (f"file:///d/{i:05}", i) for i in range(count)
    ]


def test_a_page_that_is_lost_or_other_is_damage_and_no_shorter_lot(objects: Objects) -> None:
    name = write(objects, 35, 10)
    page = read_manifest(objects, name).children[1].uri
    with objects.get(page) as stored:
        body = stored.read()
    objects.put(page, body.replace(b"00011", b"00099"))
    with pytest.raises(ManifestError, match="other bytes"):
        list(iter_entries(objects, name))
    objects.delete(page)
    with pytest.raises(ManifestError, match="no manifest"):
        list(iter_entries(objects, name))
    objects.put(page, body)
    assert len(list(iter_entries(objects, name))) == 35
    root = read_manifest(objects, name)
    fewer = LotManifest("complete", lotId=LOT, v=2, children=root.children, count=34)
    with pytest.raises(ManifestError, match="35 entries and says 34"):
        list(iter_entries(objects, name, fewer))
