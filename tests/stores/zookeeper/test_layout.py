"""What the store writes into Merritt's tree, byte for byte, and what it reads of what others wrote there."""

import json
import re
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.security import make_acl

from tests.stores.zookeeper import nodedump
from tests.stores.zookeeper.harness import MerrittHarness
from tests.stores.zookeeper.records import claim, commit, make_batch, make_job, make_jobs, make_move, move
from waybill.record import Change, CommitGroup, Conflict, Record, RecordExists, StoreError, encode_document
from waybill.stores.zookeeper import ZookeeperStore
from waybill.stores.zookeeper.operations import NODE_EXISTS, Operation, OperationFailure

WORLD_ANYONE_ALL = [(31, "world", "anyone")]


def tree(zk: KazooClient, path: str) -> dict[str, bytes | None]:
    """All nodes below a path, with their data."""
    found = {}
    for name in sorted(zk.get_children(path)):
        below = f"{path.rstrip('/')}/{name}"
        found[below] = zk.get(below)[0]
        found |= tree(zk, below)
    return found


def status(zk: KazooClient, home: str) -> dict[str, Any]:
    body = json.loads(zk.get(f"{home}/status")[0])
    assert isinstance(body, dict)
    return body


def test_an_empty_store_has_the_folders_that_merritts_library_makes(zk: KazooClient) -> None:
    shared = {
        path
        for top in zk.get_children("/")
        if top not in ("waybill", "zookeeper")
        for path in [f"/{top}", *tree(zk, f"/{top}")]
    }
    states = (
        "pending held estimating provisioning downloading processing storing recording notify failed completed deleted"
    )
    assert shared == {
        *("/batches", "/batch-uuids", "/jobs", "/jobs/states", *(f"/jobs/states/{state}" for state in states.split())),
        *("/access", "/access/small", "/access/large"),
        *("/locks", "/locks/queue", "/locks/storage", "/locks/inventory", "/locks/collections", "/locks/localid"),
    }
    assert all(not body for body in tree(zk, "/jobs").values())


def test_a_batch_and_a_job_lie_in_the_tree_as_merritts_library_writes_them(
    store: ZookeeperStore, zk: KazooClient
) -> None:
    batch = make_batch(store, {"batchID": "bid-4711", "profile": "p"})
    assert batch.id == "bid0000000000"
    home = "/batches/bid0000000000"
    assert set(tree(zk, "/batches")) == {home, f"{home}/submission", f"{home}/status"}, (
        "no states: a batch without is pending"
    )
    assert zk.get(home)[0] == b""
    assert json.loads(zk.get(f"{home}/submission")[0]) == {"batchID": "bid-4711", "profile": "p"}
    assert status(zk, home).keys() == {"status", "last_modified", "message"}
    assert zk.get("/batch-uuids/bid-4711")[0] == b"bid0000000000"

    job = make_job(
        store,
        batch,
        {"configuration": b'{"profile":"p"}', "identifiers": b'{"primary_id":"","local_id":["a"]}'},
        priority=7,
    )
    assert job.id == "jid0000000001", "/jobs/states was made first"
    home = "/jobs/jid0000000001"
    written = tree(zk, home)
    body = status(zk, home)
    assert {path.removeprefix(home): data for path, data in written.items() if not path.endswith("/status")} == {
        "/bid": b"bid0000000000",
        "/priority": b"7",
        "/space_needed": b"0",
        "/configuration": b'{"profile":"p"}',
        "/identifiers": b'{"primary_id":"","local_id":["a"]}',
    }
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d \+0000", body.pop("last_modified"))
    assert body == {"status": "Pending", "last_successful_status": None, "retry_count": 0, "message": ""}
    assert zk.get_children("/jobs/states/pending") == ["07-jid0000000001"]
    assert set(tree(zk, "/batches/bid0000000000/states")) == {
        "/batches/bid0000000000/states/batch-processing",
        "/batches/bid0000000000/states/batch-processing/jid0000000001",
    }
    for path in (home, f"{home}/status", "/jobs/states/pending/07-jid0000000001", "/batch-uuids/bid-4711"):
        acls, stat = zk.get_acls(path)
        assert [(acl.perms, acl.id.scheme, acl.id.id) for acl in acls] == WORLD_ANYONE_ALL
        assert stat.ephemeralOwner == 0
    assert nodedump.faults(zk) == []


