"""Follows records to their end: with a live display in a terminal, a line for each change in a pipe, JSON lines with
--json.

    wait_until_settled    one record, silently
    follow_record         one record and its children: counts by state, why they wait, the progress of their steps

Between two reads the store is watched for changes; progress gives no signal, so it shows in the next read. While the
store is unavailable they wait, and say so once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from itertools import islice
from typing import Annotated, Any, TypeVar

import typer
from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from waybill import views
from waybill.cli import terminal
from waybill.cli.command_context import CommandContext
from waybill.errors import WaybillError
from waybill.record import Record, RecordNotFound, Ref, Store
from waybill.text_format import clip_line

NO_WORKER = "No worker is alive, so nothing is processed: `waybill up` or `waybill work` starts one."
MIN_INTERVAL = 0.2  # seconds between two reads of the store, at least
RETRY_PAUSE = 0.5  # seconds between two attempts to reach a store that is unavailable
MAX_CHILDREN_READ = 200  # children of which each snapshot reads why they wait
MAX_SHOWN = 20  # waiting children and running steps shown

INTERVAL = Annotated[
    float, typer.Option("--interval", min=MIN_INTERVAL, max=3600, help="Seconds between two reads, at most.")
]
ReadResult = TypeVar("ReadResult")
FollowedSnapshot = dict[str, Any]


class StoreRetry:
    """Calls a read until the store answers. While the store is unavailable it reports so once, and tries again until
    the user interrupts it.
    """

    def __init__(self, report: Callable[[str], None], wait: Callable[[float], None] = time.sleep) -> None:
        self._report = report
        self._wait = wait

    def __call__(self, read: Callable[[], ReadResult]) -> ReadResult:
        is_unavailable = False
        while True:
            try:
                result = read()
            except WaybillError as error:
                if error.code not in ("unavailable", "no-server", "busy"):
                    raise
                if not is_unavailable:
                    is_unavailable = True
                    self._report(f"The store is unavailable: {str(error).rstrip('.')}; trying again.")
                self._wait(RETRY_PAUSE)
            else:
                if is_unavailable:
                    self._report("The store is back.")
                return result


def wait_for_change(retry: StoreRetry, store: Store, interval: float, started_at: float) -> None:
    """Wait until the store signals a change, at least MIN_INTERVAL and at most `interval` after the start."""
    retry(lambda: store.watch(max(0.0, interval - (time.monotonic() - started_at))))
    if (left := MIN_INTERVAL - (time.monotonic() - started_at)) > 0:
        time.sleep(left)  # a busy store signals all the time


def wait_until_settled(context: CommandContext, store: Store, ref: Ref) -> Record:
    """Wait until a record is no longer open. Prints a note once if no worker is alive."""
    warned = False
    retry = StoreRetry(context.print_note)
    while True:
        started_at = time.monotonic()
        record = retry(lambda: store.get(*ref))
        if not record.open:
            return record
        if not warned and not retry(lambda: views.list_live_sessions(store)):
            warned = True
            context.print_note(NO_WORKER)
        wait_for_change(retry, store, 1.0, started_at)


def follow_record(
    context: CommandContext,
    store: Store,
    ref: Ref,
    *,
    interval: float = 1.0,
    describe: Callable[[Record], str] = lambda record: "",
) -> Record | None:
    """Show a record and its children until it has settled, or rests, because then nobody knows when it goes on.

    Returns the record as it was last; None if it was removed meanwhile. `describe` returns what a user knows a child by.
    """
    last: Record | None = None
    before: FollowedSnapshot | None = None
    with ExitStack() as stack:
        live = context.out.is_terminal and not context.as_json
        screen = stack.enter_context(Live(console=context.out, auto_refresh=False, transient=True)) if live else None
        retry = StoreRetry(context.print_line if live else context.print_note)  # printed above the live display
        for record, snapshot in _iter_snapshots(context, retry, store, ref, interval, describe):
            if screen is not None:
                screen.update(_render_snapshot(context, ref.kind, snapshot), refresh=True)
            elif snapshot != before:
                _print_snapshot(context, ref.kind, snapshot, before)
            last, before = record, snapshot
    if screen is not None and before is not None:
        _print_snapshot(context, ref.kind, before, None)  # the live display is gone
    return last


def _iter_snapshots(
    context: CommandContext,
    retry: StoreRetry,
    store: Store,
    ref: Ref,
    interval: float,
    describe: Callable[[Record], str],
) -> Iterator[tuple[Record, FollowedSnapshot]]:
    warned = False
    while True:
        started_at = time.monotonic()
        try:
            record, snapshot, worker_count = retry(lambda: _read_snapshot(context, store, ref, describe))
        except RecordNotFound:  # settled, and removed meanwhile
            return
        yield record, snapshot
        state = context.get_machine(ref.kind).find_state(record.state)
        if not record.open or (state is not None and state.type == "rest"):
            return
        if not worker_count and not warned:
            warned = True
            context.print_note(NO_WORKER)
        wait_for_change(retry, store, interval, started_at)


def _read_snapshot(
    context: CommandContext, store: Store, ref: Ref, describe: Callable[[Record], str]
) -> tuple[Record, FollowedSnapshot, int]:
    """Return the record, what is shown of it, and the number of live workers."""
    (record,) = views.refresh_messages([store.get(*ref)], context.environment.machines, store, documents=True)
    sessions = views.list_live_sessions(store)
    children = context.environment.machines.children_of(ref.kind)
    snapshot: FollowedSnapshot = {ref.kind: record.id, "state": record.state, "message": record.message}
    for child in children:
        counts = store.count_by_state(child.name, parent=ref)
        snapshot[child.plural] = {state: count for state, count in counts.items() if count}
    snapshot["waits"] = [
        {"id": waiting.id, "state": waiting.state, "message": waiting.message}
        for child in children
        for waiting in _find_waiting(context, store, child.name, ref)
    ]
    kinds = {ref.kind, *(child.name for child in children)}
    steps = _iter_steps(context, store, ref, kinds, views.progress_of(sessions), describe)
    snapshot["steps"] = list(islice(steps, MAX_SHOWN))
    return record, snapshot, len(sessions)


def _iter_steps(
    context: CommandContext,
    store: Store,
    ref: Ref,
    kinds: set[str],
    progress: dict[str, Any],
    describe: Callable[[Record], str],
) -> Iterator[dict[str, Any]]:
    """Yield the running steps of the record and of its children, as their workers report them."""
    for name in progress:
        kind, _, id = name.partition(" ")
        if kind not in kinds:
            continue
        try:
            record = store.get(kind, id)
        except RecordNotFound:
            continue
        if ref in (record.ref, record.parent):
            shown = views.to_record_view(record, context.environment.machines, progress=progress)["progress"]
            what = describe(record) if record.parent == ref else ""
            yield {"id": id, "what": what, "state": record.state, "progress": shown}


def _find_waiting(context: CommandContext, store: Store, kind: str, parent: Ref) -> list[Record]:
    """Return children that say why they wait: no disk space, an unavailable server.

    Only the first children are read, so that a snapshot is quick.
    """
    children = store.find(kind, parent=parent, limit=MAX_CHILDREN_READ).records
    waiting = islice((child for child in children if child.open and child.message), MAX_SHOWN)
    return views.refresh_messages(list(waiting), context.environment.machines, store, documents=False)


def make_count_bars(rows: Sequence[tuple[Text | str, int, str]]) -> Table:
    """A table of counts, each with a bar; a row is a label, the count and the style of the bar."""
    total = max(1, sum(count for _, count, _ in rows))
    table = terminal.make_table("", "", "")
    table.show_header = False
    for label, count, style in rows:
        table.add_row(label, str(count), Text("█" * max(1, round(30 * count / total)), style=style))
    return table


def _render_snapshot(context: CommandContext, kind: str, snapshot: FollowedSnapshot) -> RenderableType:
    title = f"{snapshot[kind]}  {snapshot['state']}  {snapshot['message']}"
    parts: list[RenderableType] = [Text(title.rstrip(), style="bold")]
    for child in context.environment.machines.children_of(kind):
        parts.append(make_count_bars([(f"  {state}", count, "") for state, count in snapshot[child.plural].items()]))
    for wait in snapshot["waits"]:
        parts.append(Text(f"  {wait['id']}  {wait['state']}  {clip_line(wait['message'])}", style="yellow"))
    for step in snapshot["steps"]:
        progress = terminal.format_progress(step["progress"])
        parts.append(Text(f"  {step['id']}  {step['state']}  {progress}  {clip_line(step['what'], 40)}".rstrip()))
    return Group(*parts)


def _print_snapshot(
    context: CommandContext, kind: str, snapshot: FollowedSnapshot, before: FollowedSnapshot | None
) -> None:
    if context.as_json:
        return context.print_json({"at": views.format_time(time.time()), **snapshot}, line=True)
    plurals = [child.plural for child in context.environment.machines.children_of(kind)]
    if before is None or any(snapshot[part] != before[part] for part in ("state", *plurals)):
        counts = ", ".join(f"{count} {state}" for each in plurals for state, count in snapshot[each].items())
        nothing = f"no {plurals[0]} yet" if plurals else ""
        text = counts or snapshot["message"] or nothing
        context.print_line(f"{snapshot[kind]} {snapshot['state']}{f': {text}' if text else ''}")
    for wait in snapshot["waits"]:
        if before is None or wait not in before["waits"]:
            context.print_line(f"  {wait['id']} {wait['state']}: {wait['message']}")
    for step in snapshot["steps"]:
        if before is not None and step not in before["steps"]:
            context.print_line(f"  {step['id']} {step['state']} {terminal.format_progress(step['progress'])}")
    context.out.file.flush()
    return None
