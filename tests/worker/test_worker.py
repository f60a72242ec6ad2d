"""Real workers, real threads: what a worker does to records, and what becomes of them when it is stopped, lost or
refused.
"""

from __future__ import annotations

import _thread
import dataclasses
import logging
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.worker.worker_fixture import WorkerFixture
from waybill import engine, rules
from waybill.engine import Engine
from waybill.machine import MachineError
from waybill.record import (
    Change,
    CommitAnswer,
    CommitGroup,
    CommitOutcomeUnknown,
    CommitResult,
    Conflict,
    Record,
    RecordNotFound,
    Ref,
    StoreUnavailable,
    WorkQueue,
)
from waybill.rules import ActionRefused, ClaimedByWorker, Machines, find_illegal_transition
from waybill.step import Done, Fail, New, Outcome, StepContext, Wait
from waybill.worker import Worker, queues_of

OBJECTS: Any = None


class BlockingStep:
    """A step that stops where the test wants it to, until the test lets it go on or the worker tells it to stop."""

    def __init__(self, outcome: Outcome | None = None) -> None:
        self.entered, self.open = threading.Semaphore(0), threading.Event()
        self.runs: list[Record] = []
        self.outcome = outcome or Done()

    def __call__(self, record: Record, ctx: StepContext) -> Outcome:
        self.runs.append(record)
        self.entered.release()
        while not self.open.wait(0.002):
            ctx.check()
        return self.outcome

    def wait(self) -> None:
        assert self.entered.acquire(timeout=120), "the step was not entered"


def transitions_of(system: WorkerFixture, record: Record) -> list[tuple[str, str | None, str | None]]:
    return [(line.cause, line.before, line.after) for line in system.store.history(record.kind, record.id)]


def test_a_record_goes_through_its_states_and_its_history_says_who(system: WorkerFixture) -> None:
    parcel = system.engine.submit(New("parcel"), who="ann", why="a gift")
    system.start_worker()
    after = system.wait_for_state(parcel, "Sent")
    assert after.session is None
    assert after.last_done == "Sending"
    assert transitions_of(system, parcel) == [
        ("submit", None, "Packing"),
        ("done", "Packing", "Sending"),
        ("done", "Sending", "Sent"),
    ]
    lines = system.store.history("parcel", parcel.id)
    assert (lines[0].who, lines[0].why) == ("ann", "a gift")
    assert lines[1].who.startswith("worker h1")


def test_a_parent_spawns_page_by_page_and_settles_exactly_once(system: WorkerFixture) -> None:
    def fill(record: Record, ctx: StepContext) -> Outcome:
        return Done({"count": {"n": ctx.spawn_each((New("parcel") for _ in range(450)), page_size=100)}})

    system.set_steps(Filling=fill)
    crate = system.engine.submit(New("crate", owner="ann"))
    system.start_worker()
    system.start_worker()
    system.wait_for_state(crate, "Shipped")
    assert system.store.count_by_state("parcel", parent=crate.ref) == {"Sent": 450}
    assert [a for a in transitions_of(system, crate) if a[2] == "Shipped"] == [("done", "Waiting", "Shipped")]


def test_a_transient_error_is_retried_then_fails_and_resume_goes_on_after_the_last_success(
    system: WorkerFixture,
) -> None:
    broken, tries = threading.Event(), []

    def send(record: Record, ctx: StepContext) -> Outcome:
        tries.append(record.error_count)
        if not broken.is_set():
            raise OSError("no van")
        return Done()

    system.set_steps(Sending=send)
    parcel = system.engine.submit(New("parcel"))
    system.start_worker()
    failed = system.wait_for_state(parcel, "Failed")
    assert (failed.message, failed.last_done, tries) == ("OSError: no van", "Packing", [0, 1])
    broken.set()
    system.engine.act(parcel.ref, "resume", who="op")
    assert system.wait_for_state(parcel, "Sent").resume_count == 1


