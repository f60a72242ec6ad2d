"""check finds violations, each planted here by hand; repair corrects them; a second check finds nothing."""

from typing import Any

import psycopg
import pytest

from tests.stores.postgres.harness import PostgresHarness
from waybill.record import Finding, Ref, WorkQueue
from waybill.stores.conformance import StoreTester
from waybill.stores.conformance.tester import make_change
from waybill.stores.postgres.maintenance import CHECK_RULES, DOCUMENTS_PAGE, OLD_SNAPSHOT_RULE, READABLE_RULE


def plant_wrong_count(tester: StoreTester, sql: Any) -> Ref:
    crate = tester.make_crate()
    tester.make_parcels(2, parent=crate)
    tester.store.maintain_indexes()
    sql("update state_count set n = n + 3 where kind = 'parcel' and parent_id = %s", [crate.id])
    sql("delete from state_count where kind = 'parcel' and parent_id = ''")
    sql("insert into state_count values ('parcel', '', '', 'Nowhere', 7)")
    return crate.ref


def plant_unowned_lock(tester: StoreTester, sql: Any) -> Ref:
    made, waits = tester.make_parcel(), tester.make_parcel(locks=(tester.lock_name_of("k"),))
    sql(
        "insert into record_lock (name, kind, id) values (%s, %s, %s), ('ark/other', 'parcel', 'gone')",
        [tester.lock_name_of("k"), made.kind, made.id],
    )
    sql("insert into record_lock (name, sort) values ('ark/s', 'shared')")
    sql("insert into record_lock_share values ('ark/s', %s, %s)", [made.kind, made.id])
    assert tester.ids_of(tester.claim(tester.store, tester.open_session(), state="Packing")) == [made.id]
    assert tester.get(waits).blocked_by == "lock ark/k"
    return made.ref


def plant_lock_without_gate(tester: StoreTester, sql: Any) -> Ref:
    tester.make_parcel(locks=(f"shared {tester.lock_name_of('k')}",))
    (mine,) = tester.claim_records(tester.store, tester.open_session())
    tester.release(mine, state=tester.harness.rest_state)
    sql("insert into record_lock (name, sort) values ('ark/nobody', 'shared')")
    sql("delete from record_lock where name = 'ark/k'")
    return Ref("lock", "ark/k")


def plant_dead_claim(tester: StoreTester, sql: Any) -> Ref:
    made = tester.make_parcel()
    sql("update record set session = 'nobody' where id = %s", [made.id])
    return made.ref


def plant_missing_lock(tester: StoreTester, sql: Any) -> Ref:
    made = tester.make_parcel(locks=(tester.lock_name_of("k"),))
    assert tester.ids_of(tester.claim(tester.store, tester.open_session())) == [made.id]
    sql("delete from record_lock")
    return made.ref


def plant_orphan_document(tester: StoreTester, sql: Any) -> Ref:
    sql("insert into document values ('parcel', 'gone', 'label', '1'), ('parcel', 'gone', 'receipt', '1')")
    return Ref("parcel", "gone")


def plant_orphan_history(tester: StoreTester, sql: Any) -> Ref:
    for version in (1, 2):
        sql("insert into history values ('parcel', 'gone', %s, 0, '', 'note', 'Packing', 'Packing', '')", [version])
    return Ref("parcel", "gone")


def plant_orphan_request(tester: StoreTester, sql: Any) -> Ref:
    sql("insert into action_request values ('parcel', 'gone', 'cancel', 'ann', '', '{}')")
    return Ref("parcel", "gone")


def plant_lock_waiter(tester: StoreTester, sql: Any) -> Ref:
    made = tester.make_parcel(locks=(tester.lock_name_of("k"),))
    sql("update record set blocked_by = 'lock ark/k' where id = %s", [made.id])
    return made.ref


def plant_hold_waiter(tester: StoreTester, sql: Any) -> Ref:
    made = tester.make_parcel(hold_names=(tester.hold_name_of("g"),))
    sql("update record set blocked_by = 'hold collections/g' where id = %s", [made.id])
    return made.ref


def plant_idle_join(tester: StoreTester, sql: Any) -> Ref:
    crate = tester.make_crate()
    (child,) = tester.make_parcels(1, parent=crate)
    tester.update(crate, blocked_by="children")
    assert tester.write(make_change(child, state="Sent", open=False)).idle_parents == (
        crate.ref,
    )  # and nobody wakes it
    return crate.ref


