"""check and repair: for each rule a violation is planted, reported, repaired, and not found again."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from kazoo.client import KazooClient
from msgspec.structs import replace

from tests.stores.zookeeper import nodedump
from tests.stores.zookeeper.harness import MerrittHarness
from tests.stores.zookeeper.records import claim, commit, make_batch, make_job, make_jobs, move
from waybill.record import ActionRequest, Change, Finding, Record, Ref
from waybill.stores.zookeeper import ZookeeperStore
from waybill.stores.zookeeper.consistency_rules import ReadableNodesRule
from waybill.stores.zookeeper.record_nodes import EngineNode, decode_engine_node, encode_engine_node

Plant = Callable[[KazooClient], Any]


def read_engine_node(zk: KazooClient, path: str) -> EngineNode:
    engine_node = decode_engine_node(zk.get(path)[0])
    assert engine_node is not None
    return engine_node


def lose_status(zk: KazooClient) -> None:
    zk.delete("/jobs/jid0000000001/status")


def remove_batch(zk: KazooClient) -> None:
    zk.delete("/batches/bid0000000001", recursive=True)
    zk.delete("/batch-uuids/two")


def write_unowned_lock(zk: KazooClient) -> None:
    engine_node = read_engine_node(zk, "/waybill/records/job/jid0000000001")
    zk.set(
        "/waybill/records/job/jid0000000001",
        encode_engine_node(replace(engine_node, locks=("own/k",), owned_locks=("own/k",))),
    )


READABLE = ReadableNodesRule.name
PARKED = "/waybill/parked/job/Held"

# The violation that is planted in a tree of two batches (uuids one, two), jobs 1 (Pending, of the first), 2 (Failed, of the first), 3
# (Held and waiting, of ann, of the second), and the parcel p (Packing, in the crate c) -> the rules that report it.
VIOLATIONS: dict[str, tuple[Plant, set[str]]] = {
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
        {"a job has its batch", "an engine node has a record", "a queue holds records of its state, each once"},
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
        {"another service's lock is not held for long"},
    ),
    "an engine node without a record": (
        lambda zk: zk.create("/waybill/records/job/jid0000000044", b"{}"),
        {"an engine node has a record"},
    ),
    "a lock of a record that is gone": (
        lambda zk: zk.create("/locks/storage/ark_1_2", b"job jid0000000044"),
        {"a lock is owned by a record that names it"},
    ),
    "a lock of a record that does not own it": (
        lambda zk: zk.create("/waybill/locks/own%2Fk", b"job jid0000000001"),
        {"a lock is owned by a record that names it"},
    ),
    "an owner without its lock": (write_unowned_lock, {"a record owns the locks that it says it owns"}),
    "a blocked record without a note": (
        lambda zk: zk.delete(f"{PARKED}/{zk.get_children(PARKED)[0]}"),
        {"a record has the notes that its engine node requires"},
    ),
    "a note on a record that is not blocked": (
        lambda zk: zk.create("/waybill/parked/job/Held/c~jid0000000001"),
        {"a note agrees with its record's engine node"},
    ),
    "a waiting note for no record": (
        lambda zk: zk.create("/waybill/waiting/own%2Fk/05-000000000001-000000000001~job~jid0000000001", makepath=True),
        {"a note agrees with its record's engine node"},
    ),
    "a record that its owner would not find": (
        lambda zk: zk.delete("/waybill/owners/ann/job/000000000004~jid0000000003"),
        {"a record has the notes that its engine node requires"},
    ),
    "a record that is not the owner's": (
        lambda zk: zk.create("/waybill/owners/ann/job/000000000002~jid0000000001"),
        {"a note agrees with its record's engine node"},
    ),
    "an idempotency key without a record": (
        lambda zk: zk.create("/waybill/idempotency_keys/job/r", b"jid0000000044"),
        {"a note agrees with its record's engine node"},
    ),
    "a record without its idempotency key": (
        lambda zk: zk.delete("/waybill/idempotency_keys/job/known"),
        {"a record has the notes that its engine node requires"},
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
        lambda zk: zk.delete(f"/waybill/children/crate/c/open/{zk.get_children('/waybill/children/crate/c/open')[0]}"),
        {"a record has the notes that its engine node requires"},
    ),
    "a child that is settled and listed as open": (
        lambda zk: zk.create("/waybill/children/crate/c/open/parcel~000000000002~Sent~p"),
        {"a note agrees with its record's engine node"},
    ),
    "an action request to a record that is gone": (
        lambda zk: zk.create("/waybill/action_requests/job~jid0000000044", b'["cancel","ann","","{}"]'),
        {"an action request has a record"},
    ),
    "a dead worker that was not reported": (
        lambda zk: zk.create("/waybill/workers/123abc", b"h"),
        {"a dead worker is reported and removed"},
    ),
}


@pytest.fixture
def consistent_store(merritt: MerrittHarness) -> ZookeeperStore:
    merritt.options |= {"lock_age": 0, "fail_after": 0}
    store = merritt.open()
    first = make_batch(store, {"batchID": "one"}, state="Processing")
    second = make_batch(store, {"batchID": "two"}, state="Processing")
    merritt.foreign_client().delete(f"/batches/{make_batch(store, state='Processing').id}/states", recursive=True)
    make_job(store, first, idempotency_key="known")
    move(store, make_job(store, first), "Failed", cause="fail")
    make_job(store, second, owner="ann", state="Held", blocked_by="wait")
    (crate,) = commit(store, Change(None, Record("crate", "c", "Filling"), "make")).records
    commit(store, Change(None, Record("parcel", "p", "Packing", parent=Ref("crate", "c")), "make"))
    assert crate is not None
    assert list(store.check()) == []
    assert nodedump.faults(merritt.foreign_client()) == []
    return store


@pytest.mark.parametrize("violation", VIOLATIONS)
def test_a_planted_violation_is_reported_and_repaired(
    merritt: MerrittHarness, consistent_store: ZookeeperStore, violation: str
) -> None:
    plant, rules = VIOLATIONS[violation]
    zk = merritt.foreign_client()
    plant(zk)
    found = list(consistent_store.check())
    assert {finding.rule for finding in found} == rules
    for finding in found:
        assert finding.repairable
        assert finding.where.startswith("/")
        assert finding.problem
        assert finding.remedy
    assert consistent_store.repair(found[0]), found[0]
    assert not consistent_store.repair(found[0]), "repaired already"
    for _ in range(2):  # one repair may reveal the next violation, or repair it too
        for finding in list(consistent_store.check()):
            consistent_store.repair(finding)
    assert list(consistent_store.check()) == []
    assert nodedump.faults(zk) == []


# A damaged node -> the record, and the problem that is reported. Its contents are lost, so it is not repaired.
DAMAGED = {
    "/jobs/jid0000000001/identifiers": ("/jobs/jid0000000001", "its document identifiers is no JSON"),
    "/batches/bid0000000000/submission": ("/batches/bid0000000000", "its document submission is no JSON"),
    "/waybill/records/job/jid0000000001": (
        "/jobs/jid0000000001",
        "/waybill/records/job/jid0000000001 is no engine node",
    ),
    "/waybill/kinds/parcel/records/p/engine": (
        "/waybill/kinds/parcel/records/p",
        "/waybill/kinds/parcel/records/p/engine is no engine node",
    ),
    "/waybill/kinds/parcel/records/p/status": ("/waybill/kinds/parcel/records/p", "its status names no state"),
}


@pytest.mark.parametrize("path", DAMAGED)
def test_what_cannot_be_read_is_reported_until_it_is_written_again(
    merritt: MerrittHarness, consistent_store: ZookeeperStore, path: str
) -> None:
    zk = merritt.foreign_client()
    before = zk.get(path)[0] if zk.exists(path) else zk.create(path, b"{}") and b"{}"
    zk.set(path, b'{"half')
    found = [finding for finding in consistent_store.check() if finding.rule == READABLE]
    assert [(finding.where, finding.problem.partition(" (")[0]) for finding in found] == [DAMAGED[path]]
    assert (found[0].repairable, consistent_store.repair(found[0])) == (False, False)
    zk.set(path, before)
    assert [finding for finding in consistent_store.check() if finding.rule == READABLE] == []


def test_a_large_document_and_one_inside_the_engine_node_can_be_damaged_too(
    merritt: MerrittHarness, consistent_store: ZookeeperStore
) -> None:
    documents = {"small": b'{"a":"near"}', "large": b'{"a":"%s"}' % (b"x" * 5000)}
    commit(consistent_store, Change(None, Record("parcel", "q", "Packing"), "make", documents=documents))
    home, zk = "/waybill/kinds/parcel/records/q", merritt.foreign_client()
    assert list(consistent_store.check()) == []
    zk.set(f"{home}/engine/large", b"")
    engine_node = read_engine_node(zk, f"{home}/engine")
    zk.set(f"{home}/engine", encode_engine_node(replace(engine_node, documents={"small": "{"})))
    found = [(finding.rule, finding.where, finding.problem) for finding in consistent_store.check()]
    assert found == [(READABLE, home, f"its document {name} is no JSON") for name in ("large", "small")]


def test_every_rule_has_a_planted_violation(consistent_store: ZookeeperStore) -> None:
    assert set(consistent_store._checker.rule_names) == {READABLE}.union(*(rules for _, rules in VIOLATIONS.values()))


def test_a_finding_says_how_old_the_violation_is(
    merritt: MerrittHarness, store: ZookeeperStore, consistent_store: ZookeeperStore, zk: KazooClient
) -> None:
    """Somebody may still be writing: a violation younger than an hour is a warning, as in Merritt's own test."""
    zk.delete("/jobs/states/pending/05-jid0000000001")
    (failed,) = consistent_store.check()
    assert "(FAIL: for " in failed.problem
    fresh = ZookeeperStore(merritt.url)
    (warned,) = fresh.check()
    assert "(WARN: for " in warned.problem
    zk.create("/jobs/jid0000000001/lock", ephemeral=True)
    again = [(finding.rule, finding.where) for finding in fresh.check()]  # the same fault, perhaps a second older
    assert again == [(warned.rule, warned.where)], "a lock is no violation before two minutes"
    fresh.close()


