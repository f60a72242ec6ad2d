"""Commands that create records and move them: submit, act, priority."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from waybill import rules, views
from waybill.cli.actions import YES, ActionResults, confirm_action, confirm_on_record
from waybill.cli.command_context import (
    ID,
    KIND,
    WHY,
    CommandContext,
    command,
    complete_action,
    complete_initial_state,
    complete_state,
)
from waybill.cli.records import PANEL, check_state
from waybill.engine import ActionResult
from waybill.errors import InputError, NotFound
from waybill.machine import Action, Machine
from waybill.record import Ref
from waybill.rules import ActionRefused, inputs
from waybill.step import New


def register(app: typer.Typer) -> None:
    command(
        app,
        panel=PANEL,
        examples=(
            """waybill submit shipment --document order='{"parcels": 3}'""",
            "waybill submit shipment --document order=@order.json --idempotency-key order-17 --json",
        ),
    )(submit)
    command(
        app,
        panel=PANEL,
        examples=(
            "waybill act parcel pcl0000000001 resume --why 'the carrier is back'",
            "waybill act parcel pcl0000000001 readdress --arg address='7 Mill Lane'",
            "waybill act parcel resume --all --state Failed --yes",
            "waybill act parcel pcl0000000001 --to Packing",
        ),
    )(act)
    command(app, panel=PANEL, examples=("waybill priority parcel pcl0000000001 0 --why urgent",))(priority)


def submit(
    context: CommandContext,
    kind: KIND,
    documents: Annotated[
        list[str] | None, typer.Option("--document", metavar="NAME=JSON", help="A document; NAME=@FILE reads a file.")
    ] = None,
    id: Annotated[
        str | None, typer.Option("--id", help="The id, for kinds whose records are named by their callers.")
    ] = None,
    state: Annotated[
        str | None,
        typer.Option(
            "--state",
            help="The initial state, where the machine allows a choice.",
            autocompletion=complete_initial_state,
        ),
    ] = None,
    owner: Annotated[str | None, typer.Option("--owner", help="The owner of the record.")] = None,
    priority: Annotated[
        int | None, typer.Option("--priority", min=0, max=99, help="0 to 99, lower first.", show_default="5")
    ] = None,
    idempotency_key: Annotated[
        str | None,
        typer.Option("--idempotency-key", help="Your own key of this request: sent twice, it makes one record."),
    ] = None,
    why: WHY = "",
) -> None:
    """Create a record and print its id."""
    machine = context.get_machine(kind)
    if machine.made_by:
        raise ActionRefused(
            f"No {kind} is created here, where its documents would not be checked: it is made by {machine.made_by}."
        )
    _check_option("--owner", owner, inputs.check_owner)
    _check_option("--idempotency-key", idempotency_key, inputs.check_idempotency_key)
    new = New(
        kind,
        _parse_documents(documents),
        id=id,
        state=state,
        owner=owner,
        priority=priority,
        idempotency_key=idempotency_key,
    )
    with context.open_engine() as engine:
        with rules.translate_document_errors(machine):
            rules.create(engine.machines, new)  # pure: wrong documents are found before any write
        record = engine.submit(new, who=context.who, why=why)
    if context.as_json:
        return context.print_json(views.to_record_view(record, context.environment.machines))
    return context.print_line(record.id)


def _check_option(option: str, text: str | None, check: Callable[[str], str]) -> None:
    if text is not None:
        try:
            check(text)
        except ValueError as error:
            raise InputError(f"{option} {text!r} cannot be used: {error}.", code="usage") from None


def _parse_documents(pairs: list[str] | None) -> dict[str, Any]:
    documents: dict[str, Any] = {}
    for pair in pairs or ():
        name, equals, text = pair.partition("=")
        if not equals or not name:
            raise InputError(f"--document {pair!r} is not NAME=JSON.", code="usage")
        if name in documents:
            raise InputError(f"The document {name} is given twice.", code="usage")
        if text.startswith("@"):
            text = _read_document_file(name, text[1:])
        try:
            documents[name] = json.loads(text)
        except (ValueError, RecursionError) as error:
            reason = error if isinstance(error, ValueError) else "it is nested too deeply"
            raise InputError(f"The document {name} is not JSON: {reason}.", code="usage") from error
    return documents


def _read_document_file(name: str, file: str) -> str:
    try:
        return Path(file).read_text("utf-8")
    except OSError as error:
        raise InputError(
            f"The file {file!r} with the document {name} cannot be read: {error.strerror or error}.", code="usage"
        ) from error
    except UnicodeDecodeError as error:
        raise InputError(f"The file {file!r} with the document {name} is not UTF-8.", code="usage") from error


def act(
    context: CommandContext,
    kind: KIND,
    id: Annotated[str | None, typer.Argument(metavar="ID", help="The record's id; none with --all.")] = None,
    action: Annotated[
        str | None, typer.Argument(metavar="ACTION", help="The action; none with --to.", autocompletion=complete_action)
    ] = None,
    why: WHY = "",
    arg: Annotated[
        list[str] | None, typer.Option("--arg", metavar="NAME=VALUE", help="An argument of the action: JSON or text.")
    ] = None,
    yes: YES = False,
    all_records: Annotated[
        bool, typer.Option("--all", help="On all records that match --state, --parent or --owner.")
    ] = False,
    state: Annotated[
        str | None, typer.Option("--state", help="With --all: those in this state.", autocompletion=complete_state)
    ] = None,
    parent: Annotated[
        str | None, typer.Option("--parent", metavar="KIND:ID", help="With --all: the children of this record.")
    ] = None,
    owner: Annotated[str | None, typer.Option("--owner", help="With --all: those of this owner.")] = None,
    to: Annotated[
        str | None,
        typer.Option("--to", metavar="STATE", help="Move it by hand, out of a state that is no longer declared."),
    ] = None,
) -> int | None:
    """Take an action on a record, or on all that match. `waybill show` and `waybill machines` list the actions."""
    machine = context.get_machine(kind)
    if all_records:
        if action is not None or to is not None:
            raise InputError("With --all there is no ID: waybill act KIND ACTION --all --state STATE.", code="usage")
        return _act_on_all_records(context, machine, _get_action(machine, id), yes, why, state, parent, owner, arg)
    if state or parent or owner:
        raise InputError("--state, --parent and --owner choose among many records: give --all as well.", code="usage")
    if id is None or (action is None) == (to is None):
        raise InputError("Give an ID and an ACTION, or an ID and --to STATE.", code="usage")
    ref = Ref(kind, id)
    with context.open_engine() as engine:
        if to is not None:
            _print_action_result(context, f"moved to {to}", engine.move(ref, to, who=context.who, why=why))
            return None
        wanted = _get_action(machine, action)
        confirmed = confirm_on_record(context, wanted, engine.store.get(*ref), engine.store, yes)
        with rules.translate_document_errors(machine, "arguments", is_read=wanted.writes is not None):
            acted = engine.act(
                ref, wanted.name, who=context.who, why=why, args=_parse_arguments(arg), confirmed=confirmed
            )
        _print_action_result(context, wanted.name, acted)
        return None


def _get_action(machine: Machine, name: str | None) -> Action:
    action = machine.find_action(name) if name is not None else None
    if action is None:
        available = ", ".join(a.name for a in machine.actions) or "none"
        if name is None:
            raise InputError(f"Give an ACTION; a {machine.name} has {available}.", code="usage")
        raise NotFound(f"A {machine.name} has no action {name!r}; it has {available}.", code="unknown-action")
    return action


def _parse_arguments(pairs: list[str] | None) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for pair in pairs or ():
        name, equals, text = pair.partition("=")
        if not equals or not name:
            raise InputError(f"--arg {pair!r} is not NAME=VALUE.", code="usage")
        if name in values:
            raise InputError(f"The argument {name} is given twice.", code="usage")
        try:
            values[name] = json.loads(text)
        except (ValueError, RecursionError):
            values[name] = text
    return values


def _print_action_result(context: CommandContext, performed: str, acted: ActionResult) -> None:
    record = acted.record
    if context.as_json:
        return context.print_json(
            {"record": views.to_record_view(record, context.environment.machines), "pending": acted.pending}
        )
    if acted.pending:
        return context.print_line(
            f"{record.ref}: a worker has claimed it in {record.state}; it applies {performed} when its step has ended."
        )
    return context.print_line(f"{record.ref}: {performed}, now {record.state}")


def _act_on_all_records(
    context: CommandContext,
    machine: Machine,
    action: Action,
    yes: bool,
    why: str,
    state: str | None,
    parent: str | None,
    owner: str | None,
    arg: list[str] | None,
) -> int | None:
    if sum(given is not None for given in (state, parent, owner)) != 1:
        raise InputError("With --all give exactly one of --state, --parent and --owner.", code="usage")
    if arg:
        raise InputError("Arguments are for one record; leave out --arg or --all.", code="usage")
    selection = f"{machine.plural} " + (f"in {state}" if state else f"of {parent or owner}")
    results = ActionResults(context)
    with context.open_engine() as engine:
        check_state(machine, state, engine.store)
        confirmed = confirm_action(context, action, action.confirm, f"all {selection}", yes)
        parent_ref = context.parse_ref(parent) if parent else None
        for ref, result in engine.act_all(
            machine.name,
            action.name,
            state=state,
            parent=parent_ref,
            owner=owner,
            who=context.who,
            why=why,
            confirmed=confirmed,
        ):
            results.add(ref, result)
    return results.finish(action.name)


def priority(
    context: CommandContext,
    kind: KIND,
    id: ID,
    number: Annotated[int, typer.Argument(metavar="PRIORITY", min=0, max=99, help="0 to 99, lower first.")],
    why: WHY = "",
) -> None:
    """Change the priority of a record in any state; its queue position changes in the same commit."""
    context.get_machine(kind)
    with context.open_engine() as engine:
        acted = engine.set_priority(Ref(kind, id), number, who=context.who, why=why)
    return _print_action_result(context, f"priority {number}", acted)
