"""The commands that move records: act, priority, hold and release, single steps."""

import io
import json
import platform
import sys
from contextlib import closing
from typing import Any

import pytest
from msgspec.structs import replace

from tests.cli.conftest import Waybill, submit_shipment, take_step
from waybill.config import load
from waybill.environment import Environment
from waybill.record import Change, CommitGroup, Store


def make_environment() -> Environment:
    return Environment.from_config(load(env={}, overrides={"data": "data", "demo": True}))


def failed_parcels(waybill: Waybill, shipments: int = 1) -> list[str]:
    """Parcels that failed: the fifth of each shipment has a wrong address."""
    for _ in range(shipments):
        submit_shipment(waybill, 5)
        take_step(waybill, "shipment.Sorting")
    for _ in range(5 * shipments):
        take_step(waybill, "parcel.Packing")
    found = []
    with closing(make_environment().open_store()) as store:
        found = [r.id for r in store.find("parcel", documents=True).records if r.documents["label"]["number"] == 5]
    for parcel in found:
        assert waybill("step", "parcel", parcel, "--json").json["transition"]["after"] == "Failed"
    return found


def state(waybill: Waybill, kind: str, id: str) -> Any:
    return waybill("show", kind, id, "--json").json["state"]


@pytest.mark.parametrize("kind", ["mail", "webhook_delivery", "maintenance", "token"])
def test_what_the_system_makes_is_not_submitted(waybill: Waybill, kind: str) -> None:
    result = waybill("submit", kind, "--id", "x")
    assert (result.code, result.out) == (1, "")
    assert result.err.startswith(f"No {kind} is created here, where its documents would not be checked: it is made by ")


@pytest.mark.parametrize("number", ["NaN", "Infinity", "1e999"])
def test_a_number_that_json_does_not_have_is_refused(waybill: Waybill, number: str) -> None:
    result = waybill("submit", "shipment", "--document", f'order={{"parcels": 1, "weight": [{number}]}}')
    assert (result.code, result.out) == (1, "")
    assert "JSON has no number" in result.err


def test_an_action_moves_the_record_and_is_written_down(waybill: Waybill) -> None:
    (parcel,) = failed_parcels(waybill)
    done = waybill("act", "parcel", parcel, "resume", "--why", "try the neighbours")
    assert (done.code, done.out) == (0, f"parcel {parcel}: resume, now Sending\n")
    last = waybill("history", "parcel", parcel, "--json").json["entries"][-1]
    assert (last["cause"], last["before"], last["after"], last["why"]) == (
        "resume",
        "Failed",
        "Sending",
        "try the neighbours",
    )


def test_arguments_become_documents(waybill: Waybill) -> None:
    (parcel,) = failed_parcels(waybill)
    view = waybill("act", "parcel", parcel, "readdress", "--arg", "address=7 Mill Lane", "--json").json
    assert (view["record"]["state"], view["pending"]) == ("Packing", False)
    assert waybill("show", "parcel", parcel, "--json").json["documents"]["label"]["address"] == "7 Mill Lane"
    assert waybill("act", "parcel", parcel, "unhold", "--arg", "nonsense").code == 2


def test_what_must_be_confirmed_is_refused_to_a_script_without_yes(waybill: Waybill) -> None:
    (parcel,) = failed_parcels(waybill)
    refused = waybill("act", "parcel", parcel, "give-up")
    assert refused.code == 1
    assert "A returned parcel is not sent again. Add --yes to confirm it." in refused.err
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


def test_a_record_in_an_undeclared_state_is_moved_by_hand(waybill: Waybill) -> None:
    shipment = submit_shipment(waybill)
    refused = waybill("act", "shipment", shipment, "--to", "Delivered")
    assert (refused.code, "which shipment declares; use one of its actions" in refused.err) == (1, True)
    with closing(make_environment().open_store()) as store:
        record = store.get("shipment", shipment)
        store.commit([CommitGroup((Change(record, replace(record, state="Weighing"), "old release"),))])
    assert waybill("act", "shipment", shipment, "--to", "Nowhere").code == 3
    assert waybill("act", "shipment", shipment, "--to", "Sorting").code == 0
    assert state(waybill, "shipment", shipment) == "Sorting"


def hold(store: Store, kind: str, id: str) -> str:
    """Claim a record as a worker does."""
    session = store.open_session(host=platform.node(), ttl=60, about={})
    store.claim_one(kind, id, session)
    return session


