"""The contract of the core, rule by rule: each is in the name of a test that breaks with it, and the races are in
the suite of all stores.

A tag such as _a5 or B14_ in a test's name is one of these. Where the suite of all stores cannot ask for a rule, the
tests of the worker, the engine or one driver do.
"""

import re
from pathlib import Path

from waybill.stores.conformance import ForeignLockSuite, StoreSuite

ROOT = Path(__file__).resolve().parents[2]

RULES = {
    "a1": "Every transaction on ZooKeeper begins with a look at the session's own node: a late commit disturbs nobody.",
    "a2": "A change whose `before` has no session asserts that nobody holds the record.",
    "a3": "Who is dead is decided by the reaper alone, after a full ttl of being connected; what the dead held is free.",
    "a4": "Steps may run side by side and only one commits; a worker counts its session's life from before the last renewal was sent.",
    "a5": "Calls of parents are no versions and never lost; who has no open child left is read after the commit.",
    "a6": "A parent closes only if no child is open in that very commit.",
    "a7": "Entries that others left or lost are mended on the way, and are no conflict.",
    "a8": "Ids on ZooKeeper are foreseen from the parent's stat, and made in the same transaction.",
    "a9": "Keys belong to the record, survive its waits and its worker, and are given whole or not at all.",
    "a10": "Only what can be claimed now is in the queue; whoever is parked is let go when the reason is gone.",
    "a11": "An unknown outcome is said to be one, creation can be repeated, and limits are the same on all stores.",
    "b1": "A group is written whole or not at all, and never fails its neighbours.",
    "b2": "Documents are kept as the bytes that were written.",
    "b3": "A claim over many roles looks at the heads of their queues only.",
    "b4": "Jobs take turns, and what is not urgent is not shut out.",
    "b5": "The tally is counted with the commit.",
    "b6": "No page misses a record that was made late with a small number.",
    "b7": "A hint comes soon, costs the committers next to nothing, and an idle worker sleeps.",
    "b8": "No reader of ours keeps a snapshot, and one that is old is named.",
    "b9": "A change says for how long to wait, and the store's clock says until when.",
    "b10": "Neither a version nor a session's name comes twice.",
    "b11": "What is asked of a record that a worker holds is heard by the worker and applied in its commit.",
    "b12": "Progress travels with the session.",
    "b13": "History has a line for each commit that had an event.",
    "b14": "A claim that goes on is checked anew, and is not kept for ever.",
    "b15": "Records in a state of another release are named, never claimed, and moved by hand.",
    "b16": "Children are made and removed in portions.",
    "d1": "A join is a work state that waits for its children.",
    "d2": "Duties are records that any worker serves.",
    "d3": "find takes one filter beside the kind.",
    "d4": "ZooKeeper refuses more names than its clients can list.",
    "d5": "A hint says nothing of kinds, and a claim never reaps.",
}

# By name, as the contract has them: each an interleaving of two connections.
RACES = (
    "last_two_children",
    "reaper_against_claim",
    "revived_session",
    "late_creator_against_pages",
    "two_equal_keys_in_a_portion",
    "park_against_release",
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
