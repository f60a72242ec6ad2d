"""Short words for making and moving batches and jobs in tests."""

from typing import Any

from msgspec.structs import replace

from waybill.record import Change, Committed, Group, Record, Ref, Role, StoreError, encode
from waybill.stores.zookeeper import ZookeeperStore

TERMINAL = ("Failed", "Completed", "Deleted")


def commit(store: ZookeeperStore, *changes: Change, nudges: tuple[Ref, ...] = ()) -> Committed:
    (answer,) = store.commit([Group(tuple(changes), nudges)])
    if isinstance(answer, StoreError):
        raise answer
    return answer


def make_batch(
    store: ZookeeperStore, submission: dict[str, Any] | None = None, state: str = "Pending", **fields: Any
) -> Record:
    docs = {"submission": encode(submission)} if submission is not None else {}
    (made,) = commit(store, Change(None, Record("batch", "bid*", state, **fields), "submit", "ann", docs=docs)).records
    assert made is not None
    return made


def make_jobs(
    store: ZookeeperStore, batch: Record | Ref, count: int = 1, docs: dict[str, bytes] | None = None, **fields: Any
) -> list[Record]:
    parent = batch.ref if isinstance(batch, Record) else batch
    fields = {"state": "Pending", **fields}
    change = Change(None, Record("job", "jid*", parent=parent, **fields), "submit", "ann", docs=docs or {})
    return [record for record in commit(store, *[change] * count).records if record is not None]


def make_job(store: ZookeeperStore, batch: Record | Ref, docs: dict[str, bytes] | None = None, **fields: Any) -> Record:
    return make_jobs(store, batch, 1, docs, **fields)[0]


def moving(record: Record, state: str, **more: Any) -> Change:
    own = {name: more.pop(name) for name in ("docs", "delay", "closes", "answers", "who", "why") if name in more}
    event = more.pop("event", "done")
    open = state not in TERMINAL
    return Change(record, replace(record, state=state, **{"open": open, **more}), event, **{"who": "worker", **own})


def move(store: ZookeeperStore, record: Record, state: str, **more: Any) -> Record:
    (moved,) = commit(store, moving(record, state, **more)).records
    assert moved is not None
    return moved


def claim(
    store: ZookeeperStore, session: str, state: str = "Pending", limit: int = 10, kind: str = "job"
) -> list[Record]:
    return [each.record for each in store.claim([Role(kind, state)], session, limit)]
