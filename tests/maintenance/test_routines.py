"""For each maintenance routine a fault is injected, found and repaired, and a second check finds nothing."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from tests.worker.worker_fixture import WorkerFixture
from waybill.config import DAY
from waybill.engine import Engine
from waybill.maintenance import (
    MAINTENANCE,
    MaintenanceContext,
    MaintenanceRoutine,
    MaintenanceScheduler,
    collect_routines,
    memory_of,
    run_round,
)
from waybill.maintenance.action_requests import ActionRequestRoutine
from waybill.maintenance.clock_jump import ClockJumpRoutine, ClockWatch
from waybill.maintenance.consistency import ConsistencyRoutine
from waybill.maintenance.ended_locks import EndedLockRoutine
from waybill.maintenance.idle_parents import IdleParentRoutine
from waybill.maintenance.lost_hosts import LostHostRoutine
from waybill.maintenance.retention import RetentionRoutine
from waybill.maintenance.store_indexes import StoreIndexRoutine
from waybill.maintenance.temporary_files import TemporaryFileRoutine
from waybill.maintenance.working_folders import WorkingFolderRoutine
from waybill.objects import Objects
from waybill.objects.directory import DirectoryObjects
from waybill.record import (
    ActionRequest,
    Change,
    CommitGroup,
    Finding,
    IdleParents,
    Record,
    RecordNotFound,
    Ref,
    WorkQueue,
)
from waybill.rules import ActionRefused, Machines
from waybill.step import New, Wait


def make_context(system: WorkerFixture, **options: Any) -> MaintenanceContext:
    return MaintenanceContext(system.store, system.machines, "h1", system.root, **options)


def find(routine: MaintenanceRoutine, context: MaintenanceContext) -> list[tuple[str, Ref | None]]:
    return [(f.rule, f.ref) for f in routine.check(context)]


def check_repairs(routine: MaintenanceRoutine, context: MaintenanceContext, rule: str, ref: Ref) -> None:
    assert find(routine, context) == [(rule, ref)]
    assert run_round(routine, context) == 1
    assert find(routine, context) == []
    assert run_round(routine, context) == 0


def commit_fields(system: WorkerFixture, record: Record, **fields: Any) -> Record:
    (answer,) = system.store.commit([CommitGroup((Change(record, replace(record, **fields), "injected"),))])
    assert not isinstance(answer, Exception), answer
    after = answer.records[0]
    assert after is not None
    return after


def test_idle_parents_wakes_a_parent_whose_wake_was_lost(system: WorkerFixture) -> None:
    crate = commit_fields(system, system.engine.submit(New("crate")), state="Waiting", blocked_by="children")
    check_repairs(IdleParentRoutine(), make_context(system), "lost wake", crate.ref)
    assert system.get(crate).blocked_by is None
    assert system.get(crate).version == crate.version  # a wake is never versioned


def test_idle_parents_reads_all_waiting_records_page_by_page(
    system: WorkerFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Most of them wait for an open child: a round checks a bounded number, and the one that was not woken is found in
    the end, and each time.
    """
    crates = [
        commit_fields(system, system.engine.submit(New("crate")), state="Waiting", blocked_by="children")
        for _ in range(9)
    ]
    for crate in crates[:7]:
        system.store.commit(
            [CommitGroup((Change(None, Record("parcel", "pcl*", "Packing", parent=crate.ref), "submit"),))]
        )
    asked: list[str] = []
    look = system.store.find_idle_parents

    def two(*, after: str = "", limit: int = 0) -> IdleParents:
        asked.append(after)
        return look(after=after, limit=2)

    monkeypatch.setattr(system.store, "find_idle_parents", two)
    routine, context = IdleParentRoutine(max_records=1), make_context(system)
    assert [run_round(routine, context) for _ in range(3)] == [0, 0, 0]
    context.memory = msgspec.json.decode(msgspec.json.encode(context.memory))  # as it is kept
    assert [run_round(routine, context) for _ in range(2)] == [1, 1]
    assert len(set(asked)) == len(asked) == 5
    assert [run_round(routine, context) for _ in range(5)] == [0] * 5
    assert asked[5] == "", "from the beginning again"
    commit_fields(system, system.get(crates[8]), blocked_by="children")
    assert [rule for rule, _ in find(routine, make_context(system, thorough=True))] == ["lost wake"]


