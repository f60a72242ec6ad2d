"""check finds what must never be, each planted here by hand; mend puts it right; a second look finds nothing."""

from typing import Any

import psycopg
import pytest

from tests.stores.postgres.harness import PostgresHarness
from waybill.record import Finding, Ref, Role
from waybill.stores.conformance import Yard
from waybill.stores.conformance.yard import change
from waybill.stores.postgres.upkeep import DOCUMENTS, OLD_SNAPSHOT, READABLE, RULES


def plant_tally(yard: Yard, sql: Any) -> Ref:
    crate = yard.crate()
    yard.make(2, parent=crate)
    yard.store.sweep()
    sql("update tally set n = n + 3 where kind = 'parcel' and parent_id = %s", [crate.id])
    sql("delete from tally where kind = 'parcel' and parent_id = ''")
    sql("insert into tally values ('parcel', '', '', 'Nowhere', 7)")
    return crate.ref


def plant_key(yard: Yard, sql: Any) -> Ref:
    made, waits = yard.one(), yard.one(keys=(yard.key("k"),))
    sql("insert into key values (%s, %s, %s), ('ark/other', 'parcel', 'gone')", [yard.key("k"), made.kind, made.id])
    assert yard.ids(yard.claim(yard.store, yard.session(), state="Packing")) == [made.id]
    assert yard.get(waits).parked == "key ark/k"
    return made.ref


def plant_holder(yard: Yard, sql: Any) -> Ref:
    made = yard.one()
    sql("update record set session = 'nobody' where id = %s", [made.id])
    return made.ref


def plant_unlocked(yard: Yard, sql: Any) -> Ref:
    made = yard.one(keys=(yard.key("k"),))
    assert yard.ids(yard.claim(yard.store, yard.session())) == [made.id]
    sql("delete from key")
    return made.ref


def plant_documents(yard: Yard, sql: Any) -> Ref:
    sql("insert into document values ('parcel', 'gone', 'label', '1'), ('parcel', 'gone', 'receipt', '1')")
    return Ref("parcel", "gone")


def plant_history(yard: Yard, sql: Any) -> Ref:
    for version in (1, 2):
        sql("insert into history values ('parcel', 'gone', %s, 0, '', 'note', 'Packing', 'Packing', '')", [version])
    return Ref("parcel", "gone")


def plant_ask(yard: Yard, sql: Any) -> Ref:
    sql("insert into ask values ('parcel', 'gone', 'cancel', 'ann', '', '{}')")
    return Ref("parcel", "gone")


def plant_waiter(yard: Yard, sql: Any) -> Ref:
    made = yard.one(keys=(yard.key("k"),))
    sql("update record set parked = 'key ark/k' where id = %s", [made.id])
    return made.ref


def plant_stopped(yard: Yard, sql: Any) -> Ref:
    made = yard.one(gates=(yard.gate("g"),))
    sql("update record set parked = 'mark collections/g' where id = %s", [made.id])
    return made.ref


def plant_join(yard: Yard, sql: Any) -> Ref:
    crate = yard.crate()
    (child,) = yard.make(1, parent=crate)
    yard.update(crate, parked="children")
    assert yard.write(change(child, state="Sent", open=False)).idle == (crate.ref,)  # and nobody calls it
    return crate.ref


PLANTS = {
    "the tally is right": plant_tally,
    "keys have holders": plant_key,
    "held by the living": plant_holder,
    "what is worked on has its keys": plant_unlocked,
    "documents have records": plant_documents,
    "history has records": plant_history,
    "requests have records": plant_ask,
    "waiters wait for what is held": plant_waiter,
    "marks stop while they are in force": plant_stopped,
    "joins wait for open children": plant_join,
}


def test_every_rule_is_planted() -> None:
    assert set(PLANTS) == set(RULES)


@pytest.mark.parametrize("rule", PLANTS)
def test_what_is_planted_is_found_told_and_mended(yard: Yard, harness: PostgresHarness, rule: str) -> None:
    assert list(yard.store.check()) == []
    ref = PLANTS[rule](yard, harness.admin.execute)
    found = list(yard.store.check())
    assert {finding.rule for finding in found} == {rule}
    assert ref in {finding.ref for finding in found}
    for finding in found:
        assert finding.mendable
        assert finding.where
        assert "{" not in finding.problem
        assert yard.store.mend(finding) is True
        assert yard.store.mend(finding) is False, "it is not so any more"
    assert list(yard.store.check()) == []


@pytest.mark.parametrize(
    "body", [b"{", b"", b"\xff\xfe", b'{"a": 1}\x00', b"NaN", b"[" * 100_000], ids=lambda body: repr(body[:6])
)
def test_a_document_that_is_no_json_is_named_until_it_is_written_again(
    yard: Yard, harness: PostgresHarness, body: bytes
) -> None:
    sound, odd = yard.one(docs={"label": b'{"to":"\\u0000"}'}), yard.one(docs={"label": b"1", "receipt": b"2"})
    assert list(yard.store.check()) == []
    harness.admin.execute("update document set body = %s where id = %s and name = 'receipt'", [body, odd.id])
    (found,) = yard.store.check()
    assert (found.rule, found.where, found.problem) == (
        READABLE,
        f"parcel {odd.id} receipt",
        "its document receipt is no JSON",
    )
    assert (found.ref, found.mendable, yard.store.mend(found)) == (odd.ref, False, False)
    yard.update(odd, docs={"receipt": b"3"})
    assert list(yard.store.check()) == []
    assert yard.get(sound).docs["label"] == {"to": "\0"}


