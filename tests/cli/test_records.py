"""Looking at records: ls, show, history."""

from contextlib import closing
from datetime import datetime
from pathlib import Path

import pytest

from tests.cli.conftest import Waybill, submit_shipment, take_step
from waybill.cli import terminal
from waybill.config import load
from waybill.environment import Environment
from waybill.step import New


def test_a_wait_until_another_day_is_shown_with_its_date() -> None:
    noon = datetime(2030, 5, 4, 12).timestamp()
    waits = {"session": None, "blocked_by": "wait", "wake_at": datetime(2030, 5, 4, 13, 30).astimezone().isoformat()}
    assert terminal.describe_wait(waits, noon) == "waits until 13:30:00"
    assert terminal.describe_wait(waits, noon - 86400) == "waits until 2030-05-04 13:30:00"
    assert terminal.describe_wait(waits, noon + 86400) == "waits until 2030-05-04 13:30:00"


@pytest.mark.parametrize(
    ("option", "text"),
    [
        ("--owner", "a\nb"),
        ("--owner", ""),
        ("--owner", "a" * 201),
        ("--idempotency-key", "a\x1bb"),
        ("--idempotency-key", "a b"),
        ("--idempotency-key", "é"),
        ("--idempotency-key", "r1\n"),
    ],
)
def test_what_is_refused_over_http_is_refused_here(waybill: Waybill, option: str, text: str) -> None:
    refused = waybill("submit", "shipment", option, text)
    assert refused.code == 2
    assert refused.err.startswith(f"{option} {text!r} cannot be used: it h")
    assert waybill("ls", "shipment", "--json").json["records"] == []


def test_submit_prints_the_id_and_asked_twice_makes_one(waybill: Waybill) -> None:
    first = waybill(
        "submit",
        "shipment",
        "--document",
        'order={"parcels": 2}',
        "--owner",
        "ann",
        "--priority",
        3,
        "--idempotency-key",
        "r1",
    )
    again = waybill("submit", "shipment", "--document", 'order={"parcels": 2}', "--idempotency-key", "r1")
    assert first.code == again.code == 0
    assert first.out == again.out
    shown = waybill("show", "shipment", first.out.strip(), "--json").json
    assert (shown["owner"], shown["priority"], shown["state"], shown["documents"]["order"]["parcels"]) == (
        "ann",
        3,
        "Sorting",
        2,
    )
    assert len(waybill("ls", "shipment", "--json").json["records"]) == 1


def test_submit_reads_documents_from_files_and_refuses_what_is_none(waybill: Waybill, tmp_path: Path) -> None:
    with open("order.json", "w") as file:
        file.write('{"parcels": 5}')
    made = waybill("submit", "shipment", "--document", "order=@order.json").out.strip()
    assert waybill("show", "shipment", made, "--json").json["documents"]["order"]["parcels"] == 5
    assert waybill("submit", "shipment", "--document", "order={").err.startswith("The document order is not JSON")
    assert waybill("submit", "shipment", "--document", "order").code == 2
    missing = waybill("submit", "shipment", "--document", "order=@/missing.json")
    assert (missing.code, missing.err) == (
        2,
        "The file '/missing.json' with the document order cannot be read: No such file or directory.\n",
    )
    (tmp_path / "latin.json").write_bytes(b'"\xe9"')
    latin = waybill("submit", "shipment", "--document", "order=@latin.json")
    assert (latin.code, latin.err) == (2, "The file 'latin.json' with the document order is not UTF-8.\n")
    twice = waybill("submit", "shipment", "--document", "order={}", "--document", "order={}")
    assert (twice.code, twice.err) == (2, "The document order is given twice.\n")
    refused = waybill("submit", "shipment", "--document", "colour=1")
    assert (refused.code, "declares no document colour; it has order" in refused.err) == (1, True)
    assert len(waybill("ls", "shipment", "--json").json["records"]) == 1


