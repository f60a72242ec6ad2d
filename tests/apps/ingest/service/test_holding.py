"""Holds, pauses and locks: visible, set and ended, for one, for a batch, for a whole collection."""

import pytest

from tests.apps.ingest.service.desk import Desk
from tests.servers.process import wait_until
from waybill import views
from waybill.apps.ingest import service
from waybill.apps.ingest.service import Missing, Unfit
from waybill.record import Conflict, Record, Ref
from waybill.rules import Refused
from waybill.step import New
from waybill.views import resting

ARK = "ark:/99999/fk4abc"


def held_batch(desk: Desk, jobs: int = 0, **said: object) -> Record:
    batch = desk.submit(b"x", **said).batch
    desk.engine.act(batch.ref, "hold", who="op")
    for _ in range(jobs):
        held_job(desk, batch)
    return desk.engine.store.get(*batch.ref)


def held_job(desk: Desk, batch: Record) -> Ref:
    from waybill import rules
    from waybill.record import Committed, Group

    new = New("job", {"configuration": {"profile": "demo", "collections": ["maps"]}}, state="Held")
    answer = desk.engine.store.commit([Group((rules.create(desk.engine.machines, new, maker=batch),))])[0]
    assert isinstance(answer, Committed)
    (job,) = answer.records
    assert job is not None
    return job.ref


def states(desk: Desk, kind: str) -> dict[str, int]:
    return desk.engine.store.tally(kind)


def test_marks_are_listed_by_what_they_stop(desk: Desk) -> None:
    assert service.hold(desk.engine, "maps", who="op", why="the curator asked") is True
    assert service.hold(desk.engine, "demo", who="op") is True, "a profile's name holds too"
    assert service.hold(desk.engine, "elsewhere", who="op") is False
    service.pause(desk.engine, "large", who="op", why="maintenance")
    desk.engine.hold("queue/rebuild", who="op")
    assert [(m.sort, m.name) for m in service.marks(desk.engine)] == [
        ("collection", "demo"),
        ("collection", "elsewhere"),
        ("collection", "maps"),
        ("other", "queue/rebuild"),
        ("queue", "large"),
    ]
    assert next(m.about for m in service.marks(desk.engine) if m.name == "maps") == "op: the curator asked"
    assert service.QUEUES == {"ingest": "queue/ingest", "small": "queue/accessSmall", "large": "queue/accessLarge"}
    service.unpause(desk.engine, "large", who="op")
    with pytest.raises(Missing, match="large is not paused"):
        service.unpause(desk.engine, "large", who="op")


@pytest.mark.parametrize("name", ["", "a/b", "..", "a b", "x" * 200])
def test_what_is_no_collection_cannot_be_held(desk: Desk, name: str) -> None:
    with pytest.raises(Unfit):
        service.hold(desk.engine, name, who="op")


def test_the_release_of_a_collection_releases_all_that_rests_for_it(desk: Desk) -> None:
    service.PROFILES.put(desk.engine, {"name": "other"}, who="admin")
    ours, theirs = held_batch(desk, jobs=3), held_batch(desk, profile="other")
    service.hold(desk.engine, "maps", who="op")
    with pytest.raises(Refused, match="still on hold: collections/maps"):
        desk.engine.act(ours.ref, "release", who="op")
    bulk = service.release(desk.engine, "maps", who="op", why="over")
    assert (bulk.done, bulk.refused) == (4, 0)
    assert states(desk, "job") == {"Pending": 3}
    assert desk.engine.store.get(*ours.ref).state == "Pending"
    assert desk.engine.store.get(*theirs.ref).state == "Held"
    assert service.marks(desk.engine) == []
    with pytest.raises(Missing, match="'maps' is not on hold"):
        service.release(desk.engine, "maps", who="op")


def test_what_another_hold_still_stops_is_refused_one_by_one(desk: Desk) -> None:
    held_batch(desk)
    service.hold(desk.engine, "maps", who="op")
    service.hold(desk.engine, "demo", who="op")
    bulk = service.release(desk.engine, "maps", who="op")
    assert (bulk.done, bulk.refused) == (0, 1)
    assert "collections/demo is set" in bulk.refusals[0]["why"]
    assert (service.release(desk.engine, "demo", who="op").done, states(desk, "batch")) == (1, {"Pending": 1})