def test_a_move_rewrites_the_status_and_moves_the_entries(store: ZookeeperStore, zk: KazooClient) -> None:
    batch = make_batch(store)
    job = make_job(store, batch)
    job = move(store, job, "Estimating", last_done="Pending", message="on its way")
    assert status(zk, "/jobs/jid0000000001") | {"last_modified": ""} == {
        "status": "Estimating",
        "last_successful_status": "Pending",
        "retry_count": 0,
        "message": "on its way",
        "last_modified": "",
    }
    assert zk.get_children("/jobs/states/pending") == []
    assert zk.get_children("/jobs/states/estimating") == ["05-jid0000000001"]
    job = move(store, job, "Provisioning", last_done="Estimating", priority=28)
    assert (zk.get_children("/jobs/states/provisioning"), zk.get("/jobs/jid0000000001/priority")[0]) == (
        ["28-jid0000000001"],
        b"28",
    )
    job = move(store, job, "Failed", cause="fail", message="no room")
    assert sorted(zk.get_children("/batches/bid0000000000/states")) == ["batch-failed", "batch-processing"], (
        "made when needed"
    )
    assert zk.get_children("/batches/bid0000000000/states/batch-failed") == ["jid0000000001"]
    job = move(store, job, "Downloading", cause="resume", resume_count=1)
    assert status(zk, "/jobs/jid0000000001")["retry_count"] == 1
    assert zk.get_children("/batches/bid0000000000/states/batch-processing") == ["jid0000000001"]
    for state, folder in (("Held", "batch-processing"), ("Deleted", "batch-deleted"), ("Completed", "batch-completed")):
        job = move(store, job, state)
        assert zk.get_children(f"/batches/bid0000000000/states/{folder}") == ["jid0000000001"]
        assert zk.get_children(f"/jobs/states/{state.lower()}") == ["28-jid0000000001"]
        assert nodedump.faults(zk) == []


def test_a_claim_is_an_empty_ephemeral_lock_and_a_status_with_the_same_bytes(
    store: ZookeeperStore, zk: KazooClient
) -> None:
    make_job(store, make_batch(store))
    before, stat = zk.get("/jobs/jid0000000001/status")
    session = store.open_session(host="h", ttl=50, about={})
    claim(store, session)
    body, lock = zk.get("/jobs/jid0000000001/lock")
    assert (body, f"{lock.ephemeralOwner & (2**64 - 1):x}") == (b"", session)
    after, again = zk.get("/jobs/jid0000000001/status")
    assert (after, again.version) == (before, stat.version + 1)
    assert zk.get_children("/jobs/states/pending") == ["05-jid0000000001"], (
        "it stays queued, as Merritt's services expect"
    )


def test_states_is_there_when_a_batch_is_no_longer_pending_and_only_then(
    store: ZookeeperStore, zk: KazooClient
) -> None:
    """Without it a batch is taken for pending; with an empty batch-processing it is taken for finished."""
    batch = make_batch(store)
    batch = move(store, batch, "Held", cause="hold")
    assert zk.get_children(f"/batches/{batch.id}/states") == ["batch-completed"]
    batch = move(store, batch, "Pending", cause="release")
    assert not zk.exists(f"/batches/{batch.id}/states")
    batch = move(store, batch, "Processing")
    assert zk.get_children(f"/batches/{batch.id}/states") == ["batch-completed"], (
        "not finished: its jobs are still to be made"
    )
    job = make_job(store, batch)
    batch = move(store, batch, "Held")
    batch = move(store, batch, "Pending")
    assert zk.get_children(f"/batches/{batch.id}/states/batch-processing") == [job.id], "its jobs stay listed"
    assert nodedump.faults(zk) == []


