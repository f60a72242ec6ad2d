"""For each duty a fault is planted, named and mended, and a second look finds nothing."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from tests.worker.yard import Yard
from waybill.duties import DUTY, Duty, Hand, Post, a_round, all_duties
from waybill.duties.consistency import Consistency
from waybill.duties.folders import Folders
from waybill.duties.hosts import Hosts
from waybill.duties.joins import Joins
from waybill.duties.keys import Keys
from waybill.duties.leftovers import Leftovers
from waybill.duties.requests import Requests
from waybill.duties.retention import Retention
from waybill.duties.upkeep import Upkeep
from waybill.objects import Objects
from waybill.objects.directory import Directory
from waybill.record import Ask, Change, Finding, Group, Idle, NotFound, Record, Ref, Role
from waybill.rules import Machines
from waybill.step import New, Wait


def hand(yard: Yard, **options: Any) -> Hand:
    return Hand(yard.store, yard.machines, "h1", yard.root, **options)


def found(duty: Duty, with_hand: Hand) -> list[tuple[str, Ref | None]]:
    return [(f.rule, f.ref) for f in duty.check(with_hand)]


def mends(duty: Duty, with_hand: Hand, rule: str, ref: Ref) -> None:
    assert found(duty, with_hand) == [(rule, ref)]
    assert a_round(duty, with_hand) == 1
    assert found(duty, with_hand) == []
    assert a_round(duty, with_hand) == 0


def moved(yard: Yard, record: Record, **fields: Any) -> Record:
    (answer,) = yard.store.commit([Group((Change(record, replace(record, **fields), "planted"),))])
    assert not isinstance(answer, Exception), answer
    after = answer.records[0]
    assert after is not None
    return after


def test_joins_calls_a_parent_whose_nudge_was_lost(yard: Yard) -> None:
    crate = moved(yard, yard.engine.submit(New("crate")), state="Waiting", parked="children")
    mends(Joins(), hand(yard), "lost nudge", crate.ref)
    assert yard.get(crate).parked is None
    assert yard.get(crate).version == crate.version  # a nudge is never versioned


def test_joins_goes_through_all_that_wait_a_portion_in_each_round(yard: Yard, monkeypatch: pytest.MonkeyPatch) -> None:
    """Most of them wait for something: a round looks at a portion, and the one that was not called is found in the
    end, and each time.
    """
    crates = [moved(yard, yard.engine.submit(New("crate")), state="Waiting", parked="children") for _ in range(9)]
    for crate in crates[:7]:
        yard.store.commit([Group((Change(None, Record("parcel", "pcl*", "Packing", parent=crate.ref), "submit"),))])
    asked: list[str] = []
    look = yard.store.idle_parents

    def two(*, after: str = "", limit: int = 0) -> Idle:
        asked.append(after)
        return look(after=after, limit=2)

    monkeypatch.setattr(yard.store, "idle_parents", two)
    duty, with_hand = Joins(portion=1), hand(yard)
    assert [a_round(duty, with_hand) for _ in range(3)] == [0, 0, 0]
    with_hand.memory = msgspec.json.decode(msgspec.json.encode(with_hand.memory))  # as it is kept
    assert [a_round(duty, with_hand) for _ in range(2)] == [1, 1]
    assert len(set(asked)) == len(asked) == 5
    assert [a_round(duty, with_hand) for _ in range(5)] == [0] * 5
    assert asked[5] == "", "from the beginning again"
    moved(yard, yard.get(crates[8]), parked="children")
    assert [rule for rule, _ in found(duty, hand(yard, thorough=True))] == ["lost nudge"]


def test_joins_leaves_a_parent_alone_that_has_an_open_child(yard: Yard) -> None:
    crate = moved(yard, yard.engine.submit(New("crate")), state="Waiting", parked="children")
    child = Record("parcel", "pcl*", "Packing", parent=crate.ref)
    yard.store.commit([Group((Change(None, child, "submit"),))])
    assert found(Joins(), hand(yard)) == []


def another_release(yard: Yard, settled: bool) -> None:
    """The same tables, but for what is said of a parcel that failed."""
    states = tuple(dataclasses.replace(s, settled=settled) if s.name == "Failed" else s for s in yard.parcel.states)
    yard.parcel = dataclasses.replace(yard.parcel, states=states, _by_name={})
    yard.machines = yard.engine.machines = Machines.of((yard.crate, yard.parcel))


def failed_parcels(yard: Yard, open: bool) -> tuple[Record, list[Record]]:
    """A crate that waits, and its parcels that failed under a table that calls that open, or settled."""
    crate = yard.engine.submit(New("crate"))
    drafts = [Record("parcel", "pcl*", "Failed", parent=crate.ref, open=open) for _ in range(2)]
    (answer,) = yard.store.commit([Group(tuple(Change(None, draft, "submit") for draft in drafts))])
    assert not isinstance(answer, Exception), answer
    return moved(yard, crate, state="Waiting", parked="children"), [
        record for record in answer.records if record is not None
    ]


def test_joins_calls_a_parent_whose_children_are_settled_by_the_table_of_this_release(yard: Yard) -> None:
    crate, parcels = failed_parcels(yard, open=True)
    another_release(yard, settled=True)
    duty, with_hand = Joins(), hand(yard)
    assert found(duty, with_hand) == [("open by the table", parcel.ref) for parcel in parcels]
    with_hand.memory.clear()
    assert a_round(duty, with_hand) == 2
    assert [yard.get(parcel).open for parcel in parcels] == [False, False]
    assert yard.get(crate).parked is None, "it was called"
    assert yard.store.history("parcel", parcels[0].id)[-1].why == "by the table now in force Failed is settled"
    with_hand.memory.clear()
    assert found(duty, with_hand) == []
    assert yard.once() is not None
    assert yard.get(crate).state == "Shipped"


def test_joins_lets_a_parent_wait_for_children_that_are_open_by_the_table_of_this_release(yard: Yard) -> None:
    crate, parcels = failed_parcels(yard, open=False)
    another_release(yard, settled=False)
    with_hand = hand(yard)
    for parcel in parcels:
        assert ("open by the table", parcel.ref) in found(Joins(), hand(yard))
    assert a_round(Joins(), with_hand) == 3  # a call too: when it was made, no child was open
    assert yard.store.open_parents([crate.ref]) == {crate.ref}
    assert found(Joins(), hand(yard)) == []


def test_joins_looks_a_state_through_when_its_table_changes_and_now_and_then(yard: Yard) -> None:
    _, parcels = failed_parcels(yard, open=True)
    another_release(yard, settled=True)
    with_hand = hand(yard)
    assert a_round(Joins(), with_hand) == 2
    moved(yard, yard.get(parcels[0]), open=True)  # by a worker of the release before
    assert found(Joins(), with_hand) == []
    assert len(found(Joins(again=0.0), with_hand)) == 1
    with_hand.thorough = True
    assert len(found(Joins(), with_hand)) == 1
    with_hand.thorough = False
    another_release(yard, settled=False)
    with_hand.machines = yard.machines
    assert found(Joins(), with_hand) == [("open by the table", parcels[1].ref)]


def test_joins_goes_on_where_a_portion_ended(yard: Yard, monkeypatch: pytest.MonkeyPatch) -> None:
    failed_parcels(yard, open=True)
    another_release(yard, settled=True)
    monkeypatch.setattr("waybill.duties.duty.ROUND", 1)
    with_hand = hand(yard)
    assert [a_round(Joins(), with_hand) for _ in range(4)] == [1, 1, 0, 0]


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


def test_joins_looks_at_a_portion_in_each_round_and_goes_on_behind_it(
    yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many children there are: neither a round nor what it keeps grows with them."""
    monkeypatch.setattr("waybill.duties.joins.MAX_PAGE", 10)
    crate = yard.engine.submit(New("crate"))
    drafts = [Record("parcel", "pcl*", "Failed", parent=crate.ref, open=n % 50 == 49) for n in range(200)]
    yard.store.commit([Group(tuple(Change(None, draft, "submit") for draft in drafts))])
    another_release(yard, settled=True)
    with_hand, duty = hand(yard), Joins(portion=40)
    store = with_hand.store = Pages(yard.store)  # type: ignore[assignment]
    mended, rounds = 0, 0
    while mended < 4:
        before, rounds = store.read, rounds + 1
        mended += a_round(duty, with_hand)
        assert store.read - before <= 50, "a portion, and the page in which it ended"
        with_hand.memory = msgspec.json.decode(msgspec.json.encode(with_hand.memory))  # as it is kept
        assert rounds < 20
    assert store.read <= 200 + 20, "no record is looked at in every round"
    assert store.most == 10
    assert yard.store.open_parents([crate.ref]) == set()
    while "parcel.Failed" in with_hand.memory["begun"] or len(with_hand.memory["looked"]) < len(yard.parcel.states):
        a_round(duty, with_hand)
    before = store.read
    assert a_round(duty, with_hand) == 0
    assert store.read == before, "all was looked at within the hour"