def test_a_permanent_error_fails_at_once_with_its_sentence(system: WorkerFixture) -> None:
    def pack(record: Record, ctx: StepContext) -> Outcome:
        raise Fail("There is nothing in it; submit again with something.")

    system.set_steps(Packing=pack)
    parcel = system.engine.submit(New("parcel"))
    system.start_worker()
    assert system.wait_for_state(parcel, "Failed").message == "There is nothing in it; submit again with something."


def test_a_number_that_json_does_not_have_is_not_written_as_nothing(system: WorkerFixture) -> None:
    def pack(record: Record, ctx: StepContext) -> Outcome:
        if record.owner == "inf":
            ctx.save({"weight": {"sum": float("inf")}})
        return Done({"weight": {"mean": float("nan")}})

    system.set_steps(Packing=pack)
    parcels = [system.engine.submit(New("parcel", owner=number)) for number in ("inf", "nan")]
    system.start_worker()
    for parcel, number in zip(parcels, ("inf", "nan"), strict=True):
        failed = system.wait_for_state(parcel, "Failed")
        assert f"JSON has no number {number}" in failed.message
        assert "weight" not in failed.documents


def test_a_wait_is_released_when_due(system: WorkerFixture) -> None:
    looks: list[int] = []

    def send(record: Record, ctx: StepContext) -> Outcome:
        looks.append(1)
        return Done() if len(looks) == 3 else Wait(message="no van yet")

    system.set_steps(Sending=send)
    parcel = system.engine.submit(New("parcel"))
    system.start_worker()
    system.wait_for_state(parcel, "Sent")
    assert len(looks) == 3
    assert len(transitions_of(system, parcel)) == 3  # looking and waiting leaves no line


def test_a_hold_stops_what_would_begin_until_it_is_released(system: WorkerFixture) -> None:
    system.engine.set_hold("collections/a", who="op")
    parcel = system.engine.submit(New("parcel"))
    system.start_worker()
    assert system.wait_for_state(parcel, "Held").message.endswith("collections/a")
    system.engine.clear_hold("collections/a")
    system.engine.act(parcel.ref, "release", who="op")
    system.wait_for_state(parcel, "Sent")


def test_a_paused_queue_is_left_alone_until_it_goes_on(system: WorkerFixture) -> None:
    system.store.set_hold("queue/parcel")
    parcel, crate = system.engine.submit(New("parcel")), system.engine.submit(New("crate"))
    system.start_worker()
    system.wait_for_state(crate, "Shipped")
    assert system.get(parcel).state == "Packing"
    system.store.clear_hold("queue/parcel")
    system.wait_for_state(parcel, "Sent")


def test_stop_releases_running_records_and_fails_nothing(system: WorkerFixture) -> None:
    blocking_step = BlockingStep()
    system.set_steps(Packing=blocking_step)
    parcels = [system.engine.submit(New("parcel")) for _ in range(5)]
    worker = system.start_worker(threads=1)
    blocking_step.wait()
    system.stop_worker(worker)
    for parcel in parcels:
        after = system.get(parcel)
        assert (after.state, after.session, after.error_count, after.message) == ("Packing", None, 0, "")
    assert system.store.list_sessions() == []
    assert len(blocking_step.runs) == 1


def test_stop_commits_a_step_that_ends_well(system: WorkerFixture) -> None:
    entered, stopped = threading.Event(), threading.Event()

    def pack(record: Record, ctx: StepContext) -> Outcome:
        entered.set()
        while not ctx.stop:
            stopped.wait(0.002)
        return Done()

    system.set_steps(Packing=pack)
    parcel = system.engine.submit(New("parcel"))
    worker = system.start_worker()
    assert entered.wait(120)
    system.stop_worker(worker)
    assert (system.get(parcel).state, system.get(parcel).session) == ("Sending", None)