def test_jobs_of_a_pending_batch_come_with_its_states_in_one_transaction(
    store: ZookeeperStore, zk: KazooClient
) -> None:
    batch = make_batch(store)
    jobs = make_jobs(store, batch, 3)
    assert zk.get_children(f"/batches/{batch.id}/states/batch-processing") == [job.id for job in jobs]
    made = {
        zk.exists(path).czxid for path in (f"/batches/{batch.id}/states", *(f"/jobs/{job.id}/status" for job in jobs))
    }
    assert len(made) == 1


def test_space_needed_is_a_raw_decimal(store: ZookeeperStore, zk: KazooClient) -> None:
    job = make_job(store, make_batch(store))
    assert "space_needed" not in job.documents
    assert "space_needed" not in store.get("job", job.id).documents, (
        "nobody wrote it, though the node is there for other services"
    )
    job = move(store, job, "Estimating", documents={"space_needed": encode_document(-1)})
    assert zk.get(f"/jobs/{job.id}/space_needed")[0] == b"-1"
    assert store.get("job", job.id).documents["space_needed"] == -1
    (answer,) = store.commit([CommitGroup((make_move(job, "Provisioning", documents={"space_needed": b'"much"'}),))])
    assert isinstance(answer, StoreError)
    assert "whole number" in str(answer)
    job = move(store, job, "Provisioning", documents={"space_needed": None})
    assert zk.get(f"/jobs/{job.id}/space_needed")[0] == b"0"
    assert "space_needed" not in store.get("job", job.id).documents


def test_what_merritts_nodes_have_no_field_for_is_in_the_engine_node(store: ZookeeperStore, zk: KazooClient) -> None:
    documents = {"payload": b'{"n":1}', "large": b'"' + b"x" * 10_000 + b'"', "status": b'"a document of that name"'}
    job = make_job(
        store,
        make_batch(store),
        documents,
        owner="ann",
        locks=("storage/ark:/1/2",),
        hold_names=("collections/c",),
        host="h",
    )
    names = {path.rpartition("/")[2] for path in tree(zk, f"/jobs/{job.id}")}
    assert names == {"bid", "priority", "space_needed", "configuration", "status"}
    assert zk.get_children("/waybill/records/job") == [job.id]
    assert zk.get_children(f"/waybill/records/job/{job.id}") == ["large"], "only what is too large for it"
    assert store.get("job", job.id) == job
    assert job.documents.raw == documents
    job = move(
        store, job, "Estimating", documents={"large": b"1", "payload": b'"' + b"y" * 10_000 + b'"', "status": None}
    )
    assert zk.get_children(f"/waybill/records/job/{job.id}") == ["payload"]
    assert store.get("job", job.id).documents == job.documents


def test_the_history_keeps_the_latest_fifty_entries_b13(store: ZookeeperStore) -> None:
    job = make_job(store, make_batch(store))
    for i in range(60):
        job = move(store, job, "Pending", cause=f"note {i}")
    history = store.history("job", job.id)
    assert [entry.cause for entry in history] == [f"note {i}" for i in range(10, 60)]
    assert history[-1].version == job.version