def test_a_record_that_a_worker_holds_is_a_conflict_or_the_worker_is_asked(waybill: Waybill) -> None:
    shipment = submit_shipment(waybill)
    take_step(waybill, "shipment.Sorting")
    parcel = waybill("ls", "parcel", "--json").json["records"][0]["id"]
    with closing(make_environment().open_store()) as store:
        session = hold(store, "parcel", parcel)
        result = waybill("priority", "parcel", parcel, 0)
        assert (result.code, "it applies priority 0 when its step has ended" in result.out) == (0, True)
        assert waybill("step", "parcel", parcel, "--json").error["code"] == "conflict"
        assert waybill("step", "parcel", parcel).code == 4
        store.close_session(session)
    assert waybill("doctor", "--fix").code == 0
    assert waybill("show", "parcel", parcel, "--json").json["priority"] == 0
    assert shipment


def test_priority_moves_in_any_state(waybill: Waybill) -> None:
    first, second = submit_shipment(waybill), submit_shipment(waybill)
    assert waybill("priority", "shipment", second, 0, "--why", "urgent").code == 0
    assert take_step(waybill, "shipment.Sorting")["id"] == second
    assert waybill("priority", "shipment", second, 9).code == 0, "a record that waits for its children"
    assert waybill("priority", "shipment", first, 100).code == 2
    assert waybill("show", "shipment", second, "--json").json["priority"] == 9


def test_priority_moves_after_the_end(waybill: Waybill) -> None:
    (parcel,) = failed_parcels(waybill)
    assert waybill("act", "parcel", parcel, "give-up", "--yes").code == 0
    assert waybill("priority", "parcel", parcel, 42).code == 0
    assert waybill("show", "parcel", parcel, "--json").json["priority"] == 42


def test_step_takes_one_step_and_prints_its_transition(waybill: Waybill) -> None:
    first, second = submit_shipment(waybill), submit_shipment(waybill)
    taken = waybill("step", "shipment", second)
    assert (taken.code, taken.out) == (0, f"shipment {second}: Sorting → Travelling, done (1 parcels)\n")
    assert state(waybill, "shipment", first) == "Sorting"
    assert waybill("step", "shipment", second, "--json").json["transition"]["cause"] == "wait", (
        "it looks for its children"
    )
    again = waybill("step", "shipment", second)
    assert (again.code, again.out) == (4, ""), "it waits for its children"
    assert waybill("step", "shipment", "shp9999999999").code == 3


def test_once_takes_exactly_one_due_step_of_its_queue(waybill: Waybill) -> None:
    submit_shipment(waybill, 2)
    nothing = waybill("work", "--once", "--queue", "parcel")
    assert (nothing.code, nothing.out, nothing.err) == (3, "", "No step is due.\n")
    assert waybill("work", "--once", "--queue", "parcel", "--json").json == {"transition": None}
    assert take_step(waybill, "shipment")["after"] == "Travelling"
    assert take_step(waybill, "parcel")["after"] == "Sending"
    counts = {
        s["state"]: s["count"]
        for k in waybill("ls", "--json").json["kinds"]
        if k["kind"] == "parcel"
        for s in k["states"]
    }
    assert (counts["Packing"], counts["Sending"]) == (1, 1)
    assert waybill("work", "--once", "--queue", "parcel.Nowhere").code == 3
    assert waybill("work", "--once", "--queue", "nothing").code == 3


def test_a_transient_error_is_retried_and_the_transition_says_so(waybill: Waybill) -> None:
    submit_shipment(waybill, 3)
    take_step(waybill, "shipment.Sorting")
    for _ in range(3):
        take_step(waybill, "parcel.Packing")
    with closing(make_environment().open_store()) as store:
        third = next(r.id for r in store.find("parcel", documents=True).records if r.documents["label"]["number"] == 3)
    transition = waybill("step", "parcel", third, "--json").json["transition"]
    assert (transition["before"], transition["after"], transition["cause"]) == ("Sending", "Sending", "retry")
    assert transition["message"] == "ConnectionError: the carrier does not answer"


def test_a_shipment_without_an_order_fails_at_once_and_shows_one_that_has_it(waybill: Waybill) -> None:
    assert waybill("submit", "shipment").code == 0
    transition = take_step(waybill, "shipment")
    assert transition["after"] == "Failed"
    assert """submit another with --document order='{"parcels": 3}'.""" in transition["message"]