def test_a_step_that_does_not_end_keeps_its_claim_until_the_session_expires(system: WorkerFixture) -> None:
    entered, leave = threading.Event(), threading.Event()

    def pack(record: Record, ctx: StepContext) -> Outcome:
        entered.set()
        leave.wait(30)
        return Done()

    system.set_steps(Packing=pack)
    parcel = system.engine.submit(New("parcel"))
    worker = system.start_worker(grace=0.05)
    assert entered.wait(120)
    system.stop_worker(worker)
    assert system.get(parcel).session is not None  # closing the session would let a second run start beside the first
    leave.set()


def test_an_action_on_a_claimed_record_is_refused_or_waits_as_the_machine_says(system: WorkerFixture) -> None:
    blocking_step = BlockingStep()
    system.set_steps(Packing=blocking_step)
    parcel = system.engine.submit(New("parcel"))
    system.start_worker()
    blocking_step.wait()
    with pytest.raises(ActionRefused, match="A worker has claimed parcel"):
        system.engine.act(parcel.ref, "shake")
    acted = system.engine.act(parcel.ref, "drop", who="ann", why="no longer wanted")
    assert acted.pending
    system.wait_for_state(parcel, "Dropped")
    last = system.store.history("parcel", parcel.id)[-1]
    assert (last.cause, last.who, last.why, last.before) == ("drop", "ann", "no longer wanted", "Packing")
    with pytest.raises(ActionRefused, match="is Dropped; drop needs it to be Packing"):
        system.engine.act(parcel.ref, "drop")


def test_a_new_priority_stops_no_step_and_moves_the_record(system: WorkerFixture) -> None:
    blocking_step = BlockingStep()
    system.set_steps(Packing=blocking_step)
    parcel = system.engine.submit(New("parcel"))
    system.start_worker()
    blocking_step.wait()
    assert system.engine.set_priority(parcel.ref, 77, who="ann").pending
    system.wait_until(
        lambda: any(t.action_request for t in system.workers[0][0].core.step_runs.by_number.values()),
        "the worker hears of it",
    )
    blocking_step.open.set()
    assert system.wait_for_state(parcel, "Sent").priority == 77
    assert any("priority 77 requested by ann" in line.why for line in system.store.history("parcel", parcel.id))
    assert len(blocking_step.runs) == 1


def test_a_lock_taken_in_the_middle_of_a_step_is_exclusive(system: WorkerFixture) -> None:
    inside: list[int] = []
    most: list[int] = []
    lock = threading.Lock()

    def send(record: Record, ctx: StepContext) -> Outcome:
        ctx.save(locks=["van/1"])
        with lock:
            inside.append(1)
            most.append(len(inside))
        threading.Event().wait(0.001)
        with lock:
            inside.pop()
        return Done()

    system.set_steps(Sending=send)
    parcels = [system.engine.submit(New("parcel")) for _ in range(20)]
    system.start_worker(threads=4)
    system.start_worker(threads=4)
    for parcel in parcels:
        system.wait_for_state(parcel, "Sent")
    assert max(most) == 1
    assert system.get(parcels[0]).locks == ()


def test_saves_are_there_after_a_crash_of_the_step(system: WorkerFixture) -> None:
    seen: list[Any] = []

    def send(record: Record, ctx: StepContext) -> Outcome:
        seen.append(record.documents.get("ark"))
        if "ark" not in record.documents:
            ctx.save({"ark": {"name": "ark:/1"}})
            raise OSError("died after minting")
        return Done()

    system.set_steps(Sending=send)
    parcel = system.engine.submit(New("parcel"))
    system.start_worker()
    system.wait_for_state(parcel, "Sent")
    assert seen == [None, {"name": "ark:/1"}]


def test_each_claim_version_has_its_own_folder_and_the_last_state_clears_them(system: WorkerFixture) -> None:
    folders: list[tuple[str, list[str]]] = []

    def pack(record: Record, ctx: StepContext) -> Outcome:
        (ctx.workdir / "part").write_text("x")
        folders.append((ctx.workdir.name, [p.name for p in ctx.list_earlier_folders()]))
        if len(folders) == 1:
            raise OSError("again")
        return Done()

    system.set_steps(Packing=pack)
    parcel = system.engine.submit(New("parcel"))
    system.start_worker()
    system.wait_for_state(parcel, "Sent")
    (first, none), (second, earlier) = folders
    assert (none, earlier, first != second) == ([], [first], True)
    system.wait_until(lambda: not (system.root / "parcel" / parcel.id).exists(), "the folder is cleared")


