"""An action that asks is confirmed by the user or by --yes; the results of many are printed one by one."""

import json

import pytest

from waybill.cli.actions import ActionResults, confirm_action
from waybill.cli.command_context import CommandContext
from waybill.engine import ActionResult
from waybill.errors import CONFLICT, FAILED
from waybill.machine import action
from waybill.record import Record, Ref
from waybill.rules import ActionRefused, ClaimedByWorker

SCRAP = action("scrap", "Packing", "Scrapped", "Throw it away.", confirm="It is lost.")
CRATES = [Ref("crate", f"c{number}") for number in range(4)]


def test_a_script_must_confirm_an_action_that_asks() -> None:
    context = CommandContext()
    with pytest.raises(
        ActionRefused, match=r"scrap on crate c1 must be confirmed: It is lost\. Add --yes to confirm it\."
    ):
        confirm_action(context, "scrap", SCRAP.confirm, "crate c1", yes=False)
    assert confirm_action(context, "scrap", SCRAP.confirm, "crate c1", yes=True)
    assert not confirm_action(context, "scrap", None, "crate c1", yes=False), (
        "nothing is asked, so nothing is confirmed"
    )


@pytest.mark.parametrize(
    ("refusals", "code"),
    [
        ([], None),
        ([ClaimedByWorker("A worker has it.")], CONFLICT),
        ([ClaimedByWorker("A worker has it."), ActionRefused("No.")], FAILED),
    ],
)
def test_the_exit_code_tells_the_worst(
    refusals: list[ActionRefused], code: int | None, capsys: pytest.CaptureFixture[str]
) -> None:
    results = ActionResults(CommandContext(as_json=True))
    for ref, refusal in zip(CRATES, refusals, strict=False):
        results.add(ref, refusal)
    done = Record("crate", "c8", "Scrapped")
    results.add(done.ref, ActionResult(done, pending=False))
    results.add(done.ref, ActionResult(done, pending=True))
    assert results.finish("scrap") == code
    *rows, total = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["refused"] for row in rows] == [*map(str, refusals), None, None]
    assert [row["pending"] for row in rows] == [*(False for _ in refusals), False, True]
    assert total == {"done": 2, "refused": len(refusals)}
