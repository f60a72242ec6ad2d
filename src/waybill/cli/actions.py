"""Actions at the command line: their confirmation, and their results when there are many."""

from __future__ import annotations

from typing import Annotated

import typer

from waybill.cli.command_context import CommandContext
from waybill.client import ActionResultView
from waybill.engine import ActionResult
from waybill.errors import CONFLICT, FAILED, WaybillError
from waybill.machine import Action
from waybill.record import Record, Ref, Store
from waybill.rules import ActionRefused, ClaimedByWorker

YES = Annotated[bool, typer.Option("--yes", "-y", help="Confirm the action without being asked.")]


def confirm_action(context: CommandContext, action: str, question: str | None, what: str, yes: bool) -> bool:
    """Ask the user at a terminal; a script must give --yes. Returns True when the action was confirmed."""
    if question is None or yes:
        return yes
    if not context.is_interactive:
        raise ActionRefused(f"{action} on {what} must be confirmed: {question} Add --yes to confirm it.")
    context.err.print(question)
    return typer.confirm(f"{action} {what}?", abort=True, err=True)


def confirm_on_record(context: CommandContext, action: Action, record: Record, store: Store, yes: bool) -> bool:
    """Ask what the action asks of this record."""
    return confirm_action(context, action.name, action.get_confirmation(record, store), str(record.ref), yes)


class ActionResults:
    """The results of an action on many records: each is printed as it comes, and the exit code tells the worst."""

    def __init__(self, context: CommandContext) -> None:
        self._context = context
        self.done_count = self.refused_count = self._claimed_count = 0

    def add(self, ref: Ref, result: ActionResult | ActionResultView | WaybillError) -> None:
        refusal, state, pending = None, None, False
        if isinstance(result, WaybillError):
            refusal = str(result)
            self.refused_count += 1
            self._claimed_count += result.code == ClaimedByWorker.code
        else:
            self.done_count += 1
            if isinstance(result, ActionResult):
                state, pending = result.record.state, result.pending
            else:
                state, pending = result["record"]["state"], result["pending"]
        if self._context.as_json:
            row = {"kind": ref.kind, "id": ref.id, "state": state, "pending": pending, "refused": refusal}
            self._context.print_json(row, line=True)
        elif pending:
            self._context.print_line(
                f"{ref}: a worker has claimed it in {state}; the action is applied when the step has ended"
            )
        else:
            self._context.print_line(f"{ref}: {refusal or state}")

    def finish(self, what: str) -> int | None:
        if self._context.as_json:
            self._context.print_json({"done": self.done_count, "refused": self.refused_count}, line=True)
        else:
            self._context.print_note(f"{what}: {self.done_count} done, {self.refused_count} refused.")
        return (CONFLICT if self._claimed_count == self.refused_count else FAILED) if self.refused_count else None