def test_B16_delete_removes_children_page_by_page(system: WorkerFixture) -> None:
    blocking_step = BlockingStep()

    def fill(record: Record, ctx: StepContext) -> Outcome:
        ctx.spawn_each(New("parcel") for _ in range(300))
        return Done()

    def delete(record: Record, ctx: StepContext) -> Outcome:
        return Wait() if ctx.remove_children("parcel") else Done()

    system.set_steps(Filling=fill, Packing=blocking_step, Deleting=delete)
    crate = system.engine.submit(New("crate"))
    system.start_worker(threads=2)
    blocking_step.wait()
    system.wait_for_state(crate, "Waiting")
    system.wait_until(lambda: not system.engine.act(crate.ref, "delete", who="op").pending or True)
    blocking_step.open.set()
    system.wait_for_state(crate, "Gone")
    system.wait_until(lambda: system.store.count_by_state("parcel") == {}, "all parcels are gone")


def test_an_unknown_outcome_ends_the_session_and_the_store_decides(system: WorkerFixture) -> None:
    parcel = system.engine.submit(New("parcel"))
    opened = system.open_store
    lost: list[int] = []

    def open_and_lose() -> Any:
        store = opened()
        commit = store.commit

        def commit_and_lose(groups: Sequence[CommitGroup]) -> list[CommitAnswer]:
            answers = commit(groups)
            if not lost and any(g.changes for g in groups):
                lost.append(1)
                return [CommitOutcomeUnknown()] * len(groups)
            return answers

        store.commit = commit_and_lose  # type: ignore[method-assign]
        return store

    system.open_store = open_and_lose
    system.start_worker()
    system.wait_for_state(parcel, "Sent")
    assert lost
    lines = system.store.history("parcel", parcel.id)
    assert find_illegal_transition(system.parcel, [(x.before, x.after, x.cause) for x in lines]) is None
    assert [x.after for x in lines].count("Sending") == 1


def test_an_unavailable_store_is_retried_and_nothing_is_lost(system: WorkerFixture) -> None:
    parcel = system.engine.submit(New("parcel"))
    opened = system.open_store
    refusals: list[int] = []

    def open_and_refuse() -> Any:
        store = opened()
        commit = store.commit

        def refuse_thrice(groups: Sequence[CommitGroup]) -> list[CommitAnswer]:
            if len(refusals) < 3:
                refusals.append(1)
                raise StoreUnavailable
            return commit(groups)

        store.commit = refuse_thrice  # type: ignore[method-assign]
        return store

    system.open_store = open_and_refuse
    runs = BlockingStep()
    runs.open.set()
    system.set_steps(Packing=runs)
    system.start_worker()
    system.wait_for_state(parcel, "Sent")
    assert (len(refusals), len(runs.runs)) == (3, 1)  # the outcome was kept; the step did not run again


def test_a_worker_does_not_start_without_its_steps(system: WorkerFixture) -> None:
    del system.parcel.bound_steps["Sending"]

    with pytest.raises(MachineError, match=r"parcel.Sending has no step"):
        Worker(
            system.open_store,
            system.machines,
            host="h",
            work_root=system.root,
            objects=OBJECTS,
            queues=["parcel.Sending"],
        ).run()


@pytest.mark.parametrize("queues", [(), ("parcel",)])
def test_a_state_without_its_step_is_named_when_the_whole_kind_is_served(
    system: WorkerFixture, queues: tuple[str, ...]
) -> None:
    del system.parcel.bound_steps["Sending"]
    with pytest.raises(MachineError, match=r"parcel.Sending has no step"):
        queues_of(system.machines, queues)
    assert [queue.state for queue in queues_of(system.machines, ["parcel.Packing"])] == ["Packing"]


