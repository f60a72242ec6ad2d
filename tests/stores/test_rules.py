"""The rules of the core: each is tagged in the name of a test that fails when the rule is broken, and the races are in the
conformance suite.

A tag such as _a5 or B14_ in a test's name is one of these rules. Where the conformance suite cannot test a rule, the tests
of the worker, the engine or one driver do.
"""

import re
from pathlib import Path

from waybill.stores.conformance import ForeignLockSuite, StoreSuite

ROOT = Path(__file__).resolve().parents[2]

RULES = {
    "a1": "Every transaction on ZooKeeper begins with a check of the session's own node: a late commit changes nothing.",
    "a2": "A change whose `before` has no session asserts that no session has claimed the record.",
    "a3": "Only the reaper ends sessions, after a full ttl of being connected; the claims of an ended session are released.",
    "a4": "Steps may run concurrently and only one commits; a worker counts its session's ttl from before the last renewal was sent.",
    "a5": "Wakes of parents change no version and are never lost; which parents have no open child left is read after the commit.",
    "a6": "A parent closes only if no child is open in that very commit.",
    "a7": "Index entries that others left or lost are repaired in passing, and are no conflict.",
    "a8": "Ids on ZooKeeper are predicted from the parent's stat, and created in the same transaction.",
    "a9": "Locks belong to the record, survive its waits and its worker, and are taken all or none.",
    "a10": "Only what can be claimed now is in the queue; a blocked record is unblocked when the reason is gone.",
    "a11": "An unknown outcome is reported as one, creation can be repeated, and limits are the same on all stores.",
    "b1": "A group is written whole or not at all, and never fails its neighbours.",
    "b2": "Documents are kept as the bytes that were written.",
    "b3": "A claim over many queues reads only the heads of those queues.",
    "b4": "Jobs alternate, and work that is not urgent is not starved.",
    "b5": "State counts are written with the commit.",
    "b6": "No page misses a record that was committed late with a low seq.",
    "b7": "A change signal arrives soon, costs commits next to nothing, and an idle worker sleeps.",
    "b8": "No reader keeps a snapshot open, and check names an old one.",
    "b9": "A change gives the delay of a wait, and the store's clock its end.",
    "b10": "Neither a version nor a session's name is used twice.",
    "b11": "An action request for a claimed record reaches its worker and is applied in its commit.",
    "b12": "Progress travels with the session.",
    "b13": "History has an entry for each commit that has a cause.",
    "b14": "A claim that continues into the next state is checked again, and is not kept for ever.",
    "b15": "Records in a state of another release are named, never claimed, and moved by hand.",
    "b16": "Children are created and removed in pages.",
    "d1": "A join is a work state that waits for its children.",
    "d2": "Maintenance routines are records that any worker serves.",
    "d3": "find takes one filter beside the kind.",
    "d4": "ZooKeeper refuses more names than its clients can list.",
    "d5": "A change signal names no kinds, and a claim never reaps.",
}

# By name, as the contract has them: each an interleaving of two connections.
RACES = (
    "last_two_children",
    "reaper_against_claim",
    "revived_session",
    "late_creator_against_pages",
    "two_equal_locks_in_a_page",
    "block_against_release",
    "action_against_a_foreign_lock",
    "unknown_outcome",
    "any_history_is_that_of_the_model",
    "random_writers_at_once",
)


def test_every_rule_of_the_core_is_in_the_name_of_a_test() -> None:
    named: set[str] = set()
    for folder in ("src/waybill/stores/conformance", "tests"):
        for file in (ROOT / folder).rglob("*.py"):
            for name in re.findall(r"def (test_\w+)", file.read_text("utf-8")):
                named.update(name.lower().split("_"))
    assert sorted(RULES.keys() - named) == []


def test_every_race_of_the_core_is_in_the_suite() -> None:
    names = [name for suite in (StoreSuite, ForeignLockSuite) for name in dir(suite) if name.startswith("test_")]
    assert [race for race in RACES if not any(name.startswith(f"test_{race}") for name in names)] == []