def test_joins_looks_first_where_the_table_has_changed(yard: Yard) -> None:
    with_hand = hand(yard)
    assert a_round(Joins(), with_hand) == 0
    failed_parcels(yard, open=False)
    another_release(yard, settled=False)
    with_hand.machines = yard.machines
    # all are due
    with_hand.memory["looked"] = {name: (opened, 0.0) for name, (opened, _) in with_hand.memory["looked"].items()}
    assert [rule for rule, _ in found(Joins(portion=1), with_hand)] == [
        "lost nudge",
        "open by the table",
        "open by the table",
    ]


def test_what_the_table_of_this_release_calls_settled_can_be_removed(yard: Yard) -> None:
    _, (parcel, _) = failed_parcels(yard, open=True)
    another_release(yard, settled=True)
    assert yard.engine.remove(parcel.ref) == 1


def test_keys_lets_go_of_a_key_of_what_has_ended(yard: Yard) -> None:
    parcel = yard.engine.submit(New("parcel", keys=("van/1",), state="Packing"))
    parcel = moved(yard, parcel, state="Sending", keys=("van/1",), gates=())
    session = yard.store.open_session(host="h1", ttl=60, about={})
    (mine,) = yard.store.claim([Role("parcel", "Sending")], session, 1)
    assert found(Keys(), hand(yard)) == []
    moved(yard, mine.record, state="Sent", open=False, session=None)
    mends(Keys(), hand(yard), "key of what has ended", parcel.ref)
    assert yard.store.held_keys() == []


