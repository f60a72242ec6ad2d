"""Real workers, real threads: what a worker does to records, and what becomes of them when it is stopped, lost or
refused.
"""

from __future__ import annotations

import _thread
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.worker.yard import Yard
from waybill import engine
from waybill.engine import Engine
from waybill.machine import MachineError
from waybill.record import Answer, Committed, Conflict, Group, NotFound, Record, Ref, Role, Unavailable, Unknown
from waybill.rules import Held, Refused, path_is_legal
from waybill.step import Context, Done, Fail, New, Outcome, Wait
from waybill.worker import Worker

OBJECTS: Any = None


class Gate:
    """A step that stops where the test wants it to, until the test lets it go on or it is told to stop."""

    def __init__(self, outcome: Outcome | None = None) -> None:
        self.entered, self.open = threading.Semaphore(0), threading.Event()
        self.runs: list[Record] = []
        self.outcome = outcome or Done()

    def __call__(self, record: Record, ctx: Context) -> Outcome:
        self.runs.append(record)
        self.entered.release()
        while not self.open.wait(0.002):
            ctx.check()
        return self.outcome

    def wait(self) -> None:
        assert self.entered.acquire(timeout=120), "the step was not entered"


def arrows(yard: Yard, record: Record) -> list[tuple[str, str | None, str | None]]:
    return [(line.event, line.before, line.after) for line in yard.store.history(record.kind, record.id)]


def test_a_record_goes_through_its_states_and_its_history_says_who(yard: Yard) -> None:
    parcel = yard.engine.submit(New("parcel"), who="ann", why="a gift")
    yard.worker()
    after = yard.until_state(parcel, "Sent")
    assert after.session is None
    assert after.last_done == "Sending"
    assert arrows(yard, parcel) == [
        ("submit", None, "Packing"),
        ("done", "Packing", "Sending"),
        ("done", "Sending", "Sent"),
    ]
    lines = yard.store.history("parcel", parcel.id)
    assert (lines[0].who, lines[0].why) == ("ann", "a gift")
    assert lines[1].who.startswith("worker h1")


def test_a_parent_spawns_in_portions_and_settles_exactly_once(yard: Yard) -> None:
    def fill(record: Record, ctx: Context) -> Outcome:
        return Done({"count": {"n": ctx.spawn_each((New("parcel") for _ in range(450)), portion=100)}})

    yard.steps(Filling=fill)
    crate = yard.engine.submit(New("crate", owner="ann"))
    yard.worker()
    yard.worker()
    yard.until_state(crate, "Shipped")
    assert yard.store.tally("parcel", parent=crate.ref) == {"Sent": 450}
    assert [a for a in arrows(yard, crate) if a[2] == "Shipped"] == [("done", "Waiting", "Shipped")]


def test_trouble_is_tried_again_then_fails_and_resume_goes_on_after_the_last_success(yard: Yard) -> None:
    broken, tries = threading.Event(), []

    def send(record: Record, ctx: Context) -> Outcome:
        tries.append(record.tries)
        if not broken.is_set():
            raise OSError("no van")
        return Done()

    yard.steps(Sending=send)
    parcel = yard.engine.submit(New("parcel"))
    yard.worker()
    failed = yard.until_state(parcel, "Failed")
    assert (failed.message, failed.last_done, tries) == ("OSError: no van", "Packing", [0, 1])
    broken.set()
    yard.engine.act(parcel.ref, "resume", who="op")
    assert yard.until_state(parcel, "Sent").retries == 1


def test_a_users_mistake_fails_at_once_with_its_sentence(yard: Yard) -> None:
    def pack(record: Record, ctx: Context) -> Outcome:
        raise Fail("There is nothing in it; submit again with something.")

    yard.steps(Packing=pack)
    parcel = yard.engine.submit(New("parcel"))
    yard.worker()
    assert yard.until_state(parcel, "Failed").message == "There is nothing in it; submit again with something."


