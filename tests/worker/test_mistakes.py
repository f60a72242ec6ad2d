"""A step's mistake fails its record with a sentence; it never ends the worker, nor holds the record for ever."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.worker.test_core import Driver, parcel, started
from tests.worker.yard import Yard
from waybill import rules
from waybill.engine import Engine
from waybill.machine import RESUME, Keys, Machine, action, end, rest, work
from waybill.record import MAX_MESSAGE, Group, Record
from waybill.rules import Machines
from waybill.step import Context, Done, Fail, New, Stopped, Wait
from waybill.stores.model import ModelStore, World
from waybill.worker import messages as m
from waybill.worker import step_once

OBJECTS: Any = None


def leave(chore: Record, ctx: Context) -> Any:
    raise SystemExit(3)


def say_half(chore: Record, ctx: Context) -> Any:
    raise ValueError("half \ud800 and \0")


class Speechless(Exception):
    def __str__(self) -> str:
        raise ZeroDivisionError


def say_nothing(chore: Record, ctx: Context) -> Any:
    raise Speechless


MISTAKES: list[tuple[Callable[[Record, Context], Any], str]] = [
    (lambda chore, ctx: ctx.save({"note": object()}), "object"),
    (lambda chore, ctx: ctx.spawn([New("chore", {"note": object()})]), "object"),
    (lambda chore, ctx: Done(spawn=(New("chore", {"note": object()}),)), "object"),
    (leave, "left the program with 3"),
    (say_half, "half ? and ?"),
    (say_nothing, "Speechless, which raises ZeroDivisionError"),
    (lambda chore, ctx: ctx.save([1]), "items"),  # type: ignore[arg-type]
    (lambda chore, ctx: ctx.save({5: {}}), "5 is no text"),  # type: ignore[dict-item]
    (lambda chore, ctx: ctx.save(keys=[5]), "int"),  # type: ignore[list-item]
    (lambda chore, ctx: ctx.spawn(["chore"]), "kind"),  # type: ignore[list-item]
    (lambda chore, ctx: ctx.spawn([New("chore", request="\ud800")]), "half a character"),
    (lambda chore, ctx: ctx.spawn([New("chore", owner=5)]), "5 is no text"),  # type: ignore[arg-type]
    (lambda chore, ctx: ctx.progress(1, object()), "object"),  # type: ignore[arg-type]
    (lambda chore, ctx: ctx.call(lambda store: 1 // 0), "ZeroDivisionError"),
    (lambda chore, ctx: Done([1]), "items"),  # type: ignore[arg-type]
    (lambda chore, ctx: Done({"a\0b": {}}), "null character"),
    (lambda chore, ctx: Done({"": {}}), "a document needs a name"),
    (lambda chore, ctx: Done(spawn="chore"), "kind"),  # type: ignore[arg-type]
    (lambda chore, ctx: Done(priority=3.5), "float"),  # type: ignore[arg-type]
    (lambda chore, ctx: Wait(float("nan")), "wait for nan seconds"),
    (lambda chore, ctx: Wait(float("inf")), "wait for inf seconds"),
    (lambda chore, ctx: Wait(-5), "wait for -5 seconds; say a number from 0 to 1,000,000,000"),
    (lambda chore, ctx: Wait(1e18), "wait for 1e+18 seconds"),
]
NAMES = [
    *(
        "save",
        "spawn",
        "done",
        "exit",
        "characters",
        "speechless",
        "save a list",
        "name a number",
        "key a number",
        "spawn a word",
    ),
    *(
        "half a request",
        "owner a number",
        "progress",
        "call",
        "done a list",
        "null in a name",
        "no name",
        "done a word",
        "half a priority",
    ),
    *("wait nan", "wait for ever", "wait for less than nothing", "wait for too long"),
]


def test_what_a_step_says_is_cut_in_the_log_as_in_its_record(yard: Yard, caplog: pytest.LogCaptureFixture) -> None:
    def pack(record: Record, ctx: Context) -> Any:
        raise Fail("heavy " * 400_000)

    caplog.set_level(logging.INFO)
    yard.steps(Packing=pack)
    parcel = yard.engine.submit(New("parcel"))
    yard.worker()
    message = yard.until_state(parcel, "Failed").message
    assert f"Fail: {message}" in caplog.messages
    assert len(message) == MAX_MESSAGE


@pytest.mark.parametrize(("mistake", "sentence"), MISTAKES, ids=NAMES)
def test_a_mistake_fails_the_record(mistake: Callable[[Record, Context], Any], sentence: str, tmp_path: Path) -> None:
    states = (work("Trying", "Finished", "", tries=1), rest("Failed", "", settled=True), end("Finished", ""))
    chore = Machine(
        name="chore",
        plural="chores",
        prefix="chr",
        doc="",
        states=states,
        actions=(action("resume", "Failed", RESUME, ""),),
    )
    chore.steps["Trying"] = mistake
    machines, world = Machines.of((chore,)), World(lambda: 1000.0)
    engine = Engine(ModelStore(world), machines)
    ref = engine.submit(New("chore")).ref
    arrow = step_once(lambda: ModelStore(world), machines, host="h", work_root=tmp_path, objects=OBJECTS)
    assert arrow is not None
    assert (arrow.ref, arrow.after, arrow.event) == (ref, "Failed", "fail")
    assert sentence in arrow.message
    assert engine.store.get(*ref).session is None


@pytest.mark.parametrize(
    "saving", [{"docs": {"label": object()}}, {"docs": {}, "spawn": (New("parcel", {"label": object()}),)}]
)
def test_a_checkpoint_that_is_no_json_is_answered_with_the_error(saving: dict[str, Any]) -> None:
    driver = Driver().opened()
    driver.take(parcel())
    (task,) = started(driver)
    driver.on(m.Saving(task, **saving))
    reply = driver.next(m.Reply)
    assert isinstance(reply.result, TypeError)


class Odd(BaseException):
    pass


ODD = [KeyboardInterrupt(), GeneratorExit(), Odd(), Stopped("of itself")]


@pytest.mark.parametrize("error", ODD, ids=lambda error: type(error).__name__)
def test_whatever_a_step_raises_ends_neither_its_thread_nor_the_claim(error: BaseException, yard: Yard) -> None:
    runs: list[Record] = []

    def pack(record: Record, ctx: Context) -> Any:
        runs.append(record)
        raise error

    yard.steps(Packing=pack)
    bad = yard.engine.submit(New("parcel"))
    yard.worker(threads=1)
    failed = yard.until_state(bad, "Failed")
    assert (failed.session, len(runs)) == (None, 3)
    yard.steps()
    yard.until_state(yard.engine.submit(New("parcel")), "Sent")


def test_what_a_call_raises_goes_to_the_step_that_called(yard: Yard) -> None:
    def interrupt(store: Any) -> None:
        raise KeyboardInterrupt

    yard.steps(Packing=lambda record, ctx: ctx.call(interrupt) or Done())
    bad = yard.engine.submit(New("parcel"))
    yard.worker(threads=1)
    assert "KeyboardInterrupt" in yard.until_state(bad, "Failed").message


def test_a_table_that_cannot_say_what_it_needs_fails_the_record(tmp_path: Path) -> None:
    def of(record: Record) -> list[str]:
        raise ZeroDivisionError("no van")

    states = (
        work("Trying", "Driving", ""),
        work("Driving", "Finished", "", needs=("van",)),
        rest("Failed", "", needs=("van",)),
    )
    chore = Machine(
        name="chore",
        plural="chores",
        prefix="chr",
        doc="",
        states=(*states, end("Finished", "")),
        keys=(Keys("van", "", of),),
        actions=(action("resume", "Failed", RESUME, ""),),
    )
    chore.steps["Trying"] = chore.steps["Driving"] = lambda record, ctx: Done()
    machines, world = Machines.of((chore,)), World(lambda: 1000.0)
    engine = Engine(ModelStore(world), machines)
    ref = engine.submit(New("chore")).ref
    arrow = step_once(lambda: ModelStore(world), machines, host="h", work_root=tmp_path, objects=OBJECTS)
    assert arrow is not None
    assert (arrow.ref, arrow.after) == (ref, "Failed")
    assert arrow.message.startswith("no van (and chore cannot say what it needs in Failed")


def test_a_child_whose_request_made_it_before_is_that_child_and_the_rest_is_made(yard: Yard) -> None:
    known = yard.engine.submit(New("parcel", request="b"))
    made: list[Record] = []

    def fill(record: Record, ctx: Context) -> Any:
        made.extend(ctx.spawn([New("parcel", request=name) for name in "abc"], {"cursor": {"n": 3}}))
        assert ctx.record.ref == record.ref
        return Done()

    yard.steps(Filling=fill)
    crate = yard.engine.submit(New("crate"))
    yard.worker()
    assert yard.until_state(crate, "Shipped").docs["cursor"] == {"n": 3}
    assert [child.request for child in made] == ["a", "b", "c"]
    assert made[1].ref == known.ref
    assert yard.store.tally("parcel") == {"Sent": 3}


def test_a_step_that_ends_with_a_child_made_before_is_not_left_held(yard: Yard) -> None:
    other = yard.engine.submit(New("parcel", request="b"))
    yard.steps(Filling=lambda record, ctx: Done(spawn=tuple(New("parcel", request=name) for name in "abc")))
    crate = yard.engine.submit(New("crate"))
    yard.worker()
    assert yard.until_state(crate, "Shipped").session is None
    yard.until_state(other, "Sent")  # nobody waits for it: it is not the crate's
    assert yard.store.tally("parcel") == {"Sent": 3}
    assert yard.store.tally("parcel", parent=crate.ref) == {"Sent": 2}


@pytest.mark.parametrize("back", ["again", "remake"])
def test_resume_comes_back_to_the_state_that_failed_also_when_the_record_was_led_back(
    back: str, tmp_path: Path
) -> None:
    """A download that is done again, and fails, must not be resumed after it: the step that follows would find no
    files.
    """
    states = (
        work("Fetching", "Opening", "", leaves_files=True),
        work("Opening", "Finished", "", remakes="Fetching"),
        rest("Failed", ""),
        end("Finished", ""),
    )
    actions = (action("resume", "Failed", RESUME, ""), action("again", "Failed", "Fetching", ""))
    chore = Machine(name="chore", plural="chores", prefix="chr", doc="", states=states, actions=actions)

    def fail(record: Record, ctx: Context) -> Any:
        raise Fail("no")

    chore.steps.update(Fetching=lambda record, ctx: Done(), Opening=fail)
    machines, world = Machines.of((chore,)), World(lambda: 1000.0)
    engine = Engine(ModelStore(world), machines)
    ref = engine.submit(New("chore")).ref

    def step() -> Record:
        step_once(lambda: ModelStore(world), machines, host="h", work_root=tmp_path, objects=OBJECTS)
        return engine.store.get(*ref)

    step()
    if back == "again":
        step()
        engine.act(ref, "again")
    else:
        engine.store.commit([Group((rules.remake(chore, engine.store.get(*ref)),))])
    chore.steps["Fetching"] = fail
    assert step().state == "Failed"
    assert engine.act(ref, "resume").record.state == "Fetching"
