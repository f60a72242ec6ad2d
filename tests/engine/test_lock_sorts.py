"""Locks of three sorts, as machines declare them and records ask for them."""

from typing import Any

import pytest

from waybill import rules
from waybill.machine import LockFamily, Machine, MachineError, end, work
from waybill.record import Document, LockRequest, Record, RecordDocuments, parse_lock
from waybill.step import Done, Fail

LIMITS = {"runs": 2}


def build(**changes: Any) -> Machine:
    return Machine(**{
        "name": "request", "plural": "requests", "prefix": "req", "description": "",
        "states": (
            work("Getting", to="Checking", or_to=("Deleting",), description="", shared_locks=("migration",)),
            work("Checking", to="Done", description="", shared_locks=("migration",), locks=("runs",)),
            work("Deleting", to="Done", description="", locks=("migration",)),
            end("Done", description=""),
        ),
        "documents": (Document("plan", None, "service", ""),),
        "locks": (
            LockFamily("migration", "", names_of=lambda record: (record.documents["plan"]["migration"],)),
            LockFamily("runs", "", names_of=lambda record: ("all",), limit_of=lambda record: LIMITS["runs"]),
            LockFamily("tape", ""),
        ),
        **changes,
    })  # fmt: skip


def request(state: str, **fields: Any) -> Record:
    documents = RecordDocuments({"plan": b'{"migration":"m 1"}'})
    return Record("request", "req1", state, documents=documents, session="s", **fields)


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("migration/a", LockRequest("migration/a")),
        ("shared migration/a b", LockRequest("migration/a b", "shared")),
        ("at most 12 of runs/x/y", LockRequest("runs/x/y", "counted", 12)),
        ("migration/shared x/y", LockRequest("migration/shared x/y")),
        ("shared x/at most 3 of y/z\n", LockRequest("x/at most 3 of y/z\n", "shared")),
    ],
)
def test_a_lock_is_written_as_text_and_read_back(text: str, parsed: LockRequest) -> None:
    assert parse_lock(text) == parsed
    assert parsed.to_text() == text


def test_a_state_says_in_which_sort_its_locks_are_asked_for() -> None:
    machine = build()
    getting = rules.enter_state(machine, request("Getting"), "Getting")
    assert getting.locks == ("shared migration/m 1",)
    checking = rules.enter_state(machine, getting, "Checking")
    assert checking.locks == ("shared migration/m 1", "at most 2 of runs/all")
    deleting = rules.apply_outcome(machine, getting, Done(to="Deleting")).after
    assert deleting is not None
    assert deleting.locks == ("migration/m 1",)
    failed = rules.apply_outcome(machine, checking, Fail("no")).after
    assert failed is not None
    assert failed.locks == ()


def test_a_changed_limit_is_asked_for_by_the_next_record_that_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    machine, before = build(), request("Checking", locks=("shared migration/m 1", "at most 2 of runs/all"))
    monkeypatch.setitem(LIMITS, "runs", 7)
    assert rules.enter_state(machine, before, "Checking").locks[1] == "at most 7 of runs/all"
    for limit in (0, -1, 1.5, "3", None):
        monkeypatch.setitem(LIMITS, "runs", limit)
        with pytest.raises(MachineError, match="whole number from 1"):
            rules.enter_state(machine, before, "Checking")


def test_a_step_names_a_lock_and_the_state_its_sort() -> None:
    machine = build(
        states=(
            work("Getting", to="Done", description="", shared_locks=("migration", "tape"), locks=("runs",)),
            end("Done", description=""),
        )
    )
    owned = request("Getting", locks=("shared migration/m 1",))
    assert rules.extend_locks(machine, owned, ["runs/x"]) == ("shared migration/m 1", "at most 2 of runs/x")
    assert rules.extend_locks(machine, owned, ["migration/m 1", "tape/2"]) == ("shared migration/m 1", "shared tape/2")
    with pytest.raises(MachineError, match="can no longer acquire runs/x"):
        rules.extend_locks(machine, request("Getting", locks=("shared tape/2",)), ["runs/x"])


@pytest.mark.parametrize(
    ("sentence", "changes"),
    [
        (
            "both exclusively",
            {"states": (work("A", to="B", description="", locks=("tape",), shared_locks=("tape",)), end("B", description=""))},
        ),
        ("counts its owners", {"states": (work("A", to="B", description="", shared_locks=("runs",)), end("B", description=""))}),
        ("not declared", {"states": (work("A", to="B", description="", shared_locks=("boat",)), end("B", description=""))}),
        ("no name of a lock family", {"locks": (LockFamily("migration", ""), LockFamily("runs", ""), LockFamily("shared x", ""))}),
        (
            "two records could wait for each other",
            {
                "states": (
                    work("A", to="B", description="", shared_locks=("migration",), locks=("tape",)),
                    work("B", to="C", description="", locks=("migration", "tape")),
                    end("C", description=""),
                )
            },
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_a_contradiction_is_named(sentence: str, changes: dict[str, Any]) -> None:
    with pytest.raises(MachineError, match=sentence):
        build(**changes)


def test_from_shared_to_exclusive_a_record_keeps_no_later_lock() -> None:
    """It gives up what it shared and asks anew, so the order of families holds for that lock as for a new one."""
    states = (
        work("A", to="B", description="", shared_locks=("tape",), locks=("migration",)),
        work("B", to="C", description="", locks=("migration", "tape")),
        end("C", description=""),
    )
    machine = build(states=states)
    after = rules.enter_state(machine, request("A", locks=("migration/m 1", "shared tape/2")), "B")
    assert after.locks == ("migration/m 1", "tape/2")
