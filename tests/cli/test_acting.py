"""Moving records by hand: act, priority, marks, single steps."""

import io
import json
import platform
import sys
from contextlib import closing
from typing import Any

import pytest
from msgspec.structs import replace

from tests.cli.conftest import Waybill, ship, stepped
from waybill.config import load
from waybill.depot import Depot
from waybill.record import Change, Group, Store


def depot() -> Depot:
    return Depot.of(load(env={}, overrides={"data": "data", "demo": True}))


def failed_parcels(waybill: Waybill, shipments: int = 1) -> list[str]:
    """Parcels that failed: the fifth of each shipment has a wrong address."""
    for _ in range(shipments):
        ship(waybill, 5)
        stepped(waybill, "shipment.Sorting")
    for _ in range(5 * shipments):
        stepped(waybill, "parcel.Packing")
    found = []
    with closing(depot().open_store()) as store:
        found = [r.id for r in store.find("parcel", docs=True).records if r.docs["label"]["number"] == 5]
    for parcel in found:
        assert waybill("step", "parcel", parcel, "--json").json["arrow"]["after"] == "Failed"
    return found


def state(waybill: Waybill, kind: str, id: str) -> Any:
    return waybill("show", kind, id, "--json").json["state"]


@pytest.mark.parametrize("kind", ["letter", "event", "duty", "token"])
def test_what_the_system_makes_is_not_submitted(waybill: Waybill, kind: str) -> None:
    said = waybill("submit", kind, "--id", "x")
    assert (said.code, said.out) == (1, "")
    assert said.err.startswith(f"No {kind} is made here, where nobody would look at what is sent: it is made by ")


@pytest.mark.parametrize("number", ["NaN", "Infinity", "1e999"])
def test_a_number_that_json_does_not_have_is_refused(waybill: Waybill, number: str) -> None:
    said = waybill("submit", "shipment", "--doc", f'order={{"parcels": 1, "weight": [{number}]}}')
    assert (said.code, said.out) == (1, "")
    assert "JSON has no number" in said.err


def test_an_action_moves_the_record_and_is_written_down(waybill: Waybill) -> None:
    (parcel,) = failed_parcels(waybill)
    done = waybill("act", "parcel", parcel, "resume", "--why", "try the neighbours")
    assert (done.code, done.out) == (0, f"parcel {parcel}: resume, now Sending\n")
    last = waybill("history", "parcel", parcel, "--json").json["lines"][-1]
    assert (last["event"], last["before"], last["after"], last["why"]) == (
        "resume",
        "Failed",
        "Sending",
        "try the neighbours",
    )


def test_arguments_become_documents(waybill: Waybill) -> None:
    (parcel,) = failed_parcels(waybill)
    view = waybill("act", "parcel", parcel, "readdress", "--arg", "address=7 Mill Lane", "--json").json
    assert (view["record"]["state"], view["pending"]) == ("Packing", False)
    assert waybill("show", "parcel", parcel, "--json").json["docs"]["label"]["address"] == "7 Mill Lane"
    assert waybill("act", "parcel", parcel, "unhold", "--arg", "nonsense").code == 2


def test_what_must_be_confirmed_is_refused_to_a_script_without_yes(waybill: Waybill) -> None:
    (parcel,) = failed_parcels(waybill)
    refused = waybill("act", "parcel", parcel, "give-up")
    assert refused.code == 1
    assert "A returned parcel is not sent again. Add --yes to go on." in refused.err
    assert state(waybill, "parcel", parcel) == "Failed"
    assert waybill("act", "parcel", parcel, "give-up", "--yes").code == 0
    assert state(waybill, "parcel", parcel) == "Returned"


class Keyboard(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("typed", "code", "after"), [("y\n", 0, "Returned"), ("n\n", 1, "Failed")])
def test_a_person_at_a_terminal_is_asked(
    waybill: Waybill, monkeypatch: pytest.MonkeyPatch, typed: str, code: int, after: str
) -> None:
    (parcel,) = failed_parcels(waybill)
    with monkeypatch.context() as terminal:
        terminal.setattr(sys, "stdin", Keyboard(typed))
        terminal.setattr(sys.stderr, "isatty", lambda: True, raising=False)
        answer = waybill("act", "parcel", parcel, "give-up")
    assert "A returned parcel is not sent again." in answer.err
    assert (answer.code, state(waybill, "parcel", parcel)) == (code, after)
    if code:
        assert answer.err.rstrip().endswith("Not confirmed; nothing was done.")


def test_on_all_each_is_answered_and_a_refusal_stops_none(waybill: Waybill) -> None:
    parcels = failed_parcels(waybill, 3)
    assert waybill("act", "parcel", "resume", "--all", "--state", "Sending", "--json").code == 1
    done = waybill("act", "parcel", "resume", "--all", "--state", "Failed", "--json")
    assert done.code == 0
    assert sorted(line["id"] for line in done.lines[:-1]) == sorted(parcels)
    assert done.lines[-1] == {"done": 3, "refused": 0}
    assert {state(waybill, "parcel", parcel) for parcel in parcels} == {"Sending"}
    text = waybill("act", "parcel", "resume", "--all", "--state", "Sending")
    assert (text.code, text.err) == (1, "resume: 0 done, 15 refused.\n")
    assert "resume needs it to be Failed" in text.out


