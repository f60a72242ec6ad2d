"""What an application's table stumbles over: one record that its own functions cannot read hides neither itself nor
the others.
"""

from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.http.test_events import Ears
from tests.http.yard import Site, served
from waybill import config
from waybill.application import Application
from waybill.depot import Depot
from waybill.machine import Document, Machine, action, end, rest, work
from waybill.record import Record, Ref, Store, Unavailable


def _guard(memo: Record, store: Store) -> str | None:
    return None if memo.docs["text"]["by"].isascii() else "Only ASCII."


def _unless(memo: Record, store: Store) -> bool:
    return bool(memo.docs["text"]["by"].isascii())


def _shown(text: Any) -> Mapping[str, Any]:
    return {"by": text["by"].upper()}


MEMO = Machine(
    name="memo",
    plural="memos",
    prefix="mem",
    doc="A few words.",
    begins=("Held",),
    states=(
        work("Reading", "Read", "Reads it.", holds="Held", fails=None),
        rest("Held", "Its desk is closed."),
        end("Read", "Done."),
    ),
    actions=(
        action("go", "Held", "Reading", "Go on.", guard=_guard),
        action("drop", "Held", "Read", "Do not read it.", confirm="Nobody will know.", unless=_unless),
    ),
    documents=(Document("text", "step", "The words.", shown=_shown),),
    gates=lambda memo: (f"desk/{memo.docs['text']['by'].lower()}",),
)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    application = Application("memos", "Words.", (MEMO,))
    with closing(Site(Depot.of(config.load(env={}, overrides={"data": tmp_path / "data"}), [application]))) as site:
        yield site


@pytest.fixture
def odd(site: Site) -> Ref:
    """Between two that are as they should be."""
    site.submit("memo", {"text": {"by": "Ada"}}, state="Held")
    odd = site.submit("memo", {"text": {"by": 5, "secret": "x"}}, state="Held")
    site.submit("memo", {"text": {"by": "Bob"}}, state="Held")
    return odd


def test_a_list_shows_the_others_and_nothing_of_what_cannot_be_shown(site: Site, odd: Ref) -> None:
    with site.client("reader") as client:
        page = client.get("/api/v1/records/memo", params={"docs": "true"})
        assert page.status_code == 200, page.text
        assert [record["docs"]["text"] for record in page.json()["records"]] == [
            {"by": "ADA"},
            {"not shown": "It is not of the form that a memo has: AttributeError."},
            {"by": "BOB"},
        ]


def test_the_record_itself_says_of_which_actions_nothing_can_be_told(site: Site, odd: Ref) -> None:
    with site.client("reader") as client:
        answer = client.get(f"/api/v1/records/memo/{odd.id}")
    assert answer.status_code == 200, answer.text
    actions = {each["name"]: each for each in answer.json()["actions"]}
    sentence = "Whether it is possible cannot be told: AttributeError: 'int' object has no attribute 'isascii'."
    assert {name: each["why_not"] for name, each in actions.items()} == {"go": sentence, "drop": sentence}
    assert actions["drop"]["confirm"] == "Nobody will know."


def test_live_changes_go_on_for_all(site: Site, odd: Ref) -> None:
    with served(site) as url, Ears(url, site.tokens["reader"], kind="memo", id=odd.id) as ears:
        assert ears.next("record")["state"] == "Held"
        with Ears(url, site.tokens["reader"], kind="memo") as others:
            assert others.next("tally")["total"] == 3


def test_a_store_that_is_away_is_not_taken_for_a_mistake_of_the_table(
    site: Site, odd: Ref, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(memo: Record, store: Store) -> str | None:
        raise Unavailable("The store is away.")

    monkeypatch.setitem(site.depot.machines, "memo", _with_guard(away))
    with site.client("reader") as client:
        assert client.get(f"/api/v1/records/memo/{odd.id}").status_code == 503


def _with_guard(guard: Any) -> Machine:
    return Machine(
        name="memo",
        plural="memos",
        prefix="mem",
        doc="A few words.",
        begins=("Held",),
        states=(
            work("Reading", "Read", "Reads it.", holds="Held", fails=None),
            rest("Held", "Closed."),
            end("Read", "Done."),
        ),
        actions=(action("go", "Held", "Reading", "Go on.", guard=guard),),
        gates=lambda memo: ("desk/a",),
    )
