"""What ZooKeeper cannot hold is refused before it is sent, with a sentence that says what to do."""

import pytest
from kazoo.client import KazooClient

from tests.stores.zookeeper.harness import MerrittHarness
from tests.stores.zookeeper.records import commit, make_batch, make_job, make_jobs, make_move, move
from waybill.record import BadStore, Change, CommitGroup, CommitResult, CommitTooLarge, Record, Store, StoreUnavailable
from waybill.stores import open_store
from waybill.stores.zookeeper import ZookeeperStore


@pytest.mark.parametrize(("kind", "prefix"), [("job", "jid"), ("parcel", "p")])
def test_no_folder_gets_more_names_than_clients_can_list_d4(merritt: MerrittHarness, kind: str, prefix: str) -> None:
    merritt.options["max_names"] = 5
    store = merritt.open()
    parent = make_batch(store).ref if kind == "job" else None
    draft = Change(None, Record(kind, f"{prefix}*", "Pending", parent=parent), "submit")
    room = 4 if kind == "job" else 5  # the folder of the states counts too
    first, second, third = store.commit(
        [CommitGroup((draft,) * (room - 1)), CommitGroup((draft, draft)), CommitGroup((draft,))]
    )
    assert isinstance(first, CommitResult)
    assert isinstance(second, CommitTooLarge)
    assert "Remove what has settled" in str(second)
    assert "5 records" in str(second)
    assert isinstance(third, CommitResult), "one more fits"
    (full,) = store.commit([CommitGroup((draft,))])
    assert isinstance(full, CommitTooLarge)
    assert sum(store.count_by_state(kind).values()) == room
    commit(store, Change(store.find(kind).records[0], None, "remove"))
    commit(store, draft)


def test_a_group_that_would_be_too_large_a_transaction_is_refused_before_it_is_sent_a11(
    store: ZookeeperStore, zk: KazooClient
) -> None:
    """ZooKeeper closes the connection on a request of more than a megabyte, which looks like a lost connection."""
    batch = make_batch(store)
    draft = Change(
        None,
        Record("job", "jid*", "Pending", parent=batch.ref),
        "submit",
        documents={"configuration": b'"' + b"x" * 600 + b'"'},
    )
    answers = store.commit([CommitGroup((draft,) * 990), CommitGroup((draft,) * 200)])
    assert isinstance(answers[0], CommitTooLarge)
    assert "smaller groups" in str(answers[0])
    assert isinstance(answers[1], CommitResult)
    assert store.count_by_state("job") == {"Pending": 200}


def test_groups_that_fit_alone_are_not_refused_together_a11(store: ZookeeperStore) -> None:
    """Each of 900 KB: one transaction each."""
    jobs = make_jobs(store, make_batch(store), 6)
    body = b'"' + b"x" * 440_000 + b'"'
    answers = store.commit(
        [CommitGroup((Change(job, job, "note", documents={"metadata": body, "other": body}),)) for job in jobs]
    )
    assert all(isinstance(answer, CommitResult) for answer in answers)
    assert all(len(store.get("job", job.id).documents.raw["other"]) == len(body) for job in jobs)
    assert len(store.find("job", documents=True).records) == 6


@pytest.mark.parametrize(("kind", "prefix"), [("job", "jid"), ("parcel", "p")])
def test_a_group_that_creates_may_have_to_wait_for_the_next_transaction_a8(
    store: ZookeeperStore, kind: str, prefix: str
) -> None:
    """It took its numbers before it was found that it does not fit: it gives them back and takes them again."""
    batch = make_batch(store)
    job = make_job(store, batch)
    body = b'"' + b"x" * 440_000 + b'"'
    draft = Change(None, Record(kind, f"{prefix}*", "Pending", parent=batch.ref), "submit", documents={"some": body})
    full = Change(job, job, "note", documents={"metadata": body, "other": body})
    answers = store.commit([CommitGroup((full,)), *[CommitGroup((draft,))] * 4])
    assert all(isinstance(answer, CommitResult) for answer in answers)
    numbers = [
        int(record.id[-10:])
        for answer in answers[1:]
        if isinstance(answer, CommitResult)
        for record in answer.records
        if record
    ]
    assert numbers == list(range(numbers[0], numbers[0] + 4))