@pytest.mark.parametrize("order", ["5", '{"order": 5}', '{"parcels": true}'])
def test_an_order_of_another_shape_is_refused_at_submission(waybill: Waybill, order: str) -> None:
    refused = waybill("submit", "shipment", "--document", f"order={order}")
    assert refused.code == 1
    assert refused.err.startswith("The document order is not what a shipment needs: ")
    assert waybill("ls", "shipment", "--json").json["records"] == []


def test_a_hold_stops_its_records_and_release_names_the_action(waybill: Waybill) -> None:
    assert waybill("hold", "carrier/mule", "--why", "it is ill").out == "carrier/mule is on hold.\n"
    (hold,) = waybill("holds", "--json").json["holds"]
    assert hold["name"] == "carrier/mule"
    assert "it is ill" in hold["about"]
    submit_shipment(waybill, 3)
    take_step(waybill, "shipment.Sorting")
    transitions = [take_step(waybill, "parcel.Packing") for _ in range(3)]
    assert sorted((transition["after"], transition["cause"]) for transition in transitions) == [
        ("Held", "hold"),
        ("Sending", "done"),
        ("Sending", "done"),
    ]
    waybill("hold", "carrier/barge")
    assert waybill("release", "carrier/barge").err == "", "what rests under another hold is not named"
    released = waybill("release", "carrier/mule")
    assert released.err == "1 parcel rests in Held: waybill act parcel unhold --all --state Held\n"
    assert waybill("act", "parcel", "unhold", "--all", "--state", "Held", "--json").lines[-1] == {
        "done": 1,
        "refused": 0,
    }
    missing = waybill("release", "carrier/mule")
    assert (missing.code, missing.err) == (3, "There is no hold 'carrier/mule' in force; there are none.\n")


def test_a_paused_kind_begins_no_work(waybill: Waybill) -> None:
    submit_shipment(waybill)
    assert json.loads(waybill("pause", "shipment", "--json").out) == {"hold": "queue/shipment", "set": True}
    assert waybill("work", "--once", "--queue", "shipment").code == 3
    assert waybill("unpause", "shipment").out == "Work on shipments goes on.\n"
    assert waybill("unpause", "shipment").code == 3
    assert take_step(waybill, "shipment")["after"] == "Travelling"
    assert waybill("pause", "nothing").code == 3


def test_a_single_step_of_a_paused_kind_says_so(waybill: Waybill) -> None:
    shipment = submit_shipment(waybill)
    waybill("pause", "shipment")
    refused = waybill("step", "shipment", shipment)
    assert (refused.code, refused.err) == (
        4,
        f"Work on shipment {shipment} is paused by queue/shipment; `waybill release` that first.\n",
    )


@pytest.mark.parametrize(
    ("hold", "sentence"),
    [
        ("queue/shipment.Sortin", "no work is done on a shipment in 'Sortin', but in Sorting, Travelling.\n"),
        ("queue/shipment.Delivered", "no work is done on a shipment in 'Delivered', but in Sorting, Travelling.\n"),
        ("queue/shipmen", "queue/user, queue/webhook_delivery, and queue/KIND.STATE for a single state.\n"),
        ("queue/shipmen.Sorting", "and queue/KIND.STATE for a single state.\n"),
    ],
)
def test_a_queue_that_is_misspelt_cannot_be_held(waybill: Waybill, hold: str, sentence: str) -> None:
    refused = waybill("hold", hold)
    assert refused.code == 3
    assert refused.err.startswith(f"{hold} is no queue")
    assert refused.err.endswith(sentence)
    assert json.loads(waybill("holds", "--json").out) == {"holds": []}


def test_the_queue_of_one_state_can_be_held(waybill: Waybill) -> None:
    shipment = submit_shipment(waybill)
    waybill("hold", "queue/shipment.Sorting")
    assert waybill("work", "--once", "--queue", "shipment").code == 3
    assert waybill("work", "--once", "--queue", "shipment.Sorting").code == 3
    assert waybill("step", "shipment", shipment).code == 4
    waybill("release", "queue/shipment.Sorting")
    assert take_step(waybill, "shipment.Sorting")["after"] == "Travelling"