def test_a_batch_id_of_two_batches_is_not_repaired(consistent_store: ZookeeperStore, zk: KazooClient) -> None:
    zk.set("/batches/bid0000000001/submission", b'{"batchID":"one"}')
    found = list(consistent_store.check())
    assert [(finding.where, finding.repairable) for finding in found] == [("/batches/bid0000000001", False)]
    assert not consistent_store.repair(found[0])


def test_a_finding_that_is_out_of_date_is_not_repaired(consistent_store: ZookeeperStore, zk: KazooClient) -> None:
    zk.delete("/jobs/states/pending/05-jid0000000001")
    (finding,) = consistent_store.check()
    zk.create("/jobs/states/pending/05-jid0000000001")
    assert not consistent_store.repair(finding)
    assert not consistent_store.repair(Finding("no such rule", "/", "", ""))


def test_a_lost_status_is_restored_from_the_queue(consistent_store: ZookeeperStore, zk: KazooClient) -> None:
    for job, state in (("jid0000000001", "Pending"), ("jid0000000003", "Held")):
        zk.delete(f"/jobs/{job}/status")
        (finding,) = consistent_store.check()
        assert consistent_store.repair(finding)
        assert json.loads(zk.get(f"/jobs/{job}/status")[0])["status"] == state
        assert consistent_store.get("job", job).state == state
    zk.delete("/jobs/jid0000000001/status")
    zk.delete("/jobs/states/pending/05-jid0000000001")
    (finding,) = consistent_store.check()
    assert consistent_store.repair(finding)
    assert consistent_store.get("job", "jid0000000001").state == "Failed", "for an operator to look at"