def test_every_page_of_documents_is_looked_through(yard: Yard, harness: PostgresHarness) -> None:
    made = yard.make(2 * DOCUMENTS + 1, docs={"label": b"1"})
    damaged = {made[n].id for n in (0, DOCUMENTS - 1, DOCUMENTS, 2 * DOCUMENTS)}
    harness.admin.execute("update document set body = '' where id = any (%s)", [list(damaged)])
    assert {finding.ref.id for finding in yard.store.check() if finding.ref} == damaged


def test_a_mended_tally_tells_the_truth(yard: Yard, harness: PostgresHarness) -> None:
    plant_tally(yard, harness.admin.execute)
    for finding in yard.store.check():
        yard.store.mend(finding)
    assert yard.store.tally("parcel") == {"Packing": 2}


def test_a_wrong_tally_says_whose_it_is(yard: Yard, harness: PostgresHarness) -> None:
    crate = plant_tally(yard, harness.admin.execute)
    assert {finding.where for finding in yard.store.check()} == {
        "parcel in Packing",
        "parcel in Nowhere",
        f"parcel in Packing of {crate}",
    }


def test_a_waiter_is_told_only_if_nobody_is_about_to_take_the_key(yard: Yard, harness: PostgresHarness) -> None:
    ref = plant_waiter(yard, harness.admin.execute)
    about_to = yard.one(keys=(yard.key("k"),))
    assert list(yard.store.check()) == []
    yard.remove(about_to)
    assert yard.get(ref).parked is None, "whoever was about to take it passes its turn"


def test_what_is_mended_can_be_claimed(yard: Yard, harness: PostgresHarness) -> None:
    refs = [plant(yard, harness.admin.execute) for plant in (plant_holder, plant_waiter, plant_stopped)]
    session = yard.session()
    assert yard.claim(yard.store, session) == []
    for finding in list(yard.store.check()):
        yard.store.mend(finding)
    assert sorted(yard.ids(yard.claim(yard.store, session))) == sorted(ref.id for ref in refs)


def test_a_finding_of_another_store_is_left_alone(yard: Yard) -> None:
    assert yard.store.mend(Finding("some other rule", "x", "y", "z", ref=Ref("parcel", "x"))) is False


def test_an_old_snapshot_is_named_b8(harness: PostgresHarness) -> None:
    store = harness.open(old_snapshot=0.0)
    reader = psycopg.connect(harness.url, application_name="a long dump")
    reader.execute("begin isolation level repeatable read")
    reader.execute("select 1")
    (found,) = store.check()
    assert (found.rule, found.mendable) == (OLD_SNAPSHOT, False)
    assert "a long dump" in found.problem
    assert f"pg_terminate_backend({reader.info.backend_pid})" in found.remedy
    assert store.mend(found) is False
    assert list(harness.open().check()) == [], "an hour is the usual limit"
    reader.close()


def test_a_transaction_that_is_left_open_is_ended_by_the_server_b8(harness: PostgresHarness) -> None:
    store = harness.open()
    rows = store._connection.run("select setting from pg_settings where name = 'idle_in_transaction_session_timeout'")
    assert rows == [("60000",)]


def test_folding_leaves_one_count_for_each_state_b5(yard: Yard, harness: PostgresHarness) -> None:
    crate = yard.crate()
    made = yard.make(5, parent=crate)
    for record in made:
        yard.update(record, state="Weighing")
    before = yard.store.tally("parcel"), yard.store.tally("parcel", parent=crate.ref)
    (deltas,) = harness.admin.execute("select count(*) from tally_delta").fetchone() or (0,)
    assert deltas > 10
    assert yard.store.sweep() == 0, "counts are no repair"
    assert harness.admin.execute("select count(*) from tally_delta").fetchone() == (0,)
    assert (
        (yard.store.tally("parcel"), yard.store.tally("parcel", parent=crate.ref))
        == before
        == ({"Weighing": 5}, {"Weighing": 5})
    )
    counts = "select parent_id <> '', state, n from tally where kind = 'parcel' order by 1"
    assert harness.admin.execute(counts).fetchall() == [(False, "Weighing", 5), (True, "Weighing", 5)], (
        "what came to nothing is gone"
    )


def test_two_that_fold_at_once_count_nothing_twice_b5(yard: Yard, harness: PostgresHarness) -> None:
    made = yard.make(30)
    for record in made:
        yard.update(record, state="Weighing")
    stores = [harness.open() for _ in range(4)]
    for _ in range(5):
        harness.race(*[store.sweep for store in stores], lambda: yard.make(3))
    assert yard.store.tally("parcel") == {"Weighing": 30, "Packing": 15}
    assert list(yard.store.check()) == []


def test_clearing_a_mark_lets_go_in_portions(yard: Yard, harness: PostgresHarness) -> None:
    gate = yard.gate("g")
    for _ in range(3):
        yard.make(900, gates=(gate,))
    harness.admin.execute("update record set parked = %s", [f"mark {gate}"])
    yard.store.mark(gate, True)
    yard.store.mark(gate, False)
    assert harness.admin.execute("select count(*) from record where parked is not null").fetchone() == (0,)


def test_a_claim_looks_at_a_thousand_and_no_more_a10(yard: Yard, harness: PostgresHarness) -> None:
    gate = yard.gate("g")
    for _ in range(2):
        yard.make(800, gates=(gate,), priority=1)
    free = yard.one(priority=9)
    yard.store.mark(gate, True)
    session = yard.session()
    assert yard.store.claim([Role("parcel", "Packing")], session, 5) == []
    assert harness.admin.execute("select count(*) from record where parked is not null").fetchone() == (1000,)
    assert yard.ids(yard.store.claim([Role("parcel", "Packing")], session, 5)) == [free.id]
