"""Holds, pauses and locks: visible, set and ended, for one, for a batch, for a whole collection."""

from typing import Any

import pytest

from tests.apps.ingest.service.service_caller import ServiceCaller
from tests.servers.process import wait_until
from waybill import views
from waybill.apps.ingest import service
from waybill.errors import InputError, NotFound
from waybill.record import Conflict, Record, Ref
from waybill.rules import ActionRefused
from waybill.step import New
from waybill.views import hold_messages

ARK = "ark:/99999/fk4abc"


def make_held_batch(caller: ServiceCaller, jobs: int = 0, **fields: Any) -> Record:
    batch = caller.submit(b"x", **fields).batch
    caller.engine.act(batch.ref, "hold", who="op")
    for _ in range(jobs):
        make_held_job(caller, batch)
    return caller.engine.store.get(*batch.ref)


def make_held_job(caller: ServiceCaller, batch: Record) -> Ref:
    from waybill import rules
    from waybill.record import CommitGroup, CommitResult

    new = New("job", {"configuration": {"profile": "demo", "collections": ["maps"]}}, state="Held")
    answer = caller.engine.store.commit([CommitGroup((rules.create(caller.engine.machines, new, maker=batch),))])[0]
    assert isinstance(answer, CommitResult)
    (job,) = answer.records
    assert job is not None
    return job.ref


def states(caller: ServiceCaller, kind: str) -> dict[str, int]:
    return caller.engine.store.count_by_state(kind)


def test_holds_are_listed_by_scope(caller: ServiceCaller) -> None:
    assert service.hold_collection(caller.engine, "maps", who="op", why="the curator asked") is True
    assert service.hold_collection(caller.engine, "demo", who="op") is True, "a profile's name holds too"
    assert service.hold_collection(caller.engine, "elsewhere", who="op") is False
    service.pause_queue(caller.engine, "large", who="op", why="maintenance")
    caller.engine.set_hold("queue/rebuild", who="op")
    assert [(m.scope, m.name) for m in service.list_active_holds(caller.engine)] == [
        ("collection", "demo"),
        ("collection", "elsewhere"),
        ("collection", "maps"),
        ("other", "queue/rebuild"),
        ("queue", "large"),
    ]
    assert (
        next(m.about for m in service.list_active_holds(caller.engine) if m.name == "maps") == "op: the curator asked"
    )
    assert service.QUEUE_HOLDS == {"ingest": "queue/ingest", "small": "queue/accessSmall", "large": "queue/accessLarge"}
    service.unpause_queue(caller.engine, "large", who="op")
    with pytest.raises(NotFound, match="large is not paused"):
        service.unpause_queue(caller.engine, "large", who="op")


@pytest.mark.parametrize("name", ["", "a/b", "..", "a b", "x" * 200])
def test_what_is_no_collection_cannot_be_held(caller: ServiceCaller, name: str) -> None:
    with pytest.raises(InputError):
        service.hold_collection(caller.engine, name, who="op")


def test_the_release_of_a_collection_releases_all_that_rests_for_it(caller: ServiceCaller) -> None:
    service.PROFILES.put(caller.engine, {"name": "other"}, who="admin")
    ours, theirs = make_held_batch(caller, jobs=3), make_held_batch(caller, profile="other")
    service.hold_collection(caller.engine, "maps", who="op")
    with pytest.raises(ActionRefused, match="still on hold: collections/maps"):
        caller.engine.act(ours.ref, "release", who="op")
    bulk = service.release_collection(caller.engine, "maps", who="op", why="over")
    assert (bulk.done, bulk.refusal_count) == (4, 0)
    assert states(caller, "job") == {"Pending": 3}
    assert caller.engine.store.get(*ours.ref).state == "Pending"
    assert caller.engine.store.get(*theirs.ref).state == "Held"
    assert service.list_active_holds(caller.engine) == []
    with pytest.raises(NotFound, match="'maps' is not on hold"):
        service.release_collection(caller.engine, "maps", who="op")


