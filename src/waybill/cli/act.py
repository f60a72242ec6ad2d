"""Commands that create records and move them: submit, act, priority."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from waybill import views
from waybill.cli.actions import YES, ActionResults, confirm_action
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
from waybill.cli.records import PANEL
from waybill.client import ActionResultView
from waybill.errors import InputError, NotFound
from waybill.record import Ref
from waybill.rules import inputs
from waybill.views.view_types import ActionView, MachineView


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
    _check_option("--owner", owner, inputs.check_owner)
    _check_option("--idempotency-key", idempotency_key, inputs.check_idempotency_key)
    with context.open_client() as client:
        record = client.submit(
            kind,
            _parse_documents(documents),
            id=id,
            state=state,
            owner=owner,
            priority=priority,
            idempotency_key=idempotency_key,
            why=why,
        )
    if context.as_json:
        return context.print_json(record)
    return context.print_line(record["id"])


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
    if all_records:
        if action is not None or to is not None:
            raise InputError("With --all there is no ID: waybill act KIND ACTION --all --state STATE.", code="usage")
        return _act_on_all_records(context, kind, id, yes, why, state, parent, owner, arg)
    if state or parent or owner:
        raise InputError("--state, --parent and --owner choose among many records: give --all as well.", code="usage")
    if id is None or (action is None) == (to is None):
        raise InputError("Give an ID and an ACTION, or an ID and --to STATE.", code="usage")
    if to is not None:
        context.get_machine(kind)
        with context.open_engine() as engine:
            acted = engine.move(Ref(kind, id), to, who=context.who, why=why)
        record = views.to_record_view(acted.record, context.environment.machines)
        _print_action_result(context, f"moved to {to}", {"record": record, "pending": acted.pending})
        return None
    assert action is not None
    args = _parse_arguments(arg)
    with context.open_client() as client:
        find_action(client.get_machine(kind), action)
        possible = {each["name"]: each for each in client.get_record(kind, id)["actions"]}
        question = possible[action]["confirm"] if action in possible else None
        confirmed = confirm_action(context, action, question, f"{kind} {id}", yes)
        _print_action_result(context, action, client.act(kind, id, action, why=why, args=args, confirmed=confirmed))
    return None


def find_action(machine: MachineView, name: str | None) -> ActionView:
    declared = next((each for each in machine["actions"] if each["name"] == name), None)
    if declared is None:
        kind, available = machine["kind"], ", ".join(each["name"] for each in machine["actions"]) or "none"
        if name is None:
            raise InputError(f"Give an ACTION; a {kind} has {available}.", code="usage")
        raise NotFound(f"A {kind} has no action {name!r}; it has {available}.", code="unknown-action")
    return declared


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


def _print_action_result(context: CommandContext, performed: str, acted: ActionResultView) -> None:
    if context.as_json:
        return context.print_json(acted)
    record = acted["record"]
    name = f"{record['kind']} {record['id']}"
    if acted["pending"]:
        return context.print_line(
            f"{name}: a worker has claimed it in {record['state']}; it applies {performed} when its step has ended."
        )
    return context.print_line(f"{name}: {performed}, now {record['state']}")


def _act_on_all_records(
    context: CommandContext,
    kind: str,
    action: str | None,
    yes: bool,
    why: str,
    state: str | None,
    parent: str | None,
    owner: str | None,
    arg: list[str] | None,
) -> int | None:
    with context.open_client() as client:
        machine = client.get_machine(kind)
        declared = find_action(machine, action)
        if sum(given is not None for given in (state, parent, owner)) != 1:
            raise InputError("With --all give exactly one of --state, --parent and --owner.", code="usage")
        if arg:
            raise InputError("Arguments are for one record; leave out --arg or --all.", code="usage")
        selection = f"{machine['plural']} " + (f"in {state}" if state else f"of {parent or owner}")
        confirmed = confirm_action(context, declared["name"], declared["confirm"], f"all {selection}", yes)
        results = ActionResults(context)
        for ref, result in client.act_all(
            kind, declared["name"], state=state, parent=parent, owner=owner, why=why, confirmed=confirmed
        ):
            results.add(ref, result)
    return results.finish(declared["name"])


def priority(
    context: CommandContext,
    kind: KIND,
    id: ID,
    number: Annotated[int, typer.Argument(metavar="PRIORITY", min=0, max=99, help="0 to 99, lower first.")],
    why: WHY = "",
) -> None:
    """Change the priority of a record in any state; its queue position changes in the same commit."""
    with context.open_client() as client:
        acted = client.set_priority(kind, id, number, why=why)
    return _print_action_result(context, f"priority {number}", acted)