def test_what_two_marks_hold_says_which_of_them_still_does(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    ref = desk.submit(b"x").batch.ref
    service.hold(desk.engine, "maps", who="op")
    service.hold(desk.engine, "demo", who="op")
    with desk.site.workers():
        desk.site.wait("batch", ref.id, "Held")

    def said() -> set[str]:
        batch = desk.engine.store.get(*ref)
        return {
            service.batch_view(desk.engine, batch)["message"],
            views.record(batch, desk.engine.machines, store=desk.engine.store)["message"],
            listed(docs=True),
        }

    def listed(docs: bool = False) -> str:
        store = desk.engine.store
        (row,) = views.page(store.find("batch", docs=docs), desk.engine.machines, store, docs=docs)["records"]
        return row["message"]

    assert said() == {"held by collections/maps and collections/demo"}
    assert listed() == "held by collections/maps"  # which is so
    service.release(desk.engine, "maps", who="op")
    assert said() == {"held by collections/demo"} == {listed()}
    desk.engine.release("collections/demo", who="another service")
    assert said() == {"held by collections/maps, which is over: release it"} == {listed()}
    with monkeypatch.context() as patch:
        patch.setattr(resting, "MOST", 0)
        assert listed() == "", "of those that are not looked at nothing is said"
    desk.engine.act(ref, "release", who="op")
    assert said() == {""} == {listed()}


def test_a_hold_can_be_ended_without_releasing_what_rests(desk: Desk) -> None:
    held_batch(desk)
    service.hold(desk.engine, "maps", who="op")
    assert service.release(desk.engine, "maps", who="op", also_held=False).done == 0
    assert states(desk, "batch") == {"Held": 1}


def test_one_batch_is_released_with_its_jobs(desk: Desk) -> None:
    ours, theirs = held_batch(desk, jobs=2), held_batch(desk, jobs=1)
    assert service.release_batch(desk.engine, ours, who="op").done == 3
    assert states(desk, "job") == {"Pending": 2, "Held": 1}
    assert desk.engine.store.get(*theirs.ref).state == "Held"


def test_a_lock_waits_for_its_turn_keeps_others_out_and_is_released(desk: Desk) -> None:
    key = f"storage/{ARK}"
    lock = service.lock(desk.engine, key, who="op", why="it is being mended")
    assert list(service.locks(desk.engine)) == [], "asked for is not in force"
    second = service.lock(desk.engine, key, who="op2")
    with desk.site.workers(roles=["lock"]):
        desk.site.wait("lock", lock.id, "Set")
        (shown,) = service.locks(desk.engine)
        assert shown == {
            "key": key,
            "family": "storage",
            "name": ARK,
            "holder": {"kind": "lock", "id": lock.id},
            "state": "Set",
            "why": "op: it is being mended",
        }
        assert desk.engine.store.get(*second.ref).state == "Asking"
        desk.engine.act(lock.ref, "release", who="op")
        desk.site.wait("lock", second.id, "Set")
    assert service.unlock(desk.engine, key, who="op") == 1
    assert list(service.locks(desk.engine)) == []
    with pytest.raises(Missing, match="Nothing locks"):
        service.unlock(desk.engine, key, who="op")


def test_a_lock_holds_on_every_store(anywhere: Desk) -> None:
    desk, key = anywhere, f"storage/{ARK}"
    both = [service.lock(desk.engine, key, who=who, why="mending") for who in ("op", "op2")]
    with desk.site.workers(roles=["lock"]):
        wait_until(lambda: "Set" in states(desk, "lock"), "one of them to be set")
        # Where two may claim at once, either is first.
        first, second = sorted(both, key=lambda lock: desk.engine.store.get(*lock.ref).state != "Set")
        assert [(each["key"], each["holder"]["id"]) for each in service.locks(desk.engine)] == [(key, first.id)]
        desk.engine.act(first.ref, "release", who="op")
        desk.site.wait("lock", second.id, "Set")
    service.unlock(desk.engine, key, who="op")
    assert list(service.locks(desk.engine)) == []
    assert list(desk.engine.store.check()) == []


def test_a_collection_is_held_and_released_on_every_store(anywhere: Desk) -> None:
    desk = anywhere
    service.hold(desk.engine, "maps", who="op", why="asked")
    batch = held_batch(desk, jobs=2)
    with pytest.raises(Refused, match="still on hold"):
        desk.engine.act(batch.ref, "release", who="op")
    assert service.release(desk.engine, "maps", who="op").done == 3
    assert (states(desk, "batch"), states(desk, "job")) == ({"Pending": 1}, {"Pending": 2})


def test_a_locked_object_is_not_written_by_a_job(desk: Desk) -> None:
    batch = desk.submit(b"x").batch
    lock = service.lock(desk.engine, f"inventory/{ARK}", who="op")
    with desk.site.workers(roles=["lock"]):
        desk.site.wait("lock", lock.id, "Set")
    from waybill import rules
    from waybill.record import Committed, Group, Role

    new = New("job", {"configuration": {"profile": "demo", "objectID": ARK}}, state="Recording")
    answer = desk.engine.store.commit([Group((rules.create(desk.engine.machines, new, maker=batch),))])[0]
    assert isinstance(answer, Committed)
    session = desk.engine.store.open_session(host="h", ttl=30, about={})
    assert desk.engine.store.claim([Role("job", "Recording")], session, 10) == []
    service.unlock(desk.engine, f"inventory/{ARK}", who="op")
    (claimed,) = desk.engine.store.claim([Role("job", "Recording")], session, 10)
    (shown,) = service.locks(desk.engine)
    assert (shown["holder"], shown["state"]) == ({"kind": "job", "id": claimed.record.id}, "Recording")
    with pytest.raises(Conflict, match="is held by job"):
        service.unlock(desk.engine, f"inventory/{ARK}", who="op")


@pytest.mark.parametrize(
    "key", ["", "storage", "storage/", "storage/x", "other/ark:/1/x", "localid/", "localid/a\nb", f"storage/{ARK} "]
)
def test_what_is_no_key_cannot_be_locked(desk: Desk, key: str) -> None:
    for verb in (service.lock, service.unlock):
        with pytest.raises(Unfit):
            verb(desk.engine, key, who="op")


def test_locks_are_listed_page_by_page(desk: Desk) -> None:
    keys = [f"storage/{ARK}{n}" for n in range(3)]
    made = [service.lock(desk.engine, key, who="op") for key in keys]
    with desk.site.workers(roles=["lock"]):
        for lock in made:
            desk.site.wait("lock", lock.id, "Set")
    assert [each["key"] for each in service.locks(desk.engine, limit=2)] == keys[:2]
    assert [each["key"] for each in service.locks(desk.engine, after=keys[1])] == keys[2:]