def test_documents_can_add_up_to_more_than_one_node_holds(store: ZookeeperStore) -> None:
    job = make_job(store, make_batch(store))
    bodies = {f"d{i}": b'"' + bytes([65 + i]) * 500_000 + b'"' for i in range(4)}
    for name, body in bodies.items():
        job = move(store, job, "Pending", documents={name: body})
    assert store.get("job", job.id).documents.raw == bodies


def test_a_long_chroot_counts_too_a11(merritt: MerrittHarness, zookeeper_url: str) -> None:
    """Each operation names its whole path."""
    store = ZookeeperStore(f"{zookeeper_url}/{'x' * 600}")
    batch = make_batch(store)
    draft = Change(None, Record("job", "jid*", "Pending", parent=batch.ref), "submit")
    answers = store.commit([CommitGroup((draft,) * 300), *[CommitGroup((draft,) * 40)] * 5])
    assert isinstance(answers[0], CommitTooLarge)
    assert all(isinstance(answer, CommitResult) for answer in answers[1:])
    jobs = store.find("job", limit=1000).records
    assert len(jobs) == 200
    assert all(
        isinstance(answer, CommitResult)
        for answer in store.commit([CommitGroup((make_move(job, "Held"),)) for job in jobs])
    )
    assert len(store.find("job", limit=1000, documents=True).records) == 200
    store.close()


def test_errors_in_a_url_are_explained(zookeeper_url: str) -> None:
    for url, words in (
        ("zookeeper:///chroot", "names no server"),
        (f"{zookeeper_url}//x", "no chroot"),
        (f"{zookeeper_url}/../x", "no nodes named"),
        (f"{zookeeper_url}/a/./b", "no nodes named"),
        ("zookeeper://127.0.0.1:2181/zookeeper", "keeps /zookeeper for itself"),
        ("zookeeper://127.0.0.1:99999/x", "99999 is not a port"),
        ("zookeeper://127.0.0.1:2181,127.0.0.1:abc/x", "abc is not a port"),
        ("zookeeper://127.0.0.1:-1/x", "-1 is not a port"),
        ("zookeeper://127.0.0.1:/x", "nothing is not a port"),
        (f"{zookeeper_url}?colour=red", "colour"),
        (f"{zookeeper_url}?timeout=soon", "numbers"),
    ):
        with pytest.raises(BadStore, match=words):
            ZookeeperStore(url)


def test_a_server_that_is_not_there_is_unavailable() -> None:
    with pytest.raises(StoreUnavailable, match="No ZooKeeper server answers"):
        ZookeeperStore("zookeeper://127.0.0.1:1/x?connect_timeout=0.2")


def test_the_chroot_is_made_when_it_is_missing(zookeeper_url: str) -> None:
    store = open_store(f"{zookeeper_url}/deep/er", timeout=5)
    assert isinstance(store, Store)
    assert store.find("job").records == []
    store.close()
    again = open_store(f"{zookeeper_url}/deep/er", migrate=False)
    assert again.count_by_state("job") == {}
    again.close()


def test_a_tree_that_is_not_set_up_or_newer_is_refused(merritt: MerrittHarness, zookeeper_url: str) -> None:
    with pytest.raises(BadStore, match="`waybill migrate` makes one"):
        ZookeeperStore(zookeeper_url, migrate=False)
    merritt.open()
    merritt.foreign_client().set("/waybill/layout", b"2")
    with pytest.raises(BadStore, match="has layout 2 and this release knows 1"):
        ZookeeperStore(zookeeper_url)
