"""The command that shows records moving: live in a terminal with progress bars, line by line in a pipe, JSON lines
with --json.

A look reads the tallies and the workers' progress; between two looks it sleeps on the store's hint that something
happened. Progress rings no bell (heartbeats would wake every worker), so it is seen at the next look. One record is
followed by its history instead. A store that goes away is waited for.
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
from waybill.cli import shapes
from waybill.cli.desk import Desk, command, complete_kind
from waybill.cli.looking import Looking
from waybill.machine import Machine
from waybill.record import Ref, Store

PANEL = "Records"
BEHIND_THE_SCENES = ("duty", "event", "letter", "token")  # shown only when asked for
CLOSEST = 0.2  # seconds between two looks, at least


def register(app: typer.Typer) -> None:
    command(
        app,
        panel=PANEL,
        examples=(
            "waybill watch",
            "waybill watch parcel",
            "waybill watch parcel pcl0000000001",
            "waybill watch parcel --settled --json",
        ),
    )(watch)


def watch(
    desk: Desk,
    kind: Annotated[
        str | None, typer.Argument(metavar="KIND", help="Only this kind.", autocompletion=complete_kind)
    ] = None,
    id: Annotated[
        str | None, typer.Argument(metavar="ID", help="Only this record: each line of its history, until it settles.")
    ] = None,
    every: Annotated[
        float,
        typer.Option(
            "--every",
            min=CLOSEST,
            max=3600,
            help="Seconds between two looks, at most; progress is seen at the next look.",
        ),
    ] = 1.0,
    settled: Annotated[
        bool, typer.Option("--settled", help="End when no record that is watched is open any more.")
    ] = False,
) -> None:
    """Watch records move, live. A store that goes away is waited for; Ctrl-C ends it."""
    chosen = (
        [kind] if kind is not None else [name for name in sorted(desk.depot.machines) if name not in BEHIND_THE_SCENES]
    )
    machines = [desk.machine(name) for name in chosen]
    with desk.store() as store:
        try:
            if kind is not None and id is not None:
                return _follow(desk, store, Ref(kind, id), every)
            if desk.out.is_terminal and not desk.as_json:
                return _live(desk, store, machines, every, settled)
            return _lines(desk, store, machines, every, settled)
        except KeyboardInterrupt:
            return None


Look = dict[str, Any]


def _look(store: Store, machines: list[Machine]) -> Look:
    now = store.now()
    sessions = [views.session(s, now) for s in store.sessions()]
    alive = [s for s in sessions if not s["expired"]]
    return {
        "kinds": [views.tally(m, store.tally(m.name)) for m in machines],
        "steps": [step for s in alive for step in s["steps"] if step["kind"] in {m.name for m in machines}],
        "workers": len(alive),
        "expired": len(sessions) - len(alive),
    }


def _looks(looking: Looking, store: Store, machines: list[Machine], every: float, settled: bool) -> Iterator[Look]:
    while True:
        began = time.monotonic()
        look = looking(lambda: _look(store, machines))
        yield look
        if settled and not _open(machines, look):
            return
        _pause(looking, store, every, began)


def _pause(looking: Looking, store: Store, every: float, began: float) -> None:
    """Until the store hints that something happened, but not too soon and not too late."""
    looking(lambda: store.watch(max(0.0, every - (time.monotonic() - began))))
    if (left := CLOSEST - (time.monotonic() - began)) > 0:
        time.sleep(left)


def _open(machines: list[Machine], look: Look) -> int:
    """How many records their parents, or people, still wait for. A state that is not declared is not settled."""
    count = 0
    for machine, tally in zip(machines, look["kinds"], strict=True):
        for state in tally["states"]:
            declared = machine.state(state["state"])
            count += state["count"] if declared is None or declared.open else 0
    return count


def _live(desk: Desk, store: Store, machines: list[Machine], every: float, settled: bool) -> None:
    with Live(console=desk.out, auto_refresh=False) as screen:
        for look in _looks(Looking(desk.say), store, machines, every, settled):  # above the picture
            screen.update(_picture(look), refresh=True)


def _picture(look: Look) -> RenderableType:
    parts: list[RenderableType] = []
    for tally in look["kinds"]:
        total = max(1, tally["total"])
        parts.append(Text(f"{tally['kind']}  {tally['total']}", style="bold"))
        made = shapes.table("", "", "")
        made.show_header = False
        for state in tally["states"]:
            if state["count"]:
                bar = "█" * max(1, round(30 * state["count"] / total))
                made.add_row(
                    shapes.state(f"  {state['state']}", state["sort"]),
                    str(state["count"]),
                    shapes.state(bar, state["sort"]),
                )
        parts += [made, Text("")]
    parts.append(Text(f"{look['workers']} workers", style="dim"))
    if look["expired"]:
        parts.append(Text(_expired(look["expired"]), style="red"))
    for step in look["steps"][:20]:
        parts.append(Text(f"  {step['kind']} {step['id']}  {shapes.progress(step['progress'])}"))
    return Group(*parts)


def _expired(count: int) -> str:
    return f"{count} {'worker has' if count == 1 else 'workers have'} expired; the next worker frees what it held"


def _lines(desk: Desk, store: Store, machines: list[Machine], every: float, settled: bool) -> None:
    """A line whenever something differs from the look before."""
    before: Look | None = None
    for look in _looks(Looking(desk.note), store, machines, every, settled):
        if look == before:
            continue
        if desk.as_json:
            desk.print_json({"at": views.moment(time.time()), **look}, line=True)
        else:
            _say_changes(desk, look, before)
        before = look


def _say_changes(desk: Desk, look: Look, before: Look | None) -> None:
    earlier = {tally["kind"]: tally for tally in before["kinds"]} if before is not None else {}
    for tally in look["kinds"]:
        if tally != earlier.get(tally["kind"]):
            states = ", ".join(f"{state['count']} {state['state']}" for state in tally["states"] if state["count"])
            desk.say(f"{tally['kind']}: {states or 'none'}")
    if before is None or look["steps"] != before["steps"]:
        for step in look["steps"]:
            desk.say(f"{step['kind']} {step['id']}: {shapes.progress(step['progress'])}")
    if look["expired"] and (before is None or look["expired"] != before["expired"]):
        desk.say(_expired(look["expired"]))
    desk.out.file.flush()


def _follow(desk: Desk, store: Store, ref: Ref, every: float) -> None:
    """One record: every new line of its history, and its progress, until it settles."""
    seen = -1
    progress: Any = None
    gone: str | None = None
    looking = Looking(desk.note)
    while True:
        began = time.monotonic()
        record, history, sessions, at = looking(
            lambda: (store.get(*ref), list(store.history(*ref)), list(store.sessions()), store.now())
        )
        for line in history:
            if line.version > seen:
                seen = line.version
                view = views.line(line)
                if desk.as_json:
                    desk.print_json(view, line=True)
                else:
                    said = f"  {view['why']}" if view["why"] else ""
                    desk.say(
                        f"{shapes.local(view['at'])}  {view['event']:8} {shapes.arrow(view['before'], view['after'])}{said}"
                    )
        now = views.progress_of(sessions).get(str(ref))
        if now != progress and now is not None:
            shown = views.record(record, desk.depot.machines, progress={str(ref): now})["progress"]
            if desk.as_json:
                desk.print_json({"progress": shown}, line=True)
            else:
                desk.say(f"{'':19}  {shapes.progress(shown)}")
        progress = now
        left = next((s.name for s in sessions if s.name == record.session and s.expires <= at), None)
        if left != gone and left is not None:
            if desk.as_json:
                desk.print_json({"expired": left}, line=True)
            else:
                desk.say(f"{'':19}  its worker is gone; the next one takes it up")
        gone = left
        desk.out.file.flush()
        if not record.open:
            return
        _pause(looking, store, every, began)