def test_a_number_that_json_does_not_have_is_not_written_as_nothing(yard: Yard) -> None:
    def pack(record: Record, ctx: Context) -> Outcome:
        if record.owner == "inf":
            ctx.save({"weight": {"sum": float("inf")}})
        return Done({"weight": {"mean": float("nan")}})

    yard.steps(Packing=pack)
    parcels = [yard.engine.submit(New("parcel", owner=number)) for number in ("inf", "nan")]
    yard.worker()
    for parcel, number in zip(parcels, ("inf", "nan"), strict=True):
        failed = yard.until_state(parcel, "Failed")
        assert f"JSON has no number {number}" in failed.message
        assert "weight" not in failed.docs


def test_wait_is_woken_when_due(yard: Yard) -> None:
    looks: list[int] = []

    def send(record: Record, ctx: Context) -> Outcome:
        looks.append(1)
        return Done() if len(looks) == 3 else Wait(message="no van yet")

    yard.steps(Sending=send)
    parcel = yard.engine.submit(New("parcel"))
    yard.worker()
    yard.until_state(parcel, "Sent")
    assert len(looks) == 3
    assert len(arrows(yard, parcel)) == 3  # looking and waiting leaves no line


def test_a_mark_holds_what_would_begin_and_release_lets_it_go(yard: Yard) -> None:
    yard.engine.hold("collections/a", who="op")
    parcel = yard.engine.submit(New("parcel"))
    yard.worker()
    assert yard.until_state(parcel, "Held").message == "held by collections/a"
    yard.engine.release("collections/a")
    yard.engine.act(parcel.ref, "release", who="op")
    yard.until_state(parcel, "Sent")


def test_a_paused_queue_is_left_alone_until_it_goes_on(yard: Yard) -> None:
    yard.store.mark("queue/parcel", True)
    parcel, crate = yard.engine.submit(New("parcel")), yard.engine.submit(New("crate"))
    yard.worker()
    yard.until_state(crate, "Shipped")
    assert yard.get(parcel).state == "Packing"
    yard.store.mark("queue/parcel", False)
    yard.until_state(parcel, "Sent")


def test_stop_gives_back_what_runs_and_fails_nothing(yard: Yard) -> None:
    gate = Gate()
    yard.steps(Packing=gate)
    parcels = [yard.engine.submit(New("parcel")) for _ in range(5)]
    worker = yard.worker(threads=1)
    gate.wait()
    yard.stop(worker)
    for parcel in parcels:
        after = yard.get(parcel)
        assert (after.state, after.session, after.tries, after.message) == ("Packing", None, 0, "")
    assert yard.store.sessions() == []
    assert len(gate.runs) == 1


def test_stop_commits_a_step_that_ends_well(yard: Yard) -> None:
    entered, told = threading.Event(), threading.Event()

    def pack(record: Record, ctx: Context) -> Outcome:
        entered.set()
        while not ctx.stop:
            told.wait(0.002)
        return Done()

    yard.steps(Packing=pack)
    parcel = yard.engine.submit(New("parcel"))
    worker = yard.worker()
    assert entered.wait(120)
    yard.stop(worker)
    assert (yard.get(parcel).state, yard.get(parcel).session) == ("Sending", None)


def test_a_step_that_does_not_end_keeps_its_claim_until_the_session_expires(yard: Yard) -> None:
    entered, leave = threading.Event(), threading.Event()

    def pack(record: Record, ctx: Context) -> Outcome:
        entered.set()
        leave.wait(30)
        return Done()

    yard.steps(Packing=pack)
    parcel = yard.engine.submit(New("parcel"))
    worker = yard.worker(grace=0.05)
    assert entered.wait(120)
    yard.stop(worker)
    assert yard.get(parcel).session is not None  # closing the session would let a second run start beside the first
    leave.set()


def test_an_action_on_a_claimed_record_is_refused_or_waits_as_the_machine_says(yard: Yard) -> None:
    gate = Gate()
    yard.steps(Packing=gate)
    parcel = yard.engine.submit(New("parcel"))
    yard.worker()
    gate.wait()
    with pytest.raises(Refused, match="A worker holds parcel"):
        yard.engine.act(parcel.ref, "shake")
    acted = yard.engine.act(parcel.ref, "drop", who="ann", why="no longer wanted")
    assert acted.pending
    yard.until_state(parcel, "Dropped")
    last = yard.store.history("parcel", parcel.id)[-1]
    assert (last.event, last.who, last.why, last.before) == ("drop", "ann", "no longer wanted", "Packing")
    with pytest.raises(Refused, match="is Dropped; drop needs it to be Packing"):
        yard.engine.act(parcel.ref, "drop")