def test_requests_applies_what_was_left_with_a_worker_that_is_gone(yard: Yard) -> None:
    parcel = yard.engine.submit(New("parcel"))
    session = yard.store.open_session(host="h1", ttl=60, about={})
    yard.store.claim([Role("parcel", "Packing")], session, 1)
    assert yard.store.ask(Ask(parcel.ref, "drop", "ann", "unwanted"))
    assert found(Requests(), hand(yard)) == []  # a worker holds it and will hear of it
    yard.store.close_session(session)
    mends(Requests(), hand(yard), "request left behind", parcel.ref)
    assert yard.get(parcel).state == "Dropped"


def test_hosts_leads_back_what_has_its_files_on_a_host_that_is_gone(yard: Yard) -> None:
    parcel = moved(yard, yard.engine.submit(New("parcel")), state="Sending", host="gone")
    duty, with_hand = Hosts(grace=0.0), hand(yard)
    mends(duty, with_hand, "host gone", parcel.ref)
    after = yard.get(parcel)
    assert (after.state, after.host) == ("Packing", "")
    assert yard.store.history("parcel", parcel.id)[-1].event == "remake"


def test_hosts_waits_before_it_believes_that_a_host_is_gone(yard: Yard) -> None:
    moved(yard, yard.engine.submit(New("parcel")), state="Sending", host="gone")
    with_hand = hand(yard)
    assert found(Hosts(grace=600), with_hand) == []
    assert "gone" in with_hand.memory["missing"]
    with_hand.memory["missing"]["gone"] -= 601
    assert len(found(Hosts(grace=600), with_hand)) == 1