def test_idle_parents_does_not_wake_a_parent_that_has_an_open_child(system: WorkerFixture) -> None:
    crate = commit_fields(system, system.engine.submit(New("crate")), state="Waiting", blocked_by="children")
    child = Record("parcel", "pcl*", "Packing", parent=crate.ref)
    system.store.commit([CommitGroup((Change(None, child, "submit"),))])
    assert find(IdleParentRoutine(), make_context(system)) == []


def declare_failed(system: WorkerFixture, settled: bool) -> None:
    """The same tables, but for what is said of a parcel that failed."""
    states = tuple(dataclasses.replace(s, settled=settled) if s.name == "Failed" else s for s in system.parcel.states)
    system.parcel = dataclasses.replace(system.parcel, states=states)
    system.machines = system.engine.machines = Machines.from_machines((system.crate, system.parcel))


def create_failed_parcels(system: WorkerFixture, open: bool) -> tuple[Record, list[Record]]:
    """A crate that waits, and its parcels that failed under a table that calls that open, or settled."""
    crate = system.engine.submit(New("crate"))
    drafts = [Record("parcel", "pcl*", "Failed", parent=crate.ref, open=open) for _ in range(2)]
    (answer,) = system.store.commit([CommitGroup(tuple(Change(None, draft, "submit") for draft in drafts))])
    assert not isinstance(answer, Exception), answer
    return commit_fields(system, crate, state="Waiting", blocked_by="children"), [
        record for record in answer.records if record is not None
    ]


def test_idle_parents_wakes_a_parent_whose_children_this_release_declares_settled(system: WorkerFixture) -> None:
    crate, parcels = create_failed_parcels(system, open=True)
    declare_failed(system, settled=True)
    routine, context = IdleParentRoutine(), make_context(system)
    assert find(routine, context) == [("open differs", parcel.ref) for parcel in parcels]
    context.memory.clear()
    assert run_round(routine, context) == 2
    assert [system.get(parcel).open for parcel in parcels] == [False, False]
    assert system.get(crate).blocked_by is None, "it was called"
    assert system.store.history("parcel", parcels[0].id)[-1].why == "this release declares Failed as settled"
    context.memory.clear()
    assert find(routine, context) == []
    assert system.run_one_step() is not None
    assert system.get(crate).state == "Shipped"


def test_idle_parents_lets_a_parent_wait_for_children_that_this_release_declares_open(system: WorkerFixture) -> None:
    crate, parcels = create_failed_parcels(system, open=False)
    declare_failed(system, settled=False)
    context = make_context(system)
    for parcel in parcels:
        assert ("open differs", parcel.ref) in find(IdleParentRoutine(), make_context(system))
    assert run_round(IdleParentRoutine(), context) == 3  # a call too: when it was made, no child was open
    assert system.store.parents_with_open_children([crate.ref]) == {crate.ref}
    assert find(IdleParentRoutine(), make_context(system)) == []


def test_idle_parents_checks_a_state_when_its_declaration_changes_and_every_hour(system: WorkerFixture) -> None:
    _, parcels = create_failed_parcels(system, open=True)
    declare_failed(system, settled=True)
    context = make_context(system)
    assert run_round(IdleParentRoutine(), context) == 2
    commit_fields(system, system.get(parcels[0]), open=True)  # by a worker of the release before
    assert find(IdleParentRoutine(), context) == []
    assert len(find(IdleParentRoutine(recheck_interval=0.0), context)) == 1
    context.thorough = True
    assert len(find(IdleParentRoutine(), context)) == 1
    context.thorough = False
    declare_failed(system, settled=False)
    context.machines = system.machines
    assert find(IdleParentRoutine(), context) == [("open differs", parcels[1].ref)]


