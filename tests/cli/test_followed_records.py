"""A record is followed to its end, with its children: as lines, as JSON lines, as a picture that leaves its last state."""

import io
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest
from rich.console import Console

from tests.cli.conftest import Waybill, submit_shipment, take_step
from waybill.cli import followed_records
from waybill.cli.command_context import CommandContext
from waybill.cli.followed_records import NO_WORKER, follow_record, wait_until_settled
from waybill.engine import Engine
from waybill.record import Ref, StoreUnavailable

OnWait = Callable[[Callable[[], object]], None]


@pytest.fixture
def engine(waybill: Waybill) -> Iterator[Engine]:
    environment = CommandContext().environment
    with closing(environment.open_store()) as store:
        yield environment.make_engine(store)


@pytest.fixture
def on_wait(monkeypatch: pytest.MonkeyPatch) -> OnWait:
    """Says what happens while the command waits for a change."""

    def prepare(happen: Callable[[], object]) -> None:
        monkeypatch.setattr(followed_records, "wait_for_change", lambda *arguments: happen())

    return prepare


def take_any_step(waybill: Waybill) -> None:
    for queue in ("shipment", "parcel"):
        if waybill("work", "--once", "--queue", queue, "--json").code == 0:
            return


def test_lines_tell_how_a_record_and_its_children_move(
    waybill: Waybill, engine: Engine, on_wait: OnWait, capsys: pytest.CaptureFixture[str]
) -> None:
    ref, printed = Ref("shipment", submit_shipment(waybill, 2)), list[str]()

    def step() -> None:
        printed.extend(capsys.readouterr().out.splitlines())
        take_any_step(waybill)

    on_wait(step)
    last = follow_record(CommandContext(), engine.store, ref)
    printed.extend(capsys.readouterr().out.splitlines())
    assert last is not None
    assert (last.state, last.open) == ("Delivered", False)
    assert printed[0] == f"{ref.id} Sorting: no parcels yet"
    assert f"{ref.id} Travelling: 2 Packing" in printed
    assert printed[-1] == f"{ref.id} Delivered: 2 Delivered"
    assert len(printed) == len(set(printed)), "nothing is said twice"


def test_json_lines_have_the_kinds_of_the_machines(
    waybill: Waybill, engine: Engine, capsys: pytest.CaptureFixture[str]
) -> None:
    ref = Ref("shipment", submit_shipment(waybill, 2))
    take_step(waybill, "shipment")
    session = engine.store.open_session(host="here", ttl=60, about={})
    parcel = engine.store.find("parcel").records[0]
    engine.store.claim_one("parcel", parcel.id, session)
    engine.store.renew_session(session, {str(parcel.ref): [1, 4, "stops", parcel.state]})
    _, snapshot, worker_count = followed_records._read_snapshot(
        CommandContext(), engine.store, ref, lambda record: f"parcel {record.seq}"
    )
    assert worker_count == 1
    assert (snapshot["shipment"], snapshot["state"], snapshot["parcels"]) == (ref.id, "Travelling", {"Packing": 2})
    (step,) = snapshot["steps"]
    assert (step["id"], step["progress"]["fraction"]) == (parcel.id, 0.25)
    assert step["what"] == f"parcel {parcel.seq}"
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(followed_records._render_snapshot(CommandContext(), "shipment", snapshot))
    text = console.export_text()
    assert f"{ref.id}  Travelling" in text
    assert "Packing  2  ██████████████████████████████" in text
    assert "25% 1/4 stops" in text
    engine.store.close_session(session)


def test_a_record_that_rests_ends_it_because_nobody_knows_when_it_goes_on(
    waybill: Waybill, engine: Engine, on_wait: OnWait
) -> None:
    submit_shipment(waybill)
    take_step(waybill, "shipment")
    (parcel,) = engine.store.find("parcel").records
    for name in parcel.hold_names:
        assert waybill("hold", name).code == 0
    on_wait(lambda: take_any_step(waybill))
    last = follow_record(CommandContext(), engine.store, parcel.ref)
    assert last is not None
    assert (last.state, last.open) == ("Held", True)


def test_a_record_that_was_removed_is_none(waybill: Waybill, engine: Engine, on_wait: OnWait) -> None:
    ref = Ref("shipment", submit_shipment(waybill))

    def remove() -> None:
        while engine.store.get(*ref).open:
            take_any_step(waybill)
        engine.remove(ref)

    on_wait(remove)
    last = follow_record(CommandContext(), engine.store, ref)
    assert last is not None
    assert last.state == "Sorting", "as it was last seen"
    assert follow_record(CommandContext(), engine.store, ref) is None


def test_waiting_says_once_that_no_worker_is_alive_and_outlasts_an_unavailable_store(
    waybill: Waybill,
    engine: Engine,
    on_wait: OnWait,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(followed_records, "RETRY_PAUSE", 0.0)
    ref, failures, said = Ref("shipment", submit_shipment(waybill)), [StoreUnavailable("It is down.")], list[str]()
    get = engine.store.get

    def get_sometimes(kind: str, id: str) -> object:
        if failures:
            raise failures.pop()
        return get(kind, id)

    monkeypatch.setattr(engine.store, "get", get_sometimes)

    def step() -> None:
        said.extend(capsys.readouterr().err.splitlines())
        take_any_step(waybill)

    on_wait(step)
    assert wait_until_settled(CommandContext(), engine.store, ref).state == "Delivered"
    assert said[:3] == ["The store is unavailable: It is down; trying again.", "The store is back.", NO_WORKER]
    assert said.count(NO_WORKER) == 1