def test_what_another_hold_still_stops_is_refused_one_by_one(caller: ServiceCaller) -> None:
    make_held_batch(caller)
    service.hold_collection(caller.engine, "maps", who="op")
    service.hold_collection(caller.engine, "demo", who="op")
    bulk = service.release_collection(caller.engine, "maps", who="op")
    assert (bulk.done, bulk.refusal_count) == (0, 1)
    assert "collections/demo is set" in bulk.refusals[0]["why"]
    assert (service.release_collection(caller.engine, "demo", who="op").done, states(caller, "batch")) == (
        1,
        {"Pending": 1},
    )


def test_the_message_of_a_held_record_names_the_holds_in_force(
    caller: ServiceCaller, monkeypatch: pytest.MonkeyPatch
) -> None:
    ref = caller.submit(b"x").batch.ref
    service.hold_collection(caller.engine, "maps", who="op")
    service.hold_collection(caller.engine, "demo", who="op")
    with caller.ingest.workers():
        caller.ingest.wait("batch", ref.id, "Held")

    def said() -> set[str]:
        batch = caller.engine.store.get(*ref)
        return {
            service.build_batch_view(caller.engine, batch)["message"],
            views.to_record_view(batch, caller.engine.machines, store=caller.engine.store)["message"],
            listed(docs=True),
        }

    def listed(docs: bool = False) -> str:
        store = caller.engine.store
        (row,) = views.to_page_view(store.find("batch", documents=docs), caller.engine.machines, store, documents=docs)[
            "records"
        ]
        return row["message"]

    assert said() == {"held by collections/maps and collections/demo"}
    assert listed() == "held by collections/maps"  # which is so
    service.release_collection(caller.engine, "maps", who="op")
    assert said() == {"held by collections/demo"} == {listed()}
    caller.engine.clear_hold("collections/demo")
    assert said() == {"held by collections/maps, which is over: release it"} == {listed()}
    with monkeypatch.context() as patch:
        patch.setattr(hold_messages, "MAX_DOCUMENT_READS", 0)
        assert listed() == "", "of those that are not looked at nothing is said"
    caller.engine.act(ref, "release", who="op")
    assert said() == {""} == {listed()}


def test_a_hold_can_be_ended_without_releasing_what_rests(caller: ServiceCaller) -> None:
    make_held_batch(caller)
    service.hold_collection(caller.engine, "maps", who="op")
    assert service.release_collection(caller.engine, "maps", who="op", release_records=False).done == 0
    assert states(caller, "batch") == {"Held": 1}


def test_one_batch_is_released_with_its_jobs(caller: ServiceCaller) -> None:
    ours, theirs = make_held_batch(caller, jobs=2), make_held_batch(caller, jobs=1)
    assert service.release_batch(caller.engine, ours, who="op").done == 3
    assert states(caller, "job") == {"Pending": 2, "Held": 1}
    assert caller.engine.store.get(*theirs.ref).state == "Held"


def test_a_lock_waits_for_its_turn_keeps_others_out_and_is_released(caller: ServiceCaller) -> None:
    key = f"storage/{ARK}"
    lock = service.set_operator_lock(caller.engine, key, who="op", why="it is being mended")
    assert list(service.list_active_locks(caller.engine)) == [], "asked for is not in force"
    second = service.set_operator_lock(caller.engine, key, who="op2")
    with caller.ingest.workers(queues=["operator-lock"]):
        caller.ingest.wait("operator-lock", lock.id, "Set")
        (shown,) = service.list_active_locks(caller.engine)
        assert shown == {
            "lock": key,
            "family": "storage",
            "name": ARK,
            "owner": {"kind": "operator-lock", "id": lock.id},
            "state": "Set",
            "why": "op: it is being mended",
        }
        assert caller.engine.store.get(*second.ref).state == "Asking"
        caller.engine.act(lock.ref, "release", who="op")
        caller.ingest.wait("operator-lock", second.id, "Set")
    assert service.release_operator_lock(caller.engine, key, who="op") == 1
    assert list(service.list_active_locks(caller.engine)) == []
    with pytest.raises(NotFound, match="Nothing locks"):
        service.release_operator_lock(caller.engine, key, who="op")