PLANTS = {
    "state counts are right": plant_wrong_count,
    "locks have owners": plant_unowned_lock,
    "shared locks have a gate": plant_lock_without_gate,
    "claims belong to live sessions": plant_dead_claim,
    "claimed records own their locks": plant_missing_lock,
    "documents have records": plant_orphan_document,
    "history has records": plant_orphan_history,
    "action requests have records": plant_orphan_request,
    "lock waiters wait for an owned lock": plant_lock_waiter,
    "holds block only while they are set": plant_hold_waiter,
    "joins wait for open children": plant_idle_join,
}


def test_every_rule_is_planted() -> None:
    assert set(PLANTS) == set(CHECK_RULES)


@pytest.mark.parametrize("rule", PLANTS)
def test_every_planted_violation_is_found_and_repaired(
    tester: StoreTester, harness: PostgresHarness, rule: str
) -> None:
    assert list(tester.store.check()) == []
    ref = PLANTS[rule](tester, harness.admin.execute)
    found = list(tester.store.check())
    assert {finding.rule for finding in found} == {rule}
    assert ref in {finding.ref for finding in found}
    for finding in found:
        assert finding.repairable
        assert finding.where
        assert "{" not in finding.problem
        assert tester.store.repair(finding) is True
        assert tester.store.repair(finding) is False, "it no longer exists"
    assert list(tester.store.check()) == []


@pytest.mark.parametrize(
    "body", [b"{", b"", b"\xff\xfe", b'{"a": 1}\x00', b"NaN", b"[" * 100_000], ids=lambda body: repr(body[:6])
)
def test_a_document_that_is_no_json_is_named_until_it_is_written_again(
    tester: StoreTester, harness: PostgresHarness, body: bytes
) -> None:
    sound, odd = (
        tester.make_parcel(documents={"label": b'{"to":"\\u0000"}'}),
        tester.make_parcel(documents={"label": b"1", "receipt": b"2"}),
    )
    assert list(tester.store.check()) == []
    harness.admin.execute("update document set body = %s where id = %s and name = 'receipt'", [body, odd.id])
    (found,) = tester.store.check()
    assert (found.rule, found.where, found.problem) == (
        READABLE_RULE,
        f"parcel {odd.id} receipt",
        "its document receipt is no JSON",
    )
    assert (found.ref, found.repairable, tester.store.repair(found)) == (odd.ref, False, False)
    tester.update(odd, documents={"receipt": b"3"})
    assert list(tester.store.check()) == []
    assert tester.get(sound).documents["label"] == {"to": "\0"}


def test_every_page_of_documents_is_checked(tester: StoreTester, harness: PostgresHarness) -> None:
    made = tester.make_parcels(2 * DOCUMENTS_PAGE + 1, documents={"label": b"1"})
    damaged = {made[n].id for n in (0, DOCUMENTS_PAGE - 1, DOCUMENTS_PAGE, 2 * DOCUMENTS_PAGE)}
    harness.admin.execute("update document set body = '' where id = any (%s)", [list(damaged)])
    assert {finding.ref.id for finding in tester.store.check() if finding.ref} == damaged


def test_a_repaired_count_is_right(tester: StoreTester, harness: PostgresHarness) -> None:
    plant_wrong_count(tester, harness.admin.execute)
    for finding in tester.store.check():
        tester.store.repair(finding)
    assert tester.store.count_by_state("parcel") == {"Packing": 2}


def test_a_wrong_count_names_its_parent(tester: StoreTester, harness: PostgresHarness) -> None:
    crate = plant_wrong_count(tester, harness.admin.execute)
    assert {finding.where for finding in tester.store.check()} == {
        "parcel in Packing",
        "parcel in Nowhere",
        f"parcel in Packing of {crate}",
    }


def test_a_waiter_is_found_only_if_nobody_is_about_to_take_the_lock(
    tester: StoreTester, harness: PostgresHarness
) -> None:
    ref = plant_lock_waiter(tester, harness.admin.execute)
    about_to = tester.make_parcel(locks=(tester.lock_name_of("k"),))
    assert list(tester.store.check()) == []
    tester.remove(about_to)
    assert tester.get(ref).blocked_by is None, "the record that was about to take it unblocks the next"


