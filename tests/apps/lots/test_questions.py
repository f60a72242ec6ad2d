"""`waybill lots lot` and `waybill lots match`: questions of scripts, without a store."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from tests.cli.conftest import Waybill


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (
            ("2023-02-06T23:52:06.500Z",),
            {"lot": "20230206PT5M286", "unit": "PT5M", "start": "2023-02-06T23:50:00Z", "end": "2023-02-06T23:55:00Z",
             "ordinal": 286, "previous": "20230206PT5M285", "next": "20230206PT5M287"},
        ),
        (("20230101PT15M000",), {"lot": "20230101PT15M000", "previous": "20221231PT15M095", "ordinal": 0}),
        (("20230206PT5M286", "--unit", "p1d"), {"lot": "20230206P1D000", "end": "2023-02-07T00:00:00Z"}),
        (("2023-01-01T00:00:00+01:00", "--unit", "Twelfths"), {"lot": "20221231PT5M276"}),
        (("99991231PT5M287",), {"end": None, "next": None, "previous": "99991231PT5M286"}),
    ],
)  # fmt: skip
def test_the_lot_of_an_instant_or_of_a_name(
    bare: Waybill, tmp_path: Path, arguments: tuple[str, ...], expected: dict[str, object]
) -> None:
    answer = bare("lots", "lot", *arguments, "--json")
    assert answer.code == 0, answer.err
    assert {key: answer.json[key] for key in expected} == expected
    assert not (tmp_path / "data").exists(), "a question makes no store"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("20230230PT5M000", "there is no day 2023-02-30"),
        ("20230227PT5M288", "from 000 to 287"),
        ("20230227PT7M000", "there is no unit PT7M"),
        ("2023-02-06T23:52:06", "has no time zone"),
        ("yesterday", "is no instant"),
    ],
)
def test_what_is_no_lot_is_exit_code_2_and_a_sentence(bare: Waybill, text: str, reason: str) -> None:
    answer = bare("lots", "lot", text, "--json")
    assert answer.code == 2
    assert reason in answer.error["message"]
    assert bare("lots", "lot", "2023-02-06", "--unit", "PT7M").code == 2


def test_paths_of_a_dataset(bare: Waybill, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = "s3://b/ingress/a.csv\ningress/_SUCCESS\n/ingress/deep/b.csv\n\ns3://b/other/c.csv\n"
    arguments = ("lots", "match", "--root", "s3://b/ingress/", "--include", "**/*.csv", "--exclude", "**/_*")
    monkeypatch.setattr("sys.stdin", io.StringIO(paths))
    answer = bare(*arguments, "--json")
    assert answer.code == 0, answer.err
    assert [(line["path"], line["keep"]) for line in answer.lines] == [
        ("s3://b/ingress/a.csv", True),
        ("ingress/_SUCCESS", False),
        ("/ingress/deep/b.csv", True),
        ("s3://b/other/c.csv", False),
    ]
    monkeypatch.setattr("sys.stdin", io.StringIO(paths))
    assert bare(*arguments).out == "s3://b/ingress/a.csv\n/ingress/deep/b.csv\n"
    assert bare("lots", "match", "--root", "/a", "--include", "{{").code == 2


def test_the_vectors_on_the_command_line(bare: Waybill, monkeypatch: pytest.MonkeyPatch) -> None:
    """The globs of the vectors, through the command."""
    vectors = json.loads((Path(__file__).parent / "vectors.json").read_text())["vectors"]
    for vector in vectors:
        if vector["group"] != "path-filter" or vector["id"] == "path-filter-009":  # a defect there: test_vectors.py
            continue
        given = vector["input"]
        monkeypatch.setattr("sys.stdin", io.StringIO(given["path"] + "\n"))
        excludes = [word for each in given.get("excludes", ()) for word in ("--exclude", each)]
        includes = [word for each in given.get("includes", ()) for word in ("--include", each)]
        answer = bare("lots", "match", "--root", given["datasetPath"], *includes, *excludes, "--json")
        assert answer.lines == [{"path": given["path"], "keep": vector["expect"]}], vector["id"]