def test_a_lock_holds_on_every_store(anywhere: ServiceCaller) -> None:
    caller, key = anywhere, f"storage/{ARK}"
    both = [service.set_operator_lock(caller.engine, key, who=who, why="mending") for who in ("op", "op2")]
    with caller.ingest.workers(queues=["operator-lock"]):
        wait_until(lambda: "Set" in states(caller, "operator-lock"), "one of them to be set")
        # Where two may claim at once, either is first.
        first, second = sorted(both, key=lambda lock: caller.engine.store.get(*lock.ref).state != "Set")
        assert [(each["lock"], each["owner"]["id"]) for each in service.list_active_locks(caller.engine)] == [
            (key, first.id)
        ]
        caller.engine.act(first.ref, "release", who="op")
        caller.ingest.wait("operator-lock", second.id, "Set")
    service.release_operator_lock(caller.engine, key, who="op")
    assert list(service.list_active_locks(caller.engine)) == []
    assert list(caller.engine.store.check()) == []


def test_a_collection_is_held_and_released_on_every_store(anywhere: ServiceCaller) -> None:
    caller = anywhere
    service.hold_collection(caller.engine, "maps", who="op", why="asked")
    batch = make_held_batch(caller, jobs=2)
    with pytest.raises(ActionRefused, match="still on hold"):
        caller.engine.act(batch.ref, "release", who="op")
    assert service.release_collection(caller.engine, "maps", who="op").done == 3
    assert (states(caller, "batch"), states(caller, "job")) == ({"Pending": 1}, {"Pending": 2})


def test_a_locked_object_is_not_written_by_a_job(caller: ServiceCaller) -> None:
    batch = caller.submit(b"x").batch
    lock = service.set_operator_lock(caller.engine, f"inventory/{ARK}", who="op")
    with caller.ingest.workers(queues=["operator-lock"]):
        caller.ingest.wait("operator-lock", lock.id, "Set")
    from waybill import rules
    from waybill.record import CommitGroup, CommitResult, WorkQueue

    new = New("job", {"configuration": {"profile": "demo", "objectID": ARK}}, state="Recording")
    answer = caller.engine.store.commit([CommitGroup((rules.create(caller.engine.machines, new, maker=batch),))])[0]
    assert isinstance(answer, CommitResult)
    session = caller.engine.store.open_session(host="h", ttl=30, about={})
    assert caller.engine.store.claim([WorkQueue("job", "Recording")], session, 10) == []
    service.release_operator_lock(caller.engine, f"inventory/{ARK}", who="op")
    (claimed,) = caller.engine.store.claim([WorkQueue("job", "Recording")], session, 10)
    (shown,) = service.list_active_locks(caller.engine)
    assert (shown["owner"], shown["state"]) == ({"kind": "job", "id": claimed.record.id}, "Recording")
    with pytest.raises(Conflict, match="is owned by job"):
        service.release_operator_lock(caller.engine, f"inventory/{ARK}", who="op")


@pytest.mark.parametrize(
    "key", ["", "storage", "storage/", "storage/x", "other/ark:/1/x", "localid/", "localid/a\nb", f"storage/{ARK} "]
)
def test_an_invalid_lock_name_is_refused(caller: ServiceCaller, key: str) -> None:
    for verb in (service.set_operator_lock, service.release_operator_lock):
        with pytest.raises(InputError):
            verb(caller.engine, key, who="op")


def test_locks_are_listed_page_by_page(caller: ServiceCaller) -> None:
    keys = [f"storage/{ARK}{n}" for n in range(3)]
    made = [service.set_operator_lock(caller.engine, key, who="op") for key in keys]
    with caller.ingest.workers(queues=["operator-lock"]):
        for lock in made:
            caller.ingest.wait("operator-lock", lock.id, "Set")
    assert [each["lock"] for each in service.list_active_locks(caller.engine, limit=2)] == keys[:2]
    assert [each["lock"] for each in service.list_active_locks(caller.engine, after=keys[1])] == keys[2:]
