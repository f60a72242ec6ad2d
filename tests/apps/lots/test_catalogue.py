"""The durable catalogue of lots and the reports that read it, on both databases."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import pytest

from waybill.apps.lots.catalogue import Arrival, LotCatalogue, LotTables
from waybill.apps.lots.catalogue.calendar import CalendarDay, change_class, find_letter, iter_days, worst_class
from waybill.apps.lots.catalogue.lot_tables import subject_of_arc, subject_of_dataset
from waybill.apps.lots.gaps import LotRun, iter_runs
from waybill.apps.lots.naming import ManifestState
from waybill.apps.lots.units import UNITS, Lot, LotUnit
from waybill.config import sqlite_url
from waybill.index import open_index

AT = "2023-01-01T00:00:00Z"


@pytest.fixture(params=["sqlite", "postgres"])
def lots(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LotTables]:
    url = (
        sqlite_url(tmp_path / "index.db") if request.param == "sqlite" else request.getfixturevalue("fast_postgres_url")
    )
    with closing(open_index(url)) as index:
        yield LotTables(index.open_catalogue(LotCatalogue()))


def publish(lots: LotTables, dataset: str, lot: str, producer: str, state: ManifestState = "complete") -> int:
    return lots.publish_lot(
        dataset, Lot.parse(lot), state=state, manifest=f"{dataset}/{lot}/{producer}", producer=producer, at=AT
    )


def test_a_lot_is_published_once_by_each_producer(lots: LotTables) -> None:
    assert [publish(lots, "orders/1", "20230101PT5M003", run) for run in ("a", "a", "b", "a", "b")] == [1, 1, 2, 1, 2]
    newest = lots.find_lot("orders/1", Lot.parse("20230101PT5M003"))
    assert newest is not None
    assert (newest.generation, newest.producer) == (2, "b")
    publish(lots, "orders/1", "20230101PT5M001", "a", "empty")
    found = lots.iter_newest_lots("orders/1", Lot.parse("20230101PT5M000"), Lot.parse("20230101PT5M004"))
    assert [(str(lot), row.generation, row.state) for lot, row in found] == [
        ("20230101PT5M001", 1, "empty"),
        ("20230101PT5M003", 2, "complete"),
    ]
    assert letters(lots, subject_of_dataset("orders/1"), "20230101PT5M000", "20230101PT5M004") == ".e.c"


def test_runs_of_newer_sources_are_new_and_others_are_the_same(lots: LotTables) -> None:
    lot = Lot.parse("20230101PT5M003")
    assert [lots.assign_run("p/a", lot, count, at=AT) for count in (1, 2, 1)] == [1, 1, 1], (
        "it waits: it takes in what comes"
    )
    assert not lots.begin_run("p/a", lot, 1, 1, {"main": 1}, at=AT), (
        "a source was published since its generation was read"
    )
    assert lots.begin_run("p/a", lot, 1, 2, {"main": 1}, at=AT)
    assert [lots.assign_run("p/a", lot, count, at=AT) for count in (2, 3, 2, 3)] == [1, 2, 2, 2]
    lots.change_run("p/a", lot, 1, state="complete", at=AT)
    assert letters(lots, subject_of_arc("p/a"), str(lot), str(lot.next)) == "w"  # of the newest generation, which waits
    lots.change_run("p/a", lot, 2, state="complete", at=AT, sources={"main": 2})
    assert letters(lots, subject_of_arc("p/a"), str(lot), str(lot.next)) == "c"
    assert lots.assign_run("p/a", lot, 4, at=AT) == 3
    assert letters(lots, subject_of_arc("p/a"), str(lot), str(lot.next)) == "s"
    first = lots.find_run("p/a", lot, 1)
    assert first is not None
    assert first.sources == {"main": 1}
    lots.change_run("p/a", lot, 3, state="complete", at=AT)
    assert lots.assign_run("p/a", lot, 4, at=AT, is_replay=True) == 4, "a replay is a run of its own"
    assert lots.assign_run("p/a", lot, 4, at=AT, is_replay=True) == 4, "which waits, and is there already"
    lots.change_run("p/a", lot, 4, state="complete", at=AT)
    assert lots.assign_run("p/a", lot, 5, at=AT) == 5, "what is published after a replay is newer than it"
    with pytest.raises(LookupError):
        lots.change_run("p/a", lot.next, 1, state="complete", at=AT)


def test_an_arrival_is_in_one_manifest_until_it_comes_with_other_bytes(lots: LotTables) -> None:
    lot, unit = Lot.parse("20230101PT5M003"), UNITS["PT5M"]
    assert lots.enter_arrivals("orders/1", lot, [Arrival("a", 1), Arrival("b", 2)], at=AT) == 2
    assert lots.enter_arrivals("orders/1", lot, [Arrival("a", 1)], at="later") == 0
    read = list(lots.iter_arrivals("orders/1", lot))
    lots.enter_arrivals("orders/1", lot, [Arrival("b", 3), Arrival("c", 4)], at=AT)  # while the manifest is written
    assert lots.settle_arrivals("orders/1", lot, read, 1) == 1
    assert [(each.uri, each.generation) for each in lots.iter_arrivals("orders/1", lot)] == [
        ("a", 1),
        ("b", 0),
        ("c", 0),
    ]
    assert lots.list_lots_with_new_arrivals("orders/1", unit) == [lot]
    lots.settle_arrivals("orders/1", lot, list(lots.iter_arrivals("orders/1", lot)), 2)
    assert lots.list_lots_with_new_arrivals("orders/1", unit) == []


def letters(lots: LotTables, subject: str, first: str, after: str) -> str:
    return "".join(day.letters for day in iter_days(lots.tables, subject, Lot.parse(first), Lot.parse(after)))


def test_the_calendar_has_days_without_a_row(lots: LotTables) -> None:
    for name in ("20221231PT1H023", "20230102PT1H000"):
        change_class(lots.tables, "dataset d/1", Lot.parse(name), "complete")
    assert letters(lots, "dataset d/1", "20221231PT1H022", "20230102PT1H002") == ".c" + "." * 24 + "c."
    assert letters(lots, "dataset d/1", "20230102PT1H000", "20230102PT1H000") == ""
    assert find_letter(lots.tables, "dataset d/1", Lot.parse("20230102PT1H000")) == "c"
    assert (worst_class("cecp"), worst_class("cece"), worst_class("c.c")) == ("partial", "empty", "never")


@dataclass
class Subject:
    """A dataset or an arc whose letters are given."""

    title: str
    unit: LotUnit
    days: dict[int, str]  # the first minute of a day, and its letters
    upstream: list[Subject] = field(default_factory=list)

    def iter_days(self, first: Lot, after: Lot) -> Iterator[CalendarDay]:
        for begin, row in sorted(self.days.items()):
            start, end = max(begin, first.minute), min(begin + len(row) * self.unit.minutes, after.minute)
            if start < end:
                yield CalendarDay(start, row[(start - begin) // self.unit.minutes : (end - begin) // self.unit.minutes])


def runs_of(subject: Subject, first: str, after: str) -> list[tuple[str, str, int, str]]:
    return [
        (str(run.first), run.name, run.count, run.cause)
        for run in iter_runs(subject, Lot.parse(first), Lot.parse(after))
    ]


def test_runs_go_on_over_midnight_and_name_what_is_to_blame() -> None:
    noon = Lot.parse("20230101PT1H000").minute
    arrivals = Subject("orders/1", UNITS["PT1H"], {noon: "c" * 22 + ".c", noon + 1440: "ecc." + "c" * 20})
    arc = Subject("arc p/copy", UNITS["PT1H"], {noon: "c" * 22 + "..", noon + 1440: "ccpw" + "c" * 20}, [arrivals])
    assert runs_of(arc, "20230101PT1H000", "20230103PT1H000") == [
        ("20230101PT1H000", "complete", 22, ""),
        ("20230101PT1H022", "never", 1, "orders/1 is never"),
        ("20230101PT1H023", "never", 1, ""),  # its source is there: the arc itself is to blame
        ("20230102PT1H000", "complete", 2, ""),
        ("20230102PT1H002", "partial", 1, ""),
        ("20230102PT1H003", "waiting", 1, "orders/1 is never"),
        ("20230102PT1H004", "complete", 20, ""),
    ]
    sink = Subject("copies/1", UNITS["PT1H"], arc.days, [arc])
    assert runs_of(sink, "20230101PT1H022", "20230102PT1H000") == [
        ("20230101PT1H022", "never", 1, "orders/1 is never"),
        ("20230101PT1H023", "never", 1, "arc p/copy is never"),
    ]


def test_a_roll_up_is_as_good_as_the_worst_of_its_parts() -> None:
    start = Lot.parse("20230101PT5M000").minute
    finer = Subject("orders/1", UNITS["PT5M"], {start: "c" * 13 + "." + "c" * 274})
    daily = Subject("arc p/daily", UNITS["PT1H"], {start: "ww" + "c" * 22}, [finer])
    assert runs_of(daily, "20230101PT1H000", "20230102PT1H000")[:2] == [
        ("20230101PT1H000", "waiting", 1, ""),
        ("20230101PT1H001", "waiting", 1, "orders/1 is never"),
    ]


def test_twelve_lots_of_which_three_are_there_lack_nine(lots: LotTables) -> None:
    """Attempts of one lot are one lot: what upstream counts as seven gaps are nine."""
    first = Lot.parse("20230101PT5M000")
    for name, producer in (("001", "a"), ("002", "a"), ("002", "b")):
        publish(lots, "d/1", f"20230101PT5M{name}", producer)
    publish(lots, "d/1", "20230101PT5M005", "a", "empty")
    subject = Subject(
        "d/1",
        UNITS["PT5M"],
        {day.first: day.letters for day in iter_days(lots.tables, "dataset d/1", first, first.shift(12))},
    )
    runs: list[LotRun] = list(iter_runs(subject, first, first.shift(12)))
    counts = Counter(
        {name: sum(run.count for run in runs if run.name == name) for name in ("never", "complete", "empty")}
    )
    assert counts == {"never": 9, "complete": 2, "empty": 1}
    assert [str(lot) for run in runs if run.is_gap for lot in run.iter_lots()] == [
        f"20230101PT5M{i:03}" for i in range(12) if i not in (1, 2, 5)
    ]


def test_runs_cover_ten_years(lots: LotTables) -> None:
    first, after = Lot.parse("20150101PT5M000"), Lot.parse("20250101PT5M000")
    row = "".join("." if i % 100 == 7 else "c" for i in range(288))
    days = dict.fromkeys(range(first.minute, after.minute, 1440), row)
    lots.tables.execute_all(
        "enter_day",
        ({"subject": "dataset d/1", "day": minute // 1440, "classes": letters} for minute, letters in days.items()),
    )

    @dataclass
    class Stored(Subject):
        def iter_days(self, first: Lot, after: Lot) -> Iterator[CalendarDay]:
            return iter_days(lots.tables, "dataset d/1", first, after)

    began = time.perf_counter()
    runs = list(iter_runs(Stored("d/1", UNITS["PT5M"], {}), first, after))
    print(f"{time.perf_counter() - began:.3f} s")
    assert sum(run.count for run in runs) == 1_052_064
    assert sum(run.count for run in runs if run.is_gap) == 3653 * 3
    assert all(one.after == other.first for one, other in pairwise(runs))