def test_a_new_priority_stops_no_step_and_moves_the_record(yard: Yard) -> None:
    gate = Gate()
    yard.steps(Packing=gate)
    parcel = yard.engine.submit(New("parcel"))
    yard.worker()
    gate.wait()
    assert yard.engine.priority(parcel.ref, 77, who="ann").pending
    yard.until(lambda: any(t.ask for t in yard.workers[0][0].core.bench.tasks.values()), "the worker hears of it")
    gate.open.set()
    assert yard.until_state(parcel, "Sent").priority == 77
    assert any("priority 77 asked by ann" in line.why for line in yard.store.history("parcel", parcel.id))
    assert len(gate.runs) == 1


def test_a_key_asked_for_in_the_middle_of_a_step_is_exclusive(yard: Yard) -> None:
    inside: list[int] = []
    most: list[int] = []
    lock = threading.Lock()

    def send(record: Record, ctx: Context) -> Outcome:
        ctx.save(keys=["van/1"])
        with lock:
            inside.append(1)
            most.append(len(inside))
        threading.Event().wait(0.001)
        with lock:
            inside.pop()
        return Done()

    yard.steps(Sending=send)
    parcels = [yard.engine.submit(New("parcel")) for _ in range(20)]
    yard.worker(threads=4)
    yard.worker(threads=4)
    for parcel in parcels:
        yard.until_state(parcel, "Sent")
    assert max(most) == 1
    assert yard.get(parcels[0]).keys == ()


def test_saves_are_there_after_a_crash_of_the_step(yard: Yard) -> None:
    seen: list[Any] = []

    def send(record: Record, ctx: Context) -> Outcome:
        seen.append(record.docs.get("ark"))
        if "ark" not in record.docs:
            ctx.save({"ark": {"name": "ark:/1"}})
            raise OSError("died after minting")
        return Done()

    yard.steps(Sending=send)
    parcel = yard.engine.submit(New("parcel"))
    yard.worker()
    yard.until_state(parcel, "Sent")
    assert seen == [None, {"name": "ark:/1"}]


def test_each_attempt_has_its_own_folder_and_the_last_state_clears_them(yard: Yard) -> None:
    folders: list[tuple[str, list[str]]] = []

    def pack(record: Record, ctx: Context) -> Outcome:
        (ctx.workdir / "part").write_text("x")
        folders.append((ctx.workdir.name, [p.name for p in ctx.earlier()]))
        if len(folders) == 1:
            raise OSError("again")
        return Done()

    yard.steps(Packing=pack)
    parcel = yard.engine.submit(New("parcel"))
    yard.worker()
    yard.until_state(parcel, "Sent")
    (first, none), (second, earlier) = folders
    assert (none, earlier, first != second) == ([], [first], True)
    yard.until(lambda: not (yard.root / "parcel" / parcel.id).exists(), "the folder is cleared")


def test_delete_with_children_removes_them_in_portions_b16(yard: Yard) -> None:
    gate = Gate()

    def fill(record: Record, ctx: Context) -> Outcome:
        ctx.spawn_each(New("parcel") for _ in range(300))
        return Done()

    def delete(record: Record, ctx: Context) -> Outcome:
        return Wait() if ctx.remove_children("parcel") else Done()

    yard.steps(Filling=fill, Packing=gate, Deleting=delete)
    crate = yard.engine.submit(New("crate"))
    yard.worker(threads=2)
    gate.wait()
    yard.until_state(crate, "Waiting")
    yard.until(lambda: not yard.engine.act(crate.ref, "delete", who="op").pending or True)
    gate.open.set()
    yard.until_state(crate, "Gone")
    yard.until(lambda: yard.store.tally("parcel") == {}, "all parcels are gone")


