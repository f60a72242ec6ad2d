"""The plans of the hot statements, on a store of thousands of records: by index, in order, and without reading more rows
than needed.

Each method is called on the real driver; the server logs the plan of every statement that ran, also inside functions
(auto_explain). On a store that was never analyzed the planner knows nothing: so is every store right after the start.
"""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.stores.postgres.harness import PostgresHarness
from waybill.record import Change, CommitGroup, Record, Ref, Visibility, WorkQueue
from waybill.stores.conformance import StoreTester
from waybill.stores.conformance.tester import make_change
from waybill.stores.postgres import PostgresStore

ROWS = 6000
LIMIT = 10
STATES = ("Packing", "Weighing", "Sending")

FILL = """
insert into record (kind, id, seq, state, version, parent_kind, parent_id, owner, scope, priority,
                    queue_position, resume_count, error_count,
                    message, locks, hold_names, open, host, blocked_by, session, idempotency_key, wake_count, wake_at, created, updated)
select 'parcel', 'pcl' || lpad(i::text, 10, '0'), i, (array['Packing', 'Weighing', 'Sending'])[i %% 3 + 1], i,
       case when i %% 2 = 0 then 'crate' end, case when i %% 2 = 0 then 'crt' || i %% 10 end, 'ann',
       case when i %% 100 = 0 then 'app/box/red' else '' end, i %% 10, i, 0, 0, '', '{}', '{}',
       true, '',
       case when i %% 7 = 0 then 'wait' when i %% 11 = 0 then 'lock ark/taken' when i %% 13 = 0 then 'hold collections/x' end,
       null, case when i %% 5 = 0 then 'r' || i end, 0, case when i %% 7 = 0 then 1e12 + i else 0 end, 0, 0
from generate_series(1, %s) i;
"""


class Plans:
    """The plans of all statements that a store runs."""

    def __init__(self, store: PostgresStore) -> None:
        self.store = store
        self._seen: list[str] = []
        db = store._connection._ensure_open()
        db.add_notice_handler(lambda notice: self._seen.append(notice.message_primary or ""))
        db.execute("load 'auto_explain'")
        for name, value in (
            ("auto_explain.log_min_duration", "0"),
            ("auto_explain.log_nested_statements", "on"),
            ("auto_explain.log_analyze", "on"),
            ("auto_explain.log_timing", "off"),
            ("auto_explain.log_format", "json"),
            ("client_min_messages", "log"),
        ):
            db.execute(f"set {name} = {value}")

    def of(self, call: Callable[[], Any]) -> "list[Node]":
        """Every node of every plan that ran in the call."""
        self._seen.clear()
        call()
        plans = [json.loads(text.partition("plan:")[2]) for text in self._seen if "plan:" in text]
        assert plans, "the server logged no plan"
        return [node for plan in plans for node in _nodes(plan["Plan"], plan["Query Text"])]


class Node(dict[str, Any]):
    query: str

    def __str__(self) -> str:
        return f"{self['Node Type']} {self.get('Index Name') or self.get('Relation Name', '')} of {self.query}"


def _nodes(plan: dict[str, Any], query: str) -> Iterator[Node]:
    node = Node(plan)
    node.query = query
    yield node
    for below in plan.get("Plans", ()):
        yield from _nodes(below, query)


TABLES = ("record", "document", "history", "record_lock", "action_request", "state_count", "state_count_delta")


