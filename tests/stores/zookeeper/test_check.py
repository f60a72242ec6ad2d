"""check and mend: for each rule a fault is planted, named, mended, and not found again."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from kazoo.client import KazooClient
from msgspec.structs import replace

from tests.stores.zookeeper import nodedump
from tests.stores.zookeeper.harness import MerrittHarness
from tests.stores.zookeeper.records import claim, commit, make_batch, make_job, make_jobs, move
from waybill.record import Ask, Change, Finding, Record, Ref
from waybill.stores.zookeeper import ZookeeperStore
from waybill.stores.zookeeper.rules_own import CanBeRead
from waybill.stores.zookeeper.side import Side, decode, encode

Plant = Callable[[KazooClient], Any]


def side_of(zk: KazooClient, path: str) -> Side:
    side = decode(zk.get(path)[0])
    assert side is not None
    return side


def lose_status(zk: KazooClient) -> None:
    zk.delete("/jobs/jid0000000001/status")


def remove_batch(zk: KazooClient) -> None:
    zk.delete("/batches/bid0000000001", recursive=True)
    zk.delete("/batch-uuids/two")


def say_that_it_holds_a_key(zk: KazooClient) -> None:
    side = side_of(zk, "/waybill/records/job/jid0000000001")
    zk.set("/waybill/records/job/jid0000000001", encode(replace(side, keys=("own/k",), holds=("own/k",))))


READABLE = CanBeRead.name
PARKED = "/waybill/parked/job/Held"

# What is planted in a tree of two batches (uuids one, two), jobs 1 (Pending, of the first), 2 (Failed, of the first), 3
# (Held and waiting, of ann, of the second), and the parcel p (Packing, in the crate c) -> the rules that name it.
FAULTS: dict[str, tuple[Plant, set[str]]] = {
    "a uuid without a batch": (lambda zk: zk.create("/batch-uuids/three", b"bid0000000077"), {"a uuid names a batch"}),
    "a uuid with null data": (
        lambda zk: (zk.create("/batch-uuids/three"), zk.set("/batch-uuids/three", None)),
        {"a uuid names a batch"},
    ),
    "a batch without its uuid": (lambda zk: zk.delete("/batch-uuids/one"), {"a batch is found by its batchID"}),
    "a batch lists a job that is not there": (
        lambda zk: zk.create("/batches/bid0000000000/states/batch-processing/jid0000000099"),
        {"a batch lists jobs that are its own, each once"},
    ),
    "a batch lists another batch's job": (
        lambda zk: zk.create("/batches/bid0000000001/states/batch-processing/jid0000000001"),
        {"a batch lists jobs that are its own, each once"},
    ),
    "a job under two folders of its batch": (
        lambda zk: zk.create("/batches/bid0000000000/states/batch-processing/jid0000000002"),
        {"a batch lists jobs that are its own, each once"},
    ),
    "a job that its batch does not list": (
        lambda zk: zk.delete("/batches/bid0000000000/states/batch-processing/jid0000000001"),
        {"a job is listed by its batch, in the folder of its state"},
    ),
    "a job whose folder is gone too": (
        lambda zk: zk.delete("/batches/bid0000000000/states/batch-failed", recursive=True),
        {"a job is listed by its batch, in the folder of its state"},
    ),
    "a job without its batch": (
        remove_batch,
        {"a job has its batch", "a side node has a record", "a queue holds records of its state, each once"},
    ),
    "a job without a status": (lose_status, {"a record has a status"}),
    "a job whose status is null": (lambda zk: zk.set("/jobs/jid0000000001/status", None), {"a record has a status"}),
    "a job that was never finished": (lambda zk: zk.create("/jobs/jid", sequence=True), {"a record has a status"}),
    "a batch without a status": (lambda zk: zk.delete("/batches/bid0000000001/status"), {"a record has a status"}),
    "an assembly without a status": (
        lambda zk: (
            zk.create("/access/small/qid", sequence=True),
            zk.create("/access/small/qid0000000000/token", b"{}"),
        ),
        {"a record has a status"},
    ),
    "a job in no queue": (
        lambda zk: zk.delete("/jobs/states/pending/05-jid0000000001"),
        {"a record is in the queue of its state"},
    ),
    "a job in two queues": (
        lambda zk: zk.create("/jobs/states/notify/05-jid0000000001"),
        {"a queue holds records of its state, each once"},
    ),
    "a job queued with two priorities": (
        lambda zk: zk.create("/jobs/states/pending/07-jid0000000001"),
        {"a queue holds records of its state, each once"},
    ),
    "a priority without its entry": (
        lambda zk: zk.set("/jobs/jid0000000001/priority", b"9"),
        {"a queue holds records of its state, each once", "a record is in the queue of its state"},
    ),
    "an entry for no job": (
        lambda zk: zk.create("/jobs/states/held/05-jid0000000055"),
        {"a queue holds records of its state, each once"},
    ),
    "an entry that is none": (
        lambda zk: zk.create("/jobs/states/held/nonsense"),
        {"a queue holds records of its state, each once"},
    ),
    "an empty states of a batch at work": (
        lambda zk: zk.create("/batches/bid0000000002/states"),
        {"a batch's states has folders in it"},
    ),
    "a lock that is old": (
        lambda zk: zk.create("/jobs/jid0000000001/lock", ephemeral=True),
        {"a lock is not held for long"},
    ),
    "a side node without a record": (
        lambda zk: zk.create("/waybill/records/job/jid0000000044", b"{}"),
        {"a side node has a record"},
    ),
    "a key of a record that is gone": (
        lambda zk: zk.create("/locks/storage/ark_1_2", b"job jid0000000044"),
        {"a key is held by a record that names it"},
    ),
    "a key of a record that does not have it": (
        lambda zk: zk.create("/waybill/keys/own%2Fk", b"job jid0000000001"),
        {"a key is held by a record that names it"},
    ),
    "a holder without its key": (say_that_it_holds_a_key, {"a record holds the keys that it says it holds"}),
    "a parked record without a note": (
        lambda zk: zk.delete(f"{PARKED}/{zk.get_children(PARKED)[0]}"),
        {"a record has the notes that its side node asks for"},
    ),
    "a note on a record that is not parked": (
        lambda zk: zk.create("/waybill/parked/job/Held/c~jid0000000001"),
        {"a note says what its record's side node says"},
    ),
    "a place in line for nobody": (
        lambda zk: zk.create("/waybill/waiting/own%2Fk/05-000000000001-000000000001~job~jid0000000001", makepath=True),
        {"a note says what its record's side node says"},
    ),
    "a record that its owner would not find": (
        lambda zk: zk.delete("/waybill/owners/ann/job/000000000004~jid0000000003"),
        {"a record has the notes that its side node asks for"},
    ),
    "a record that is not the owner's": (
        lambda zk: zk.create("/waybill/owners/ann/job/000000000002~jid0000000001"),
        {"a note says what its record's side node says"},
    ),
    "a request that made nothing": (
        lambda zk: zk.create("/waybill/requests/job/r", b"jid0000000044"),
        {"a note says what its record's side node says"},
    ),
    "a request that is forgotten": (
        lambda zk: zk.delete("/waybill/requests/job/known"),
        {"a record has the notes that its side node asks for"},
    ),
    "a parcel in no queue": (
        lambda zk: zk.delete(
            f"/waybill/kinds/parcel/states/Packing/{zk.get_children('/waybill/kinds/parcel/states/Packing')[0]}"
        ),
        {"a record is in the queue of its state"},
    ),
    "a parcel in a wrong queue": (
        lambda zk: (
            zk.create("/waybill/kinds/parcel/states/Sent"),
            zk.create("/waybill/kinds/parcel/states/Sent/05-000000000002-000000000002-p"),
        ),
        {"a queue holds records of its state, each once"},
    ),
    "a child that its parent does not list": (
        lambda zk: zk.delete(f"/waybill/kin/crate/c/open/{zk.get_children('/waybill/kin/crate/c/open')[0]}"),
        {"a record has the notes that its side node asks for"},
    ),
    "a child that is settled and listed as open": (
        lambda zk: zk.create("/waybill/kin/crate/c/open/parcel~000000000002~Sent~p"),
        {"a note says what its record's side node says"},
    ),
    "a request to a record that is gone": (
        lambda zk: zk.create("/waybill/asks/job~jid0000000044", b'["cancel","ann","","{}"]'),
        {"what is asked is asked of a record"},
    ),
    "a worker whom nobody missed": (
        lambda zk: zk.create("/waybill/workers/123abc", b"h"),
        {"a worker that died is told of and forgotten"},
    ),
}


@pytest.fixture
def sound(merritt: MerrittHarness) -> ZookeeperStore:
    merritt.options |= {"lock_age": 0, "old": 0}
    store = merritt.open()
    first = make_batch(store, {"batchID": "one"}, state="Processing")
    second = make_batch(store, {"batchID": "two"}, state="Processing")
    merritt.stranger().delete(f"/batches/{make_batch(store, state='Processing').id}/states", recursive=True)
    make_job(store, first, request="known")
    move(store, make_job(store, first), "Failed", event="fail")
    make_job(store, second, owner="ann", state="Held", parked="wait")
    (crate,) = commit(store, Change(None, Record("crate", "c", "Filling"), "make")).records
    commit(store, Change(None, Record("parcel", "p", "Packing", parent=Ref("crate", "c")), "make"))
    assert crate is not None
    assert list(store.check()) == []
    assert nodedump.faults(merritt.stranger()) == []
    return store


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_named_and_mended(merritt: MerrittHarness, sound: ZookeeperStore, fault: str) -> None:
    plant, rules = FAULTS[fault]
    zk = merritt.stranger()
    plant(zk)
    found = list(sound.check())
    assert {finding.rule for finding in found} == rules
    for finding in found:
        assert finding.mendable
        assert finding.where.startswith("/")
        assert finding.problem
        assert finding.remedy
    assert sound.mend(found[0]), found[0]
    assert not sound.mend(found[0]), "mended already"
    for _ in range(2):  # one mend may bring the next to light, or do it too
        for finding in list(sound.check()):
            sound.mend(finding)
    assert list(sound.check()) == []
    assert nodedump.faults(zk) == []


# A node that holds something else than it should -> the record, and what is said of it. Nobody knows what was in it, so
# nobody mends it.
DAMAGED = {
    "/jobs/jid0000000001/identifiers": ("/jobs/jid0000000001", "its document identifiers is no JSON"),
    "/batches/bid0000000000/submission": ("/batches/bid0000000000", "its document submission is no JSON"),
    "/waybill/records/job/jid0000000001": ("/jobs/jid0000000001", "/waybill/records/job/jid0000000001 is no side node"),
    "/waybill/kinds/parcel/records/p/side": (
        "/waybill/kinds/parcel/records/p",
        "/waybill/kinds/parcel/records/p/side is no side node",
    ),
    "/waybill/kinds/parcel/records/p/status": ("/waybill/kinds/parcel/records/p", "its status says no state"),
}


@pytest.mark.parametrize("path", DAMAGED)
def test_what_cannot_be_read_is_named_until_it_is_written_again(
    merritt: MerrittHarness, sound: ZookeeperStore, path: str
) -> None:
    zk = merritt.stranger()
    was = zk.get(path)[0] if zk.exists(path) else zk.create(path, b"{}") and b"{}"
    zk.set(path, b'{"half')
    found = [finding for finding in sound.check() if finding.rule == READABLE]
    assert [(finding.where, finding.problem.partition(" (")[0]) for finding in found] == [DAMAGED[path]]
    assert (found[0].mendable, sound.mend(found[0])) == (False, False)
    zk.set(path, was)
    assert [finding for finding in sound.check() if finding.rule == READABLE] == []


def test_a_large_document_and_one_inside_the_side_node_can_be_damaged_too(
    merritt: MerrittHarness, sound: ZookeeperStore
) -> None:
    docs = {"small": b'{"a":"near"}', "large": b'{"a":"%s"}' % (b"x" * 5000)}
    commit(sound, Change(None, Record("parcel", "q", "Packing"), "make", docs=docs))
    home, zk = "/waybill/kinds/parcel/records/q", merritt.stranger()
    assert list(sound.check()) == []
    zk.set(f"{home}/side/large", b"")
    side = side_of(zk, f"{home}/side")
    zk.set(f"{home}/side", encode(replace(side, docs={"small": "{"})))
    found = [(finding.rule, finding.where, finding.problem) for finding in sound.check()]
    assert found == [(READABLE, home, f"its document {name} is no JSON") for name in ("large", "small")]


def test_every_rule_has_its_fault(sound: ZookeeperStore) -> None:
    assert set(sound._checker.rules) == {READABLE}.union(*(rules for _, rules in FAULTS.values()))


def test_a_fault_says_how_old_it_is(
    merritt: MerrittHarness, store: ZookeeperStore, sound: ZookeeperStore, zk: KazooClient
) -> None:
    """Somebody may still be at it: younger than an hour is a warning, as in Merritt's own test."""
    zk.delete("/jobs/states/pending/05-jid0000000001")
    (failed,) = sound.check()
    assert "(FAIL: for " in failed.problem
    fresh = ZookeeperStore(merritt.url)
    (warned,) = fresh.check()
    assert "(WARN: for " in warned.problem
    zk.create("/jobs/jid0000000001/lock", ephemeral=True)
    again = [(finding.rule, finding.where) for finding in fresh.check()]  # the same fault, perhaps a second older
    assert again == [(warned.rule, warned.where)], "a lock of two minutes is no fault yet"
    fresh.close()