@pytest.mark.parametrize(
    ("lock", "path"),
    [
        ("storage/ark:/13030/m5", "/locks/storage/ark_13030_m5"),
        ("inventory/ark:/13030/m5", "/locks/inventory/ark_13030_m5"),
        ("localid/a/b_ark:/owner", "/locks/localid/a_b_ark_owner"),
        ("localid/\U0001f600 \ue000\uffff\x85_o", "/locks/localid/%F0%9F%98%80 %EE%80%80%EF%BF%BF%C2%85_o"),
        ("localid/.", "/locks/localid/%2E"),
        ("localid/..", "/locks/localid/%2E%2E"),
        ("localid/...", "/locks/localid/..."),
        ("migration/ark:/1/2", "/waybill/locks/migration%2Fark:%2F1%2F2"),
    ],
)
def test_an_owned_lock_is_a_node_that_names_its_record(
    store: ZookeeperStore, zk: KazooClient, lock: str, path: str
) -> None:
    job = make_job(store, make_batch(store), locks=(lock,))
    assert not zk.exists(path), "asked for, not owned"
    session = store.open_session(host="h", ttl=50, about={})
    (mine,) = claim(store, session)
    assert zk.get(path) == (f"job {job.id}".encode(), zk.exists(path))
    assert zk.exists(path).ephemeralOwner == 0
    move(store, mine, "Completed", session=None, locks=())
    assert not zk.exists(path)


@pytest.mark.parametrize("later", [False, True])
def test_two_locks_of_a_record_may_have_one_node(store: ZookeeperStore, zk: KazooClient, later: bool) -> None:
    """By Merritt's rule `a/b` and `a_b` are the same lock: the owner of one owns the other too."""
    locks = ("localid/a/b", "localid/a_b", "storage/ark:/1/2")
    job, other = make_jobs(store, make_batch(store), 2, locks=() if later else locks)
    session = store.open_session(host="h", ttl=50, about={})
    mine = next(each for each in claim(store, session) if each.id == job.id)
    if later:
        mine = move(store, mine, "Processing", locks=locks)
    assert zk.get_children("/locks/localid") == ["a_b"]
    mine = move(store, mine, "Processing", locks=locks[:1])
    assert zk.get("/locks/localid/a_b")[0] == f"job {job.id}".encode(), "it still needs one of the two"
    assert zk.get_children("/locks/storage") == []
    move(store, mine, "Completed", session=None, locks=())
    assert zk.get_children("/locks/localid") == []
    if not later:
        assert [record.id for record in claim(store, session)] == [other.id]
    assert list(store.check()) == []


def test_a_foreign_empty_lock_counts_as_taken_a9(store: ZookeeperStore, zk: KazooClient) -> None:
    zk.create("/locks/storage/ark_1_2")
    job = make_job(store, make_batch(store), locks=("storage/ark:/1/2",))
    session = store.open_session(host="h", ttl=50, about={})
    assert claim(store, session) == []
    assert store.get("job", job.id).blocked_by == "lock storage/ark:/1/2"
    zk.delete("/locks/storage/ark_1_2")
    assert store.maintain_indexes() == 1, "another service does not signal that it dropped the lock"
    assert [record.id for record in claim(store, session)] == [job.id]


def test_a_foreign_lock_whose_name_looks_like_one_of_ours_is_listed_and_removed(
    store: ZookeeperStore, zk: KazooClient
) -> None:
    """`..` has no node of its own, and %2E%2E stands for it: another service's lock of that name is the same lock."""
    zk.create("/locks/localid/%2E%2E")
    job = make_job(store, make_batch(store), locks=("localid/..",))
    session = store.open_session(host="h", ttl=50, about={})
    assert claim(store, session) == []
    assert store.get("job", job.id).blocked_by == "lock localid/.."
    assert [(owned.name, owned.owners) for owned in store.list_locks()] == [("localid/%2E%2E", ())]
    assert store.remove_foreign_lock("localid/%2E%2E") is True
    assert store.maintain_indexes() == 1
    assert [record.id for record in claim(store, session)] == [job.id]
    assert [(owned.name, owned.owners) for owned in store.list_locks()] == [("localid/..", (job.ref,))]


def test_holds_are_those_of_merritts_services(store: ZookeeperStore, zk: KazooClient) -> None:
    for hold, path in (("collections/c", "/locks/collections/c"), ("queue/ingest", "/locks/queue/ingest")):
        store.set_hold(hold, "ann", "full")
        assert zk.get(path)[0] == b""
        assert store.list_holds() == {hold: "ann: full"}
        zk.delete(path)
        assert store.list_holds() == {}, "the admin tool removed it"
        zk.create(path)
        assert list(store.list_holds()) == [hold]
        store.clear_hold(hold)
        assert (zk.exists(path), store.list_holds()) == (None, {})
    store.set_hold("other/name", "bob")
    assert zk.get_children("/locks/queue") == zk.get_children("/locks/collections") == []
    assert store.list_holds() == {"other/name": "bob"}


