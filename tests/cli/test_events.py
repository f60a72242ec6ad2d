"""`waybill events`: what has happened, and what happens."""

import json
import signal
from contextlib import closing
from pathlib import Path

from tests.cli.conftest import Start, Waybill
from tests.subscriptions.bakery import BAKED, BAKERY, SOLD
from waybill import Environment, Event, config


def tell(data: Path, *events: Event) -> None:
    settings = config.load(env={}, overrides={"data": data, "events.log": "*"})
    environment = Environment.from_config(settings, [BAKERY])
    with closing(environment.open_store()) as store:
        environment.make_engine(store).submit_all([], events=events)


def test_events_are_printed_and_followed(running: Start, tmp_path: Path) -> None:
    data = tmp_path / "data"
    tell(data, Event(BAKED, "rye", {"grams": 500}))
    env = {"WAYBILL_DATA": str(data)}
    follower = running("events", "--interval", "0.2", env=env)
    assert follower.line().rstrip().endswith("bakery.loaf.baked  rye  grams=500")
    tell(data, Event(SOLD, "rye"))
    assert follower.line().rstrip().endswith("bakery.loaf.sold  rye")
    ended = follower.end(signal.SIGINT)
    assert (ended.code, ended.err) == (0, "")
    lines = running("events", "--no-follow", "--last", "1", "--json", env=env).end()
    (line,) = [json.loads(each) for each in lines.out.splitlines()]
    assert (line["type"], line["subject"]) == (SOLD.name, "rye")


def test_only_some_types_after_a_place(bare: Waybill, data: Path) -> None:
    tell(data, *(Event(BAKED, f"loaf {n}") for n in range(3)), Event(SOLD, "loaf 0"))
    lines = bare("events", "--no-follow", "--type", "*.baked", "--json").lines
    assert [line["subject"] for line in lines] == ["loaf 0", "loaf 1", "loaf 2"]
    later = bare("events", "--no-follow", "--after", str(lines[1]["seq"]), "--json").lines
    assert [line["subject"] for line in later] == ["loaf 2", "loaf 0"]
