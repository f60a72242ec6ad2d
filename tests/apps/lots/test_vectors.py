"""Known-good values of lots, names, states and filters, and where ours differ on purpose."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from waybill.apps.lots.gates import NEXT_ARC_STATES, decide_completion, decide_start
from waybill.apps.lots.naming import (
    ARC_STATES,
    MANIFEST_STATES,
    ArcStateKey,
    ManifestKey,
    parse_arc_state,
    parse_manifest_state,
)
from waybill.apps.lots.path_filters import PathFilter, matches_path
from waybill.apps.lots.units import UNITS, Lot, find_unit, parse_instant
from waybill.errors import InputError

VECTORS = json.loads((Path(__file__).parent / "vectors.json").read_text())["vectors"]
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

# Each with why ours differs.
DIFFERENT = {
    "lot-parse-013": "30 February is no day; it is refused and not taken for the 28th",
    "lot-parse-025": "31 April is no day",
    "lot-parse-019": "hours are a unit here",
    "gap-005": "lots are counted, not manifests: 9 of 12 are not there (test_gaps)",
    "path-filter-009": "a key without a leading slash is the same path",
}


def vectors_of(*groups: str) -> list[Any]:
    return [
        pytest.param(v["input"], v.get("expect"), id=v["id"])
        for v in VECTORS
        if v["group"] in groups and v["id"] not in DIFFERENT
    ]


def test_every_vector_is_tried_or_named() -> None:
    tried = {
        "lot-format",
        "lot-format-offset",
        "lot-parse",
        "unit-find",
        "state-parse",
        "unit-between",
        "arc-state-uri",
    }
    tried |= {"manifest-uri", "json-shape", "gap", "glob", "path-filter"}
    assert {v["group"] for v in VECTORS} == tried
    assert set(DIFFERENT) <= {v["id"] for v in VECTORS}


@pytest.mark.parametrize(("given", "expected"), vectors_of("lot-format", "lot-format-offset"))
def test_lots_of_instants(given: Any, expected: Any) -> None:
    if "epochMillis" in given:
        instant = EPOCH + timedelta(milliseconds=given["epochMillis"])
    else:
        instant = parse_instant(given.get("instant") or given["offsetDateTime"])
    lot = Lot.at(instant, find_unit(given["unit"]))
    assert str(lot) == expected["lot"]
    if "ordinal" in expected:
        assert lot.ordinal == expected["ordinal"]
    if "truncatedMillis" in expected:
        assert lot.start == EPOCH + timedelta(milliseconds=expected["truncatedMillis"])
    if "truncated" in expected:
        assert lot.start == parse_instant(expected["truncated"])
    if "truncatedLocal" in expected:
        assert lot.start == parse_instant(expected["truncatedLocal"])
    if "previousLot" in expected:
        assert str(lot.previous) == expected["previousLot"]
    assert Lot.parse(str(lot)) == lot


@pytest.mark.parametrize(("given", "expected"), vectors_of("lot-parse"))
def test_lots_of_names(given: Any, expected: Any) -> None:
    if expected is None:
        with pytest.raises(InputError):
            Lot.parse(given["lot"])
    else:
        lot = Lot.parse(given["lot"])
        assert (lot.unit, lot.start) == (find_unit(expected["unit"]), parse_instant(expected["start"]))


@pytest.mark.parametrize(
    "name", ["20230230PT5M000", "20230431PT5M000", "20230227PT5M288", "00000101PT5M000", "20230101PT1H024"]
)
def test_what_no_day_has_is_no_lot(name: str) -> None:
    with pytest.raises(InputError, match="is no lot"):
        Lot.parse(name)


def test_hours_days_and_minutes_are_units_too() -> None:
    assert Lot.parse("20230101PT1H001").start == parse_instant("2023-01-01T01:00:00Z")
    assert str(Lot.at(parse_instant("2023-02-06T23:52:06Z"), UNITS["P1D"])) == "20230206P1D000"
    assert str(Lot.at(parse_instant("2023-02-06T23:52:06Z"), UNITS["PT1M"])) == "20230206PT1M1432"
    with pytest.raises(InputError, match="4 digits"):
        Lot.parse("20230206PT1M143")


@pytest.mark.parametrize(("given", "expected"), vectors_of("unit-find"))
def test_units(given: Any, expected: Any) -> None:
    if expected is None or not expected["formatter"]:
        with pytest.raises(InputError):
            find_unit(given["name"])
    else:
        assert find_unit(given["name"]) == find_unit(expected["unit"])


@pytest.mark.parametrize(("given", "expected"), vectors_of("unit-between"))
def test_counting_lots(given: Any, expected: int) -> None:
    unit = find_unit(given["unit"])
    assert Lot.at(parse_instant(given["from"]), unit).count_to(Lot.at(parse_instant(given["to"]), unit)) == expected


@pytest.mark.parametrize(("given", "expected"), vectors_of("gap"))
def test_distances(given: Any, expected: int) -> None:
    assert Lot.parse(given[0]).count_to(Lot.parse(given[1])) == expected


@pytest.mark.parametrize(("given", "expected"), vectors_of("state-parse"))
def test_states_in_names(given: Any, expected: Any) -> None:
    assert (parse_arc_state(given["text"]), parse_manifest_state(given["text"])) == (
        expected["arc"],
        expected["manifest"],
    )


@pytest.mark.parametrize(("given", "expected"), vectors_of("arc-state-uri"))
def test_names_of_arc_states(given: Any, expected: Any) -> None:
    if isinstance(given, str):
        key = ArcStateKey.parse(given)
        if given.endswith(".arc"):
            assert (key.key, key.state) == (given.partition("//")[2].partition("/")[2], "complete")
        else:
            assert key.lot == expected
    else:
        key = ArcStateKey(given["project"], given["version"], given["arc"], given.get("lot"), given.get("state"))
        assert expected["uri"].endswith(f"-us-west-2/{key.key}")
        assert key.key.endswith("/") == expected["isPath"]
        assert ArcStateKey.parse(expected["uri"]) == key


@pytest.mark.parametrize(("given", "expected"), vectors_of("manifest-uri"))
def test_names_of_manifests(given: Any, expected: Any) -> None:
    if isinstance(given, str):
        assert ManifestKey.parse(given).lot == expected
        return
    if "template" in given:
        filled = ManifestKey.parse(given["template"])._replace(**given["vars"])
        assert expected.endswith(f"/{filled.key}")
        return
    key = ManifestKey(given["dataset"], given["version"], given.get("lot"), given.get("state"), given.get("attempt"))
    if isinstance(expected, str):
        assert expected.endswith(
            "/"
            + key.template.replace("{lot}", "%7Blot%7D")
            .replace("{state}", "%7Bstate%7D")
            .replace("{/", "%7B/")
            .replace("*}", "*%7D")
        )
        return
    assert expected["uri"].endswith(f"-us-west-2/{key.key}")
    assert ManifestKey.parse(expected["uri"]) == key
    if "uriPath" in expected:
        assert expected["uriPath"].endswith(f"/{key.folder}")
        assert expected["uriPrefix"].endswith("/" + key.folder.rstrip("/"))


def test_bare_parts_are_read_too() -> None:
    assert ManifestKey.parse("orders/20230101/20230227PT5M287/partial/1678314769/manifest.json") == ManifestKey(
        "orders", "20230101", "20230227PT5M287", "partial", "1678314769"
    )
    assert ArcStateKey.parse("p/1/copy/20230227PT5M287/running.arc") == ArcStateKey(
        "p", "1", "copy", "20230227PT5M287", "running"
    )
    old = ManifestKey("orders", "1", "20230227PT5M287", "complete", generation=2)
    assert ManifestKey.parse(old.key) == old


@pytest.mark.parametrize(("given", "expected"), vectors_of("glob"))
def test_patterns(given: Any, expected: bool) -> None:
    assert matches_path(given["pattern"], given["path"]) is expected


@pytest.mark.parametrize(("given", "expected"), vectors_of("path-filter"))
def test_filters(given: Any, expected: bool) -> None:
    assert PathFilter(given["datasetPath"], excludes=given["excludes"]).keeps(given["path"]) is expected


def test_a_leading_slash_makes_no_difference() -> None:
    chosen = PathFilter("s3://bucket/ingress/", excludes=["**/_*"])
    assert [
        chosen.keeps(path) for path in ("ingress/_SUCCESS", "/ingress/_SUCCESS", "s3://bucket/ingress/_SUCCESS")
    ] == [False] * 3
    assert chosen.keeps("s3://bucket/ingress/data_1")


def test_a_pattern_of_many_stars_takes_no_time() -> None:
    assert not matches_path("/" + "a*" * 200 + "b/" + "**/" * 100 + "x", "/" + "a" * 2000 + "/" + "y/" * 300)


def test_every_pair_of_states_has_an_answer() -> None:
    table = {
        (arc, manifest): decide_start(arc, manifest) for arc in (None, *ARC_STATES) for manifest in MANIFEST_STATES
    }
    assert len(table) == 20
    assert {table[arc, manifest] for arc in (None, *ARC_STATES) for manifest in ("partial", "removed")} == {"refuse"}
    assert [table[arc, "complete"] for arc in (None, "running", "complete", "partial", "missing")] == [
        "run",
        "queue",
        "done",
        "run",
        "run",
    ]
    assert [table[arc, "empty"] for arc in (None, "running", "complete", "partial", "missing")] == [
        "propagate",
        "queue",
        "done",
        "propagate",
        "propagate",
    ]
    assert decide_start("missing", "empty", "run") == "run"


def test_every_end_of_a_run_has_a_state() -> None:
    subsets = [[s for i, s in enumerate(MANIFEST_STATES) if bits >> i & 1] for bits in range(16)]
    for failed in (False, True):
        for sinks in subsets:
            state = decide_completion(sinks, failed=failed)
            assert state in (NEXT_ARC_STATES["running"] | {"missing"})
            assert (state == "complete") == (not failed and bool(sinks) and set(sinks) <= {"complete", "empty"})
            assert (state == "missing") == (not sinks)
