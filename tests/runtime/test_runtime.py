"""The front door: one object runs a small application from a script."""

import logging
import signal
import threading
from pathlib import Path

import pytest

from tests.servers.process import wait_until
from waybill import (
    RESUME,
    Application,
    Done,
    Fail,
    Machine,
    Outcome,
    Record,
    Runtime,
    StepContext,
    Wait,
    action,
    end,
    rest,
    work,
)
from waybill.errors import InputError
from waybill.record import BadStore, Conflict, Ref

LOAF = Machine(
    name="loaf", plural="loaves", prefix="loaf", description="One loaf of bread.",
    steps=__name__,
    states=(
        work("Kneading", to="Baking", description="Mixes flour and water."),
        work("Baking", to="Baked", description="Ten minutes in the oven."),
        rest("Failed", description="A step gave up.", settled=True),
        end("Baked", description="Ready to eat."),
    ),
    actions=(action("resume", "Failed", RESUME, "Go on."),),
)  # fmt: skip


def kneading(loaf: Record, ctx: StepContext) -> Outcome:
    if "burnt" in loaf.documents and not loaf.resume_count:
        raise Fail("The oven is on fire.")
    return Done({"oven": {"minutes": 0}})


def baking(loaf: Record, ctx: StepContext) -> Outcome:
    minutes = loaf.documents["oven"]["minutes"]
    if minutes < 2:
        return Wait(0.05, documents={"oven": {"minutes": minutes + 1}})
    return Done()


BAKERY = Application("bakery", "Bakes bread.", machines=(LOAF,))


@pytest.fixture
def waybill(tmp_path: Path) -> Runtime:
    return Runtime(tmp_path / "data", applications=[BAKERY])


def test_a_script_runs_an_application(tmp_path: Path) -> None:
    with Runtime(tmp_path / "data", applications=[BAKERY]) as waybill:
        loaf = waybill.submit("loaf")
        assert waybill.run_until_idle() == 4, "kneading, two waits, baking"
        assert waybill.get("loaf", loaf.id).state == "Baked"
        assert [entry.cause for entry in waybill.history("loaf", loaf.id)] == ["submit", "done", "done"]
    with Runtime(str(tmp_path / "data"), applications=[BAKERY]) as waybill:
        assert waybill.count_by_state("loaf") == {"Baked": 1}
        assert [each.id for each in waybill.each("loaf", state="Baked")] == [loaf.id]


def test_idle_is_when_only_a_person_can_go_on(waybill: Runtime) -> None:
    with waybill:
        loaf = waybill.submit("loaf", {"burnt": {}}, id="b", owner="me", why="to see")
        assert waybill.run_until_idle() == 1
        assert (waybill.get("loaf", "b").state, waybill.get("loaf", "b").message) == ("Failed", "The oven is on fire.")
        waybill.act("loaf", loaf.id, "resume")
        waybill.run_until_idle()
        assert waybill.get("loaf", "b").state == "Baked"


def test_a_wait_that_is_too_long_is_left(waybill: Runtime) -> None:
    with waybill:
        loaf = waybill.submit("loaf")
        assert waybill.run_until_idle(max_wait=0.0) == 2
        assert waybill.get("loaf", loaf.id).blocked_by == "wait"


def test_one_step_of_one_record(waybill: Runtime) -> None:
    with waybill:
        waybill.submit("loaf", id="a")
        waybill.submit("loaf", id="b", priority=9)
        taken = waybill.step_once(Ref("loaf", "b"))
        assert taken is not None
        assert (taken.ref.id, taken.before, taken.after) == ("b", "Kneading", "Baking")
        taken = waybill.step_once()
        assert taken is not None
        assert taken.ref.id == "a", "the most urgent"
        waybill.store.set_hold("queue/loaf")
        assert waybill.step_once() is None
        assert waybill.run_until_idle() == 0
        with pytest.raises(Conflict, match="paused by queue/loaf"):
            waybill.step_once(Ref("loaf", "b"))


def test_run_works_until_stop(waybill: Runtime) -> None:
    with waybill:
        loaf = waybill.submit("loaf")
        started = threading.Event()
        results: list[bool] = []
        thread = threading.Thread(target=lambda: results.append(waybill.run(on_start=started.set)))
        thread.start()
        assert started.wait(60)
        wait_until(lambda: waybill.get("loaf", loaf.id).state == "Baked", "the loaf to be baked")
        waybill.stop()
        thread.join(60)
        assert results == [True]


def test_a_stop_before_the_beginning_is_no_lost_stop(waybill: Runtime) -> None:
    handlers = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    with waybill:
        waybill.stop()
        assert waybill.run()
        assert waybill.serve(on_start=lambda server: waybill.stop()), "the first stop is over"
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == handlers


def test_it_serves(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "waybill")
    with Runtime(tmp_path / "data", applications=[BAKERY], settings={"http.port": 0}) as waybill:
        serving = threading.Thread(target=waybill.serve, kwargs={"work": False})
        serving.start()
        wait_until(lambda: "listening at http://127.0.0.1" in caplog.text, "the address")
        waybill.stop()
        serving.join(60)
        assert not serving.is_alive()


def test_two_runtimes_in_one_process_keep_their_maintenance_apart(tmp_path: Path) -> None:
    first, second = (Runtime(tmp_path / name, applications=[BAKERY]) for name in ("first", "second"))
    with first, second:
        first.prepare()
        second.prepare()
        steps = [each.environment.machines["maintenance"].bound_steps["Watching"] for each in (first, second)]
        assert steps[0] != steps[1]
        assert first.step_once(Ref("maintenance", "retention")) is not None
        assert second.get("maintenance", "retention").version < first.get("maintenance", "retention").version


def test_a_store_that_must_exist_is_not_made(tmp_path: Path) -> None:
    with Runtime(tmp_path / "data", applications=[BAKERY], create=False) as waybill, pytest.raises(BadStore):
        waybill.get("loaf", "x")
    assert not (tmp_path / "data").exists()


def test_other_processes_cannot_have_applications_that_only_this_one_knows(tmp_path: Path) -> None:
    with (
        Runtime(tmp_path / "data", applications=[BAKERY], settings={"work.processes": 2}) as waybill,
        pytest.raises(InputError, match="by name"),
    ):
        waybill.run()


def test_a_start_without_a_sandbox_warns_for_the_applications_that_need_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("waybill.sandbox.support.shutil.which", lambda *names, **options: None)
    runner = Application("runner", "Runs commands.", (), runs_commands=True)
    for applications, count in (((), 0), ((runner,), 1)):
        with Runtime(tmp_path / "data", applications=applications) as runtime:
            runtime.prepare()
        warnings = [record.getMessage() for record in caplog.records if "bubblewrap" in record.getMessage()]
        assert len(warnings) == count
    assert "Commands of runner are refused" in warnings[0]