def test_what_goes_into_a_pipe_is_neither_folded_nor_filled(waybill: Waybill, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS")
    owner = "a person with a very long name, " * 5
    made = waybill("submit", "shipment", "--document", 'order={"parcels": 1}', "--owner", owner).out.strip()
    waybill("submit", "shipment", "--document", 'order={"parcels": 1}')
    header, first, second = waybill("ls", "shipment").out.splitlines()
    assert (made in first, owner.strip() in first) == (True, True)
    assert [line for line in (header, first, second) if line != line.rstrip()] == []


def test_ls_without_a_kind_counts_all_states(waybill: Waybill) -> None:
    submit_shipment(waybill)
    kinds = {kind["kind"]: kind for kind in waybill("ls", "--json").json["kinds"]}
    assert kinds["shipment"]["total"] == 1
    assert {s["state"]: s["count"] for s in kinds["shipment"]["states"]}["Sorting"] == 1
    assert "Sorting 1" in waybill("ls").out
    assert waybill("ls", "--state", "Sorting").code == 2


def test_ls_pages_in_order_of_creation_until_the_last(waybill: Waybill) -> None:
    made = [submit_shipment(waybill) for _ in range(5)]
    for newest in ([], ["--newest"]):
        seen, token = [], None
        while True:
            page = waybill(
                "ls", "shipment", "--limit", 2, *newest, *(["--page-token", token] if token else []), "--json"
            ).json
            seen += [record["id"] for record in page["records"]]
            if (token := page["next"]) is None:
                break
        assert seen == (list(reversed(made)) if newest else made)
    text = waybill("ls", "shipment", "--limit", 2)
    assert text.err.startswith("There are more: waybill ls shipment --page-token ")
    assert made[0] in text.out


def test_ls_takes_one_filter_d3(waybill: Waybill) -> None:
    first, second = submit_shipment(waybill, 2), submit_shipment(waybill, 1)
    waybill("submit", "shipment", "--document", 'order={"parcels": 1}', "--owner", "ann")
    take_step(waybill, "shipment.Sorting")

    def ids(*filters: str) -> list[str]:
        return [record["id"] for record in waybill("ls", *filters, "--json").json["records"]]

    assert ids("shipment", "--state", "Travelling") == [first]
    assert second in ids("shipment", "--state", "Sorting")
    assert len(ids("shipment", "--owner", "ann")) == 1
    assert len(ids("parcel", "--parent", f"shipment:{first}")) == 2
    assert ids("parcel", "--parent", f"shipment:{second}") == []
    both = waybill("ls", "shipment", "--state", "Sorting", "--owner", "ann")
    assert (both.code, both.err.startswith("Only one of --state")) == (2, True)


def test_a_bad_page_token_is_refused_in_a_sentence(waybill: Waybill) -> None:
    for _ in range(3):
        submit_shipment(waybill)
    token = waybill("ls", "shipment", "--limit", 1, "--json").json["next"]
    for bad in ("x", token[:-2], token[:-1] + ("A" if token[-1] != "A" else "B")):
        refused = waybill("ls", "shipment", "--page-token", bad)
        assert (refused.code, "Begin again without a token" in refused.err) == (2, True)
    assert waybill("ls", "parcel", "--page-token", token).code == 2
    assert waybill("ls", "shipment", "--page-token", token, "--state", "Sorting").code == 2
    assert waybill("ls", "shipment", "--page-token", token).code == 0


def test_show_says_all_and_what_can_be_done(waybill: Waybill) -> None:
    shipment = submit_shipment(waybill, 5)
    assert [take_step(waybill, "shipment")["cause"] for _ in range(2)] == ["done", "wait"]
    view = waybill("show", "shipment", shipment, "--json").json
    assert (view["state"], view["last_done"], view["blocked_by"]) == ("Travelling", "Sorting", "children")
    assert view["children"][0]["total"] == 5
    text = waybill("show", "shipment", shipment).out
    assert shipment in text
    for part in (
        "Travelling",
        "Lasts until every parcel has settled.",
        "parcels: 5 Packing",
        '"parcels": 5',
        "waits for children",
    ):
        assert part in text


def test_show_names_the_actions_and_why_one_is_refused_now(waybill: Waybill) -> None:
    with closing(Environment.from_config(load(env={}, overrides={"data": "data", "demo": True})).open_store()) as store:
        shipment = submit_shipment(waybill, 5)
        transitions = [take_step(waybill, "shipment.Sorting")] + [
            take_step(waybill, "parcel.Packing") for _ in range(5)
        ]
        assert [transition["after"] for transition in transitions] == ["Travelling"] + ["Sending"] * 5
        failed = next(r for r in store.find("parcel", documents=True).records if r.documents["label"]["number"] == 5)
        assert waybill("step", "parcel", failed.id).code == 0
    view = waybill("show", "parcel", failed.id, "--json").json
    assert view["state"] == "Failed"
    assert "There is no such house" in view["message"]
    assert [action["name"] for action in view["actions"]] == ["resume", "readdress", "give-up"]
    assert "Send it back." in waybill("show", "parcel", failed.id).out
    assert waybill("show", "shipment", shipment).err.strip() == "No action is possible in this state."


def test_history_has_an_entry_for_each_transition(waybill: Waybill, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGNAME", "ann")
    shipment = submit_shipment(waybill)
    waybill("priority", "shipment", shipment, 1, "--why", "urgent")
    take_step(waybill, "shipment.Sorting")
    lines = waybill("history", "shipment", shipment, "--json").json["entries"]
    assert [(line["cause"], line["before"], line["after"]) for line in lines] == [
        ("submit", None, "Sorting"),
        ("priority", "Sorting", "Sorting"),
        ("done", "Sorting", "Travelling"),
    ]
    assert (lines[0]["who"], lines[1]["who"], lines[1]["why"]) == ("ann", "ann", "urgent")
    assert "Sorting → Travelling" in waybill("history", "shipment", shipment).out


def test_a_state_of_another_release_is_listed_and_not_taken_for_a_mistake(waybill: Waybill) -> None:
    shipment = submit_shipment(waybill)
    environment = Environment.from_config(load(env={}, overrides={"data": "data", "demo": True}))
    with closing(environment.open_store()) as store:
        from msgspec.structs import replace

        from waybill.record import Change, CommitGroup

        record = store.get("shipment", shipment)
        store.commit([CommitGroup((Change(record, replace(record, state="Weighing"), "old release"),))])
        environment.make_engine(store).submit(New("shipment", {"order": {"parcels": 1}}))
    assert waybill("ls", "shipment", "--state", "Weighing", "--json").json["records"][0]["type"] is None
    assert waybill("ls", "shipment", "--state", "Wieghing").code == 3