def test_work_in_progress_is_no_violation(merritt: MerrittHarness, consistent_store: ZookeeperStore) -> None:
    """Claimed for longer than any lock of Merritt's services, with an action request, with locks, waiting for locks."""
    jobs = make_jobs(consistent_store, Ref("batch", "bid0000000000"), 2, locks=("storage/a", "own/b"))
    session = consistent_store.open_session(host="h", ttl=50, about={})
    assert len(claim(consistent_store, session)) == 2
    consistent_store.request_action(ActionRequest(jobs[0].ref, "cancel", "ann", ""))
    assert list(merritt.open().check()) == []


def test_a_lost_status_of_a_settled_record_does_not_start_it_again(
    consistent_store: ZookeeperStore, zk: KazooClient
) -> None:
    """A service that was removing a batch died: it must not be taken for a new submission."""
    (made,) = commit(
        consistent_store,
        Change(
            None, Record("batch", "bid*", "Completed", open=False), "submit", "ann", documents={"submission": b"{}"}
        ),
    ).records
    assert made is not None
    zk.delete(f"/batches/{made.id}/states", recursive=True)
    zk.delete(f"/batches/{made.id}/status")
    for finding in consistent_store.check():
        assert consistent_store.repair(finding)
    assert consistent_store.get("batch", made.id).state == "Completed"
