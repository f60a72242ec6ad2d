"""The commands of administration: doctor, migrate, config, sessions, tokens, machines, sim."""

import os
import platform
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from unittest.mock import ANY
from xml.etree import ElementTree

import pytest
from msgspec.structs import replace

from tests.cli.conftest import Waybill, submit_shipment, take_step
from tests.simulation.planted_bugs import two_records_get_the_same_lock
from waybill import doctor
from waybill.config import SETTINGS, load
from waybill.demo import PARCEL
from waybill.environment import Environment
from waybill.record import Change, CommitGroup
from waybill.tokens import identify


def make_environment() -> Environment:
    return Environment.from_config(load(env={}, overrides={"data": "data", "demo": True}))


def test_a_healthy_store_has_nothing_wrong(waybill: Waybill) -> None:
    submit_shipment(waybill, 3)
    take_step(waybill, "shipment")
    assert (waybill("doctor").code, waybill("doctor").out.splitlines()[-1]) == (0, "Nothing is wrong.")
    assert waybill("doctor", "--json").json == {"found": 0, "repaired": 0, "remark": None, "sandbox": ANY}


def test_doctor_names_a_disk_that_is_nearly_full_and_what_lies_on_it(
    waybill: Waybill, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "MIN_FREE_BYTES", 1 << 62)
    monkeypatch.setattr(
        os,
        "statvfs",
        lambda path: os.statvfs_result((4096, 4096, 1_000_000, 9_999, 9_999, 5_000, 5_000, 5_000, 0, 255)),
    )
    looked = waybill("doctor", "--fix")
    assert looked.code == 1
    problem = (
        "41 MB of 4.1 GB are free on the disk of the working folders and the store and the index and the objects; "
    )
    assert looked.out.startswith(
        f"disk space, {data}: {problem}what cannot be written is tried again later.\n  not repaired: free some space"
    )


def test_doctor_names_a_disk_that_takes_no_more_files(waybill: Waybill, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        os, "statvfs", lambda path: os.statvfs_result((4096, 4096, 1_000_000, 900_000, 900_000, 5_000, 9, 9, 0, 255))
    )
    (finding, _) = waybill("doctor", "--json").lines
    assert (finding["rule"], finding["problem"][:32]) == ("disk space", "only 9 more files can be made on")


def test_doctor_explains_repairs_and_returns_an_exit_code(waybill: Waybill, data: Path) -> None:
    """A record that no session holds any more, as no driver would leave it; and a working folder that nobody needs."""
    shipment = submit_shipment(waybill)
    with closing(make_environment().open_store()) as store:
        session = store.open_session(host=platform.node(), ttl=60, about={})
        store.claim_one("shipment", shipment, session)
    with sqlite3.connect(data / "waybill.db") as db:
        db.execute("delete from session")
    forgotten = data / "work" / "parcel" / "pcl0000000099"
    forgotten.mkdir(parents=True)
    long_ago = time.time() - 10_000
    os.utime(forgotten, (long_ago, long_ago))

    looked = waybill("doctor")
    assert looked.code == 1
    assert shipment in looked.out
    assert "no record needs the folder parcel/pcl0000000099." in looked.out
    assert looked.out.endswith("`waybill doctor --fix` repairs what can be repaired.\n")
    assert forgotten.exists()
    findings = waybill("doctor", "--json")
    assert findings.code == 1
    assert findings.lines[-1] == {"found": len(findings.lines) - 1, "repaired": 0, "remark": None, "sandbox": ANY}
    assert {"rule", "where", "problem", "remedy", "repairable", "record", "repaired"} == set(findings.lines[0])

    repaired = waybill("doctor", "--fix")
    assert (repaired.code, "not repaired" in repaired.out) == (0, False)
    assert not forgotten.exists()
    assert waybill("doctor").code == 0
    assert take_step(waybill, "shipment")["id"] == shipment


def write_past_driver(data: Path, *statements: str) -> None:
    """Write to the database directly, as no driver would."""
    with closing(sqlite3.connect(data / "waybill.db")) as db:
        for statement in statements:
            db.execute(statement)
        db.commit()


