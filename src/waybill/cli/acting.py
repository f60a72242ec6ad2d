"""Commands that make records and move them: submit, act, priority."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from waybill import rules, views
from waybill.cli.desk import ID, KIND, WHY, Desk, command, complete_action, complete_begin, complete_state
from waybill.cli.problems import CONFLICT, FAILED, Missing, Misuse
from waybill.cli.records import PANEL, check_state
from waybill.engine import Acted
from waybill.machine import Action, Machine
from waybill.record import Ref
from waybill.rules import Refused, words
from waybill.step import New


def register(app: typer.Typer) -> None:
    command(
        app,
        panel=PANEL,
        examples=(
            """waybill submit shipment --doc order='{"parcels": 3}'""",
            "waybill submit shipment --doc order=@order.json --request order-17 --json",
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
    desk: Desk,
    kind: KIND,
    doc: Annotated[
        list[str] | None, typer.Option("--doc", metavar="NAME=JSON", help="A document; NAME=@FILE reads a file.")
    ] = None,
    id: Annotated[
        str | None, typer.Option("--id", help="The id, for kinds whose records are named by their callers.")
    ] = None,
    state: Annotated[
        str | None,
        typer.Option("--state", help="Where it begins, if its machine lets it choose.", autocompletion=complete_begin),
    ] = None,
    owner: Annotated[str | None, typer.Option("--owner", help="Whose it is.")] = None,
    priority: Annotated[
        int | None, typer.Option("--priority", min=0, max=99, help="0 to 99, lower first.", show_default="5")
    ] = None,
    request: Annotated[
        str | None, typer.Option("--request", help="Your own key of this request: asked twice, made once.")
    ] = None,
    why: WHY = "",
) -> None:
    """Make a record; its id is printed."""
    machine = desk.machine(kind)
    if machine.made_by:
        raise Refused(
            f"No {kind} is made here, where nobody would look at what is sent: it is made by {machine.made_by}."
        )
    _check("--owner", owner, words.owner)
    _check("--request", request, words.request)
    new = New(kind, _documents(doc), id=id, state=state, owner=owner, priority=priority, request=request)
    with desk.engine() as engine:
        with rules.users_documents(machine):
            rules.create(engine.machines, new)  # pure: what is wrong with the documents is found before any write
        record = engine.submit(new, who=desk.who, why=why)
    if desk.as_json:
        return desk.print_json(views.record(record, desk.depot.machines))
    return desk.say(record.id)


def _check(option: str, text: str | None, check: Callable[[str], str]) -> None:
    if text is not None:
        try:
            check(text)
        except ValueError as error:
            raise Misuse(f"{option} {text!r} is not right: {error}.") from None


def _documents(pairs: list[str] | None) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for pair in pairs or ():
        name, equals, text = pair.partition("=")
        if not equals or not name:
            raise Misuse(f"--doc {pair!r} is not NAME=JSON.")
        if name in found:
            raise Misuse(f"The document {name} is given twice.")
        if text.startswith("@"):
            text = _content(name, text[1:])
        try:
            found[name] = json.loads(text)
        except (ValueError, RecursionError) as error:
            why = error if isinstance(error, ValueError) else "it is nested too deeply"
            raise Misuse(f"The document {name} is not JSON: {why}.") from error
    return found


def _content(name: str, file: str) -> str:
    try:
        return Path(file).read_text("utf-8")
    except OSError as error:
        raise Misuse(
            f"The file {file!r} with the document {name} cannot be read: {error.strerror or error}."
        ) from error
    except UnicodeDecodeError as error:
        raise Misuse(f"The file {file!r} with the document {name} is not UTF-8.") from error


def act(
    desk: Desk,
    kind: KIND,
    id: Annotated[str | None, typer.Argument(metavar="ID", help="The record's id; none with --all.")] = None,
    action: Annotated[
        str | None, typer.Argument(metavar="ACTION", help="The action; none with --to.", autocompletion=complete_action)
    ] = None,
    why: WHY = "",
    arg: Annotated[
        list[str] | None, typer.Option("--arg", metavar="NAME=VALUE", help="An argument of the action: JSON or text.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Agree to what the action asks to be confirmed.")] = False,
    every: Annotated[bool, typer.Option("--all", help="On all records that fit --state, --parent or --owner.")] = False,
    state: Annotated[
        str | None, typer.Option("--state", help="With --all: those in this state.", autocompletion=complete_state)
    ] = None,
    parent: Annotated[
        str | None, typer.Option("--parent", metavar="KIND:ID", help="With --all: the children of this record.")
    ] = None,
    owner: Annotated[str | None, typer.Option("--owner", help="With --all: those of this owner.")] = None,
    to: Annotated[
        str | None, typer.Option("--to", metavar="STATE", help="By hand, out of a state that is no longer declared.")
    ] = None,
) -> int | None:
    """Take an action on a record, or on all that fit. `waybill show` and `waybill machines` say which there are."""
    machine = desk.machine(kind)
    if every:
        if action is not None or to is not None:
            raise Misuse("With --all there is no ID: waybill act KIND ACTION --all --state STATE.")
        return _act_on_all(desk, machine, _action(machine, id), yes, why, state, parent, owner, arg)
    if state or parent or owner:
        raise Misuse("--state, --parent and --owner choose among many records: give --all as well.")
    if id is None or (action is None) == (to is None):
        raise Misuse("Give an ID and an ACTION, or an ID and --to STATE.")
    ref = Ref(kind, id)
    with desk.engine() as engine:
        if to is not None:
            _acted(desk, f"moved to {to}", engine.move(ref, to, who=desk.who, why=why))
            return None
        wanted = _action(machine, action)
        needed = wanted.question(engine.store.get(*ref), engine.store)
        confirmed = yes or (needed is not None and _agreed(desk, wanted, str(ref)))
        with rules.users_documents(machine, "arguments", read=wanted.writes is not None):
            acted = engine.act(ref, wanted.name, who=desk.who, why=why, args=_arguments(arg), confirmed=confirmed)
        _acted(desk, wanted.name, acted)
        return None


def _action(machine: Machine, name: str | None) -> Action:
    action = machine.action(name) if name is not None else None
    if action is None:
        there = ", ".join(a.name for a in machine.actions) or "none"
        if name is None:
            raise Misuse(f"Give an ACTION; a {machine.name} has {there}.")
        raise Missing(f"A {machine.name} has no action {name!r}; it has {there}.")
    return action


def _agreed(desk: Desk, action: Action, what: str) -> bool:
    """Ask a person at a terminal; a script must say --yes."""
    if action.confirm is None:
        return False
    if not desk.interactive:
        raise Refused(f"{action.name} on {what} must be confirmed: {action.confirm} Add --yes to go on.")
    desk.err.print(action.confirm)
    return typer.confirm(f"{action.name} {what}?", abort=True, err=True)


def _arguments(pairs: list[str] | None) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for pair in pairs or ():
        name, equals, text = pair.partition("=")
        if not equals or not name:
            raise Misuse(f"--arg {pair!r} is not NAME=VALUE.")
        if name in values:
            raise Misuse(f"The argument {name} is given twice.")
        try:
            values[name] = json.loads(text)
        except (ValueError, RecursionError):
            values[name] = text
    return values


def _acted(desk: Desk, what: str, acted: Acted) -> None:
    record = acted.record
    if desk.as_json:
        return desk.print_json({"record": views.record(record, desk.depot.machines), "pending": acted.pending})
    if acted.pending:
        return desk.say(
            f"{record.ref}: a worker holds it in {record.state}; it was asked, and applies {what} when its step has ended."
        )
    return desk.say(f"{record.ref}: {what}, now {record.state}")


def _act_on_all(
    desk: Desk,
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
        raise Misuse("With --all give exactly one of --state, --parent and --owner.")
    if arg:
        raise Misuse("Arguments are for one record; leave out --arg or --all.")
    whole = f"{machine.plural} " + (f"in {state}" if state else f"of {parent or owner}")
    done = refused = held = 0
    with desk.engine() as engine:
        check_state(machine, state, engine.store)
        confirmed = yes or _agreed(desk, action, f"all {whole}")
        parent_ref = desk.ref(parent) if parent else None
        for ref, answer in engine.act_all(
            machine.name,
            action.name,
            state=state,
            parent=parent_ref,
            owner=owner,
            who=desk.who,
            why=why,
            confirmed=confirmed,
        ):
            if isinstance(answer, Refused):
                refused += 1
                held += "worker holds" in str(answer)
            else:
                done += 1
            _say_one(desk, ref, answer)
    if desk.as_json:
        desk.print_json({"done": done, "refused": refused}, line=True)
    else:
        desk.note(f"{action.name}: {done} done, {refused} refused.")
    return (CONFLICT if held == refused else FAILED) if refused else None


def _say_one(desk: Desk, ref: Ref, answer: Acted | Refused) -> None:
    refusal = str(answer) if isinstance(answer, Refused) else None
    state = None if isinstance(answer, Refused) else answer.record.state
    if desk.as_json:
        desk.print_json({"kind": ref.kind, "id": ref.id, "state": state, "refused": refusal}, line=True)
    else:
        desk.say(f"{ref}: {refusal or state}")


def priority(
    desk: Desk,
    kind: KIND,
    id: ID,
    number: Annotated[int, typer.Argument(metavar="PRIORITY", min=0, max=99, help="0 to 99, lower first.")],
    why: WHY = "",
) -> None:
    """Give a record in any state another priority; its place in the queue moves in the same commit."""
    desk.machine(kind)
    with desk.engine() as engine:
        acted = engine.priority(Ref(kind, id), number, who=desk.who, why=why)
    return _acted(desk, f"priority {number}", acted)
