"""Short functions that create and move batches and jobs in tests."""

from typing import Any

from msgspec.structs import replace

from waybill.record import Change, CommitGroup, CommitResult, Record, Ref, StoreError, WorkQueue, encode_document
from waybill.stores.zookeeper import ZookeeperStore

TERMINAL = ("Failed", "Completed", "Deleted")


def commit(store: ZookeeperStore, *changes: Change, wake: tuple[Ref, ...] = ()) -> CommitResult:
    (answer,) = store.commit([CommitGroup(tuple(changes), wake)])
    if isinstance(answer, StoreError):
        raise answer
    return answer


def make_batch(
    store: ZookeeperStore, submission: dict[str, Any] | None = None, state: str = "Pending", **fields: Any
) -> Record:
    documents = {"submission": encode_document(submission)} if submission is not None else {}
    (made,) = commit(
        store, Change(None, Record("batch", "bid*", state, **fields), "submit", "ann", documents=documents)
    ).records
    assert made is not None
    return made


def make_jobs(
    store: ZookeeperStore, batch: Record | Ref, count: int = 1, documents: dict[str, bytes] | None = None, **fields: Any
) -> list[Record]:
    parent = batch.ref if isinstance(batch, Record) else batch
    fields = {"state": "Pending", **fields}
    change = Change(None, Record("job", "jid*", parent=parent, **fields), "submit", "ann", documents=documents or {})
    return [record for record in commit(store, *[change] * count).records if record is not None]


def make_job(
    store: ZookeeperStore, batch: Record | Ref, documents: dict[str, bytes] | None = None, **fields: Any
) -> Record:
    return make_jobs(store, batch, 1, documents, **fields)[0]


def make_move(record: Record, state: str, **more: Any) -> Change:
    change_fields = {
        name: more.pop(name)
        for name in ("documents", "delay", "requires_children_settled", "answers_request", "who", "why")
        if name in more
    }
    cause = more.pop("cause", "done")
    open = state not in TERMINAL
    return Change(
        record, replace(record, state=state, **{"open": open, **more}), cause, **{"who": "worker", **change_fields}
    )


def move(store: ZookeeperStore, record: Record, state: str, **more: Any) -> Record:
    (moved,) = commit(store, make_move(record, state, **more)).records
    assert moved is not None
    return moved


def claim(
    store: ZookeeperStore, session: str, state: str = "Pending", limit: int = 10, kind: str = "job"
) -> list[Record]:
    return [each.record for each in store.claim([WorkQueue(kind, state)], session, limit)]