def test_an_unknown_outcome_drops_the_session_and_the_truth_is_in_the_store(yard: Yard) -> None:
    parcel = yard.engine.submit(New("parcel"))
    opened = yard.open_store
    lost: list[int] = []

    def open_and_lose() -> Any:
        store = opened()
        commit = store.commit

        def commit_and_lose(groups: Sequence[Group]) -> list[Answer]:
            answers = commit(groups)
            if not lost and any(g.changes for g in groups):
                lost.append(1)
                return [Unknown()] * len(groups)
            return answers

        store.commit = commit_and_lose  # type: ignore[method-assign]
        return store

    yard.open_store = open_and_lose
    yard.worker()
    yard.until_state(parcel, "Sent")
    assert lost
    lines = yard.store.history("parcel", parcel.id)
    assert path_is_legal(yard.parcel, [(x.before, x.after, x.event) for x in lines]) is None
    assert [x.after for x in lines].count("Sending") == 1


def test_a_store_that_is_away_is_tried_again_and_nothing_is_lost(yard: Yard) -> None:
    parcel = yard.engine.submit(New("parcel"))
    opened = yard.open_store
    refusals: list[int] = []

    def open_and_refuse() -> Any:
        store = opened()
        commit = store.commit

        def refuse_thrice(groups: Sequence[Group]) -> list[Answer]:
            if len(refusals) < 3:
                refusals.append(1)
                raise Unavailable
            return commit(groups)

        store.commit = refuse_thrice  # type: ignore[method-assign]
        return store

    yard.open_store = open_and_refuse
    runs = Gate()
    runs.open.set()
    yard.steps(Packing=runs)
    yard.worker()
    yard.until_state(parcel, "Sent")
    assert (len(refusals), len(runs.runs)) == (3, 1)  # the outcome was kept; the step did not run again


def test_a_worker_does_not_start_without_its_steps(yard: Yard) -> None:
    del yard.parcel.steps["Sending"]
    from waybill.worker import Worker

    with pytest.raises(MachineError, match=r"parcel.Sending has no step"):
        Worker(
            yard.open_store, yard.machines, host="h", work_root=yard.root, objects=None, roles=["parcel.Sending"]
        ).run()  # type: ignore[arg-type]


def test_roles_choose_what_is_served(yard: Yard) -> None:
    parcel = yard.engine.submit(New("parcel"))
    first = yard.worker(roles=["parcel.Packing"])
    yard.until_state(parcel, "Sending")
    yard.stop(first)
    assert yard.get(parcel).state == "Sending"
    yard.worker(roles=["parcel.Sending"])
    yard.until_state(parcel, "Sent")
    with pytest.raises(Refused, match=r"parcel.Held is no role"):
        yard.worker(roles=["parcel.Held"])


def test_once_takes_exactly_one_step_and_says_which_arrow(yard: Yard) -> None:
    assert yard.once() is None
    parcel = yard.engine.submit(New("parcel"))
    arrow = yard.once()
    assert arrow is not None
    assert (arrow.ref, arrow.before, arrow.after, arrow.event) == (parcel.ref, "Packing", "Sending", "done")
    assert yard.get(parcel).session is None
    arrow = yard.once(target=parcel.ref)
    assert arrow is not None
    assert (arrow.before, arrow.after) == ("Sending", "Sent")
    with pytest.raises(Conflict):
        yard.once(target=parcel.ref)
    with pytest.raises(NotFound):
        yard.once(target=Ref("parcel", "pcl9999999999"))
    assert yard.store.sessions() == []


def test_once_runs_a_step_that_saves_spawns_and_reads(yard: Yard) -> None:
    def fill(record: Record, ctx: Context) -> Outcome:
        ctx.save({"note": {"a": 1}})
        ctx.spawn_each((New("parcel") for _ in range(7)), portion=3)
        return Done({"seen": {"n": sum(ctx.tally("parcel", parent=record.ref).values())}})

    yard.steps(Filling=fill)
    crate = yard.engine.submit(New("crate"))
    yard.once(roles=["crate"])
    after = yard.get(crate)
    assert (after.state, after.docs["seen"]["n"], after.docs["spawned"]["count"]) == ("Waiting", 7, 7)


def test_removed_is_only_what_has_settled(yard: Yard) -> None:
    crate = yard.engine.submit(New("crate"))
    with pytest.raises(Refused, match="still at work"):
        yard.engine.remove(crate.ref)
    yard.worker()
    yard.until_state(crate, "Shipped")
    assert yard.engine.remove(crate.ref) == 1
    with pytest.raises(NotFound):
        yard.get(crate)


