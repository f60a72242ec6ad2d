"""The plans of the statements that matter, on a store of thousands: by index, in order, and never more rows than
they are about.

Each verb is called on the real driver; the server tells the plan of every statement that ran, those inside functions
too (auto_explain). On a store that was never analyzed the planner knows nothing, and right after the start that is how
every store is.
"""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.stores.postgres.harness import PostgresHarness
from waybill.record import Change, Group, Record, Ref, Role
from waybill.stores.conformance import Yard
from waybill.stores.conformance.yard import change
from waybill.stores.postgres import PostgresStore

ROWS = 6000
LIMIT = 10
STATES = ("Packing", "Weighing", "Sending")

FILL = """
insert into record (kind, id, seq, state, version, parent_kind, parent_id, owner, priority, turn, retries, tries, message, keys, gates,
                    open, host, parked, session, request, nudges, wake_at, created, updated)
select 'parcel', 'pcl' || lpad(i::text, 10, '0'), i, (array['Packing', 'Weighing', 'Sending'])[i %% 3 + 1], i,
       case when i %% 2 = 0 then 'crate' end, case when i %% 2 = 0 then 'crt' || i %% 10 end, 'ann', i %% 10, i, 0, 0, '', '{}', '{}',
       true, '',
       case when i %% 7 = 0 then 'wait' when i %% 11 = 0 then 'key ark/taken' when i %% 13 = 0 then 'mark collections/x' end,
       null, case when i %% 5 = 0 then 'r' || i end, 0, case when i %% 7 = 0 then 1e12 + i else 0 end, 0, 0
from generate_series(1, %s) i;
"""


class Plans:
    """The plans of all statements that a store runs."""

    def __init__(self, store: PostgresStore) -> None:
        self.store = store
        self._seen: list[str] = []
        db = store._connection._ready()
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
        assert plans, "the server told no plan"
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


TABLES = ("record", "document", "history", "key", "ask", "tally", "tally_delta")


def assert_by_index(nodes: list[Node], rows: int) -> None:
    """No walk over a table, and nowhere more rows read, dropped or sorted than `rows`."""
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
        store.claim([Role("parcel", state) for state in STATES], session, LIMIT)
        store.commit([Group((), (Ref("x", "y"),))])
        store.close_session(session)
    harness.admin.execute(FILL, [ROWS])
    harness.admin.execute("insert into key values ('ark/taken', 'parcel', 'pcl0000000001')")
    harness.admin.execute("insert into document select kind, id, 'label', '1' from record")
    harness.admin.execute("update counter set last = %s", [ROWS])
    if request.param == "analyzed":
        harness.admin.execute("analyze")
    return Plans(store)