def test_a_kind_that_other_programs_work_on_is_left_to_them(system: WorkerFixture) -> None:
    machines = Machines.from_machines((system.crate, dataclasses.replace(system.parcel, steps="")))
    assert "parcel" not in {queue.kind for queue in queues_of(machines, ())}


def test_queues_choose_what_is_served(system: WorkerFixture) -> None:
    parcel = system.engine.submit(New("parcel"))
    first = system.start_worker(queues=["parcel.Packing"])
    system.wait_for_state(parcel, "Sending")
    system.stop_worker(first)
    assert system.get(parcel).state == "Sending"
    system.start_worker(queues=["parcel.Sending"])
    system.wait_for_state(parcel, "Sent")
    with pytest.raises(ActionRefused, match=r"parcel.Held is no queue"):
        system.start_worker(queues=["parcel.Held"])


def test_run_one_step_runs_exactly_one_step_and_returns_its_transition(system: WorkerFixture) -> None:
    assert system.run_one_step() is None
    parcel = system.engine.submit(New("parcel"))
    transition = system.run_one_step()
    assert transition is not None
    assert (transition.ref, transition.before, transition.after, transition.cause) == (
        parcel.ref,
        "Packing",
        "Sending",
        "done",
    )
    assert system.get(parcel).session is None
    transition = system.run_one_step(target=parcel.ref)
    assert transition is not None
    assert (transition.before, transition.after) == ("Sending", "Sent")
    with pytest.raises(Conflict):
        system.run_one_step(target=parcel.ref)
    with pytest.raises(RecordNotFound):
        system.run_one_step(target=Ref("parcel", "pcl9999999999"))
    assert system.store.list_sessions() == []


def test_run_one_step_runs_a_step_that_saves_spawns_and_reads(system: WorkerFixture) -> None:
    def fill(record: Record, ctx: StepContext) -> Outcome:
        ctx.save({"note": {"a": 1}})
        ctx.spawn_each((New("parcel") for _ in range(7)), page_size=3)
        return Done({"seen": {"n": sum(ctx.count_by_state("parcel", parent=record.ref).values())}})

    system.set_steps(Filling=fill)
    crate = system.engine.submit(New("crate"))
    system.run_one_step(queues=["crate"])
    after = system.get(crate)
    assert (after.state, after.documents["seen"]["n"], after.documents["spawned"]["count"]) == ("Waiting", 7, 7)


def test_removed_is_only_what_has_settled(system: WorkerFixture) -> None:
    crate = system.engine.submit(New("crate"))
    with pytest.raises(ActionRefused, match="still at work"):
        system.engine.remove(crate.ref)
    system.start_worker()
    system.wait_for_state(crate, "Shipped")
    assert system.engine.remove(crate.ref) == 1
    with pytest.raises(RecordNotFound):
        system.get(crate)


def test_a_repeated_submission_creates_one_record(system: WorkerFixture) -> None:
    first = system.engine.submit(New("parcel", idempotency_key="r1"))
    assert system.engine.submit(New("parcel", idempotency_key="r1")).id == first.id
    answer = system.store.commit([])
    assert answer == []
    assert isinstance(system.store.commit([CommitGroup((), (first.ref,))])[0], CommitResult)


def test_run_one_step_finds_nothing_due_where_all_is_paused(system: WorkerFixture) -> None:
    parcel = system.engine.submit(New("parcel"))
    for kind in system.machines:
        system.store.set_hold(f"queue/{kind}")
    assert system.run_one_step() is None
    with pytest.raises(Conflict, match=r"is paused\. Unpause its queue"):
        system.run_one_step(target=parcel.ref)
    assert system.store.list_sessions() == []