def test_a_request_asked_twice_is_made_once(yard: Yard) -> None:
    first = yard.engine.submit(New("parcel", request="r1"))
    assert yard.engine.submit(New("parcel", request="r1")).id == first.id
    answer = yard.store.commit([])
    assert answer == []
    assert isinstance(yard.store.commit([Group((), (first.ref,))])[0], Committed)


def test_once_finds_nothing_due_where_all_is_paused(yard: Yard) -> None:
    parcel = yard.engine.submit(New("parcel"))
    for kind in yard.machines:
        yard.store.mark(f"queue/{kind}", True)
    assert yard.once() is None
    with pytest.raises(Conflict, match=r"is paused\. Unpause its queue"):
        yard.once(target=parcel.ref)
    assert yard.store.sessions() == []


def test_once_says_that_the_store_is_away(yard: Yard) -> None:
    opened = yard.open_store

    def away() -> Any:
        store = opened()

        def refuse(**options: Any) -> str:
            raise Unavailable

        store.open_session = refuse  # type: ignore[method-assign]
        return store

    yard.open_store = away
    with pytest.raises(Unavailable):
        yard.once()


def test_a_machine_without_work_needs_no_role(yard: Yard) -> None:
    from waybill.rules import Machines
    from waybill.tokens import TOKEN
    from waybill.worker import roles_of

    assert {r.kind for r in roles_of(Machines.of((*yard.machines.values(), TOKEN)))} == {"crate", "parcel"}


def test_once_keeps_its_session_while_the_step_lasts(yard: Yard) -> None:
    def pack(record: Record, ctx: Context) -> Outcome:
        begun = ctx.call(lambda store: store.sessions())[0].expires
        # A heartbeat is due within a second, and the ttl is much longer: a process that stands still for a while does
        # not lose its session.
        yard.until(
            lambda: ctx.call(lambda store: store.sessions())[0].expires > begun,
            "the session is kept beyond its first ttl",
        )
        return Done()

    yard.steps(Packing=pack)
    yard.engine.submit(New("parcel"))
    arrow = yard.once(ttl=15.0)
    assert arrow is not None
    assert (arrow.before, arrow.after) == ("Packing", "Sending")
    assert yard.store.sessions() == []


def test_once_gives_the_record_back_when_it_is_interrupted(yard: Yard) -> None:
    def pack(record: Record, ctx: Context) -> Outcome:
        _thread.interrupt_main()
        while True:
            ctx.check()

    yard.steps(Packing=pack)
    parcel = yard.engine.submit(New("parcel"))
    yard.once()
    after = yard.get(parcel)
    assert (after.state, after.session, after.tries) == ("Packing", None, 0)
    assert yard.store.sessions() == []


def test_steps_that_ask_without_a_pause_do_not_keep_the_owner_from_its_heartbeat(yard: Yard) -> None:
    worker = Worker(yard.open_store, yard.machines, host="h1", work_root=yard.root, objects=OBJECTS)
    asked: list[int] = []

    def ask() -> None:
        asked.append(1)
        assert len(asked) < 10, "the owner never comes to its heartbeat"
        worker._inbox.put(ask)

    worker._inbox.put(ask)
    worker._inbox.put(ask)
    worker._drain_inbox()
    assert len(asked) == 2


def test_a_step_that_removes_many_children_gives_way_between_portions_b16(
    yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "PORTION", 10)
    removed: list[int] = []

    def delete(record: Record, ctx: Context) -> Outcome:
        def stop_soon(store: Any) -> int:
            removed.append(50 - sum(store.tally("parcel", parent=record.ref).values()))
            return len(removed)

        whole = ctx.call

        def call(question: Any) -> Any:
            answer = whole(question)
            if whole(stop_soon) == 4:
                worker.stop()
                yard.until(lambda: ctx.stop, "the step is told to stop")
            return answer

        ctx.call = call  # type: ignore[method-assign]
        ctx.remove_children("parcel")
        return Done()

    yard.store.mark("queue/parcel", True)
    yard.steps(Filling=lambda record, ctx: Done(spawn=tuple(New("parcel") for _ in range(50))), Deleting=delete)
    crate = yard.engine.submit(New("crate"))
    worker = yard.worker()
    yard.until_state(crate, "Waiting")
    yard.until(lambda: yard.get(crate).parked == "children")
    yard.engine.act(crate.ref, "delete")
    yard.until(lambda: len(removed) >= 4, "some are removed")
    yard.stop(worker)
    assert yard.store.tally("parcel", parent=crate.ref) == {"Packing": 30}
    assert (yard.get(crate).state, yard.get(crate).session) == ("Deleting", None)