def test_a_claim_reads_the_heads_of_its_queues_b3(plans: Plans) -> None:
    store = plans.store
    roles = [Role("parcel", state) for state in STATES]
    session = store.open_session(host="here", ttl=1e6, about={})
    taken: list[Any] = []
    for _ in range(3):
        nodes = plans.of(lambda: taken.extend(store.claim(roles, session, LIMIT)))
        assert {"record_urgent", "record_oldest", "record_pkey", "document_pkey"} <= used(nodes)
        branches = 2 * len(roles)  # each role for any host and for this one
        assert_by_index(nodes, rows=branches * max(LIMIT, 4 * LIMIT // branches))
        sorts = [node for node in nodes if node["Node Type"] == "Sort"]
        assert sorts
        for node in sorts:
            assert node["Plans"][0]["Actual Rows"] * node["Plans"][0]["Actual Loops"] <= branches * LIMIT, node
    assert len(taken) == 3 * LIMIT


def test_a_commit_reads_what_it_writes_b1(plans: Plans) -> None:
    store = plans.store
    session = store.open_session(host="", ttl=1e6, about={})
    claimed = store.claim([Role("parcel", "Packing")], session, 100)
    on = [Group((change(each.record, event="done", state="Weighing", docs={"label": b"2"}),)) for each in claimed]
    answers: list[Any] = []
    nodes = plans.of(lambda: answers.extend(store.commit(on)))
    assert "record_pkey" in used(nodes)
    assert_by_index(nodes, rows=400)
    records = [answer.records[0] for answer in answers]
    closing = [
        Group((change(record, session=None, state="Sent", open=False, closes=True),), nudges=(Ref("crate", "crt2"),))
        for record in records
    ]
    nodes = plans.of(lambda: answers.extend(store.commit(closing)))
    assert_by_index(nodes, rows=800)
    removed = [Group((Change(answer.records[0], None, event="remove"),)) for answer in answers[100:]]
    assert_by_index(plans.of(lambda: store.commit(removed)), rows=800)


def test_a_creation_reads_neither_its_siblings_nor_its_kind_b6(plans: Plans) -> None:
    drafts = [
        Change(None, Record("parcel", "pcl*", "Packing", parent=Ref("crate", "crt2"), request=f"new-{i}"), "create")
        for i in range(100)
    ]
    nodes = plans.of(lambda: plans.store.commit([Group(tuple(drafts))]))
    assert_by_index(nodes, rows=400)


def test_keys_are_dropped_and_passed_on_by_index_a10(plans: Plans, yard: Yard) -> None:
    store = plans.store
    session = store.open_session(host="", ttl=1e6, about={})
    made = yard.one(keys=(yard.key("new"), yard.key("other")), priority=0)
    (mine,) = store.claim([Role("parcel", "Packing")], session, 1)
    if mine.record.id != made.id:
        mine = store.take(made.kind, made.id, session)
    nodes = plans.of(lambda: store.commit([Group((change(mine.record, session=None, state="Sent", keys=()),))]))
    assert_by_index(nodes, rows=20)


@pytest.mark.parametrize(
    ("query", "index"),
    [
        ({}, "record_of_kind"),
        ({"newest": True}, "record_of_kind"),
        ({"state": "Weighing"}, "record_in_state"),
        ({"state": "Weighing", "newest": True}, "record_in_state"),
        ({"owner": "ann"}, "record_of_owner"),
        ({"parent": Ref("crate", "crt2")}, "record_of_parent"),
        ({"parent": Ref("crate", "crt2"), "newest": True, "after": 5000}, "record_of_parent"),
    ],
)
def test_a_page_reads_a_page(plans: Plans, query: dict[str, Any], index: str) -> None:
    nodes = plans.of(lambda: plans.store.find("parcel", limit=20, docs=True, **query))
    assert index in used(nodes)
    assert_by_index(nodes, rows=21)
    assert not any(node["Node Type"] == "Sort" and node["Plans"][0].get("Relation Name") == "record" for node in nodes)


def test_one_record_is_read_by_its_name(plans: Plans) -> None:
    nodes = plans.of(lambda: plans.store.get("parcel", "pcl0000000100"))
    assert used(nodes) == {"record_pkey", "document_pkey"}
    assert_by_index(nodes, rows=1)


def test_the_small_questions_are_answered_by_index(plans: Plans) -> None:
    store = plans.store
    session = store.open_session(host="", ttl=1e6, about={})
    store.claim([Role("parcel", "Packing")], session, 10)
    for what, rows in (
        (lambda: store.open_parents([Ref("crate", f"crt{i}") for i in range(10)]), 10),
        (lambda: store.wake(5), 10),
        (lambda: store.renew(session), 10),
        (lambda: store.tally("parcel"), 60),
        (lambda: store.close_session(session), 20),
        (lambda: store.idle_parents(), 10),
    ):
        assert_by_index(plans.of(what), rows=rows)


def test_parents_that_wait_are_looked_at_in_portions(plans: Plans, harness: PostgresHarness) -> None:
    """Thousands wait for open children: a call looks at a portion, wherever it begins."""
    harness.admin.execute("update record set parked = 'children', wake_at = 0 where parent_id is null")
    harness.admin.execute(
        "update record set parent_kind = 'parcel', parent_id = 'pcl' || lpad((seq - 1)::text, 10, '0') where parent_id is not null"
    )
    after = ""
    for _ in range(3):
        nodes = plans.of(lambda after=after: plans.store.idle_parents(after=after, limit=LIMIT))  # type: ignore[misc]
        assert used(nodes) == {"record_parked", "record_open_child"}
        assert_by_index(nodes, rows=LIMIT)
        after = plans.store.idle_parents(after=after, limit=LIMIT).after or ""
        assert after


def test_a_sweep_steps_from_reason_to_reason_a10(plans: Plans) -> None:
    """Hundreds wait for one key: it is found in one step, not by looking at each of them."""
    plans.store.sweep()
    nodes = plans.of(lambda: plans.store.sweep())
    assert_by_index([node for node in nodes if node.get("Relation Name") == "record"], rows=10)