def test_run_one_step_raises_when_the_store_is_unavailable(system: WorkerFixture) -> None:
    opened = system.open_store

    def open_unavailable() -> Any:
        store = opened()

        def refuse(**options: Any) -> str:
            raise StoreUnavailable

        store.open_session = refuse  # type: ignore[method-assign]
        return store

    system.open_store = open_unavailable
    with pytest.raises(StoreUnavailable):
        system.run_one_step()


def test_a_machine_without_work_states_has_no_queue(system: WorkerFixture) -> None:
    from waybill.tokens import TOKEN
    from waybill.worker import queues_of

    assert {r.kind for r in queues_of(Machines.from_machines((*system.machines.values(), TOKEN)))} == {
        "crate",
        "parcel",
    }


def test_run_one_step_renews_its_session_while_the_step_runs(system: WorkerFixture) -> None:
    def pack(record: Record, ctx: StepContext) -> Outcome:
        begun = ctx.run_on_store(lambda store: store.list_sessions())[0].expires
        # A heartbeat is due within a second, and the ttl is much longer: a process that stands still for a while does
        # not lose its session.
        system.wait_until(
            lambda: ctx.run_on_store(lambda store: store.list_sessions())[0].expires > begun,
            "the session is kept beyond its first ttl",
        )
        return Done()

    system.set_steps(Packing=pack)
    system.engine.submit(New("parcel"))
    transition = system.run_one_step(ttl=15.0)
    assert transition is not None
    assert (transition.before, transition.after) == ("Packing", "Sending")
    assert system.store.list_sessions() == []


def test_run_one_step_releases_the_record_when_it_is_interrupted(system: WorkerFixture) -> None:
    def pack(record: Record, ctx: StepContext) -> Outcome:
        _thread.interrupt_main()
        while True:
            ctx.check()

    system.set_steps(Packing=pack)
    parcel = system.engine.submit(New("parcel"))
    system.run_one_step()
    after = system.get(parcel)
    assert (after.state, after.session, after.error_count) == ("Packing", None, 0)
    assert system.store.list_sessions() == []


def test_steps_that_call_the_store_without_a_pause_do_not_keep_the_owner_from_its_heartbeat(
    system: WorkerFixture,
) -> None:
    worker = Worker(system.open_store, system.machines, host="h1", work_root=system.root, objects=OBJECTS)
    calls: list[int] = []

    def call_again() -> None:
        calls.append(1)
        assert len(calls) < 10, "the owner never comes to its heartbeat"
        worker._inbox.put(call_again)

    worker._inbox.put(call_again)
    worker._inbox.put(call_again)
    worker._drain_inbox()
    assert len(calls) == 2


def test_B16_a_step_that_removes_many_children_can_stop_between_pages(
    system: WorkerFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "PAGE_SIZE", 10)
    removed: list[int] = []

    def delete(record: Record, ctx: StepContext) -> Outcome:
        def stop_soon(store: Any) -> int:
            removed.append(50 - sum(store.count_by_state("parcel", parent=record.ref).values()))
            return len(removed)

        whole = ctx.run_on_store

        def call(question: Any) -> Any:
            answer = whole(question)
            if whole(stop_soon) == 4:
                worker.stop()
                system.wait_until(lambda: ctx.stop, "the step is told to stop")
            return answer

        ctx.run_on_store = call  # type: ignore[method-assign, assignment]
        ctx.remove_children("parcel")
        return Done()

    system.store.set_hold("queue/parcel")
    system.set_steps(Filling=lambda record, ctx: Done(spawn=tuple(New("parcel") for _ in range(50))), Deleting=delete)
    crate = system.engine.submit(New("crate"))
    worker = system.start_worker()
    system.wait_for_state(crate, "Waiting")
    system.wait_until(lambda: system.get(crate).blocked_by == "children")
    system.engine.act(crate.ref, "delete")
    system.wait_until(lambda: len(removed) >= 4, "some are removed")
    system.stop_worker(worker)
    assert system.store.count_by_state("parcel", parent=crate.ref) == {"Packing": 30}
    assert (system.get(crate).state, system.get(crate).session) == ("Deleting", None)