def test_all_needs_one_filter_and_one_record_needs_none(waybill: Waybill) -> None:
    assert waybill("act", "parcel", "resume", "--all").code == 2
    assert waybill("act", "parcel", "resume", "--all", "--state", "Failed", "--owner", "x").code == 2
    assert waybill("act", "parcel", "p1", "resume", "--all", "--state", "Failed").code == 2
    assert waybill("act", "parcel", "p1", "resume", "--state", "Failed").code == 2
    assert waybill("act", "parcel", "p1").code == 2
    assert waybill("act", "parcel", "p1", "resume", "--to", "Packing").code == 2
    assert waybill("act", "parcel", "resume", "--all", "--state", "Fialed").code == 3
    empty = waybill("act", "parcel", "resume", "--all", "--state", "Failed", "--json")
    assert (empty.code, empty.json) == (0, {"done": 0, "refused": 0})


def test_a_record_in_an_undeclared_state_is_led_out_by_hand(waybill: Waybill) -> None:
    shipment = ship(waybill)
    refused = waybill("act", "shipment", shipment, "--to", "Delivered")
    assert (refused.code, "which shipment declares; use one of its actions" in refused.err) == (1, True)
    with closing(depot().open_store()) as store:
        record = store.get("shipment", shipment)
        store.commit([Group((Change(record, replace(record, state="Weighing"), "old release"),))])
    assert waybill("act", "shipment", shipment, "--to", "Nowhere").code == 3
    assert waybill("act", "shipment", shipment, "--to", "Sorting").code == 0
    assert state(waybill, "shipment", shipment) == "Sorting"


def hold(store: Store, kind: str, id: str) -> str:
    """Claim a record as a worker does."""
    session = store.open_session(host=platform.node(), ttl=60, about={})
    store.take(kind, id, session)
    return session


def test_a_record_that_a_worker_holds_is_a_conflict_or_the_worker_is_asked(waybill: Waybill) -> None:
    shipment = ship(waybill)
    stepped(waybill, "shipment.Sorting")
    parcel = waybill("ls", "parcel", "--json").json["records"][0]["id"]
    with closing(depot().open_store()) as store:
        session = hold(store, "parcel", parcel)
        asked = waybill("priority", "parcel", parcel, 0)
        assert (asked.code, "it was asked, and applies priority 0" in asked.out) == (0, True)
        assert waybill("step", "parcel", parcel, "--json").error["code"] == "conflict"
        assert waybill("step", "parcel", parcel).code == 4
        store.close_session(session)
    assert waybill("doctor", "--fix").code == 0
    assert waybill("show", "parcel", parcel, "--json").json["priority"] == 0
    assert shipment


def test_priority_moves_in_any_state(waybill: Waybill) -> None:
    first, second = ship(waybill), ship(waybill)
    assert waybill("priority", "shipment", second, 0, "--why", "urgent").code == 0
    assert stepped(waybill, "shipment.Sorting")["id"] == second
    assert waybill("priority", "shipment", second, 9).code == 0, "a record that waits for its children"
    assert waybill("priority", "shipment", first, 100).code == 2
    assert waybill("show", "shipment", second, "--json").json["priority"] == 9


def test_priority_moves_after_the_end(waybill: Waybill) -> None:
    (parcel,) = failed_parcels(waybill)
    assert waybill("act", "parcel", parcel, "give-up", "--yes").code == 0
    assert waybill("priority", "parcel", parcel, 42).code == 0
    assert waybill("show", "parcel", parcel, "--json").json["priority"] == 42


def test_step_takes_one_step_and_prints_its_arrow(waybill: Waybill) -> None:
    first, second = ship(waybill), ship(waybill)
    taken = waybill("step", "shipment", second)
    assert (taken.code, taken.out) == (0, f"shipment {second}: Sorting → Travelling, done (1 parcels)\n")
    assert state(waybill, "shipment", first) == "Sorting"
    assert waybill("step", "shipment", second, "--json").json["arrow"]["event"] == "wait", "it looks for its children"
    again = waybill("step", "shipment", second)
    assert (again.code, again.out) == (4, ""), "it waits for its children"
    assert waybill("step", "shipment", "shp9999999999").code == 3


def test_once_takes_exactly_one_due_step_of_its_role(waybill: Waybill) -> None:
    ship(waybill, 2)
    nothing = waybill("work", "--once", "--role", "parcel")
    assert (nothing.code, nothing.out, nothing.err) == (3, "", "No step is due.\n")
    assert waybill("work", "--once", "--role", "parcel", "--json").json == {"arrow": None}
    assert stepped(waybill, "shipment")["after"] == "Travelling"
    assert stepped(waybill, "parcel")["after"] == "Sending"
    counts = {
        s["state"]: s["count"]
        for k in waybill("ls", "--json").json["kinds"]
        if k["kind"] == "parcel"
        for s in k["states"]
    }
    assert (counts["Packing"], counts["Sending"]) == (1, 1)
    assert waybill("work", "--once", "--role", "parcel.Nowhere").code == 3
    assert waybill("work", "--once", "--role", "nothing").code == 3