def test_idle_parents_goes_on_where_the_last_round_ended(
    system: WorkerFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_failed_parcels(system, open=True)
    declare_failed(system, settled=True)
    monkeypatch.setattr("waybill.maintenance.routine.MAX_FINDINGS", 1)
    context = make_context(system)
    assert [run_round(IdleParentRoutine(), context) for _ in range(4)] == [1, 1, 0, 0]


class Pages:
    """A store that counts the records of the pages that were read."""

    def __init__(self, store: Any) -> None:
        self._store, self.read, self.most = store, 0, 0

    def __getattr__(self, verb: str) -> Any:
        return getattr(self._store, verb)

    def find(self, *args: Any, **options: Any) -> Any:
        page = self._store.find(*args, **options)
        self.read += len(page.records)
        self.most = max(self.most, len(page.records))
        return page


def test_idle_parents_checks_a_bounded_number_of_records_in_each_round(
    system: WorkerFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many children there are: neither a round nor its memory grows with them."""
    monkeypatch.setattr("waybill.maintenance.idle_parents.MAX_PAGE", 10)
    crate = system.engine.submit(New("crate"))
    drafts = [Record("parcel", "pcl*", "Failed", parent=crate.ref, open=n % 50 == 49) for n in range(200)]
    system.store.commit([CommitGroup(tuple(Change(None, draft, "submit") for draft in drafts))])
    declare_failed(system, settled=True)
    context, routine = make_context(system), IdleParentRoutine(max_records=40)
    store = context.store = Pages(system.store)  # type: ignore[assignment]
    repaired, rounds = 0, 0
    while repaired < 4:
        before, rounds = store.read, rounds + 1
        repaired += run_round(routine, context)
        assert store.read - before <= 50, "the limit, and the page in which it was reached"
        context.memory = msgspec.json.decode(msgspec.json.encode(context.memory))  # as it is kept
        assert rounds < 20
    assert store.read <= 200 + 20, "no record is looked at in every round"
    assert store.most == 10
    assert system.store.parents_with_open_children([crate.ref]) == set()
    while "parcel.Failed" in context.memory["state_cursors"] or len(context.memory["checked_states"]) < len(
        system.parcel.states
    ):
        run_round(routine, context)
    before = store.read
    assert run_round(routine, context) == 0
    assert store.read == before, "all was looked at within the hour"


def test_idle_parents_checks_changed_states_first(system: WorkerFixture) -> None:
    context = make_context(system)
    assert run_round(IdleParentRoutine(), context) == 0
    create_failed_parcels(system, open=False)
    declare_failed(system, settled=False)
    context.machines = system.machines
    # all are due
    context.memory["checked_states"] = {
        name: (opened, 0.0) for name, (opened, _) in context.memory["checked_states"].items()
    }
    assert [rule for rule, _ in find(IdleParentRoutine(max_records=1), context)] == [
        "lost wake",
        "open differs",
        "open differs",
    ]


def test_a_record_that_this_release_declares_settled_can_be_removed(system: WorkerFixture) -> None:
    _, (parcel, _) = create_failed_parcels(system, open=True)
    declare_failed(system, settled=True)
    assert system.engine.remove(parcel.ref) == 1


def test_ended_locks_releases_a_lock_of_an_ended_record(system: WorkerFixture) -> None:
    parcel = system.engine.submit(New("parcel", locks=("van/1",), state="Packing"))
    parcel = commit_fields(system, parcel, state="Sending", locks=("van/1",), hold_names=())
    session = system.store.open_session(host="h1", ttl=60, about={})
    (mine,) = system.store.claim([WorkQueue("parcel", "Sending")], session, 1)
    assert find(EndedLockRoutine(), make_context(system)) == []
    commit_fields(system, mine.record, state="Sent", open=False, session=None)
    check_repairs(EndedLockRoutine(), make_context(system), "lock of an ended record", parcel.ref)
    assert system.store.list_locks() == []


def test_action_requests_applies_what_was_requested_of_a_worker_that_is_gone(system: WorkerFixture) -> None:
    parcel = system.engine.submit(New("parcel"))
    session = system.store.open_session(host="h1", ttl=60, about={})
    system.store.claim([WorkQueue("parcel", "Packing")], session, 1)
    assert system.store.request_action(ActionRequest(parcel.ref, "drop", "ann", "unwanted"))
    assert find(ActionRequestRoutine(), make_context(system)) == []  # a worker holds it and will hear of it
    system.store.close_session(session)
    check_repairs(ActionRequestRoutine(), make_context(system), "action request left behind", parcel.ref)
    assert system.get(parcel).state == "Dropped"


def test_lost_hosts_sends_a_record_back_whose_files_are_on_a_lost_host(system: WorkerFixture) -> None:
    parcel = commit_fields(system, system.engine.submit(New("parcel")), state="Sending", host="gone")
    routine, context = LostHostRoutine(grace=0.0), make_context(system)
    check_repairs(routine, context, "host lost", parcel.ref)
    after = system.get(parcel)
    assert (after.state, after.host) == ("Packing", "")
    assert system.store.history("parcel", parcel.id)[-1].cause == "rebuild-files"


def test_lost_hosts_waits_before_a_host_counts_as_lost(system: WorkerFixture) -> None:
    commit_fields(system, system.engine.submit(New("parcel")), state="Sending", host="gone")
    context = make_context(system)
    assert find(LostHostRoutine(grace=600), context) == []
    assert "gone" in context.memory["missing"]
    context.memory["missing"]["gone"] -= 601
    assert len(find(LostHostRoutine(grace=600), context)) == 1


def test_lost_hosts_goes_by_the_record_when_nobody_has_watched_the_hosts(
    system: WorkerFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As doctor does: its one look must do. What has not moved for so long has had no worker for so long."""
    parcel = commit_fields(system, system.engine.submit(New("parcel")), state="Sending", host="gone")
    # here, where somebody looks: it is not gone
    commit_fields(system, system.engine.submit(New("parcel")), state="Sending", host="h1")
    by_hand = make_context(system, thorough=True)
    assert find(LostHostRoutine(), by_hand) == [], "it moved a moment ago"
    later = system.store.now() + 700
    monkeypatch.setattr(system.store, "now", lambda: later)
    with_memory = {"missing": {}, "at": later - 30}
    assert find(LostHostRoutine(), make_context(system, thorough=True, memory=with_memory)) == [], (
        "it was there half a minute ago"
    )
    with_memory = {"missing": {"gone": later - 650}, "at": later - 30}
    assert find(LostHostRoutine(), make_context(system, thorough=True, memory=with_memory)) == [
        ("host lost", parcel.ref)
    ]
    check_repairs(LostHostRoutine(), make_context(system, thorough=True), "host lost", parcel.ref)


def test_lost_hosts_leaves_records_of_a_live_host(system: WorkerFixture) -> None:
    commit_fields(system, system.engine.submit(New("parcel")), state="Sending", host="h1")
    system.store.open_session(host="h1", ttl=60, about={})
    assert find(LostHostRoutine(grace=0.0), make_context(system)) == []


def test_retention_removes_an_expired_record_with_its_children(system: WorkerFixture) -> None:
    crate = commit_fields(system, system.engine.submit(New("crate")), state="Shipped", open=False)
    child = Record("parcel", "pcl*", "Sent", parent=crate.ref, open=False)
    system.store.commit([CommitGroup((Change(None, child, "submit"),))])
    folder = system.root / "crate" / crate.id
    folder.mkdir(parents=True)
    assert find(RetentionRoutine(), make_context(system)) == []  # nothing says for how long
    settings = make_context(system, retention={"crate.Shipped": -1.0, "parcel.Sent": -1.0})
    check_repairs(RetentionRoutine(), settings, "retention expired", crate.ref)
    assert (system.store.count_by_state("crate"), system.store.count_by_state("parcel"), folder.exists()) == (
        {},
        {},
        False,
    )
    with pytest.raises(RecordNotFound):
        system.get(crate)


class Clocks:
    """A wall clock and a monotonic one, which a test moves."""

    def __init__(self, system: WorkerFixture, monkeypatch: pytest.MonkeyPatch) -> None:
        self.wall = self.monotonic = system.store.now()
        monkeypatch.setattr(type(system.store), "now", lambda _: self.wall)

    def routine(self) -> RetentionRoutine:
        return RetentionRoutine(clock=ClockWatch(lambda: self.monotonic))

    def advance(self, seconds: float, *, jump: float = 0.0) -> None:
        self.monotonic += seconds
        self.wall += seconds + jump


def test_a_jump_of_the_clock_removes_no_record_until_an_operator_confirms_it(
    system: WorkerFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    clocks, memory = Clocks(system, monkeypatch), dict[str, Any]()
    crate = commit_fields(system, system.engine.submit(New("crate")), state="Shipped", open=False)
    context = make_context(system, retention={"crate.Shipped": 30 * DAY}, memory=memory)
    routine, other_process = clocks.routine(), clocks.routine()
    assert find(routine, context) == find(other_process, context) == []
    clocks.advance(3600, jump=0.9 * DAY)
    assert find(routine, context) == []
    assert memory == {}, "less than a day is no jump"
    clocks.advance(3600, jump=3650 * DAY)
    assert find(routine, context) == find(routine, context) == []
    scheduler = MaintenanceScheduler({"retention": routine}, system.machines, "h1", system.root)
    engine = Engine(system.store, Machines.from_machines([*system.machines.values(), MAINTENANCE]))
    scheduler.ensure_records(engine)
    record = system.store.get("maintenance", "retention")
    written = {"memory": msgspec.json.encode({"memory": memory, "repaired": 0, "at": 0.0})}
    system.store.commit([CommitGroup((Change(record, record, "injected", documents=written),))])
    ((rule, _),) = find(ClockJumpRoutine(), make_context(system))
    assert rule == "clock jump"
    engine.act(record.ref, "trust-clock", who="ada")
    assert find(ClockJumpRoutine(), make_context(system)) == []
    with pytest.raises(ActionRefused, match="nothing to confirm"):
        engine.act(record.ref, "trust-clock", who="ada")
    confirmed = memory_of(system.store.get("maintenance", "retention"))
    after = make_context(system, retention={"crate.Shipped": 30 * DAY}, memory=confirmed)
    for each in (other_process, routine):  # one process has not looked before
        assert find(each, after) == [("retention expired", crate.ref)]


def test_time_that_passes_is_no_jump(system: WorkerFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    clocks = Clocks(system, monkeypatch)
    crate = commit_fields(system, system.engine.submit(New("crate")), state="Shipped", open=False)
    context, routine = make_context(system, retention={"crate.Shipped": 30 * DAY}), clocks.routine()
    assert find(routine, context) == []
    clocks.advance(31 * DAY)
    assert find(routine, context) == [("retention expired", crate.ref)]


def test_working_folders_removes_a_folder_that_no_record_needs_and_keeps_the_others(system: WorkerFixture) -> None:
    routine, context = WorkingFolderRoutine(min_age=0.0), make_context(system)
    working, sent = system.engine.submit(New("parcel")), system.engine.submit(New("parcel"))
    sent = commit_fields(system, sent, state="Sent", open=False)
    for ref in (working.ref, Ref("parcel", "pcl7777777777"), Ref("boat", "b1")):
        (system.root / ref.kind / ref.id).mkdir(parents=True)
    check_repairs(routine, context, "folder without a record", Ref("parcel", "pcl7777777777"))
    (system.root / "parcel" / sent.id).mkdir()
    check_repairs(routine, context, "folder without a record", sent.ref)
    assert sorted(p.name for p in system.root.glob("*/*")) == ["b1", working.id]


def test_working_folders_does_not_wait_where_the_record_says_that_its_files_go(system: WorkerFixture) -> None:
    dropped = system.engine.act(system.engine.submit(New("parcel")).ref, "drop").record
    for id in (dropped.id, "pcl7777777777"):
        (system.root / "parcel" / id).mkdir(parents=True)
    check_repairs(WorkingFolderRoutine(), make_context(system), "folder without a record", dropped.ref)
    assert [p.name for p in system.root.glob("*/*")] == ["pcl7777777777"], "its record may be on its way"


def test_working_folders_never_follows_a_link(system: WorkerFixture, tmp_path: Any) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "file").write_text("x")
    (system.root / "parcel").mkdir(parents=True)
    os.symlink(precious, system.root / "parcel" / "pcl7777777777")
    assert run_round(WorkingFolderRoutine(min_age=-1e9), make_context(system)) == 1
    assert (precious / "file").exists()
    assert not (system.root / "parcel" / "pcl7777777777").is_symlink()


def test_working_folders_sends_a_record_back_whose_folder_is_missing(system: WorkerFixture) -> None:
    parcel = commit_fields(system, system.engine.submit(New("parcel")), state="Sending", host="h1")
    check_repairs(WorkingFolderRoutine(), make_context(system), "record without its folder", parcel.ref)
    assert system.get(parcel).state == "Packing"


class Broken:
    """A store whose check finds the same until it is repaired."""

    def __init__(self) -> None:
        self.repaired: list[Finding] = []

    def check(self) -> Iterator[Finding]:
        if not self.repaired:
            yield Finding("a rule", "here", "It is broken.", "repair it")

    def repair(self, finding: Finding) -> bool:
        self.repaired.append(finding)
        return True

    def close(self) -> None:
        return None


def test_consistency_repairs_only_what_it_has_found_twice(system: WorkerFixture) -> None:
    broken: Any = Broken()
    context = MaintenanceContext(broken, system.machines, "h1", system.root, open_store=lambda: broken)
    assert run_round(ConsistencyRoutine(), context) == 0
    assert run_round(ConsistencyRoutine(), context) == 1
    assert len(broken.repaired) == 1
    assert run_round(ConsistencyRoutine(), context) == 0


@pytest.fixture
def maintenance_system(system: WorkerFixture) -> WorkerFixture:
    system.machines = system.engine.machines = Machines.from_machines((system.crate, system.parcel, MAINTENANCE))
    return system


def make_scheduler(
    system: WorkerFixture,
    routines: dict[str, MaintenanceRoutine],
    open_store: Callable[[], Any] | None = None,
    objects: Objects | None = None,
) -> MaintenanceScheduler:
    scheduler = MaintenanceScheduler(routines, system.machines, "h1", system.root, objects, open_store)
    scheduler.register_step()
    return scheduler


def test_any_worker_runs_the_routines_and_a_lost_wake_is_repaired_d2(maintenance_system: WorkerFixture) -> None:
    # one round, however long the others take: the next would repair nothing
    routines = {**collect_routines(), "idle-parents": IdleParentRoutine(poll_interval=3600)}
    scheduler = make_scheduler(maintenance_system, routines, maintenance_system.open_store)
    scheduler.ensure_records(maintenance_system.engine)
    scheduler.ensure_records(maintenance_system.engine)  # safe to repeat
    names = {r.id for r in maintenance_system.store.find("maintenance").records}
    assert names == {
        "idle-parents",
        "store-indexes",
        "action-requests",
        "clock",
        "lost-hosts",
        "retention",
        "working-folders@h1",
        "temporary-files",
        "ended-locks",
        "attempt-notes",
        "consistency",
    }
    crate = commit_fields(
        maintenance_system, maintenance_system.engine.submit(New("crate")), state="Waiting", blocked_by="children"
    )
    maintenance_system.start_worker()
    maintenance_system.wait_for_state(crate, "Shipped")
    maintenance_system.wait_until(
        lambda: all(
            "memory" in r.documents for r in maintenance_system.store.find("maintenance", documents=True).records
        ),
        "every routine has done a round",
    )
    memory = maintenance_system.store.get("maintenance", "idle-parents").documents["memory"]
    assert memory["repaired"] == 1


def test_a_round_can_be_started_by_an_action_d2(maintenance_system: WorkerFixture) -> None:
    make_scheduler(maintenance_system, {"idle-parents": IdleParentRoutine(poll_interval=3600)}).ensure_records(
        maintenance_system.engine
    )
    maintenance_system.start_worker()
    maintenance_system.wait_until(
        lambda: "memory" in maintenance_system.store.get("maintenance", "idle-parents").documents, "the first round"
    )
    maintenance_system.store.set_hold("queue/crate")  # so that nobody takes it while the fault is planted
    crate = commit_fields(
        maintenance_system, maintenance_system.engine.submit(New("crate")), state="Waiting", blocked_by="children"
    )
    maintenance_system.engine.act(Ref("maintenance", "idle-parents"), "run", who="op")
    maintenance_system.wait_until(lambda: maintenance_system.get(crate).blocked_by is None, "the round")
    maintenance_system.store.clear_hold("queue/crate")
    maintenance_system.wait_for_state(crate, "Shipped")


def _is_later(read_memory: Callable[[], dict[str, Any]], at: float) -> bool:
    return bool(read_memory()["at"] > at)


def iter_rounds(system: WorkerFixture, routine: str) -> Iterator[dict[str, Any]]:
    """Yield the memory of the routine after its first round by a worker that does nothing else, then after each round
    that an action starts.
    """

    def read_memory() -> dict[str, Any]:
        document: dict[str, Any] = system.store.get("maintenance", routine).documents["memory"]
        return document

    system.start_worker(queues=["maintenance"])
    system.wait_until(lambda: "memory" in system.store.get("maintenance", routine).documents, "the first round")
    while True:
        memory = read_memory()
        yield memory["memory"]
        system.engine.act(Ref("maintenance", routine), "run", who="op")
        system.wait_until(partial(_is_later, read_memory, memory["at"]), "the next round")


def test_temporary_files_removes_an_old_temporary_file_and_nothing_else(
    maintenance_system: WorkerFixture, tmp_path: Path
) -> None:
    with DirectoryObjects(tmp_path / "objects") as objects:
        objects.put("kept", b"an object")
        old, young = (tmp_path / "objects" / ".waybill" / "tmp" / name for name in ("old", "young"))
        for path in (old, young):
            path.write_bytes(b"half of an upl")
        long_ago = time.time() - 2 * 86400
        for path in (old, tmp_path / "objects" / "kept"):
            os.utime(path, (long_ago, long_ago))
        make_scheduler(
            maintenance_system, {"temporary-files": TemporaryFileRoutine(poll_interval=3600)}, objects=objects
        ).ensure_records(maintenance_system.engine)
        found = iter_rounds(maintenance_system, "temporary-files")
        assert next(found) == {"removed": {"files": 1, "uploads": 0}}
        assert (old.exists(), young.exists(), objects.head("kept").size) == (False, True, 9)
        assert next(found) == {"removed": {"files": 0, "uploads": 0}}
        assert young.exists()


def test_store_indexes_unblocks_a_record_that_waits_for_a_free_lock(maintenance_system: WorkerFixture) -> None:
    """The key's first waiter was called and nobody serves its state: the second would wait for it for ever."""
    states = ("Sending", "Packing", "Sending")
    drafts = [Record("parcel", "pcl*", state, locks=("van/1",), priority=place) for place, state in enumerate(states)]
    (answer,) = maintenance_system.store.commit([CommitGroup(tuple(Change(None, draft, "submit") for draft in drafts))])
    assert not isinstance(answer, Exception), answer
    _, called, waits = (record for record in answer.records if record is not None)
    session = maintenance_system.store.open_session(host="h1", ttl=600, about={})
    (holder,) = maintenance_system.store.claim([WorkQueue("parcel", "Sending")], session, 5)
    assert maintenance_system.store.claim([WorkQueue("parcel", "Packing")], session, 5) == []
    commit_fields(maintenance_system, holder.record, state="Failed", session=None, locks=())
    assert (
        maintenance_system.get(called).blocked_by,
        maintenance_system.get(waits).blocked_by,
        maintenance_system.store.list_locks(),
    ) == (None, "lock van/1", [])
    make_scheduler(maintenance_system, {"store-indexes": StoreIndexRoutine(poll_interval=3600)}).ensure_records(
        maintenance_system.engine
    )
    found = iter_rounds(maintenance_system, "store-indexes")
    assert next(found) == {"maintained": 1}
    assert maintenance_system.get(waits).blocked_by is None
    assert next(found) == {"maintained": 0}
    assert [
        each.record.id for each in maintenance_system.store.claim([WorkQueue("parcel", "Sending")], session, 5)
    ] == [waits.id]


def test_a_routine_of_one_host_is_served_by_that_host_only(maintenance_system: WorkerFixture) -> None:
    MaintenanceScheduler(
        {"working-folders": WorkingFolderRoutine()}, maintenance_system.machines, "elsewhere", maintenance_system.root
    ).ensure_records(maintenance_system.engine)
    make_scheduler(maintenance_system, collect_routines()).ensure_records(maintenance_system.engine)
    maintenance_system.start_worker()
    maintenance_system.wait_until(
        lambda: "memory" in maintenance_system.store.get("maintenance", "working-folders@h1").documents,
        "this host's round",
    )
    assert "memory" not in maintenance_system.store.get("maintenance", "working-folders@elsewhere").documents


def test_an_action_that_ends_a_record_has_its_folder_removed_at_once_whatever_host_it_lies_on(
    maintenance_system: WorkerFixture,
) -> None:
    make_scheduler(maintenance_system, {"working-folders": WorkingFolderRoutine(poll_interval=3600)}).ensure_records(
        maintenance_system.engine
    )
    MaintenanceScheduler(
        {"working-folders": WorkingFolderRoutine()}, maintenance_system.machines, "elsewhere", maintenance_system.root
    ).ensure_records(maintenance_system.engine)
    parcel = commit_fields(maintenance_system, maintenance_system.engine.submit(New("parcel")), state="Failed")
    folder = maintenance_system.root / "parcel" / parcel.id
    (folder / "1").mkdir(parents=True)
    maintenance_system.start_worker()
    maintenance_system.wait_until(
        lambda: "memory" in maintenance_system.store.get("maintenance", "working-folders@h1").documents,
        "the first round, which leaves it alone",
    )
    assert folder.exists()
    maintenance_system.engine.act(parcel.ref, "drop", who="op")
    maintenance_system.wait_until(lambda: not folder.exists(), "the round that the action called")
    assert maintenance_system.store.get("maintenance", "working-folders@elsewhere").wake_count == 1


def test_working_folders_leaves_alone_what_cannot_be_a_records_folder(system: WorkerFixture) -> None:
    kind = system.root / "parcel"
    kind.mkdir(parents=True)
    (kind / "notes.txt").write_text("mine")
    (kind / "two words").mkdir()
    os.mkdir(os.fsencode(kind) + b"/\xff")
    (kind / "pcl7777777777").mkdir()
    check_repairs(
        WorkingFolderRoutine(min_age=0.0),
        make_context(system),
        "folder without a record",
        Ref("parcel", "pcl7777777777"),
    )
    assert sorted(os.listdir(os.fsencode(kind))) == [b"notes.txt", b"two words", b"\xff"]


def test_working_folders_does_not_touch_the_files_of_a_record_that_is_taken_up_again_in_that_moment(
    system: WorkerFixture,
) -> None:
    sent = commit_fields(system, system.engine.submit(New("parcel", id="again")), state="Sent", open=False)
    old, new = system.root / "parcel" / "again" / "1", system.root / "parcel" / "again" / str(sent.version + 5)
    old.mkdir(parents=True)

    class Late(WorkingFolderRoutine):
        def _is_needed(self, hand: MaintenanceContext, ref: Ref) -> bool:
            needed = super()._is_needed(hand, ref)
            new.mkdir(exist_ok=True)  # between the look and the clearing
            return needed

    finding = Finding("folder without a record", "parcel/again", "", "", ref=sent.ref)
    assert not Late().repair(make_context(system), finding)
    assert (old.exists(), new.exists()) == (False, True)


def test_a_record_that_left_no_files_is_not_sent_back_for_ever(system: WorkerFixture) -> None:
    system.set_steps(Sending=lambda record, ctx: Wait(3600))
    parcel = system.engine.submit(New("parcel"))
    worker = system.start_worker()
    system.wait_until(lambda: system.get(parcel).blocked_by == "wait", "it waits in Sending")
    system.stop_worker(worker)
    assert (system.get(parcel).state, system.get(parcel).host) == ("Sending", "h1")
    assert find(WorkingFolderRoutine(), make_context(system)) == []


@pytest.mark.parametrize("where", ["", ".", "..", "parcel", "parcel/..", "/etc", "parcel//x"])
def test_working_folders_clears_nothing_but_working_folders(system: WorkerFixture, where: str) -> None:
    (system.root / "parcel" / "x").mkdir(parents=True)
    with pytest.raises(ValueError, match="no working folder"):
        WorkingFolderRoutine().repair(
            make_context(system), Finding("folder without a record", where, "", "", ref=Ref("parcel", "x"))
        )
    assert (system.root / "parcel" / "x").exists()