def test_a_record_with_a_claimed_child_is_not_removed(system: WorkerFixture) -> None:
    crate = system.engine.submit(New("crate"))
    system.store.set_hold("queue/parcel")

    def fill(record: Record, ctx: StepContext) -> Outcome:
        ctx.spawn([New("parcel"), New("parcel")])
        return _fail()

    system.set_steps(Filling=fill)
    worker = system.start_worker()
    system.wait_for_state(crate, "Failed")
    system.stop_worker(worker)
    session = system.store.open_session(host="h1", ttl=15, about={})
    claimed = system.store.claim([WorkQueue("parcel", "Packing")], session, 1)[0].record
    with pytest.raises(ClaimedByWorker, match="Workers have claimed 1 of the records below"):
        system.engine.remove(crate.ref)
    assert system.get(crate).state == "Failed"
    assert system.store.count_by_state("parcel") == {"Packing": 1}
    system.store.close_session(session)
    assert system.engine.remove(crate.ref) == 2
    with pytest.raises(RecordNotFound):
        system.get(claimed)


def test_a_record_that_is_resumed_meanwhile_is_not_removed(system: WorkerFixture) -> None:
    system.set_steps(Filling=lambda record, ctx: _fail())
    crate = system.engine.submit(New("crate"))
    system.run_one_step()
    assert system.get(crate).state == "Failed"

    class Meanwhile(Engine):
        def remove_children(self, *args: Any, **options: Any) -> tuple[int, int]:
            system.engine.act(crate.ref, "resume", who="ann")
            return super().remove_children(*args, **options)

    with pytest.raises(Conflict):
        Meanwhile(system.store, system.machines).remove(crate.ref)
    assert system.get(crate).state == "Filling"


def _fail() -> Outcome:
    raise Fail("it cannot be filled")


def test_a_folder_is_cleared_up_to_the_claim_version_that_ended(system: WorkerFixture) -> None:
    made: list[Path] = []

    def send(record: Record, ctx: StepContext) -> Outcome:
        (ctx.workdir / "file").write_text("x")
        later = ctx.workdir.parent / str(record.version + 100)  # of the same id, taken up again by another worker
        later.mkdir()
        made.extend((ctx.workdir, later))
        return Done()

    system.set_steps(Sending=send)
    parcel = system.engine.submit(New("parcel"))
    worker = system.start_worker()
    system.wait_for_state(parcel, "Sent")
    system.stop_worker(worker)
    assert [folder.exists() for folder in made] == [False, True]


def test_steps_are_told_to_stop_while_the_owner_is_stuck_in_a_call(system: WorkerFixture) -> None:
    stuck, answer, stopped = threading.Event(), threading.Event(), threading.Event()
    opened = system.open_store

    def open_and_hang() -> Any:
        store = opened()
        renew = store.renew_session

        def hang(*args: Any) -> Any:
            stuck.set()
            answer.wait(60)
            return renew(*args)

        store.renew_session = hang  # type: ignore[method-assign, assignment]
        return store

    def pack(record: Record, ctx: StepContext) -> Outcome:
        assert stuck.wait(30), "the owner comes to its heartbeat"
        system.wait_until(lambda: ctx.stop, "the step is told to stop")
        if not answer.is_set():
            stopped.set()
        ctx.check()
        return Done()

    system.set_steps(Packing=pack)
    system.open_store = open_and_hang
    system.engine.submit(New("parcel"))
    # long enough for the first heartbeat to be sent in time, also where the process stands still for a moment
    system.start_worker(ttl=3.0)
    assert stopped.wait(30)
    answer.set()


def test_run_one_step_brings_a_record_on_hold_to_rest(system: WorkerFixture) -> None:
    system.set_steps()
    parcel = system.engine.submit(New("parcel"))
    system.engine.set_hold("collections/a")
    transition = system.run_one_step(target=parcel.ref)
    assert transition is not None
    assert (transition.before, transition.after, transition.cause) == ("Packing", "Held", "hold")
    assert system.get(parcel).state == "Held"


