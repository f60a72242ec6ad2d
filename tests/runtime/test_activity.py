"""Activity is counted where records are written, by every process into the same record, and a restart loses none."""

from __future__ import annotations

from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest

from waybill import config
from waybill.activity import ACTIVITY, ActivityKey, add_activity, read_activity
from waybill.demo import ParcelLabel
from waybill.environment import Environment
from waybill.step import New


@pytest.fixture(params=["sqlite", "postgres", "zookeeper"])
def environment(request: pytest.FixtureRequest, tmp_path: Path) -> Environment:
    overrides = {"data": tmp_path / "data"}
    if request.param != "sqlite":
        overrides["store"] = request.getfixturevalue(f"{request.param}_url")
    return Environment.from_config(config.load(env={}, overrides=overrides), applications=[], demo=True)


def submit_parcels(environment: Environment, n: int) -> None:
    with closing(environment.open_store()) as store:
        engine = environment.make_engine(store)
        for number in range(n):
            engine.submit(New("parcel", (ParcelLabel(number, "mule", "1 Quay Street"),)))


def test_what_is_written_is_counted_once_whoever_writes_and_kept_over_a_restart(environment: Environment) -> None:
    environment.open_store().close()  # made
    for _ in range(2):  # two lives of a process
        with environment.record_activity():
            submit_parcels(environment, 3)
    submit_parcels(environment, 1)  # a single command counts nothing
    with closing(environment.open_store()) as store:
        series = read_activity(store)["parcel"]
        assert (series.arrived, series.ended, series.failed) == (6, 0, 0)
        assert store.count_by_state(ACTIVITY.name) in ({"Kept": 1}, {"Kept": 2})  # the hour may have turned


def test_hours_minutes_and_scopes_are_told_apart(environment: Environment) -> None:
    with closing(environment.open_store()) as store:
        minute = int(store.now() // 60)
        counts = Counter(
            {
                ActivityKey(minute, "parcel", "north", 1): 2,
                ActivityKey(minute, "parcel", "south", 1): 5,
                ActivityKey(minute - 3, "parcel", "north", 2): 1,
                ActivityKey(minute - 23 * 60, "parcel", "north", 1): 7,
                ActivityKey(minute - 30 * 60, "parcel", "north", 1): 100,  # longer ago than is asked for
            }
        )
        for _ in range(2):
            add_activity(store, environment.machines, counts)
        every, north = read_activity(store)["parcel"], read_activity(store, scopes=["north"])["parcel"]
    assert (every.ended, every.failed, north.ended) == (28, 2, 18)
    assert (north.ended_by_hour[0], north.ended_by_hour[-1]) == (14, 4)
    assert (north.ended_by_minute[-1], len(north.ended_by_minute)) == (4, 60)
