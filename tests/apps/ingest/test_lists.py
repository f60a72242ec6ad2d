"""Lists of rows: in the document while they are few, beside it otherwise."""

from pathlib import Path

import msgspec
import pytest

from waybill.apps.ingest import lists
from waybill.objects import open_objects
from waybill.record import encode


class Row(msgspec.Struct):
    name: str


@pytest.mark.parametrize("count", [0, 1, 3, 10_000])
def test_what_was_kept_comes_back(tmp_path: Path, count: int) -> None:
    objects = open_objects(str(tmp_path / "objects"))
    rows = [Row(f"file {n}") for n in range(count)]
    kept = lists.keep(objects, "l/1", iter(rows))
    document = msgspec.json.decode(encode(kept))
    assert (document["count"], "list" in document) == (count, count == 10_000)
    assert list(lists.each(objects, document, Row)) == rows
    assert list(lists.each(objects, kept, Row)) == rows


def test_a_list_that_was_changed_is_noticed(tmp_path: Path) -> None:
    objects = open_objects(str(tmp_path / "objects"))
    document = lists.keep(objects, "l/1", (Row(f"file {n}") for n in range(1000)))
    with objects.get("l/1") as body:
        data = body.read()
    for changed in (data.replace(b'file 7"', b'file 8"'), data[: len(data) // 2], data + b'{"name":"more"}\n'):
        objects.put("l/1", changed)
        with pytest.raises((lists.BadList, msgspec.DecodeError)):
            list(lists.each(objects, document, Row))
