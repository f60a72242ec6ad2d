"""A step's mistake fails its record with a sentence; it never ends the worker, nor holds the record for ever."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.worker.test_core import Driver, parcel, started
from waybill.engine import Engine
from waybill.machine import RESUME, Machine, action, end, rest, work
from waybill.record import Record
from waybill.rules import Machines
from waybill.step import Context, Done, New
from waybill.stores.model import ModelStore, World
from waybill.worker import messages as m
from waybill.worker import step_once

OBJECTS: Any = None


def leave(chore: Record, ctx: Context) -> Any:
    raise SystemExit(3)


def say_half(chore: Record, ctx: Context) -> Any:
    raise ValueError("half \ud800 and \0")


MISTAKES: list[tuple[Callable[[Record, Context], Any], str]] = [
    (lambda chore, ctx: ctx.save({"note": object()}), "object"),
    (lambda chore, ctx: ctx.spawn([New("chore", {"note": object()})]), "object"),
    (lambda chore, ctx: Done(spawn=(New("chore", {"note": object()}),)), "object"),
    (leave, "left the program with 3"),
    (say_half, "half ? and ?"),
]


@pytest.mark.parametrize(("mistake", "sentence"), MISTAKES, ids=["save", "spawn", "done", "exit", "characters"])
def test_a_mistake_fails_the_record(mistake: Callable[[Record, Context], Any], sentence: str, tmp_path: Path) -> None:
    states = (work("Trying", "Finished", "", tries=1), rest("Failed", "", settled=True), end("Finished", ""))
    chore = Machine(name="chore", plural="chores", prefix="chr", doc="", states=states, actions=(action("resume", "Failed", RESUME, ""),))
    chore.steps["Trying"] = mistake
    machines, world = Machines.of((chore,)), World(lambda: 1000.0)
    engine = Engine(ModelStore(world), machines)
    ref = engine.submit(New("chore")).ref
    arrow = step_once(lambda: ModelStore(world), machines, host="h", work_root=tmp_path, objects=OBJECTS)
    assert arrow is not None
    assert (arrow.ref, arrow.after, arrow.event) == (ref, "Failed", "fail")
    assert sentence in arrow.message
    assert engine.store.get(*ref).session is None


@pytest.mark.parametrize("saving", [{"docs": {"label": object()}}, {"docs": {}, "spawn": (New("parcel", {"label": object()}),)}])
def test_a_checkpoint_that_is_no_json_is_answered_with_the_error(saving: dict[str, Any]) -> None:
    driver = Driver().opened()
    driver.take(parcel())
    (task,) = started(driver)
    driver.on(m.Saving(task, **saving))
    reply = driver.next(m.Reply)
    assert isinstance(reply.result, TypeError)
