"""Commands that look at records: ls, show, history."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from waybill import views
from waybill.cli import shapes
from waybill.cli.desk import ID, KIND, Desk, command, complete_kind, complete_state
from waybill.cli.problems import Missing, Misuse
from waybill.machine import Machine
from waybill.record import MAX_PAGE, Store
from waybill.views import PageTokens, Query

PANEL = "Records"


def check_state(machine: Machine, state: str | None, store: Store) -> None:
    """A state must be declared, or at least hold records of an earlier release."""
    if state is not None and machine.state(state) is None and state not in store.tally(machine.name):
        raise Missing(f"A {machine.name} has no state {state!r}; it has {', '.join(s.name for s in machine.states)}.")


def register(app: typer.Typer) -> None:
    command(
        app,
        panel=PANEL,
        examples=(
            "waybill ls",
            "waybill ls parcel",
            "waybill ls parcel --state Failed --json",
            "waybill ls parcel --parent shipment:shp0000000001",
        ),
    )(ls)
    command(
        app, panel=PANEL, examples=("waybill show parcel pcl0000000001", "waybill show parcel pcl0000000001 --json")
    )(show)
    command(app, panel=PANEL, examples=("waybill history parcel pcl0000000001",))(history)


def ls(
    desk: Desk,
    kind: Annotated[
        str | None,
        typer.Argument(
            metavar="KIND",
            help="The kind of record; without it all kinds are counted by state.",
            autocompletion=complete_kind,
        ),
    ] = None,
    state: Annotated[
        str | None, typer.Option("--state", help="Only records in this state.", autocompletion=complete_state)
    ] = None,
    parent: Annotated[
        str | None, typer.Option("--parent", metavar="KIND:ID", help="Only children of this record.")
    ] = None,
    owner: Annotated[str | None, typer.Option("--owner", help="Only records of this owner.")] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=MAX_PAGE, help="How many records a page has.")] = 50,
    token: Annotated[
        str | None, typer.Option("--token", help="Go on after an earlier page; it is printed with that page.")
    ] = None,
    newest: Annotated[bool, typer.Option("--newest", help="Newest first.")] = False,
) -> None:
    """List records in the order in which they were made, page by page."""
    if kind is None:
        if state or parent or owner or token:
            raise Misuse("A filter or a token needs a KIND; without one `waybill ls` counts all kinds.")
        return _counts(desk)
    if sum(given is not None for given in (state, parent, owner)) > 1:
        raise Misuse(
            "Only one of --state, --parent and --owner can be given: each has its own index, and no mixture has."
        )
    machine = desk.machine(kind)
    with desk.store() as store:
        query = Query(kind, state, desk.ref(parent) if parent else None, owner, newest)
        after = None
        if token is not None:
            asked, after = PageTokens.of(store).verify(token)
            if asked != query and (state or parent or owner or newest or asked.kind != kind):
                raise Misuse(
                    "This token belongs to another list; give it with the same kind and filter, or begin again without it."
                )
            query = asked
        check_state(machine, query.state, store)
        page = store.find(
            kind,
            state=query.state,
            parent=query.parent,
            owner=query.owner,
            after=after,
            newest=query.newest,
            limit=limit,
        )
        # The first to sign a token writes the store's secret; a list of one page can be read from a disk that is full.
        further = PageTokens.of(store).sign(query, page.after) if page.after is not None else None
        shown = views.page(page, desk.depot.machines, store, further, progress=views.progress_of(store.sessions()))
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
        sessions, now = store.sessions(), store.now()
        view: dict[str, Any] = dict(
            views.record(record, desk.depot.machines, docs=True, progress=views.progress_of(sessions), store=store)
        )
        below = desk.depot.machines.children_of(kind)
        children = [views.tally(child, store.tally(child.name, parent=record.ref), record.ref) for child in below]
    view["children"] = children
    if desk.as_json:
        return desk.print_json(view)
    gone = any(s.name == record.session and s.expires <= now for s in sessions)
    now_at = "its worker is gone; the next one takes it up" if gone else shapes.where(view)
    holder = f"{record.session} (expired)" if gone else record.session
    desk.out.print(
        shapes.fields(
            [
                ("kind", kind),
                ("id", id),
                ("state", shapes.state(record.state, view["sort"])),
                ("", view["state_doc"]),
                ("message", view["message"]),
                ("progress", shapes.progress(view["progress"])),
                ("now", now_at),
                ("parent", str(record.parent) if record.parent else ""),
                ("owner", record.owner),
                ("priority", record.priority),
                ("last done", record.last_done),
                ("tries", record.tries or ""),
                ("retries", record.retries or ""),
                ("held by", holder),
                ("keys", " ".join(record.keys)),
                ("marks", " ".join(record.gates)),
                ("host", record.host),
                ("created", shapes.local(view["created"])),
                ("updated", shapes.local(view["updated"])),
            ]
        )
    )
    for tally in children:
        states = ", ".join(f"{count['count']} {count['state']}" for count in tally["states"] if count["count"])
        desk.say(f"\n{desk.machine(tally['kind']).plural}: {states or 'none'}")
    for name, body in view["docs"].items():
        desk.say(f"\n{name}:")
        desk.say(json.dumps(body, indent=2, ensure_ascii=False))
    if view["actions"]:
        made = shapes.table("action", "leads to", "")
        for action in view["actions"]:
            made.add_row(
                action["name"],
                action["target"],
                f"not now: {action['why_not']}" if action["why_not"] else action["doc"],
            )
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
        made.add_row(
            shapes.local(line["at"]),
            line["event"],
            shapes.arrow(line["before"], line["after"]),
            line["who"],
            line["why"],
        )
    desk.out.print(made)
    return None
