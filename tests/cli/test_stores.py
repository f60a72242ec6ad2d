"""The same commands on every store: what a person does to a shipment, from beginning to end."""

import signal
from collections.abc import Callable

from tests.cli.conftest import Running, Waybill, submit_shipment, take_step


def test_a_shipment_is_led_by_hand_from_beginning_to_end(anywhere: Waybill) -> None:
    shipment = submit_shipment(anywhere, 5)
    assert anywhere("priority", "shipment", shipment, 1).code == 0
    assert take_step(anywhere, "shipment")["after"] == "Travelling"
    anywhere("hold", "carrier/mule", "--why", "ill")
    transitions = [take_step(anywhere, "parcel.Packing") for _ in range(5)]
    held = [transition["id"] for transition in transitions if transition["after"] == "Held"]
    assert len(held) == 2
    assert "carrier/mule" in anywhere("holds").out
    assert anywhere("release", "carrier/mule").code == 0
    assert anywhere("act", "parcel", "unhold", "--all", "--state", "Held", "--json").lines[-1] == {
        "done": 2,
        "refused": 0,
    }
    counts = {
        s["state"]: s["count"]
        for k in anywhere("ls", "--json").json["kinds"]
        if k["kind"] == "parcel"
        for s in k["states"]
    }
    assert (counts["Packing"], counts["Sending"]) == (2, 3)
    page = anywhere("ls", "parcel", "--parent", f"shipment:{shipment}", "--limit", 2, "--json").json
    rest = anywhere("ls", "parcel", "--page-token", page["next"], "--limit", 10, "--json").json
    assert len({record["id"] for record in page["records"] + rest["records"]}) == 5
    for parcel in held:
        assert anywhere("step", "parcel", parcel, "--json").json["transition"]["after"] == "Sending"
        lines = anywhere("history", "parcel", parcel, "--json").json["entries"]
        assert [line["after"] for line in lines] == ["Packing", "Held", "Packing", "Sending"]
    assert anywhere("show", "parcel", "pcl9999999999").code == 3
    assert anywhere("submit", "shipment", "--document", 'order={"parcels": 1}', "--idempotency-key", "r").code == 0
    doctor = anywhere("doctor")
    assert (doctor.code, doctor.out.splitlines()[-1]) == (0, "Nothing is wrong.")


def test_work_done_by_a_process_is_seen_by_another(anywhere: Waybill, running: Callable[..., Running]) -> None:
    shipment = submit_shipment(anywhere, 2)
    work = running("work")
    watched = running("watch", "shipment", shipment, "--json").end()
    assert watched.code == 0
    assert [line["after"] for line in watched.lines if "cause" in line] == ["Sorting", "Travelling", "Delivered"]
    sessions = anywhere("sessions", "--json").json["sessions"]
    assert len({session["about"]["pid"] for session in sessions}) == 1  # of one process, which may have several lanes
    assert work.end(signal.SIGTERM).code == 0
    assert anywhere("sessions", "--json").json["sessions"] == []
    assert anywhere("doctor").code == 0


def test_tokens_are_kept_on_every_store(anywhere: Waybill) -> None:
    made = anywhere("tokens", "new", "me", "--json").json
    assert anywhere("tokens", "revoke", made["id"]).code == 0
    assert [token["state"] for token in anywhere("tokens", "--json").json["tokens"]] == ["Revoked"]
