"""Watching: lines in a pipe, JSON lines, a picture in a terminal, one record until it settles."""

import io
import json
import os
import platform
import pty
import signal
import sys
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from rich.console import Console

from tests.cli.conftest import Running, Start, Waybill, submit_shipment, take_step
from tests.servers.postgres import PostgresServer
from waybill import views
from waybill.cli import watch
from waybill.cli.followed_records import StoreRetry
from waybill.client import RecordsClient
from waybill.config import load
from waybill.demo import PARCEL
from waybill.environment import Environment
from waybill.record import RecordNotFound, SessionInfo, StoreUnavailable
from waybill.views.view_types import MachineView


def test_one_record_is_followed_until_it_settles(running: Start, waybill: Waybill) -> None:
    shipment = submit_shipment(waybill)
    work = running("work", "--queue", "shipment", "--queue", "parcel")
    text = running("watch", "shipment", shipment)
    lines = running("watch", "shipment", shipment, "--json").end().lines
    said = text.end()
    assert work.end(signal.SIGTERM).code == 0
    assert said.code == 0
    for part in ("submit", "· → Sorting", "Sorting → Travelling", "Travelling → Delivered"):
        assert part in said.out
    assert [(line["before"], line["after"]) for line in lines if "cause" in line] == [
        (None, "Sorting"),
        ("Sorting", "Travelling"),
        ("Travelling", "Delivered"),
    ]


def test_a_pipe_gets_a_line_whenever_something_changed(running: Start, waybill: Waybill) -> None:
    watch = running("watch", "shipment", "--interval", "0.2")
    assert watch.line() == "shipment: none\n"
    submit_shipment(waybill)
    assert watch.line() == "shipment: 1 Sorting\n"
    submit_shipment(waybill)
    assert watch.line() == "shipment: 2 Sorting\n"
    take_step(waybill, "shipment")
    assert watch.line() == "shipment: 1 Sorting, 1 Travelling\n"
    ended = watch.end(signal.SIGINT)
    assert (ended.code, ended.out, ended.err) == (0, "", "")


def test_json_lines_have_the_counts_and_the_time(running: Start, waybill: Waybill) -> None:
    submit_shipment(waybill)
    watch = running("watch", "--json")
    look = json.loads(watch.line())
    assert set(look) == {"at", "kinds", "steps", "workers", "expired"}
    assert [kind["kind"] for kind in look["kinds"]] == ["parcel", "shipment"], (
        "maintenance and tokens only when asked for"
    )
    assert look["kinds"][1]["total"] == 1
    assert watch.end(signal.SIGINT).code == 0