def test_what_has_a_child_in_a_workers_hands_is_not_removed(yard: Yard) -> None:
    crate = yard.engine.submit(New("crate"))
    yard.store.mark("queue/parcel", True)

    def fill(record: Record, ctx: Context) -> Outcome:
        ctx.spawn([New("parcel"), New("parcel")])
        return _fail()

    yard.steps(Filling=fill)
    worker = yard.worker()
    yard.until_state(crate, "Failed")
    yard.stop(worker)
    session = yard.store.open_session(host="h1", ttl=15, about={})
    held = yard.store.claim([Role("parcel", "Packing")], session, 1)[0].record
    with pytest.raises(Held, match="Workers hold 1 of the records below"):
        yard.engine.remove(crate.ref)
    assert yard.get(crate).state == "Failed"
    assert yard.store.tally("parcel") == {"Packing": 1}
    yard.store.close_session(session)
    assert yard.engine.remove(crate.ref) == 2
    with pytest.raises(NotFound):
        yard.get(held)


def test_what_is_taken_up_again_is_not_removed(yard: Yard) -> None:
    yard.steps(Filling=lambda record, ctx: _fail())
    crate = yard.engine.submit(New("crate"))
    yard.once()
    assert yard.get(crate).state == "Failed"

    class Meanwhile(Engine):
        def remove_children(self, *args: Any, **options: Any) -> tuple[int, int]:
            yard.engine.act(crate.ref, "resume", who="ann")
            return super().remove_children(*args, **options)

    with pytest.raises(Conflict):
        Meanwhile(yard.store, yard.machines).remove(crate.ref)
    assert yard.get(crate).state == "Filling"


def _fail() -> Outcome:
    raise Fail("it cannot be filled")


def test_a_folder_is_cleared_up_to_the_attempt_that_ended(yard: Yard) -> None:
    made: list[Path] = []

    def send(record: Record, ctx: Context) -> Outcome:
        (ctx.workdir / "file").write_text("x")
        later = ctx.workdir.parent / str(record.version + 100)  # of the same id, taken up again by another worker
        later.mkdir()
        made.extend((ctx.workdir, later))
        return Done()

    yard.steps(Sending=send)
    parcel = yard.engine.submit(New("parcel"))
    worker = yard.worker()
    yard.until_state(parcel, "Sent")
    yard.stop(worker)
    assert [folder.exists() for folder in made] == [False, True]


def test_steps_are_told_to_stop_also_when_the_owner_is_stuck_in_a_call(yard: Yard) -> None:
    stuck, answer, told = threading.Event(), threading.Event(), threading.Event()
    opened = yard.open_store

    def open_and_hang() -> Any:
        store = opened()
        renew = store.renew

        def hang(*args: Any) -> Any:
            stuck.set()
            answer.wait(60)
            return renew(*args)

        store.renew = hang  # type: ignore[method-assign, assignment]
        return store

    def pack(record: Record, ctx: Context) -> Outcome:
        assert stuck.wait(30), "the owner comes to its heartbeat"
        yard.until(lambda: ctx.stop, "the step is told to stop")
        if not answer.is_set():
            told.set()
        ctx.check()
        return Done()

    yard.steps(Packing=pack)
    yard.open_store = open_and_hang
    yard.engine.submit(New("parcel"))
    # long enough for the first heartbeat to be sent in time, also where the process stands still for a moment
    yard.worker(ttl=3.0)
    assert told.wait(30)
    answer.set()


def test_once_brings_a_record_to_rest_that_a_mark_holds(yard: Yard) -> None:
    yard.steps()
    parcel = yard.engine.submit(New("parcel"))
    yard.engine.hold("collections/a")
    arrow = yard.once(target=parcel.ref)
    assert arrow is not None
    assert (arrow.before, arrow.after, arrow.event) == ("Packing", "Held", "hold")
    assert yard.get(parcel).state == "Held"