def test_hosts_goes_by_the_record_where_nobody_has_watched_the_hosts(
    yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As doctor does: its one look must do. What has not moved for so long has had no worker for so long."""
    parcel = moved(yard, yard.engine.submit(New("parcel")), state="Sending", host="gone")
    # here, where somebody looks: it is not gone
    moved(yard, yard.engine.submit(New("parcel")), state="Sending", host="h1")
    by_hand = hand(yard, thorough=True)
    assert found(Hosts(), by_hand) == [], "it moved a moment ago"
    later = yard.store.now() + 700
    monkeypatch.setattr(yard.store, "now", lambda: later)
    with_memory = {"missing": {}, "at": later - 30}
    assert found(Hosts(), hand(yard, thorough=True, memory=with_memory)) == [], "it was there half a minute ago"
    with_memory = {"missing": {"gone": later - 650}, "at": later - 30}
    assert found(Hosts(), hand(yard, thorough=True, memory=with_memory)) == [("host gone", parcel.ref)]
    mends(Hosts(), hand(yard, thorough=True), "host gone", parcel.ref)


def test_hosts_leaves_records_of_a_live_host(yard: Yard) -> None:
    moved(yard, yard.engine.submit(New("parcel")), state="Sending", host="h1")
    yard.store.open_session(host="h1", ttl=60, about={})
    assert found(Hosts(grace=0.0), hand(yard)) == []


def test_retention_removes_what_was_kept_long_enough_with_its_children(yard: Yard) -> None:
    crate = moved(yard, yard.engine.submit(New("crate")), state="Shipped", open=False)
    child = Record("parcel", "pcl*", "Sent", parent=crate.ref, open=False)
    yard.store.commit([Group((Change(None, child, "submit"),))])
    folder = yard.root / "crate" / crate.id
    folder.mkdir(parents=True)
    assert found(Retention(), hand(yard)) == []  # nothing says for how long
    settings = hand(yard, retention={"crate.Shipped": -1.0, "parcel.Sent": -1.0})
    mends(Retention(), settings, "kept long enough", crate.ref)
    assert (yard.store.tally("crate"), yard.store.tally("parcel"), folder.exists()) == ({}, {}, False)
    with pytest.raises(NotFound):
        yard.get(crate)


def test_folders_removes_a_folder_that_no_record_needs_and_keeps_the_others(yard: Yard) -> None:
    duty, with_hand = Folders(age=0.0), hand(yard)
    working, sent = yard.engine.submit(New("parcel")), yard.engine.submit(New("parcel"))
    sent = moved(yard, sent, state="Sent", open=False)
    for ref in (working.ref, Ref("parcel", "pcl7777777777"), Ref("boat", "b1")):
        (yard.root / ref.kind / ref.id).mkdir(parents=True)
    mends(duty, with_hand, "folder without a record", Ref("parcel", "pcl7777777777"))
    (yard.root / "parcel" / sent.id).mkdir()
    mends(duty, with_hand, "folder without a record", sent.ref)
    assert sorted(p.name for p in yard.root.glob("*/*")) == ["b1", working.id]


def test_folders_does_not_wait_where_the_record_says_that_its_files_go(yard: Yard) -> None:
    dropped = yard.engine.act(yard.engine.submit(New("parcel")).ref, "drop").record
    for id in (dropped.id, "pcl7777777777"):
        (yard.root / "parcel" / id).mkdir(parents=True)
    mends(Folders(), hand(yard), "folder without a record", dropped.ref)
    assert [p.name for p in yard.root.glob("*/*")] == ["pcl7777777777"], "its record may be on its way"


def test_folders_never_follows_a_link(yard: Yard, tmp_path: Any) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "file").write_text("x")
    (yard.root / "parcel").mkdir(parents=True)
    os.symlink(precious, yard.root / "parcel" / "pcl7777777777")
    assert a_round(Folders(age=-1e9), hand(yard)) == 1
    assert (precious / "file").exists()
    assert not (yard.root / "parcel" / "pcl7777777777").is_symlink()


def test_folders_leads_back_a_record_of_this_host_whose_folder_is_not_there(yard: Yard) -> None:
    parcel = moved(yard, yard.engine.submit(New("parcel")), state="Sending", host="h1")
    mends(Folders(), hand(yard), "record without its folder", parcel.ref)
    assert yard.get(parcel).state == "Packing"


class Broken:
    """A store whose check finds the same thing until it is mended."""

    def __init__(self) -> None:
        self.mended: list[Finding] = []

    def check(self) -> Iterator[Finding]:
        if not self.mended:
            yield Finding("a rule", "here", "It is broken.", "mend it")

    def mend(self, finding: Finding) -> bool:
        self.mended.append(finding)
        return True

    def close(self) -> None:
        return None


def test_consistency_mends_only_what_it_has_seen_twice(yard: Yard) -> None:
    broken: Any = Broken()
    with_hand = Hand(broken, yard.machines, "h1", yard.root, open_store=lambda: broken)
    assert a_round(Consistency(), with_hand) == 0
    assert a_round(Consistency(), with_hand) == 1
    assert len(broken.mended) == 1
    assert a_round(Consistency(), with_hand) == 0


@pytest.fixture
def duty_yard(yard: Yard) -> Iterator[Yard]:
    steps = dict(DUTY.steps)
    yard.machines = yard.engine.machines = Machines.of((yard.crate, yard.parcel, DUTY))
    yield yard
    DUTY.steps.clear()
    DUTY.steps.update(steps)


def post_of(
    yard: Yard, duties: dict[str, Duty], open_store: Callable[[], Any] | None = None, objects: Objects | None = None
) -> Post:
    post = Post(duties, yard.machines, "h1", yard.root, objects, open_store)
    post.take_up()
    return post


def test_any_worker_does_the_duties_and_a_lost_nudge_is_mended_d2(duty_yard: Yard) -> None:
    yard = duty_yard
    # one round, however long the others take: the next would mend nothing
    duties = {**all_duties(), "joins": Joins(every=3600)}
    post = post_of(yard, duties, yard.open_store)
    post.ensure(yard.engine)
    post.ensure(yard.engine)  # safe to repeat
    names = {r.id for r in yard.store.find("duty").records}
    assert names == {
        "joins",
        "upkeep",
        "requests",
        "hosts",
        "retention",
        "folders@h1",
        "leftovers",
        "keys",
        "consistency",
    }
    crate = moved(yard, yard.engine.submit(New("crate")), state="Waiting", parked="children")
    yard.worker()
    yard.until_state(crate, "Shipped")
    yard.until(
        lambda: all("memory" in r.docs for r in yard.store.find("duty", docs=True).records),
        "every duty has done a round",
    )
    memory = yard.store.get("duty", "joins").docs["memory"]
    assert memory["mended"] == 1


def test_a_round_can_be_asked_for_d2(duty_yard: Yard) -> None:
    yard = duty_yard
    post_of(yard, {"joins": Joins(every=3600)}).ensure(yard.engine)
    yard.worker()
    yard.until(lambda: "memory" in yard.store.get("duty", "joins").docs, "the first round")
    yard.store.mark("queue/crate", True)  # so that nobody takes it while the fault is planted
    crate = moved(yard, yard.engine.submit(New("crate")), state="Waiting", parked="children")
    yard.engine.act(Ref("duty", "joins"), "run", who="op")
    yard.until(lambda: yard.get(crate).parked is None, "the round")
    yard.store.mark("queue/crate", False)
    yard.until_state(crate, "Shipped")


def rounds(yard: Yard, duty: str) -> Iterator[dict[str, Any]]:
    """What the duty keeps after its first round by a worker that does nothing else, and then after each that is
    asked for.
    """
    yard.worker(roles=["duty"])
    yard.until(lambda: "memory" in yard.store.get("duty", duty).docs, "the first round")
    while True:
        memory = yard.store.get("duty", duty).docs["memory"]
        yield memory["kept"]
        yard.engine.act(Ref("duty", duty), "run", who="op")
        yard.until(
            lambda before=memory["at"]: yard.store.get("duty", duty).docs["memory"]["at"] > before, "the next round"
        )


def test_leftovers_removes_an_old_temporary_file_and_nothing_else(duty_yard: Yard, tmp_path: Path) -> None:
    yard = duty_yard
    with Directory(tmp_path / "objects") as objects:
        objects.put("kept", b"an object")
        old, young = (tmp_path / "objects" / ".waybill" / "tmp" / name for name in ("old", "young"))
        for path in (old, young):
            path.write_bytes(b"half of an upl")
        long_ago = time.time() - 2 * 86400
        for path in (old, tmp_path / "objects" / "kept"):
            os.utime(path, (long_ago, long_ago))
        post_of(yard, {"leftovers": Leftovers(every=3600)}, objects=objects).ensure(yard.engine)
        kept = rounds(yard, "leftovers")
        assert next(kept) == {"removed": {"files": 1, "uploads": 0}}
        assert (old.exists(), young.exists(), objects.head("kept").size) == (False, True, 9)
        assert next(kept) == {"removed": {"files": 0, "uploads": 0}}
        assert young.exists()


def test_upkeep_frees_the_waiter_of_a_key_that_is_free(duty_yard: Yard) -> None:
    """The key's first waiter was called and nobody serves its state: the second would wait for it for ever."""
    yard = duty_yard
    states = ("Sending", "Packing", "Sending")
    drafts = [Record("parcel", "pcl*", state, keys=("van/1",), priority=place) for place, state in enumerate(states)]
    (answer,) = yard.store.commit([Group(tuple(Change(None, draft, "submit") for draft in drafts))])
    assert not isinstance(answer, Exception), answer
    _, called, waits = (record for record in answer.records if record is not None)
    session = yard.store.open_session(host="h1", ttl=600, about={})
    (holder,) = yard.store.claim([Role("parcel", "Sending")], session, 5)
    assert yard.store.claim([Role("parcel", "Packing")], session, 5) == []
    moved(yard, holder.record, state="Failed", session=None, keys=())
    assert (yard.get(called).parked, yard.get(waits).parked, yard.store.held_keys()) == (None, "key van/1", [])
    post_of(yard, {"upkeep": Upkeep(every=3600)}).ensure(yard.engine)
    kept = rounds(yard, "upkeep")
    assert next(kept) == {"swept": 1}
    assert yard.get(waits).parked is None
    assert next(kept) == {"swept": 0}
    assert [each.record.id for each in yard.store.claim([Role("parcel", "Sending")], session, 5)] == [waits.id]


def test_a_duty_of_one_host_is_served_by_that_host_only(duty_yard: Yard) -> None:
    yard = duty_yard
    Post({"folders": Folders()}, yard.machines, "elsewhere", yard.root).ensure(yard.engine)
    post_of(yard, all_duties()).ensure(yard.engine)
    yard.worker()
    yard.until(lambda: "memory" in yard.store.get("duty", "folders@h1").docs, "this host's round")
    assert "memory" not in yard.store.get("duty", "folders@elsewhere").docs


def test_an_action_that_ends_a_record_has_its_folder_removed_at_once_whatever_host_it_lies_on(duty_yard: Yard) -> None:
    yard = duty_yard
    post_of(yard, {"folders": Folders(every=3600)}).ensure(yard.engine)
    Post({"folders": Folders()}, yard.machines, "elsewhere", yard.root).ensure(yard.engine)
    parcel = moved(yard, yard.engine.submit(New("parcel")), state="Failed")
    folder = yard.root / "parcel" / parcel.id
    (folder / "1").mkdir(parents=True)
    yard.worker()
    yard.until(lambda: "memory" in yard.store.get("duty", "folders@h1").docs, "the first round, which leaves it alone")
    assert folder.exists()
    yard.engine.act(parcel.ref, "drop", who="op")
    yard.until(lambda: not folder.exists(), "the round that the action called")
    assert yard.store.get("duty", "folders@elsewhere").nudges == 1


def test_folders_leaves_alone_what_cannot_be_a_records_folder(yard: Yard) -> None:
    kind = yard.root / "parcel"
    kind.mkdir(parents=True)
    (kind / "notes.txt").write_text("mine")
    (kind / "two words").mkdir()
    os.mkdir(os.fsencode(kind) + b"/\xff")
    (kind / "pcl7777777777").mkdir()
    mends(Folders(age=0.0), hand(yard), "folder without a record", Ref("parcel", "pcl7777777777"))
    assert sorted(os.listdir(os.fsencode(kind))) == [b"notes.txt", b"two words", b"\xff"]


def test_folders_does_not_touch_the_files_of_a_record_that_is_taken_up_again_in_that_moment(yard: Yard) -> None:
    sent = moved(yard, yard.engine.submit(New("parcel", id="again")), state="Sent", open=False)
    old, new = yard.root / "parcel" / "again" / "1", yard.root / "parcel" / "again" / str(sent.version + 5)
    old.mkdir(parents=True)

    class Late(Folders):
        def _needed(self, hand: Hand, ref: Ref) -> bool:
            needed = super()._needed(hand, ref)
            new.mkdir(exist_ok=True)  # between the look and the clearing
            return needed

    finding = Finding("folder without a record", "parcel/again", "", "", ref=sent.ref)
    assert not Late().mend(hand(yard), finding)
    assert (old.exists(), new.exists()) == (False, True)


def test_a_record_that_left_no_files_is_not_led_back_for_ever(yard: Yard) -> None:
    yard.steps(Sending=lambda record, ctx: Wait(3600))
    parcel = yard.engine.submit(New("parcel"))
    worker = yard.worker()
    yard.until(lambda: yard.get(parcel).parked == "wait", "it waits in Sending")
    yard.stop(worker)
    assert (yard.get(parcel).state, yard.get(parcel).host) == ("Sending", "h1")
    assert found(Folders(), hand(yard)) == []


@pytest.mark.parametrize("where", ["", ".", "..", "parcel", "parcel/..", "/etc", "parcel//x"])
def test_folders_clears_nothing_but_working_folders(yard: Yard, where: str) -> None:
    (yard.root / "parcel" / "x").mkdir(parents=True)
    with pytest.raises(ValueError, match="no working folder"):
        Folders().mend(hand(yard), Finding("folder without a record", where, "", "", ref=Ref("parcel", "x")))
    assert (yard.root / "parcel" / "x").exists()
