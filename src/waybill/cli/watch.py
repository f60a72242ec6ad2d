"""The command that shows records moving: live in a terminal with progress bars, line by line in a pipe, JSON lines
with --json.

A snapshot holds the counts by state and the workers' progress. Between two snapshots it waits for the store to signal a
change. Progress gives no signal (heartbeats would wake every worker), so it shows in the next snapshot. One record is
followed by its history instead. When the store becomes unavailable, the command waits for it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Annotated, Any

import typer
from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text

from waybill import views
from waybill.cli import terminal
from waybill.cli.command_context import CommandContext, command, complete_kind
from waybill.cli.followed_records import MIN_INTERVAL, StoreRetry, make_count_bars
from waybill.client import RecordsClient
from waybill.sign_in import PRIVATE_KINDS
from waybill.text_format import format_local_time
from waybill.views.view_types import HistoryEntryView, MachineView

PANEL = "Records"
INTERNAL_KINDS = {
    "maintenance",
    "webhook_delivery",
    "mail",
    "event",
    "subscription",
} | PRIVATE_KINDS  # shown only when asked for

WatchSnapshot = dict[str, Any]


def register(app: typer.Typer) -> None:
    command(
        app,
        panel=PANEL,
        examples=(
            "waybill watch",
            "waybill watch parcel",
            "waybill watch parcel pcl0000000001",
            "waybill watch parcel --until-settled --json",
        ),
    )(watch)


def watch(
    context: CommandContext,
    kind: Annotated[
        str | None, typer.Argument(metavar="KIND", help="Only this kind.", autocompletion=complete_kind)
    ] = None,
    id: Annotated[
        str | None, typer.Argument(metavar="ID", help="Only this record: each entry of its history, until it settles.")
    ] = None,
    interval: Annotated[
        float,
        typer.Option(
            "--interval",
            min=MIN_INTERVAL,
            max=3600,
            help="Seconds between two snapshots, at most; progress shows in the next one.",
        ),
    ] = 1.0,
    until_settled: Annotated[
        bool, typer.Option("--until-settled", help="End when no watched record is open any more.")
    ] = False,
) -> None:
    """Watch records move, live. It waits for a store that becomes unavailable; Ctrl-C ends it."""
    with context.open_client() as client:
        try:
            if kind is not None and id is not None:
                return _follow_record(context, client, kind, id, interval)
            if kind is not None:
                machines = [client.get_machine(kind)]
            else:
                machines = [machine for machine in client.list_machines() if machine["kind"] not in INTERNAL_KINDS]
            if context.out.is_terminal and not context.as_json:
                return _show_live(context, client, machines, interval, until_settled)
            return _print_changed_snapshots(context, client, machines, interval, until_settled)
        except KeyboardInterrupt:
            return None


def _read_snapshot(client: RecordsClient, machines: list[MachineView]) -> WatchSnapshot:
    sessions = client.list_sessions()
    alive = [s for s in sessions if not s["expired"]]
    kinds = [machine["kind"] for machine in machines]
    return {
        "kinds": [client.count_by_state(kind) for kind in kinds],
        "steps": [step for s in alive for step in s["steps"] if step["kind"] in kinds],
        "workers": len(alive),
        "expired": len(sessions) - len(alive),
    }


def _poll_snapshots(
    retry: StoreRetry, client: RecordsClient, machines: list[MachineView], interval: float, until_settled: bool
) -> Iterator[WatchSnapshot]:
    while True:
        snapshot = retry(lambda: _read_snapshot(client, machines))
        yield snapshot
        if until_settled and not _count_open(machines, snapshot):
            return
        retry(lambda: client.wait(interval))


def _count_open(machines: list[MachineView], snapshot: WatchSnapshot) -> int:
    """How many records are open. A state that is not declared counts as open."""
    count = 0
    for machine, counts in zip(machines, snapshot["kinds"], strict=True):
        closed = {state["name"] for state in machine["states"] if state["settled"]}
        count += sum(state["count"] for state in counts["states"] if state["state"] not in closed)
    return count


def _show_live(
    context: CommandContext, client: RecordsClient, machines: list[MachineView], interval: float, until_settled: bool
) -> None:
    with Live(console=context.out, auto_refresh=False) as screen:
        retry = StoreRetry(context.print_line)  # prints above the picture
        for snapshot in _poll_snapshots(retry, client, machines, interval, until_settled):
            screen.update(_render_snapshot(snapshot), refresh=True)


def _render_snapshot(snapshot: WatchSnapshot) -> RenderableType:
    parts: list[RenderableType] = []
    for counts in snapshot["kinds"]:
        parts.append(Text(f"{counts['kind']}  {counts['total']}", style="bold"))
        styles = {state["state"]: terminal.STATE_STYLES.get(state["type"], "") for state in counts["states"]}
        rows = [(state["state"], state["count"]) for state in counts["states"] if state["count"]]
        bars = [(Text(f"  {name}", style=styles[name]), count, styles[name]) for name, count in rows]
        parts += [make_count_bars(bars), Text("")]
    parts.append(Text(f"{snapshot['workers']} workers", style="dim"))
    if snapshot["expired"]:
        parts.append(Text(_format_expired(snapshot["expired"]), style="red"))
    for step in snapshot["steps"][:20]:
        parts.append(Text(f"  {step['kind']} {step['id']}  {terminal.format_progress(step['progress'])}"))
    return Group(*parts)


def _format_expired(count: int) -> str:
    if count == 1:
        return "1 worker has expired; the next worker frees its claims"
    return f"{count} workers have expired; the next worker frees their claims"


def _print_changed_snapshots(
    context: CommandContext, client: RecordsClient, machines: list[MachineView], interval: float, until_settled: bool
) -> None:
    """Print a line for whatever differs from the snapshot before."""
    before: WatchSnapshot | None = None
    retry = StoreRetry(context.print_note)
    for snapshot in _poll_snapshots(retry, client, machines, interval, until_settled):
        if snapshot == before:
            continue
        if context.as_json:
            context.print_json({"at": views.format_time(time.time()), **snapshot}, line=True)
        else:
            _print_changes(context, snapshot, before)
        before = snapshot


def _print_changes(context: CommandContext, snapshot: WatchSnapshot, before: WatchSnapshot | None) -> None:
    earlier = {counts["kind"]: counts for counts in before["kinds"]} if before is not None else {}
    for counts in snapshot["kinds"]:
        if counts != earlier.get(counts["kind"]):
            states = ", ".join(f"{state['count']} {state['state']}" for state in counts["states"] if state["count"])
            context.print_line(f"{counts['kind']}: {states or 'none'}")
    if before is None or snapshot["steps"] != before["steps"]:
        for step in snapshot["steps"]:
            context.print_line(f"{step['kind']} {step['id']}: {terminal.format_progress(step['progress'])}")
    if snapshot["expired"] and (before is None or snapshot["expired"] != before["expired"]):
        context.print_line(_format_expired(snapshot["expired"]))
    context.out.file.flush()


def _follow_record(context: CommandContext, client: RecordsClient, kind: str, id: str, interval: float) -> None:
    """One record: every new entry of its history, and its progress, until it settles."""
    last_version = -1
    last_progress: Any = None
    last_expired: str | None = None
    retry = StoreRetry(context.print_note)
    while True:
        record, history, sessions = retry(
            lambda: (client.get_record(kind, id), client.get_history(kind, id), client.list_sessions())
        )
        for entry in history:
            if entry["version"] > last_version:
                last_version = entry["version"]
                _print_history_entry(context, entry)
        progress = record["progress"]
        if progress != last_progress and progress is not None:
            if context.as_json:
                context.print_json({"progress": progress}, line=True)
            else:
                context.print_line(f"{'':19}  {terminal.format_progress(progress)}")
        last_progress = progress
        expired = next((s["name"] for s in sessions if s["name"] == record["session"] and s["expired"]), None)
        if expired != last_expired and expired is not None:
            if context.as_json:
                context.print_json({"expired": expired}, line=True)
            else:
                context.print_line(f"{'':19}  its worker is gone; the next one claims it again")
        last_expired = expired
        context.out.file.flush()
        if not record["open"]:
            return
        retry(lambda: client.wait(interval))


def _print_history_entry(context: CommandContext, entry: HistoryEntryView) -> None:
    if context.as_json:
        return context.print_json(entry, line=True)
    transition = terminal.format_transition(entry["before"], entry["after"])
    why = f"  {entry['why']}" if entry["why"] else ""
    return context.print_line(f"{format_local_time(entry['at'])}  {entry['cause']:8} {transition}{why}")