@pytest.mark.parametrize("hold", ["collections/.", "collections/..", "collections/a\x01b", "collections/\U0001f4da"])
def test_a_hold_that_has_no_valid_node_name_in_merritts_tree_is_waybills_own(
    store: ZookeeperStore, zk: KazooClient, hold: str
) -> None:
    store.set_hold(hold, "ann", "full")
    assert (zk.get_children("/locks/collections"), store.list_holds()) == ([], {hold: "ann: full"})
    store.clear_hold(hold)
    assert zk.get_children("/waybill/holds") == []


def test_a_hold_that_zookeeper_refuses_is_an_error(store: ZookeeperStore, zk: KazooClient) -> None:
    """Only a concurrent change by somebody else is retried, and not for ever."""
    zk.create("/waybill/holds/collections%2Fc/below", makepath=True)
    with pytest.raises(StoreError, match="error -111"):
        store.clear_hold("collections/c")
    zk.set_acls("/locks/collections", [make_acl("world", "anyone", read=True)])
    with pytest.raises(StoreError, match=r"refuses to write .*/locks/collections/d .*error -102"):
        store.set_hold("collections/d")


def test_a_hold_that_others_set_and_clear_all_the_time_is_a_conflict(
    store: ZookeeperStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []

    def refuse(ops: list[Operation]) -> OperationFailure:
        calls.append(ops)
        return OperationFailure(0, NODE_EXISTS)

    monkeypatch.setattr(store._connection, "write", refuse)
    with pytest.raises(Conflict, match="Try again"):
        store.set_hold("collections/c")
    assert len(calls) == 10


def test_access_queues(store: ZookeeperStore, zk: KazooClient) -> None:
    for size in ("small", "large"):
        token = b'{"token":"t","delivery-node":7001,"cloud-content-byte":1,"status":0,"url":"","anticipated-availability-time":""}'
        (made,) = commit(
            store, Change(None, Record(f"access-{size}", "qid*", "Pending"), "submit", documents={"token": token})
        ).records
        assert made is not None
        assert made.id == "qid0000000000"
        home = f"/access/{size}/qid0000000000"
        assert {path.removeprefix(home) for path in tree(zk, home)} == {"/token", "/status"}
        assert zk.get(f"{home}/token")[0] == token
        assert status(zk, home).keys() == {"status", "last_modified", "message"}
        session = store.open_session(host="h", ttl=50, about={})
        (mine,) = claim(store, session, kind=f"access-{size}")
        assert zk.exists(f"{home}/lock")
        move(store, mine, "Processing", session=None)
        assert status(zk, home)["status"] == "Processing"


def test_null_and_empty_data_are_both_read(merritt: MerrittHarness, store: ZookeeperStore, zk: KazooClient) -> None:
    batch = make_batch(store)
    job = make_job(store, batch, {"identifiers": b'{"a":1}'})
    for empty in (None, b""):
        zk.set(f"/jobs/{job.id}/identifiers", empty)
        zk.set(f"/jobs/{job.id}", empty)
        assert store.get("job", job.id).documents["identifiers"] == {}
    zk.set(f"/batches/{batch.id}/submission", None)
    assert store.get("batch", batch.id).documents["submission"] == {}


def test_a_loose_status_of_another_service_is_read(store: ZookeeperStore, zk: KazooClient) -> None:
    job = make_job(store, make_batch(store))
    zk.set(f"/jobs/{job.id}/status", b'{"retry_count":2,"status":"Pending","last_successful_status":"","extra":[1]}')
    read = store.get("job", job.id)
    assert (read.state, read.resume_count, read.last_done, read.message) == ("Pending", 2, None, "")


def test_a_batch_id_belongs_to_one_batch(store: ZookeeperStore, zk: KazooClient) -> None:
    first, second = make_batch(store, {"batchID": "u1"}), make_batch(store, {"batchID": "u2"})
    submission = {"submission": encode_document({"batchID": "u1"})}
    (answer,) = store.commit(
        [CommitGroup((Change(None, Record("batch", "bid*", "Pending"), "submit", documents=submission),))]
    )
    assert type(answer) is RecordExists
    (answer,) = store.commit([CommitGroup((make_move(second, "Processing", documents=submission),))])
    assert type(answer) is RecordExists
    second = move(store, second, "Processing", documents={"submission": encode_document({"batchID": "u3"})})
    assert sorted(zk.get_children("/batch-uuids")) == ["u1", "u3"]
    commit(store, Change(first, None, "remove"))
    assert zk.get_children("/batch-uuids") == ["u3"]
    assert nodedump.faults(zk) == []


def test_what_merritts_services_cannot_read_is_refused(store: ZookeeperStore, zk: KazooClient) -> None:
    """One unknown status makes the Java library throw for a whole listing."""
    batch = make_batch(store)
    job = make_job(store, batch)
    for bad, words in (
        (make_move(job, "Estimated"), "its services know Pending, Held"),
        (make_move(batch, "pending"), "its services know"),
        (Change(None, Record("job", "jid*", "Pending")), "needs a batch"),
        (Change(None, Record("job", "job*", "Pending", parent=batch.ref)), "begin with jid"),
        (Change(None, Record("job", "jid0000000099", "Pending", parent=batch.ref)), "are minted"),
    ):
        (answer,) = store.commit([CommitGroup((bad,))])
        assert type(answer) is StoreError, bad
        assert words in str(answer)
    assert store.count_by_state("job") == {"Pending": 1}
    assert nodedump.faults(zk) == []


def test_a_removed_record_leaves_no_node(store: ZookeeperStore, zk: KazooClient) -> None:
    before = tree(zk, "/")
    batch = make_batch(store, {"batchID": "u"}, owner="ann", idempotency_key="r")
    documents = {"configuration": b"{}", "large": b" " * 9000 + b"1"}
    job = make_job(
        store, batch, documents, owner="ann", locks=("storage/a", "own/b"), idempotency_key="r", blocked_by="wait"
    )
    (answer,) = store.commit([CommitGroup((Change(batch, None, "remove"),))])
    assert type(answer) is Conflict
    assert "jobs" in str(answer)
    commit(store, Change(job, None, "remove"))
    commit(store, Change(batch, None, "remove"))
    left = {
        path
        for path in tree(zk, "/").keys() - before.keys()
        if path.count("/") > 3 and not path.startswith("/waybill/kinds/")
    }
    assert left <= {"/waybill/parked/job/Pending", "/waybill/owners/ann/job", "/waybill/owners/ann/batch"}, (
        "nothing but empty folders"
    )
    assert tree(zk, "/jobs") == {path: data for path, data in before.items() if path.startswith("/jobs/")}


def test_a_tree_that_merritts_library_set_up_is_taken_as_it_is(merritt: MerrittHarness, zookeeper_url: str) -> None:
    """Folders made by another service, some of them missing: the numbers go on where they are."""
    zk = merritt.foreign_client()
    for path in ("/batches", "/batch-uuids", "/jobs", "/jobs/states", "/jobs/states/pending", "/locks"):
        zk.create(path)
    for _ in range(3):
        zk.create("/jobs/jid", sequence=True)
        zk.create("/batches/bid", sequence=True)
    for name in zk.get_children("/jobs"):
        if name != "states":
            zk.delete(f"/jobs/{name}")
    store = merritt.open()
    batch = make_batch(store)
    assert batch.id == "bid0000000003"
    assert make_job(store, batch).id == "jid0000000004"
