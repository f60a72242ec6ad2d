"""Lists of rows: in the record's document while they are few, in an object otherwise."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from waybill.manifests import record_lists
from waybill.manifests.lines import ManifestError
from waybill.objects import Objects, open_objects
from waybill.record import encode_document


class Row(msgspec.Struct):
    name: str


@pytest.fixture
def objects(tmp_path: Path) -> Iterator[Objects]:
    with open_objects(tmp_path / "objects") as objects:
        yield objects


@pytest.mark.parametrize("count", [0, 1, 3, 10_000])
def test_a_list_is_read_as_it_was_written(objects: Objects, count: int) -> None:
    rows = [Row(f"file {n}") for n in range(count)]
    written = record_lists.write_list(objects, "l/1", iter(rows))
    document = msgspec.json.decode(encode_document(written), type=record_lists.RecordList)
    assert (document.count, bool(document.list)) == (count, count == 10_000)
    assert list(record_lists.read_list(objects, document, Row)) == rows
    assert list(record_lists.read_list(objects, written, Row)) == rows


@pytest.mark.parametrize("rows", [["a", "b"], ["é" * 100] * 100, [{"n": 1}] * 1000], ids=["few", "texts", "mappings"])
def test_rows_of_other_types(objects: Objects, rows: list[Any]) -> None:
    document = record_lists.write_list(objects, "l/1", rows)
    assert list(record_lists.read_list(objects, document, type(rows[0]))) == rows


def test_a_short_list_makes_no_object(objects: Objects) -> None:
    record_lists.write_list(objects, "l/1", ["a"])
    assert list(objects.list()) == []


def test_a_list_that_was_changed_is_noticed(objects: Objects) -> None:
    document = record_lists.write_list(objects, "l/1", (Row(f"file {n}") for n in range(1000)))
    with objects.get("l/1") as body:
        data = body.read()
    for changed in (data.replace(b'file 7"', b'file 8"'), data[: len(data) // 2], data + b'{"name":"more"}\n'):
        objects.put("l/1", changed)
        with pytest.raises((ManifestError, msgspec.DecodeError)):
            list(record_lists.read_list(objects, document, Row))


def test_a_row_without_end_is_not_read_into_memory(objects: Objects) -> None:
    document = record_lists.write_list(objects, "l/1", (Row(f"file {n}") for n in range(1000)))
    objects.put("l/1", (b"x" * 1_000_000 for _ in range(4)))
    with pytest.raises(ManifestError):
        list(record_lists.read_list(objects, document, Row))