def test_a_repaired_record_can_be_claimed(tester: StoreTester, harness: PostgresHarness) -> None:
    refs = [plant(tester, harness.admin.execute) for plant in (plant_dead_claim, plant_lock_waiter, plant_hold_waiter)]
    session = tester.open_session()
    assert tester.claim(tester.store, session) == []
    for finding in list(tester.store.check()):
        tester.store.repair(finding)
    assert sorted(tester.ids_of(tester.claim(tester.store, session))) == sorted(ref.id for ref in refs)


def test_a_finding_of_another_store_is_left_alone(tester: StoreTester) -> None:
    assert tester.store.repair(Finding("some other rule", "x", "y", "z", ref=Ref("parcel", "x"))) is False


def test_an_old_snapshot_is_named_b8(harness: PostgresHarness) -> None:
    store = harness.open(old_snapshot=0.0)
    reader = psycopg.connect(harness.url, application_name="a long dump")
    reader.execute("begin isolation level repeatable read")
    reader.execute("select 1")
    (found,) = store.check()
    assert (found.rule, found.repairable) == (OLD_SNAPSHOT_RULE, False)
    assert "a long dump" in found.problem
    assert f"pg_terminate_backend({reader.info.backend_pid})" in found.remedy
    assert store.repair(found) is False
    assert list(harness.open().check()) == [], "an hour is the usual limit"
    reader.close()


def test_a_transaction_that_is_left_open_is_ended_by_the_server_b8(harness: PostgresHarness) -> None:
    store = harness.open()
    rows = store._connection.run("select setting from pg_settings where name = 'idle_in_transaction_session_timeout'")
    assert rows == [("60000",)]


def test_folding_leaves_one_count_for_each_state_b5(tester: StoreTester, harness: PostgresHarness) -> None:
    crate = tester.make_crate()
    made = tester.make_parcels(5, parent=crate)
    for record in made:
        tester.update(record, state="Weighing")
    before = tester.store.count_by_state("parcel"), tester.store.count_by_state("parcel", parent=crate.ref)
    (deltas,) = harness.admin.execute("select count(*) from state_count_delta").fetchone() or (0,)
    assert deltas > 10
    assert tester.store.maintain_indexes() == 0, "counts are no repair"
    assert harness.admin.execute("select count(*) from state_count_delta").fetchone() == (0,)
    assert (
        (tester.store.count_by_state("parcel"), tester.store.count_by_state("parcel", parent=crate.ref))
        == before
        == ({"Weighing": 5}, {"Weighing": 5})
    )
    counts = "select parent_id <> '', state, n from state_count where kind = 'parcel' order by 1"
    assert harness.admin.execute(counts).fetchall() == [(False, "Weighing", 5), (True, "Weighing", 5)], (
        "what came to nothing is gone"
    )


def test_two_that_fold_at_once_count_nothing_twice_b5(tester: StoreTester, harness: PostgresHarness) -> None:
    made = tester.make_parcels(30)
    for record in made:
        tester.update(record, state="Weighing")
    stores = [harness.open() for _ in range(4)]
    for _ in range(5):
        harness.race(*[store.maintain_indexes for store in stores], lambda: tester.make_parcels(3))
    assert tester.store.count_by_state("parcel") == {"Weighing": 30, "Packing": 15}
    assert list(tester.store.check()) == []


def test_clearing_a_hold_unblocks_page_by_page(tester: StoreTester, harness: PostgresHarness) -> None:
    hold = tester.hold_name_of("g")
    for _ in range(3):
        tester.make_parcels(900, hold_names=(hold,))
    harness.admin.execute("update record set blocked_by = %s", [f"hold {hold}"])
    tester.store.set_hold(hold)
    tester.store.clear_hold(hold)
    assert harness.admin.execute("select count(*) from record where blocked_by is not null").fetchone() == (0,)


def test_a_claim_scans_a_thousand_records_and_no_more_a10(tester: StoreTester, harness: PostgresHarness) -> None:
    hold = tester.hold_name_of("g")
    for _ in range(2):
        tester.make_parcels(800, hold_names=(hold,), priority=1)
    free = tester.make_parcel(priority=9)
    tester.store.set_hold(hold)
    session = tester.open_session()
    assert tester.store.claim([WorkQueue("parcel", "Packing")], session, 5) == []
    assert harness.admin.execute("select count(*) from record where blocked_by is not null").fetchone() == (1000,)
    assert tester.ids_of(tester.store.claim([WorkQueue("parcel", "Packing")], session, 5)) == [free.id]
