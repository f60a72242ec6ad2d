"""What an application's table stumbles over: one record that its own functions cannot read hides neither itself nor
the others.
"""

from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.http.api_fixture import ApiFixture, run_server
from tests.http.test_change_stream import StreamReader
from waybill import config
from waybill.application import Application
from waybill.environment import Environment
from waybill.machine import Document, Machine, action, end, rest, work
from waybill.record import Record, Ref, Store, StoreUnavailable


def _guard(memo: Record, store: Store) -> str | None:
    return None if memo.documents["text"]["by"].isascii() else "Only ASCII."


def _unless(memo: Record, store: Store) -> bool:
    return bool(memo.documents["text"]["by"].isascii())


def _shown(text: Any) -> Mapping[str, Any]:
    return {"by": text["by"].upper()}


MEMO = Machine(
    name="memo",
    plural="memos",
    prefix="mem",
    description="A few words.",
    initial_states=("Held",),
    states=(
        work("Reading", to="Read", description="Reads it.", on_hold="Held", on_fail=None),
        rest("Held", description="Its desk is closed."),
        end("Read", description="Done."),
    ),
    actions=(
        action("go", "Held", "Reading", "Go on.", guard=_guard),
        action("drop", "Held", "Read", "Do not read it.", confirm="Nobody will know.", skip_confirm=_unless),
    ),
    documents=(Document("text", None, "step", "The words.", redact=_shown),),
    hold_names=lambda memo: (f"desk/{memo.documents['text']['by'].lower()}",),
)


@pytest.fixture
def api(tmp_path: Path) -> Iterator[ApiFixture]:
    application = Application("memos", "Words.", (MEMO,))
    with closing(
        ApiFixture(Environment.from_config(config.load(env={}, overrides={"data": tmp_path / "data"}), [application]))
    ) as api:
        yield api


@pytest.fixture
def odd(api: ApiFixture) -> Ref:
    """Between two that are as they should be."""
    api.submit("memo", {"text": {"by": "Ada"}}, state="Held")
    odd = api.submit("memo", {"text": {"by": 5, "secret": "x"}}, state="Held")
    api.submit("memo", {"text": {"by": "Bob"}}, state="Held")
    return odd


def test_a_list_shows_the_others_and_nothing_of_what_cannot_be_shown(api: ApiFixture, odd: Ref) -> None:
    with api.client("reader") as client:
        page = client.get("/api/v1/records/memo", params={"documents": "true"})
        assert page.status_code == 200, page.text
        assert [record["documents"]["text"] for record in page.json()["records"]] == [
            {"by": "ADA"},
            {"not shown": "It is not of the form that a memo has: AttributeError."},
            {"by": "BOB"},
        ]


def test_the_record_itself_says_of_which_actions_nothing_can_be_determined(api: ApiFixture, odd: Ref) -> None:
    with api.client("reader") as client:
        answer = client.get(f"/api/v1/records/memo/{odd.id}")
    assert answer.status_code == 200, answer.text
    actions = {each["name"]: each for each in answer.json()["actions"]}
    sentence = "Whether it is possible cannot be determined: AttributeError: 'int' object has no attribute 'isascii'."
    assert {name: each["why_not"] for name, each in actions.items()} == {"go": sentence, "drop": sentence}
    assert actions["drop"]["confirm"] == "Nobody will know."


def test_live_changes_go_on_for_all(api: ApiFixture, odd: Ref) -> None:
    with run_server(api) as url, StreamReader(url, api.tokens["reader"], kind="memo", id=odd.id) as stream:
        assert stream.next("record")["state"] == "Held"
        with StreamReader(url, api.tokens["reader"], kind="memo") as others:
            assert others.next("counts")["total"] == 3


def test_a_store_that_is_away_is_not_taken_for_a_mistake_of_the_table(
    api: ApiFixture, odd: Ref, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(memo: Record, store: Store) -> str | None:
        raise StoreUnavailable("The store is away.")

    monkeypatch.setitem(api.environment.machines, "memo", _with_guard(away))
    with api.client("reader") as client:
        assert client.get(f"/api/v1/records/memo/{odd.id}").status_code == 503


def _with_guard(guard: Any) -> Machine:
    return Machine(
        name="memo",
        plural="memos",
        prefix="mem",
        description="A few words.",
        initial_states=("Held",),
        states=(
            work("Reading", to="Read", description="Reads it.", on_hold="Held", on_fail=None),
            rest("Held", description="Closed."),
            end("Read", description="Done."),
        ),
        actions=(action("go", "Held", "Reading", "Go on.", guard=guard),),
        hold_names=lambda memo: ("desk/a",),
    )