def test_nothing_is_said_twice(waybill: Waybill, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = [
        {"kinds": [views.to_state_counts_view(PARCEL, {"Sending": n})], "steps": [], "workers": 1, "expired": 0}
        for n in (1, 1, 2, 2, 1)
    ]
    monkeypatch.setattr(watch, "_poll_snapshots", lambda *arguments: iter(looks))
    assert [line["kinds"][0]["total"] for line in waybill("watch", "parcel", "--json").lines] == [1, 2, 1]
    assert waybill("watch", "parcel").out == "parcel: 1 Sending\nparcel: 2 Sending\nparcel: 1 Sending\n"


def test_a_worker_that_is_gone_is_called_so(waybill: Waybill, monkeypatch: pytest.MonkeyPatch) -> None:
    """As after kill -9: its session has expired, and nobody was there to end it."""
    shipment = submit_shipment(waybill)
    with closing(Environment.from_config(load(env=os.environ)).open_store()) as store:
        store.open_session(host=platform.node(), ttl=60, about={})
        gone = store.open_session(host=platform.node(), ttl=1e-9, about={})
        store.claim_one("shipment", shipment, gone)
        store.renew_session(gone, {f"shipment {shipment}": [1, 2, "stops", "Sorting"]})

    def once(
        retry: StoreRetry, client: RecordsClient, machines: list[MachineView], *options: object
    ) -> list[watch.WatchSnapshot]:
        return [watch._read_snapshot(client, machines)]

    monkeypatch.setattr(watch, "_poll_snapshots", once)
    (look,) = waybill("watch", "shipment", "--json").lines
    assert (look["workers"], look["expired"], look["steps"]) == (1, 1, [])
    line = "1 worker has expired; the next worker frees its claims"
    assert line in waybill("watch", "shipment").out.splitlines()
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(watch._render_snapshot(look))
    assert line in console.export_text()


def test_one_record_whose_worker_is_gone_is_said_to_be_so(running: Start, waybill: Waybill) -> None:
    shipment = submit_shipment(waybill)
    with closing(Environment.from_config(load(env=os.environ)).open_store()) as store:
        gone = store.open_session(host=platform.node(), ttl=1e-9, about={})
        store.claim_one("shipment", shipment, gone)
    watch = running("watch", "shipment", shipment, "--interval", "0.2")
    assert "submit" in watch.line()
    assert watch.line().strip() == "its worker is gone; the next one claims it again"
    assert watch.end(signal.SIGINT).out == "", "it is said once"
    watch = running("watch", "shipment", shipment, "--json")
    assert json.loads(watch.line())["cause"] == "submit"
    assert json.loads(watch.line()) == {"expired": gone}
    assert watch.end(signal.SIGINT).code == 0


def test_settled_ends_when_nothing_is_open(waybill: Waybill) -> None:
    done = waybill("watch", "shipment", "--until-settled", "--json")
    assert (done.code, len(done.lines)) == (0, 1)


def test_a_terminal_gets_a_picture(waybill: Waybill) -> None:
    submit_shipment(waybill, 3)
    take_step(waybill, "shipment")
    reader, writer = pty.openpty()
    child = os.fork()
    if child == 0:
        os.dup2(writer, 1)
        command = [sys.executable, "-m", "waybill", "watch", "parcel", "--interval", "0.2"]
        os.execve(sys.executable, command, {**os.environ, "TERM": "xterm"})
    os.close(writer)
    seen = b""
    while b"workers" not in seen:
        seen += os.read(reader, 4096)
    os.kill(child, signal.SIGINT)
    while True:
        try:
            if not os.read(reader, 4096):
                break
        except OSError:  # the other end is closed
            break
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    text = seen.decode(errors="replace")  # what was read last may end in the middle of a letter
    assert "Packing" in text
    assert "█" in text


def test_progress_is_a_bar(waybill: Waybill) -> None:
    """What a worker says of a step with its heartbeat, as the picture shows it."""
    busy: dict[str, list[Any]] = {
        "pcl1": [1, 4, "stops"],
        "pcl2": [7, None, "files"],
        "pcl3": [7_335_940, 6e7, "bytes"],
    }
    info = SessionInfo("s1", "here", 0.0, 0.0, {}, {f"parcel {id}": [*step, "Sending"] for id, step in busy.items()})
    look = {
        "kinds": [views.to_state_counts_view(PARCEL, {"Sending": 2})],
        "steps": views.to_session_view(info, 0.0)["steps"],
        "workers": 1,
        "expired": 0,
    }
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(watch._render_snapshot(look))
    text = console.export_text()
    assert "parcel pcl1  ━━━━━╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌  25% 1/4 stops" in text
    assert "parcel pcl2  7 files" in text
    assert "12% 7.3 MB/60.0 MB" in text


@pytest.mark.parametrize("json_too", [False, True])
def test_progress_of_a_worker_reaches_whoever_watches(running: Start, waybill: Waybill, json_too: bool) -> None:
    submit_shipment(waybill)
    take_step(waybill, "shipment")
    with closing(Environment.from_config(load(env={}, overrides={"data": "data", "demo": True})).open_store()) as store:
        parcel = store.find("parcel").records[0]
        session = store.open_session(host=os.uname().nodename, ttl=60, about={})
        store.claim_one("parcel", parcel.id, session)
        store.renew_session(session, {str(parcel.ref): [2, 4, "stops", parcel.state]})
        watch = running("watch", "parcel", *(["--json"] if json_too else []))
        lines = [watch.line()] if json_too else [watch.line(), watch.line()]
        assert watch.end(signal.SIGINT).code == 0
        store.close_session(session)
    if json_too:
        (step,) = json.loads(lines[0])["steps"]
        assert (step["id"], step["progress"]["fraction"]) == (parcel.id, 0.5)
    else:
        assert lines == ["parcel: 1 Packing\n", f"parcel {parcel.id}: ━━━━━━━━━━╌╌╌╌╌╌╌╌╌╌  50% 2/4 stops\n"]


def _complaint(watch: Running) -> str:
    assert watch.process.stderr is not None
    return watch.process.stderr.readline()


def test_it_waits_for_an_unavailable_store(bare: Waybill, running: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    with PostgresServer(fast=True) as server:
        monkeypatch.setenv("WAYBILL_STORE", server.create_database())
        assert bare("migrate").code == 0
        id = submit_shipment(bare)
        text = running("watch", "shipment", "--interval", "0.2")
        assert text.line() == "shipment: 1 Sorting\n"
        one = running("watch", "shipment", id, "--interval", "0.2")
        assert "submit" in one.line()
        json_too = running("watch", "shipment", "--interval", "0.2", "--json")
        assert json.loads(json_too.line())["kinds"][0]["total"] == 1
        server.kill()
        for watch in (text, one):
            assert _complaint(watch).startswith("The store is unavailable: ")
        server.start()
        submit_shipment(bare)
        assert text.line() == "shipment: 2 Sorting\n"
        assert json.loads(json_too.line())["kinds"][0]["total"] == 2
        take_step(bare, "shipment")
        assert "Sorting → Travelling" in one.line()
        for watch in (text, one):
            ended = watch.end(signal.SIGINT)
            assert (ended.code, ended.err) == (0, "The store is back.\n")
        ended = json_too.end(signal.SIGINT)
        assert (ended.code, ended.err) == (0, "")


def test_ctrl_c_ends_it_while_the_store_is_unavailable(
    bare: Waybill, running: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    with PostgresServer(fast=True) as server:
        monkeypatch.setenv("WAYBILL_STORE", server.create_database())
        assert bare("migrate").code == 0
        watch = running("watch", "shipment", "--interval", "0.2")
        assert watch.line() == "shipment: none\n"
        server.kill()
        assert _complaint(watch).startswith("The store is unavailable: ")
        ended = watch.end(signal.SIGINT)
        assert (ended.code, ended.out, ended.err) == (0, "", "")


def test_an_outage_is_said_once_and_anything_else_passes() -> None:
    said: list[str] = []
    waits: list[float] = []
    retry = StoreRetry(said.append, waits.append)
    answers: Iterator[int | Exception] = iter(
        [
            StoreUnavailable("Nobody there."),
            StoreUnavailable("Still nobody."),
            7,
            StoreUnavailable("Gone again."),
            8,
            RecordNotFound("no such"),
        ]
    )

    def read() -> object:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    assert [retry(read), retry(read)] == [7, 8]
    with pytest.raises(RecordNotFound):
        retry(read)
    unavailable, back = "The store is unavailable: {}; trying again.", "The store is back."
    assert said == [unavailable.format("Nobody there"), back, unavailable.format("Gone again"), back]
    assert len(waits) == 3
