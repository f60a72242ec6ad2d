"""The command that shows events as they happen, from the log of events."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from waybill import views
from waybill.cli.command_context import CommandContext, command
from waybill.cli.followed_records import MIN_INTERVAL, StoreRetry, wait_for_change
from waybill.record import Store
from waybill.subscriptions import ReceivedEvent, read_events
from waybill.subscriptions.event_log import find_log_end, find_place_before
from waybill.text_format import format_local_time

PAGE_SIZE = 200


def register(app: typer.Typer) -> None:
    command(
        app,
        panel="Records",
        examples=("waybill events", "waybill events --type 'bakery.*'", "waybill events --no-follow --last 100 --json"),
    )(events)


def events(
    context: CommandContext,
    type: Annotated[
        list[str] | None, typer.Option("--type", help="Only these types; * stands for any part of a name. Repeatable.")
    ] = None,
    after: Annotated[
        int | None, typer.Option("--after", min=0, help="Begin after this place in the log (`seq` of --json).")
    ] = None,
    last: Annotated[int, typer.Option("--last", min=0, max=1000, help="Begin with so many events before now.")] = 10,
    follow: Annotated[bool, typer.Option("--follow/--no-follow", help="Go on with what happens from now on.")] = True,
    interval: Annotated[
        float, typer.Option("--interval", min=MIN_INTERVAL, max=3600, help="Seconds between two looks, at most.")
    ] = 1.0,
) -> None:
    """Show events as they happen. Only those are logged that somebody subscribes to, or that the setting events.log names."""
    retry = StoreRetry(context.print_note)
    with context.open_store() as store:
        try:
            position = after if after is not None else retry(lambda: find_place_before(store, last))
            while True:
                started_at = time.monotonic()
                position = _print_new(context, retry, store, position, type or ["*"])
                if not follow:
                    return
                wait_for_change(retry, store, interval, started_at)
        except KeyboardInterrupt:
            return


def _print_new(context: CommandContext, retry: StoreRetry, store: Store, position: int, types: list[str]) -> int:
    end = retry(lambda: find_log_end(store))
    while position < end:
        found, read_to = retry(lambda at=position: read_events(store, at, types=types, limit=PAGE_SIZE))  # type: ignore[misc]
        for event in found:
            _print_event(context, event)
        context.out.file.flush()
        if read_to == position:
            break
        position = read_to
    return position


def _print_event(context: CommandContext, event: ReceivedEvent) -> None:
    if context.as_json:
        return context.print_json({**event._asdict(), "at": views.format_time(event.at)}, line=True)
    data = ", ".join(f"{name}={value}" for name, value in event.data.items() if isinstance(value, (str, int, float)))
    at = format_local_time(views.format_time(event.at))
    return context.print_line(f"{at}  {event.type}  {event.subject}  {data}".rstrip())
