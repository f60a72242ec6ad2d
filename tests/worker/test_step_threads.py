"""An error of a step fails its record with a sentence; it never ends the worker, nor keeps the record claimed for ever."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.worker.test_worker_core import Driver, parcel, started
from tests.worker.worker_fixture import WorkerFixture
from waybill import rules
from waybill.engine import Engine
from waybill.machine import RESUME, LockFamily, Machine, action, end, rest, work
from waybill.record import MAX_MESSAGE, CommitGroup, Record
from waybill.rules import Machines
from waybill.step import Done, Fail, New, StepContext, StepStopped, Wait
from waybill.stores.model import ModelDatabase, ModelStore
from waybill.worker import messages as m
from waybill.worker import run_one_step

OBJECTS: Any = None


def exit_program(chore: Record, ctx: StepContext) -> Any:
    raise SystemExit(3)


def raise_half_character(chore: Record, ctx: StepContext) -> Any:
    raise ValueError("half \ud800 and \0")


class Speechless(Exception):
    def __str__(self) -> str:
        raise ZeroDivisionError


def raise_speechless(chore: Record, ctx: StepContext) -> Any:
    raise Speechless


STEP_ERRORS: list[tuple[Callable[[Record, StepContext], Any], str]] = [
    (lambda chore, ctx: ctx.save({"note": object()}), "object"),
    (lambda chore, ctx: ctx.spawn([New("chore", {"note": object()})]), "object"),
    (lambda chore, ctx: Done(spawn=(New("chore", {"note": object()}),)), "object"),
    (exit_program, "left the program with 3"),
    (raise_half_character, "half ? and ?"),
    (raise_speechless, "Speechless, whose text cannot be read: ZeroDivisionError"),
    (lambda chore, ctx: ctx.save([1]), "no document of the type int"),  # type: ignore[list-item]
    (lambda chore, ctx: ctx.save({5: {}}), "5 is no text"),  # type: ignore[dict-item]
    (lambda chore, ctx: ctx.save(locks=[5]), "int"),  # type: ignore[list-item]
    (lambda chore, ctx: ctx.spawn(["chore"]), "kind"),  # type: ignore[list-item]
    (lambda chore, ctx: ctx.spawn([New("chore", idempotency_key="\ud800")]), "half a character"),
    (lambda chore, ctx: ctx.spawn([New("chore", owner=5)]), "5 is no text"),  # type: ignore[arg-type]
    (lambda chore, ctx: ctx.report_progress(1, object()), "object"),  # type: ignore[arg-type]
    (lambda chore, ctx: ctx.run_on_store(lambda store: 1 // 0), "ZeroDivisionError"),
    (lambda chore, ctx: Done([1]), "no document of the type int"),  # type: ignore[list-item]
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
        "lock a number",
        "spawn a word",
    ),
    *(
        "half a request",
        "owner a number",
        "progress",
        "run_on_store",
        "done a list",
        "null in a name",
        "no name",
        "done a word",
        "half a priority",
    ),
    *("wait nan", "wait for ever", "wait for less than nothing", "wait for too long"),
]


def test_an_error_message_is_clipped_in_the_log_as_in_the_record(
    system: WorkerFixture, caplog: pytest.LogCaptureFixture
) -> None:
    def pack(record: Record, ctx: StepContext) -> Any:
        raise Fail("heavy " * 400_000)

    caplog.set_level(logging.INFO)
    system.set_steps(Packing=pack)
    parcel = system.engine.submit(New("parcel"))
    system.start_worker()
    message = system.wait_for_state(parcel, "Failed").message
    assert f"Fail: {message}" in caplog.messages
    assert len(message) == MAX_MESSAGE


@pytest.mark.parametrize(("step", "sentence"), STEP_ERRORS, ids=NAMES)
def test_a_permanent_error_fails_the_record(
    step: Callable[[Record, StepContext], Any], sentence: str, tmp_path: Path
) -> None:
    states = (
        work("Trying", to="Finished", description="", max_tries=1),
        rest("Failed", description="", settled=True),
        end("Finished", description=""),
    )
    chore = Machine(
        name="chore",
        plural="chores",
        prefix="chr",
        description="",
        states=states,
        actions=(action("resume", "Failed", RESUME, ""),),
    )
    chore.bound_steps["Trying"] = step
    machines, database = Machines.from_machines((chore,)), ModelDatabase(lambda: 1000.0)
    engine = Engine(ModelStore(database), machines)
    ref = engine.submit(New("chore")).ref
    transition = run_one_step(lambda: ModelStore(database), machines, host="h", work_root=tmp_path, objects=OBJECTS)
    assert transition is not None
    assert (transition.ref, transition.after, transition.cause) == (ref, "Failed", "fail")
    assert sentence in transition.message
    assert engine.store.get(*ref).session is None


@pytest.mark.parametrize(
    "save", [{"documents": {"label": object()}}, {"documents": {}, "children": (New("parcel", {"label": object()}),)}]
)
def test_a_save_that_is_not_json_is_answered_with_the_error(save: dict[str, Any]) -> None:
    driver = Driver().opened()
    driver.take(parcel())
    (step_run,) = started(driver)
    driver.on(m.SaveRequested(step_run, **save))
    reply = driver.next(m.ReplyCommand)
    assert isinstance(reply.result, TypeError)


class Odd(BaseException):
    pass


ODD = [KeyboardInterrupt(), GeneratorExit(), Odd(), StepStopped("of itself")]


@pytest.mark.parametrize("error", ODD, ids=lambda error: type(error).__name__)
def test_whatever_a_step_raises_ends_neither_its_thread_nor_the_claim(
    error: BaseException, system: WorkerFixture
) -> None:
    runs: list[Record] = []

    def pack(record: Record, ctx: StepContext) -> Any:
        runs.append(record)
        raise error

    system.set_steps(Packing=pack)
    bad = system.engine.submit(New("parcel"))
    system.start_worker(threads=1)
    failed = system.wait_for_state(bad, "Failed")
    assert (failed.session, len(runs)) == (None, 3)
    system.set_steps()
    system.wait_for_state(system.engine.submit(New("parcel")), "Sent")


def test_an_error_on_the_owner_thread_is_raised_in_the_step(system: WorkerFixture) -> None:
    def interrupt(store: Any) -> None:
        raise KeyboardInterrupt

    system.set_steps(Packing=lambda record, ctx: ctx.run_on_store(interrupt) or Done())
    bad = system.engine.submit(New("parcel"))
    system.start_worker(threads=1)
    assert "KeyboardInterrupt" in system.wait_for_state(bad, "Failed").message


def test_a_machine_that_cannot_name_its_locks_fails_the_record(tmp_path: Path) -> None:
    def of(record: Record) -> list[str]:
        raise ZeroDivisionError("no van")

    states = (
        work("Trying", to="Driving", description=""),
        work("Driving", to="Finished", description="", locks=("van",)),
        rest("Failed", description="", locks=("van",)),
    )
    chore = Machine(
        name="chore",
        plural="chores",
        prefix="chr",
        description="",
        states=(*states, end("Finished", description="")),
        locks=(LockFamily("van", "", of),),
        actions=(action("resume", "Failed", RESUME, ""),),
    )
    chore.bound_steps["Trying"] = chore.bound_steps["Driving"] = lambda record, ctx: Done()
    machines, database = Machines.from_machines((chore,)), ModelDatabase(lambda: 1000.0)
    engine = Engine(ModelStore(database), machines)
    ref = engine.submit(New("chore")).ref
    transition = run_one_step(lambda: ModelStore(database), machines, host="h", work_root=tmp_path, objects=OBJECTS)
    assert transition is not None
    assert (transition.ref, transition.after) == (ref, "Failed")
    assert transition.message.startswith("no van (and chore cannot say what it needs in Failed")


def test_a_child_whose_idempotency_key_exists_is_that_record_and_the_rest_is_created(system: WorkerFixture) -> None:
    known = system.engine.submit(New("parcel", idempotency_key="b"))
    made: list[Record] = []

    def fill(record: Record, ctx: StepContext) -> Any:
        made.extend(ctx.spawn([New("parcel", idempotency_key=name) for name in "abc"], {"cursor": {"n": 3}}))
        assert ctx.record.ref == record.ref
        return Done()

    system.set_steps(Filling=fill)
    crate = system.engine.submit(New("crate"))
    system.start_worker()
    assert system.wait_for_state(crate, "Shipped").documents["cursor"] == {"n": 3}
    assert [child.idempotency_key for child in made] == ["a", "b", "c"]
    assert made[1].ref == known.ref
    assert system.store.count_by_state("parcel") == {"Sent": 3}


def test_a_step_that_ends_with_an_existing_child_is_released(system: WorkerFixture) -> None:
    other = system.engine.submit(New("parcel", idempotency_key="b"))
    system.set_steps(
        Filling=lambda record, ctx: Done(spawn=tuple(New("parcel", idempotency_key=name) for name in "abc"))
    )
    crate = system.engine.submit(New("crate"))
    system.start_worker()
    assert system.wait_for_state(crate, "Shipped").session is None
    system.wait_for_state(other, "Sent")  # nobody waits for it: it is not the crate's
    assert system.store.count_by_state("parcel") == {"Sent": 3}
    assert system.store.count_by_state("parcel", parent=crate.ref) == {"Sent": 2}


@pytest.mark.parametrize("back", ["again", "rebuild"])
def test_resume_returns_to_the_state_that_failed_also_when_files_were_rebuilt(back: str, tmp_path: Path) -> None:
    """A download that is done again, and fails, must not be resumed after it: the step that follows would find no
    files.
    """
    states = (
        work("Fetching", to="Opening", description="", leaves_files=True),
        work("Opening", to="Finished", description="", on_host_lost="Fetching"),
        rest("Failed", description=""),
        end("Finished", description=""),
    )
    actions = (action("resume", "Failed", RESUME, ""), action("again", "Failed", "Fetching", ""))
    chore = Machine(name="chore", plural="chores", prefix="chr", description="", states=states, actions=actions)

    def fail(record: Record, ctx: StepContext) -> Any:
        raise Fail("no")

    chore.bound_steps.update(Fetching=lambda record, ctx: Done(), Opening=fail)
    machines, database = Machines.from_machines((chore,)), ModelDatabase(lambda: 1000.0)
    engine = Engine(ModelStore(database), machines)
    ref = engine.submit(New("chore")).ref

    def step() -> Record:
        run_one_step(lambda: ModelStore(database), machines, host="h", work_root=tmp_path, objects=OBJECTS)
        return engine.store.get(*ref)

    step()
    if back == "again":
        step()
        engine.act(ref, "again")
    else:
        engine.store.commit([CommitGroup((rules.rebuild_files(chore, engine.store.get(*ref)),))])
    chore.bound_steps["Fetching"] = fail
    assert step().state == "Failed"
    assert engine.act(ref, "resume").record.state == "Fetching"
