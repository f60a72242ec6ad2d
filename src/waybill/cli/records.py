"""Commands that look at records and act on them: ls, show, history, act, priority."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Annotated, Any

import typer

from waybill import views
from waybill.cli import shapes
from waybill.cli.desk import ID, KIND, WHY, Desk, command, complete_action, complete_kind
from waybill.cli.problems import CONFLICT, FAILED, Held, Missing, Misuse
from waybill.engine import Acted, Engine
from waybill.machine import Action, Machine
from waybill.record import MAX_PAGE, Ref, Store
from waybill.rules import Refused
from waybill.views import PageTokens, Query

PANEL = "Records"


def check_state(machine: Machine, state: str | None, store: Store) -> None:
    """A state must be declared, or at least hold records of an earlier release."""
    if state is not None and machine.state(state) is None and state not in store.tally(machine.name):
        raise Missing(f"A {machine.name} has no state {state!r}; it has {', '.join(s.name for s in machine.states)}.")


def register(app: typer.Typer) -> None:
    command(app, panel=PANEL, examples=(
        "waybill ls", "waybill ls parcel", "waybill ls parcel --state Failed --json", "waybill ls parcel --parent shipment:shp0000000001",
    ))(ls)  # fmt: skip
    command(app, panel=PANEL, examples=("waybill show parcel pcl0000000001", "waybill show parcel pcl0000000001 --json"))(show)
    command(app, panel=PANEL, examples=("waybill history parcel pcl0000000001",))(history)
    command(app, panel=PANEL, examples=(
        "waybill act parcel pcl0000000001 resume --why 'the carrier is back'",
        "waybill act parcel pcl0000000001 readdress --arg address='7 Mill Lane'",
        "waybill act parcel resume --all --state Failed --yes", "waybill act parcel pcl0000000001 --to Packing",
    ))(act)  # fmt: skip
    command(app, panel=PANEL, examples=("waybill priority parcel pcl0000000001 0 --why urgent",))(priority)


def ls(
    desk: Desk,
    kind: Annotated[str | None, typer.Argument(metavar="KIND", help="The kind of record; without it all kinds are counted by state.",
                                               autocompletion=complete_kind)] = None,
    state: Annotated[str | None, typer.Option("--state", help="Only records in this state.")] = None,
    parent: Annotated[str | None, typer.Option("--parent", metavar="KIND:ID", help="Only children of this record.")] = None,
    owner: Annotated[str | None, typer.Option("--owner", help="Only records of this owner.")] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=MAX_PAGE, help="How many records a page has.")] = 50,
    token: Annotated[str | None, typer.Option("--token", help="Go on after an earlier page; it is printed with that page.")] = None,
    newest: Annotated[bool, typer.Option("--newest", help="Newest first.")] = False,
) -> None:  # fmt: skip
    """List records in the order in which they were made, page by page."""
    if kind is None:
        if state or parent or owner or token:
            raise Misuse("A filter or a token needs a KIND; without one `waybill ls` counts all kinds.")
        return _counts(desk)
    if sum(given is not None for given in (state, parent, owner)) > 1:
        raise Misuse("Only one of --state, --parent and --owner can be given: each has its own index, and no mixture has.")
    machine = desk.machine(kind)
    with desk.store() as store:
        query = Query(kind, state, desk.ref(parent) if parent else None, owner, newest)
        tokens, after = PageTokens.of(store), None
        if token is not None:
            asked, after = tokens.verify(token)
            if asked != query and (state or parent or owner or newest or asked.kind != kind):
                raise Misuse("This token belongs to another list; give it with the same kind and filter, or begin again without it.")
            query = asked
        check_state(machine, query.state, store)
        page = store.find(kind, state=query.state, parent=query.parent, owner=query.owner, after=after, newest=query.newest, limit=limit)
        shown = views.page(
            page, desk.depot.machines, tokens.sign(query, page.after), progress=views.progress_of(store.sessions())
        )  # fmt: skip
    if desk.as_json:
        return desk.print_json(shown)
    if not shown["records"]:
        return desk.note(f"There are no {machine.plural} here.")
    desk.out.print(shapes.records(shown["records"]))
    if shown["next"]:
        desk.note(f"There are more: waybill ls {kind} --token {shown['next']}")
    return None


def _counts(desk: Desk) -> None:
    with desk.store() as store:
        tallies = [views.tally(machine, store.tally(kind)) for kind, machine in sorted(desk.depot.machines.items())]
    if desk.as_json:
        return desk.print_json({"kinds": tallies})
    made = shapes.table("kind", "records", "states")
    for tally in tallies:
        states = "  ".join(f"{count['state']} {count['count']}" for count in tally["states"] if count["count"])
        made.add_row(tally["kind"], str(tally["total"]), states)
    desk.out.print(made)
    return None


def show(desk: Desk, kind: KIND, id: ID) -> None:
    """Show one record: its fields, its documents, its children, and the actions that are possible now."""
    machine = desk.machine(kind)
    with desk.store() as store:
        record = store.get(kind, id)
        view: dict[str, Any] = dict(
            views.record(record, desk.depot.machines, docs=True, progress=views.progress_of(store.sessions()), store=store)
        )
        below = desk.depot.machines.children_of(kind)
        children = [views.tally(child, store.tally(child.name, parent=record.ref), record.ref) for child in below]
    view["children"] = children
    if desk.as_json:
        return desk.print_json(view)
    desk.out.print(shapes.fields([
        ("kind", kind), ("id", id), ("state", shapes.state(record.state, view["sort"])), ("", view["state_doc"]),
        ("message", record.message), ("progress", shapes.progress(view["progress"])), ("now", shapes.where(view)),
        ("parent", str(record.parent) if record.parent else ""), ("owner", record.owner), ("priority", record.priority),
        ("last done", record.last_done), ("tries", record.tries or ""), ("retries", record.retries or ""),
        ("held by", record.session), ("keys", " ".join(record.keys)), ("marks", " ".join(record.gates)), ("host", record.host),
        ("created", shapes.local(view["created"])), ("updated", shapes.local(view["updated"])),
    ]))  # fmt: skip
    for tally in children:
        states = ", ".join(f"{count['count']} {count['state']}" for count in tally["states"] if count["count"])
        desk.say(f"\n{desk.machine(tally['kind']).plural}: {states or 'none'}")
    for name, body in view["docs"].items():
        desk.say(f"\n{name}:")
        desk.say(json.dumps(body, indent=2, ensure_ascii=False))
    if view["actions"]:
        made = shapes.table("action", "leads to", "")
        for action in view["actions"]:
            made.add_row(action["name"], action["target"], f"not now: {action['why_not']}" if action["why_not"] else action["doc"])
        desk.say("")
        desk.out.print(made)
    elif not machine.leaves(record.state):
        desk.note("\nNo action is possible in this state.")
    return None


def history(desk: Desk, kind: KIND, id: ID) -> None:
    """Show all that happened to one record, oldest first."""
    desk.machine(kind)
    with desk.store() as store:
        store.get(kind, id)
        lines = [views.line(line) for line in store.history(kind, id)]
    if desk.as_json:
        return desk.print_json({"kind": kind, "id": id, "lines": lines})
    made = shapes.table("when", "what", "state", "who", "why")
    for line in lines:
        made.add_row(shapes.local(line["at"]), line["event"], shapes.arrow(line["before"], line["after"]), line["who"], line["why"])
    desk.out.print(made)
    return None


def act(
    desk: Desk,
    kind: KIND,
    id: Annotated[str | None, typer.Argument(metavar="ID", help="The record's id; none with --all.")] = None,
    action: Annotated[str | None, typer.Argument(metavar="ACTION", help="The action; none with --to.",
                                                 autocompletion=complete_action)] = None,
    why: WHY = "",
    arg: Annotated[list[str] | None, typer.Option("--arg", metavar="NAME=VALUE", help="An argument of the action: JSON or text.")] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Agree to what the action asks to be confirmed.")] = False,
    every: Annotated[bool, typer.Option("--all", help="On all records that fit --state, --parent or --owner.")] = False,
    state: Annotated[str | None, typer.Option("--state", help="With --all: those in this state.")] = None,
    parent: Annotated[str | None, typer.Option("--parent", metavar="KIND:ID", help="With --all: the children of this record.")] = None,
    owner: Annotated[str | None, typer.Option("--owner", help="With --all: those of this owner.")] = None,
    to: Annotated[str | None, typer.Option("--to", metavar="STATE", help="By hand, out of a state that is no longer declared.")] = None,
) -> int | None:  # fmt: skip
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
            _acted(desk, f"moved to {to}", _careful(engine, ref, lambda: engine.move(ref, to, who=desk.who, why=why)))
            return None
        wanted = _action(machine, action)
        confirmed = yes or _agreed(desk, wanted, str(ref))
        values = _arguments(arg)

        def take() -> Acted:
            return engine.act(ref, wanted.name, who=desk.who, why=why, args=values, confirmed=confirmed)

        _acted(desk, wanted.name, _careful(engine, ref, take))
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
        try:
            values[name] = json.loads(text)
        except ValueError:
            values[name] = text
    return values


def _careful(engine: Engine, ref: Ref, take: Callable[[], Acted]) -> Acted:
    """An action that was refused because a worker holds the record is a conflict: it may be allowed a moment later."""
    try:
        return take()
    except Refused as refusal:
        if "worker holds" in str(refusal) and engine.store.get(*ref).session is not None:
            raise Held(str(refusal)) from refusal
        raise


def _acted(desk: Desk, what: str, acted: Acted) -> None:
    record = acted.record
    if desk.as_json:
        return desk.print_json({"record": views.record(record, desk.depot.machines), "pending": acted.pending})
    if acted.pending:
        return desk.say(f"{record.ref}: a worker holds it in {record.state}; it was asked, and applies {what} when its step has ended.")
    return desk.say(f"{record.ref}: {what}, now {record.state}")


def _act_on_all(
    desk: Desk, machine: Machine, action: Action, yes: bool, why: str, state: str | None, parent: str | None, owner: str | None,
    arg: list[str] | None,
) -> int | None:  # fmt: skip
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
            machine.name, action.name, state=state, parent=parent_ref, owner=owner, who=desk.who, why=why, confirmed=confirmed
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