def assert_by_index(nodes: list[Node], rows: int) -> None:
    """No scan of a whole table, and nowhere more rows read, dropped or sorted than `rows`."""
    for node in nodes:
        if node.get("Relation Name") in ("record", "document", "history"):
            assert node["Node Type"] != "Seq Scan", node
            assert not node["Node Type"].startswith("Bitmap"), node
        read = (node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"]
        if "Relation Name" in node or node["Node Type"] == "Sort":
            assert read <= rows, f"{read} rows in {node}"


def used(nodes: list[Node]) -> set[str]:
    return {node["Index Name"] for node in nodes if "Index Name" in node and node["Actual Rows"] > 0}


@pytest.fixture(params=["never analyzed", "analyzed"])
def plans(request: pytest.FixtureRequest, harness: PostgresHarness) -> Plans:
    store = harness.open()
    if request.param == "never analyzed":
        harness.admin.execute("alter table record set (autovacuum_enabled = off)")
        # The plans are made now, while the table is empty, and kept.
        session = store.open_session(host="here", ttl=1e6, about={})
        store.claim([WorkQueue("parcel", state) for state in STATES], session, LIMIT)
        store.commit([CommitGroup((), (Ref("x", "y"),))])
        store.close_session(session)
    harness.admin.execute(FILL, [ROWS])
    harness.admin.execute("insert into record_lock values ('ark/taken', 'parcel', 'pcl0000000001', 'exclusive')")
    harness.admin.execute("insert into document select kind, id, 'label', '1' from record")
    harness.admin.execute("update counter set last_seq = %s", [ROWS])
    if request.param == "analyzed":
        harness.admin.execute("analyze")
    return Plans(store)


def test_a_claim_reads_the_heads_of_its_queues_b3(plans: Plans) -> None:
    store = plans.store
    queues = [WorkQueue("parcel", state) for state in STATES]
    session = store.open_session(host="here", ttl=1e6, about={})
    taken: list[Any] = []
    for _ in range(3):
        nodes = plans.of(lambda: taken.extend(store.claim(queues, session, LIMIT)))
        assert {"record_by_urgency", "record_by_age", "record_pkey", "document_pkey"} <= used(nodes)
        scans = 2 * len(queues)  # each queue for any host and for this one
        assert_by_index(nodes, rows=scans * max(LIMIT, 4 * LIMIT // scans))
        sorts = [node for node in nodes if node["Node Type"] == "Sort"]
        assert sorts
        for node in sorts:
            assert node["Plans"][0]["Actual Rows"] * node["Plans"][0]["Actual Loops"] <= scans * LIMIT, node
    assert len(taken) == 3 * LIMIT


def test_a_commit_reads_what_it_writes_b1(plans: Plans) -> None:
    store = plans.store
    session = store.open_session(host="", ttl=1e6, about={})
    claimed = store.claim([WorkQueue("parcel", "Packing")], session, 100)
    on = [
        CommitGroup((make_change(each.record, cause="done", state="Weighing", documents={"label": b"2"}),))
        for each in claimed
    ]
    answers: list[Any] = []
    nodes = plans.of(lambda: answers.extend(store.commit(on)))
    assert "record_pkey" in used(nodes)
    assert_by_index(nodes, rows=400)
    records = [answer.records[0] for answer in answers]
    closing = [
        CommitGroup(
            (make_change(record, session=None, state="Sent", open=False, requires_children_settled=True),),
            wake=(Ref("crate", "crt2"),),
        )
        for record in records
    ]
    nodes = plans.of(lambda: answers.extend(store.commit(closing)))
    assert_by_index(nodes, rows=800)
    removed = [CommitGroup((Change(answer.records[0], None, cause="remove"),)) for answer in answers[100:]]
    assert_by_index(plans.of(lambda: store.commit(removed)), rows=800)


def test_a_creation_reads_neither_its_siblings_nor_its_kind_b6(plans: Plans) -> None:
    drafts = [
        Change(
            None, Record("parcel", "pcl*", "Packing", parent=Ref("crate", "crt2"), idempotency_key=f"new-{i}"), "create"
        )
        for i in range(100)
    ]
    nodes = plans.of(lambda: plans.store.commit([CommitGroup(tuple(drafts))]))
    assert_by_index(nodes, rows=400)


def test_locks_are_dropped_and_waiters_unblocked_by_index_a10(plans: Plans, tester: StoreTester) -> None:
    store = plans.store
    session = store.open_session(host="", ttl=1e6, about={})
    made = tester.make_parcel(locks=(tester.lock_name_of("new"), tester.lock_name_of("other")), priority=0)
    (mine,) = store.claim([WorkQueue("parcel", "Packing")], session, 1)
    if mine.record.id != made.id:
        mine = store.claim_one(made.kind, made.id, session)
    nodes = plans.of(
        lambda: store.commit([CommitGroup((make_change(mine.record, session=None, state="Sent", locks=()),))])
    )
    assert_by_index(nodes, rows=20)


@pytest.mark.parametrize(
    ("query", "index"),
    [
        ({}, "record_by_kind"),
        ({"newest": True}, "record_by_kind"),
        ({"state": "Weighing"}, "record_by_state"),
        ({"state": "Weighing", "newest": True}, "record_by_state"),
        ({"owner": "ann"}, "record_by_owner"),
        ({"parent": Ref("crate", "crt2")}, "record_by_parent"),
        ({"parent": Ref("crate", "crt2"), "newest": True, "after": 5000}, "record_by_parent"),
    ],
)
def test_a_page_reads_a_page(plans: Plans, query: dict[str, Any], index: str) -> None:
    nodes = plans.of(lambda: plans.store.find("parcel", limit=20, documents=True, **query))
    assert index in used(nodes)
    assert_by_index(nodes, rows=21)
    assert not any(node["Node Type"] == "Sort" and node["Plans"][0].get("Relation Name") == "record" for node in nodes)


@pytest.mark.parametrize(
    ("query", "rows"),
    [({}, 21), ({"newest": True}, 21), ({"state": "Weighing", "newest": True}, 60), ({"owner": "bob"}, 0)],
)
def test_a_page_of_what_somebody_may_see_reads_only_that(plans: Plans, query: dict[str, Any], rows: int) -> None:
    """One in a hundred is theirs, and they are found without reading the others."""
    reader = Visibility(("bob",), ("app/box/red",))
    nodes = plans.of(lambda: plans.store.find("parcel", limit=20, visibility=reader, **query))
    assert "record_by_scope" in used(nodes) or "owner" in query
    assert_by_index(nodes, rows=rows)


def test_one_record_is_read_by_its_name(plans: Plans) -> None:
    nodes = plans.of(lambda: plans.store.get("parcel", "pcl0000000100"))
    assert used(nodes) == {"record_pkey", "document_pkey"}
    assert_by_index(nodes, rows=1)


def test_the_small_questions_are_answered_by_index(plans: Plans) -> None:
    store = plans.store
    session = store.open_session(host="", ttl=1e6, about={})
    store.claim([WorkQueue("parcel", "Packing")], session, 10)
    for what, rows in (
        (lambda: store.parents_with_open_children([Ref("crate", f"crt{i}") for i in range(10)]), 10),
        (lambda: store.release_due_waits(5), 10),
        (lambda: store.renew_session(session), 10),
        (lambda: store.count_by_state("parcel"), 60),
        (lambda: store.close_session(session), 20),
        (lambda: store.find_idle_parents(), 10),
    ):
        assert_by_index(plans.of(what), rows=rows)


def test_parents_that_wait_are_looked_at_in_pages(plans: Plans, harness: PostgresHarness) -> None:
    """Thousands wait for open children: a call reads one page, wherever it begins."""
    harness.admin.execute("update record set blocked_by = 'children', wake_at = 0 where parent_id is null")
    harness.admin.execute(
        "update record set parent_kind = 'parcel', parent_id = 'pcl' || lpad((seq - 1)::text, 10, '0') where parent_id is not null"
    )
    after = ""
    for _ in range(3):
        nodes = plans.of(lambda after=after: plans.store.find_idle_parents(after=after, limit=LIMIT))  # type: ignore[misc]
        assert used(nodes) == {"record_blocked", "record_open_child"}
        assert_by_index(nodes, rows=LIMIT)
        after = plans.store.find_idle_parents(after=after, limit=LIMIT).after or ""
        assert after


def test_maintain_indexes_steps_from_reason_to_reason_a10(plans: Plans) -> None:
    """Hundreds wait for one lock: it is found in one step, not by reading each of them."""
    plans.store.maintain_indexes()
    nodes = plans.of(lambda: plans.store.maintain_indexes())
    assert_by_index([node for node in nodes if node.get("Relation Name") == "record"], rows=10)