def test_trouble_is_tried_again_and_the_arrow_says_so(waybill: Waybill) -> None:
    ship(waybill, 3)
    stepped(waybill, "shipment.Sorting")
    for _ in range(3):
        stepped(waybill, "parcel.Packing")
    with closing(depot().open_store()) as store:
        third = next(r.id for r in store.find("parcel", docs=True).records if r.docs["label"]["number"] == 3)
    arrow = waybill("step", "parcel", third, "--json").json["arrow"]
    assert (arrow["before"], arrow["after"], arrow["event"]) == ("Sending", "Sending", "retry")
    assert arrow["message"] == "ConnectionError: the carrier does not answer"


@pytest.mark.parametrize(
    "doc", [(), ("--doc", "order=5"), ("--doc", 'order={"order": 5}'), ("--doc", 'order={"parcels": true}')]
)
def test_a_shipment_whose_order_says_nothing_fails_at_once_and_shows_one_that_does(
    waybill: Waybill, doc: tuple[str, ...]
) -> None:
    assert waybill("submit", "shipment", *doc).code == 0
    arrow = stepped(waybill, "shipment")
    assert arrow["after"] == "Failed"
    assert """submit another with --doc order='{"parcels": 3}'.""" in arrow["message"]


def test_a_mark_holds_what_it_concerns_and_release_says_how_to_go_on(waybill: Waybill) -> None:
    assert waybill("hold", "carrier/mule", "--why", "it is ill").out == "carrier/mule is on hold.\n"
    (mark,) = waybill("marks", "--json").json["marks"]
    assert mark["name"] == "carrier/mule"
    assert "it is ill" in mark["about"]
    ship(waybill, 3)
    stepped(waybill, "shipment.Sorting")
    arrows = [stepped(waybill, "parcel.Packing") for _ in range(3)]
    assert sorted((arrow["after"], arrow["event"]) for arrow in arrows) == [
        ("Held", "hold"),
        ("Sending", "done"),
        ("Sending", "done"),
    ]
    waybill("hold", "carrier/barge")
    assert waybill("release", "carrier/barge").err == "", "what rests for another mark is not led on"
    released = waybill("release", "carrier/mule")
    assert released.err == "1 parcel rests in Held: waybill act parcel unhold --all --state Held\n"
    assert waybill("act", "parcel", "unhold", "--all", "--state", "Held", "--json").lines[-1] == {
        "done": 1,
        "refused": 0,
    }
    missing = waybill("release", "carrier/mule")
    assert (missing.code, missing.err) == (3, "The mark carrier/mule is not set; set are: none.\n")


def test_a_paused_kind_begins_no_work(waybill: Waybill) -> None:
    ship(waybill)
    assert json.loads(waybill("pause", "shipment", "--json").out) == {"mark": "queue/shipment", "on": True}
    assert waybill("work", "--once", "--role", "shipment").code == 3
    assert waybill("unpause", "shipment").out == "Work on shipments goes on.\n"
    assert waybill("unpause", "shipment").code == 3
    assert stepped(waybill, "shipment")["after"] == "Travelling"
    assert waybill("pause", "nothing").code == 3


def test_a_single_step_of_a_paused_kind_says_so(waybill: Waybill) -> None:
    shipment = ship(waybill)
    waybill("pause", "shipment")
    refused = waybill("step", "shipment", shipment)
    assert (refused.code, refused.err) == (
        4,
        f"Work on shipment {shipment} is paused by queue/shipment; `waybill release` that first.\n",
    )


@pytest.mark.parametrize(
    ("mark", "sentence"),
    [
        ("queue/shipment.Sortin", "no work is done on a shipment in 'Sortin', but in Sorting, Travelling.\n"),
        ("queue/shipment.Delivered", "no work is done on a shipment in 'Delivered', but in Sorting, Travelling.\n"),
        ("queue/shipmen", "queue/shipment, queue/token, and queue/KIND.STATE for a single state.\n"),
        ("queue/shipmen.Sorting", "and queue/KIND.STATE for a single state.\n"),
    ],
)
def test_a_queue_that_is_misspelt_cannot_be_held(waybill: Waybill, mark: str, sentence: str) -> None:
    refused = waybill("hold", mark)
    assert refused.code == 3
    assert refused.err.startswith(f"{mark} is no queue")
    assert refused.err.endswith(sentence)
    assert json.loads(waybill("marks", "--json").out) == {"marks": []}


def test_the_queue_of_one_state_can_be_held(waybill: Waybill) -> None:
    shipment = ship(waybill)
    waybill("hold", "queue/shipment.Sorting")
    assert waybill("work", "--once", "--role", "shipment").code == 3
    assert waybill("work", "--once", "--role", "shipment.Sorting").code == 3
    assert waybill("step", "shipment", shipment).code == 4
    waybill("release", "queue/shipment.Sorting")
    assert stepped(waybill, "shipment.Sorting")["after"] == "Travelling"