def test_B15_records_in_a_state_of_another_release_are_named_never_claimed_and_moved_by_hand(
    system: WorkerFixture, caplog: pytest.LogCaptureFixture
) -> None:
    strange, known = system.engine.submit(New("parcel")), system.engine.submit(New("parcel"))
    system.store.commit([CommitGroup((Change(strange, replace(strange, state="Folding"), "done"),))])
    with caplog.at_level(logging.WARNING, "waybill.worker"):
        system.start_worker()
        system.wait_for_state(known, "Sent")
    assert "1 parcels are in Folding, which this release does not declare" in caplog.text
    assert system.get(strange).state == "Folding"
    system.engine.move(strange.ref, "Packing", who="op", why="upgrade")
    system.wait_for_state(strange, "Sent")


def test_B15_a_session_names_the_machines_of_its_worker(system: WorkerFixture) -> None:
    system.start_worker()
    system.wait_until(lambda: system.store.list_sessions(), "a session")
    (session,) = system.store.list_sessions()
    assert session.about["machines"]["parcel"] == [system.parcel.v, system.parcel.compute_digest()]
    assert session.host == "h1"


def test_files_bind_a_record_to_its_host_unless_the_root_is_shared(system: WorkerFixture) -> None:
    system.store.set_hold("queue/parcel.Sending")
    bound, free = system.engine.submit(New("parcel")), None
    first = system.start_worker(host="h1")
    system.wait_for_state(bound, "Sending")
    assert system.get(bound).host == "h1"
    system.stop_worker(first)
    free = system.engine.submit(New("parcel"))
    second = system.start_worker(host="h1", shared=True)
    system.wait_for_state(free, "Sending")
    assert system.get(free).host == ""
    system.stop_worker(second)


def test_a_record_bound_to_another_host_is_left_to_it(system: WorkerFixture) -> None:
    record = system.engine.submit(New("parcel", host="elsewhere"))
    mine = system.engine.submit(New("parcel", host="h1"))
    system.start_worker(host="h1")
    system.wait_for_state(mine, "Sent")
    assert system.get(record).state == "Packing"


def test_confirmation_is_skipped_where_the_machine_says_so(system: WorkerFixture) -> None:
    confirmed = dataclasses.replace(
        system.parcel.actions[0], confirm="Really?", skip_confirm=lambda record, store: record.priority == 7
    )
    table = dataclasses.replace(system.parcel, actions=(confirmed, *system.parcel.actions[1:]), steps={})
    failed = Record("parcel", "pcl1", "Failed")
    with pytest.raises(rules.ActionRefused, match="Really"):
        rules.act(table, failed, "resume", store=system.store)
    change = rules.act(table, replace(failed, priority=7), "resume", store=system.store)
    assert change.after is not None
    assert change.after.state == "Packing"


def test_a_record_created_by_others_says_what_was_done_before(system: WorkerFixture) -> None:
    made = system.engine.submit(New("parcel", last_done="Packing"))
    assert system.get(made).last_done == "Packing"
    assert Ref("parcel", made.id) == made.ref


def test_steps_that_create_the_same_named_record_all_succeed_and_it_is_made_once(system: WorkerFixture) -> None:
    """Six at once, by their outcomes and in the middle of a step; and again when it is there already."""

    def pack(record: Record, ctx: StepContext) -> Outcome:
        (shared,) = ctx.spawn([New("crate", id="the-saved")])
        assert shared.ref == Ref("crate", "the-saved")
        return Done(spawn=(New("crate", id="the-shared"),))

    system.set_steps(Packing=pack)
    for _ in range(2):
        parcels = [system.engine.submit(New("parcel")) for _ in range(6)]
        worker = system.start_worker(threads=6)
        for parcel in parcels:
            system.wait_for_state(parcel, "Sent")
        system.stop_worker(worker)
    assert {record.id for record in system.store.each("crate")} == {"the-saved", "the-shared"}
    assert len(system.store.history("crate", "the-shared")) >= 1