def test_what_two_batches_claim_only_a_person_can_decide(sound: ZookeeperStore, zk: KazooClient) -> None:
    zk.set("/batches/bid0000000001/submission", b'{"batchID":"one"}')
    found = list(sound.check())
    assert [(finding.where, finding.mendable) for finding in found] == [("/batches/bid0000000001", False)]
    assert not sound.mend(found[0])


def test_a_finding_that_is_no_longer_so_is_not_mended(sound: ZookeeperStore, zk: KazooClient) -> None:
    zk.delete("/jobs/states/pending/05-jid0000000001")
    (finding,) = sound.check()
    zk.create("/jobs/states/pending/05-jid0000000001")
    assert not sound.mend(finding)
    assert not sound.mend(Finding("no such rule", "/", "", ""))


def test_a_lost_status_is_made_again_from_the_queue(sound: ZookeeperStore, zk: KazooClient) -> None:
    for job, state in (("jid0000000001", "Pending"), ("jid0000000003", "Held")):
        zk.delete(f"/jobs/{job}/status")
        (finding,) = sound.check()
        assert sound.mend(finding)
        assert json.loads(zk.get(f"/jobs/{job}/status")[0])["status"] == state
        assert sound.get("job", job).state == state
    zk.delete("/jobs/jid0000000001/status")
    zk.delete("/jobs/states/pending/05-jid0000000001")
    (finding,) = sound.check()
    assert sound.mend(finding)
    assert sound.get("job", "jid0000000001").state == "Failed", "for a person to look at"


def test_our_own_work_is_no_fault_while_it_is_done(merritt: MerrittHarness, sound: ZookeeperStore) -> None:
    """Held for longer than any lock of theirs, asked, with keys, waiting for keys."""
    jobs = make_jobs(sound, Ref("batch", "bid0000000000"), 2, keys=("storage/a", "own/b"))
    session = sound.open_session(host="h", ttl=50, about={})
    assert len(claim(sound, session)) == 2
    sound.ask(Ask(jobs[0].ref, "cancel", "ann", ""))
    assert list(merritt.open().check()) == []


def test_a_lost_status_of_what_had_ended_is_not_made_anew(sound: ZookeeperStore, zk: KazooClient) -> None:
    """A service that was removing a batch died: it must not be taken for a new submission."""
    (made,) = commit(
        sound,
        Change(None, Record("batch", "bid*", "Completed", open=False), "submit", "ann", docs={"submission": b"{}"}),
    ).records
    assert made is not None
    zk.delete(f"/batches/{made.id}/states", recursive=True)
    zk.delete(f"/batches/{made.id}/status")
    for finding in sound.check():
        assert sound.mend(finding)
    assert sound.get("batch", made.id).state == "Completed"