def test_what_is_repaired_together_with_another_finding_counts_as_repaired(waybill: Waybill, data: Path) -> None:
    submit_shipment(waybill, 3)
    take_step(waybill, "shipment")
    write_past_driver(
        data,
        "update state_count set n = n + 7 where kind = 'parcel'",
        "insert into document values (999999, 'x', x'7b7d')",
        "insert into history values (999999, 5, 1, 'a', 'e', null, 'x', '')",
    )
    repaired = waybill("doctor", "--fix", "--json")
    assert [(line["rule"], line["repaired"]) for line in repaired.lines[:-1]] == [
        ("rows without a record", True),
        ("state counts are right", True),
        ("rows without a record", True),
        ("state counts are right", True),
    ]
    assert (repaired.code, repaired.lines[-1]) == (0, {"found": 4, "repaired": 4, "remark": None, "sandbox": ANY})
    assert waybill("doctor").code == 0


def test_doctor_names_what_cannot_be_read_and_looks_on(waybill: Waybill, data: Path) -> None:
    submit_shipment(waybill, 2)
    take_step(waybill, "shipment")
    write_past_driver(
        data, "update record set locks = '[' where seq = (select min(seq) from record where kind = 'parcel')"
    )
    looked = waybill("doctor", "--fix", "--json")
    assert looked.code == 1
    assert {line["rule"] for line in looked.lines[:-1]} == {"stored data can be read", "unreadable"}


def test_doctor_frees_what_waits_for_nothing(waybill: Waybill, data: Path) -> None:
    submit_shipment(waybill, 2)
    take_step(waybill, "shipment")
    write_past_driver(
        data,
        "update record set blocked_by = 'lock van/none' where seq = (select min(seq) from record where kind = 'parcel')",
        "update record set blocked_by = 'hold owner/none' where seq = (select max(seq) from record where kind = 'parcel')",
    )
    rules = ["lock waiters wait for an owned lock", "holds block only while they are set"]
    assert [line["rule"] for line in waybill("doctor", "--json").lines[:-1]] == rules
    assert waybill("doctor", "--fix").code == 0
    assert waybill("doctor").code == 0


@pytest.mark.usefixtures("films")
def test_doctor_leads_back_what_has_its_files_on_a_host_that_is_gone(waybill: Waybill, data: Path) -> None:
    film = waybill("submit", "film", "--json").json["id"]
    take_step(waybill, "film.Load")
    assert waybill("doctor").code == 0
    write_past_driver(data, "update record set host = 'gone', updated = updated - 700 where kind = 'film'")
    looked = waybill("doctor", "--fix")
    assert looked.code == 0, looked.out
    assert f"host lost, film {film}: film {film} has its working files on gone" in looked.out
    assert waybill("show", "film", film, "--json").json["state"] == "Load"
    assert waybill("doctor").code == 0


