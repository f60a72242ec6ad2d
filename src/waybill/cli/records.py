"""Commands that read records: ls, show, history."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from waybill import views
from waybill.cli import terminal
from waybill.cli.command_context import ID, KIND, CommandContext, command, complete_kind, complete_state
from waybill.errors import InputError, NotFound
from waybill.machine import Machine
from waybill.record import MAX_PAGE, Page, Store
from waybill.sign_in import PRIVATE_KINDS
from waybill.text_format import format_local_time
from waybill.views import ListQuery

PANEL = "Records"


def check_state(machine: Machine, state: str | None, store: Store) -> None:
    """Raise NotFound unless the state is declared, or holds records of an earlier release."""
    if state is not None and machine.find_state(state) is None and state not in store.count_by_state(machine.name):
        names = ", ".join(s.name for s in machine.states)
        raise NotFound(f"A {machine.name} has no state {state!r}; it has {names}.", code="unknown-state")


LIMIT = Annotated[int, typer.Option("--limit", min=1, max=MAX_PAGE, help="How many to show.")]
PAGE_TOKEN = Annotated[
    str | None, typer.Option("--page-token", help="Continue after an earlier page, which printed this token.")
]


def find_page(
    context: CommandContext,
    store: Store,
    query: ListQuery,
    page_token: str | None,
    limit: int,
    *,
    documents: bool = False,
    is_order_given: bool = False,
) -> tuple[Page, str | None]:
    """Return a page of records, and the token of the next one."""
    check_state(context.get_machine(query.kind), query.state, store)
    return views.find_page(store, query, page_token, limit=limit, documents=documents, is_order_given=is_order_given)


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
    context: CommandContext,
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
    limit: LIMIT = 50,
    page_token: PAGE_TOKEN = None,
    newest: Annotated[bool, typer.Option("--newest", help="Newest first.")] = False,
) -> None:
    """List records in the order in which they were made, page by page."""
    if kind is None:
        if state or parent or owner or page_token:
            raise InputError(
                "A filter or a page token needs a KIND; without one `waybill ls` counts all kinds.", code="usage"
            )
        return _print_counts(context)
    if sum(given is not None for given in (state, parent, owner)) > 1:
        raise InputError(
            "Only one of --state, --parent and --owner can be given: each has its own index, and no combination has.",
            code="usage",
        )
    with context.open_client() as client:
        page_view = client.list_records(
            kind, state=state, parent=parent, owner=owner, newest=newest or None, page_token=page_token, limit=limit
        )
    if context.as_json:
        return context.print_json(page_view)
    if not page_view["records"]:
        return context.print_note(f"There are no records of the kind {kind} here.")
    context.out.print(terminal.make_record_table(page_view["records"]))
    if page_view["next"]:
        context.print_note(f"There are more: waybill ls {kind} --page-token {page_view['next']}")
    return None


def _print_counts(context: CommandContext) -> None:
    with context.open_client() as client:
        kinds = [machine["kind"] for machine in client.list_machines()]
        counts_views = [client.count_by_state(kind) for kind in kinds if kind not in PRIVATE_KINDS]
    if context.as_json:
        return context.print_json({"kinds": counts_views})
    table = terminal.make_table("kind", "records", "states")
    for counts in counts_views:
        states = "  ".join(f"{count['state']} {count['count']}" for count in counts["states"] if count["count"])
        table.add_row(counts["kind"], str(counts["total"]), states)
    context.out.print(table)
    return None


def show(context: CommandContext, kind: KIND, id: ID) -> None:
    """Show one record: its fields, its documents, its children, and the actions that are possible now."""
    with context.open_client() as client:
        record = client.get_record(kind, id)
        machines = {machine["kind"]: machine for machine in client.list_machines()}
        children = [
            client.count_by_state(machine["kind"], parent=f"{kind}:{id}")
            for machine in machines.values()
            if kind in (machine["parent"] or "").split()
        ]
        expired_sessions = {session["name"] for session in client.list_sessions() if session["expired"]}
    if context.as_json:
        return context.print_json({**record, "children": children})
    is_expired = record["session"] in expired_sessions
    activity = "its worker is gone; the next one claims it again" if is_expired else terminal.describe_wait(record)
    parent = record["parent"]
    context.out.print(
        terminal.make_field_table(
            [
                ("kind", kind),
                ("id", id),
                ("state", terminal.style_state(record["state"], record["type"])),
                ("", record["state_description"]),
                ("message", record["message"]),
                ("progress", terminal.format_progress(record["progress"])),
                ("now", activity),
                ("parent", f"{parent['kind']} {parent['id']}" if parent else ""),
                ("owner", record["owner"]),
                ("priority", record["priority"]),
                ("last done", record["last_done"]),
                ("errors", record["error_count"] or ""),
                ("resumed", record["resume_count"] or ""),
                ("claimed by", f"{record['session']} (expired)" if is_expired else record["session"]),
                ("locks", " ".join(record["locks"])),
                ("holds", " ".join(record["hold_names"])),
                ("host", record["host"]),
                ("created", format_local_time(record["created"])),
                ("updated", format_local_time(record["updated"])),
            ]
        )
    )
    for counts in children:
        states = ", ".join(f"{count['count']} {count['state']}" for count in counts["states"] if count["count"])
        context.print_line(f"\n{machines[counts['kind']]['plural']}: {states or 'none'}")
    for name, body in (record["documents"] or {}).items():
        context.print_line(f"\n{name}:")
        context.print_line(json.dumps(body, indent=2, ensure_ascii=False))
    if record["actions"]:
        table = terminal.make_table("action", "leads to", "")
        for action in record["actions"]:
            table.add_row(
                action["name"],
                action["target"],
                f"not now: {action['why_not']}" if action["why_not"] else action["description"],
            )
        context.print_line("")
        context.out.print(table)
    else:
        context.print_note("\nNo action is possible in this state.")
    return None


def history(context: CommandContext, kind: KIND, id: ID) -> None:
    """Show all that happened to one record, oldest first."""
    with context.open_client() as client:
        entries = client.get_history(kind, id)
    if context.as_json:
        return context.print_json({"kind": kind, "id": id, "entries": entries})
    table = terminal.make_table("when", "cause", "state", "who", "why")
    for entry in entries:
        table.add_row(
            format_local_time(entry["at"]),
            entry["cause"],
            terminal.format_transition(entry["before"], entry["after"]),
            entry["who"],
            entry["why"],
        )
    context.out.print(table)
    return None