def test_what_was_kept_long_enough_is_not_wrong(waybill: Waybill, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WAYBILL_RETENTION", "token.Revoked=0")
    token = waybill("tokens", "new", "me", "--json").json["id"]
    waybill("tokens", "revoke", token)
    assert waybill("doctor", "--fix").code == 0
    assert waybill("show", "token", token).code == 0, "the retention routine removes it, when it is due"


def test_what_cannot_be_repaired_stays_a_finding(waybill: Waybill) -> None:
    shipment = submit_shipment(waybill)
    with closing(make_environment().open_store()) as store:
        record = store.get("shipment", shipment)
        store.commit([CommitGroup((Change(record, replace(record, state="Weighing"), "old release"),))])
    looked = waybill("doctor", "--fix")
    assert looked.code == 1
    assert "1 shipments are in Weighing, which this release does not declare." in looked.out
    assert "not repaired: waybill act shipment ID --to STATE" in looked.out


def test_migrate_makes_the_store_and_can_be_repeated(bare: Waybill, data: Path) -> None:
    assert bare("migrate", "--json").json == {"store": f"sqlite:///{data}/waybill.db", "migrated": True}
    assert bare("migrate").out == f"sqlite:///{data}/waybill.db is up to date.\n"


def test_config_shows_every_setting_and_where_it_came_from(
    bare: Waybill, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("WAYBILL_STORE", "postgresql://me:secret@host/db")
    monkeypatch.setenv("WAYBILL_STOER", "x")
    (tmp_path / "my.toml").write_text("[http]\nport = 9000\n")
    shown = bare("config", "--config", "my.toml", "--json").json
    assert set(shown["settings"]) == {setting.name for setting in SETTINGS}
    assert shown["settings"]["http.port"] == {"value": 9000, "from": "my.toml"}
    assert shown["settings"]["store"] == {"value": "postgresql://me:***@host/db", "from": "WAYBILL_STORE"}
    assert shown["unknown_variables"] == ["WAYBILL_STOER"]
    text = bare("config", "--data", "elsewhere")
    assert "secret" not in text.out
    assert text.err == "WAYBILL_STOER is set in the environment and is no setting of Waybill's.\n"
    assert f"{tmp_path}/elsewhere" in text.out


def test_tokens_are_made_shown_once_listed_and_revoked(waybill: Waybill) -> None:
    made = waybill("tokens", "new", "night shift", "--role", "operator", "--json").json
    with closing(make_environment().open_store()) as store:
        who = identify(store, made["token"])
        assert who is not None
        assert (who.name, who.role) == ("night shift", "operator")
    (listed,) = waybill("tokens", "--json").json["tokens"]
    assert (listed["id"], listed["name"], listed["role"], listed["state"]) == (
        made["id"],
        "night shift",
        "operator",
        "Active",
    )
    secret = made["token"].split("_", 2)[2]
    of_it = ("token", made["id"])
    for command in (("tokens", "list"), ("show", *of_it), ("show", *of_it, "--json"), ("history", *of_it)):
        result = waybill(*command).out
        assert secret not in result
        assert "hash" not in result
    assert waybill("tokens", "revoke", made["id"]).out == f"The token {made['id']} is revoked.\n"
    with closing(make_environment().open_store()) as store:
        assert identify(store, made["token"]) is None
    assert waybill("tokens", "revoke", made["id"]).code == 1


def test_sessions_lists_who_works(waybill: Waybill) -> None:
    assert waybill("sessions").err == "No worker is alive; `waybill work` starts one.\n"
    with closing(make_environment().open_store()) as store:
        session = store.open_session(host=platform.node(), ttl=60, about={"pid": 4711})
        store.renew_session(session, {"parcel pcl1": [1, 2, "stops", "Sending"]})
        (seen,) = waybill("sessions", "--json").json["sessions"]
        assert (seen["name"], seen["host"], seen["about"]["pid"]) == (session, platform.node(), 4711)
        assert seen["steps"][0]["id"] == "pcl1"
        text = waybill("sessions").out
        assert "4711" in text
        assert "parcel pcl1" in text
        store.close_session(session)


def test_a_worker_that_is_gone_is_called_so(waybill: Waybill, data: Path) -> None:
    """As after kill -9: its session has expired, and nobody was there to end it."""
    shipment = submit_shipment(waybill)
    with closing(make_environment().open_store()) as store:
        session = store.open_session(host=platform.node(), ttl=60, about={"pid": 4711})
        store.claim_one("shipment", shipment, session)
    assert (waybill("doctor").code, waybill("sessions", "--json").json["sessions"][0]["expired"]) == (0, False)
    assert "running" in waybill("show", "shipment", shipment).out
    write_past_driver(data, "update session set since = since - 120, expires = expires - 120")
    (seen,) = waybill("sessions", "--json").json["sessions"]
    assert (seen["name"], seen["expired"]) == (session, True)
    assert "expired 1m ago" in waybill("sessions").out
    shown = waybill("show", "shipment", shipment).out
    assert "its worker is gone; the next one claims it again" in shown
    assert f"{session} (expired)" in shown
    looked = waybill("doctor", "--fix", "--json")
    assert [(line["rule"], line["where"], line["repaired"]) for line in looked.lines[:-1]] == [
        ("expired session", session, False)
    ]
    assert looked.code == 1, "doctor was not there to see that it was not renewed"
    assert "not repaired: start a worker: it frees what this one claimed" in waybill("doctor", "--fix").out
    write_past_driver(data, "update session set ttl = 1e-9")  # so short that doctor is there for as long
    assert waybill("doctor", "--fix").code == 0
    assert waybill("doctor").code == 0
    assert waybill("show", "shipment", shipment, "--json").json["session"] is None


def test_machines_are_listed_with_all_states_and_transitions_and_drawn(bare: Waybill) -> None:
    text = bare("machines").out
    for state in PARCEL.states:
        assert state.description in text
    for transition in PARCEL.iter_arrows():
        assert f"{transition.source} → {transition.target}" in text
    for action in PARCEL.actions:
        assert action.description in text
    in_json = bare("machines", "--json").json["machines"]
    assert [machine["kind"] for machine in in_json] == [
        "activity",
        "event",
        "group",
        "key",
        "login-link",
        "mail",
        "maintenance",
        "parcel",
        "shipment",
        "sign-in",
        "subscription",
        "token",
        "user",
        "webhook_delivery",
    ]
    assert bare("machines", "list", "parcel", "--json").json["machines"] == [in_json[7]]
    assert len(in_json[7]["arrows"]) == len(list(PARCEL.iter_arrows()))
    drawn = bare("machines", "draw", "parcel").out
    assert drawn.startswith("stateDiagram-v2\n")
    assert "Packing --> Sending" in drawn
    figure = bare("machines", "draw", "parcel", "--svg").out
    assert ElementTree.fromstring(figure).tag.endswith("svg")
    assert bare("machines", "draw", "parcel", "--svg", "--json").json["figure"].strip() == figure.strip()
    assert bare("machines", "draw", "colour").code == 3
    assert bare("machines", "list", "colour").code == 3


def test_sim_runs_seeds_and_answers_by_its_exit_code(bare: Waybill) -> None:
    some = bare("sim", "--seeds", 3)
    assert (some.code, some.out.startswith("3 passed")) == (0, True)
    one = bare("sim", "--seed", 1, "--verbose", "--json")
    assert one.code == 0
    assert one.lines[-2]["line"].startswith("seed 1, ")
    assert one.lines[-1]["passed"] == 1
    assert bare("sim", "--scenario", "nothing").code == 2
    assert bare("sim", "--store", "nothing").code == 2
    assert bare("sim", "--minutes", 0.01).code == 0


def test_sim_answers_in_numbers(bare: Waybill, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = {"passed", "failed", "per_minute", "commits", "turns", "faults", "failure"}
    for words, least in ((("--seeds", 3), 3), (("--seed", 1), 1), (("--minutes", 0.01), 50)):
        some = bare("sim", *words, "--json")
        assert (some.code, set(some.json)) == (0, keys)
        assert some.json["passed"] >= least
        assert (some.json["failed"], some.json["failure"]) == (0, None)
        assert some.json["per_minute"] > 0
        assert all(isinstance(count, int) for count in some.json["faults"].values())
    refused = bare("sim", "--scenario", "nothing", "--json")
    assert (refused.code, refused.out, refused.error["code"]) == (2, "", "usage")
    two_records_get_the_same_lock(monkeypatch)
    failed = bare("sim", "--seeds", 50, "--scenario", "transfers", "--json")
    assert (failed.code, failed.json["failed"]) == (1, 1)
    assert set(failed.json["failure"]) == {"seed", "problem", "replay"}
    assert (
        failed.json["failure"]["replay"]
        == f"waybill sim --seed {failed.json['failure']['seed']} --store model --scenario transfers"
    )


def test_config_shows_webhooks_and_days_without_their_secrets(bare: Waybill, data: Path) -> None:
    data.mkdir()
    (data / "waybill.toml").write_text(
        '[webhooks.catalogue]\nurl = "https://example.org/hook"\ntypes = ["org.*"]\nsecret = "hush"\n[retention]\n"parcel.Delivered" = 7\n'
    )
    shown = bare("config")
    assert shown.code == 0, shown.err
    assert "catalogue = url = https://example.org/hook, types = org.*" in shown.out
    assert "parcel.Delivered = 7" in shown.out
    assert "hush" not in shown.out
