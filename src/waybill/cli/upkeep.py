"""Commands for whoever looks after a Waybill: doctor, migrate, config, sim."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer
from msgspec.structs import replace
from rich.status import Status

from waybill import config, rules, views
from waybill.application import Application, BadApplication
from waybill.cli import applications, room, shapes, unserved
from waybill.cli.desk import Desk, command
from waybill.cli.problems import FAILED, Misuse, describe, sentence
from waybill.config import DAY
from waybill.objects.protocol import ObjectsError
from waybill.record import BadStore, Finding, NotFound, Store, Unavailable, Unknown

if TYPE_CHECKING:
    from waybill.sim.run import Report

PANEL = "Looking after it"
MOST = 10_000  # findings that are looked at once more after the others
PORTION = 50  # seeds between two looks at the clock
AWAY = (Unavailable, Unknown, ObjectsError)  # nothing else can be looked at either
log = logging.getLogger("waybill")


def register(app: typer.Typer) -> None:
    command(app, panel=PANEL, examples=("waybill doctor", "waybill doctor --fix", "waybill doctor --json"))(doctor)
    command(app, panel=PANEL, examples=("waybill migrate --store postgresql://waybill@db/waybill",))(migrate)
    command(app, "config", panel=PANEL, examples=("waybill config", "WAYBILL_HTTP_PORT=9000 waybill config --json"))(
        show_config
    )
    command(
        app,
        panel=PANEL,
        examples=(
            "waybill sim --seeds 100",
            "waybill sim --seed 7 --store sqlite --verbose",
            "waybill sim --minutes 10",
        ),
    )(sim)


def doctor(
    desk: Desk, fix: Annotated[bool, typer.Option("--fix", help="Mend what can be mended.")] = False
) -> int | None:
    """Look for what is wrong in the store, the working folders and the tables, and explain it.

    Exit code 1 when something stays wrong.
    """
    found = mended = 0
    with desk.store() as store, Status("looking …", console=desk.err) as status:
        if not desk.err.is_terminal or desk.as_json:
            status.stop()
        for place in _places(desk, store):
            status.update(f"looking at {place.name} … {found} found")
            for finding, done in _looked_at(place, fix):
                found += 1
                mended += done
                _say_finding(desk, finding, fix, done)
                status.update(f"looking at {place.name} … {found} found")
        remark = _remark(desk, store)
    if remark is not None and not desk.as_json:
        desk.say(remark)
    if desk.as_json:
        desk.print_json({"found": found, "mended": mended, "remark": remark}, line=True)
    elif not found:
        desk.say("Nothing is wrong.")
    else:
        desk.say(
            f"{found} found, {mended} mended." + ("" if fix else " `waybill doctor --fix` mends what can be mended.")
        )
    return FAILED if found > mended else None


class _Place(NamedTuple):
    """Where doctor looks, as often as it must, and what mends one finding there."""

    name: str
    check: Callable[[], Iterable[Finding]]
    mend: Callable[[Finding], bool]


def _looked_at(place: _Place, fix: bool) -> Iterator[tuple[Finding, bool]]:
    """What is found, and whether it is mended. What mends one finding may mend others with it: what is gone at a
    second look is mended.
    """
    left: list[Finding] = []
    for finding in _found(place):
        if not fix or not finding.mendable:
            yield finding, False
            continue
        finding, mended = _mended(place, finding)
        if mended:
            yield finding, True
        elif len(left) < MOST:
            left.append(finding)
        else:
            yield finding, False
    asked = {(finding.rule, finding.where) for finding in left}
    still = {seen for finding in _found(place) if (seen := (finding.rule, finding.where)) in asked} if left else set()
    yield from ((finding, (finding.rule, finding.where) not in still) for finding in left)


def _found(place: _Place) -> Iterator[Finding]:
    """What is found there, until something cannot be read: that is a finding, and the look goes on at the next
    place.
    """
    try:
        yield from place.check()
    except BadStore as error:
        yield Finding("unreadable", place.name, str(error), "mend that first, then look again", mendable=False)
    except AWAY:
        raise
    except Exception as error:  # files that cannot be read, or a mistake in a duty of an application
        log.info("looking at %s", place.name, exc_info=error)
        problem = f"Not all of it was looked at: {_reason(error)}"
        yield Finding("not looked at", place.name, problem, "mend that first, then look again", mendable=False)


def _mended(place: _Place, finding: Finding) -> tuple[Finding, bool]:
    """Whether it is mended; where trying went wrong, the finding says why, and the others are mended all the same."""
    try:
        return finding, place.mend(finding)
    except AWAY:
        raise
    except Exception as error:  # the same
        log.info("mending %s, %s", finding.rule, finding.where, exc_info=error)
        return replace(finding, problem=f"{finding.problem} Mending it failed: {_reason(error)}"), False


def _reason(error: Exception) -> str:
    known = describe(error)
    return known.message if known is not None else sentence(f"{type(error).__name__}: {rules.said(error)}")


def _places(desk: Desk, store: Store) -> Iterator[_Place]:
    from waybill.duties import Hand, Hosts, all_duties

    def store_itself() -> Iterator[Finding]:
        # Over a connection of its own: what is mended meanwhile must not disturb the reading.
        with desk.store() as reader:
            yield from reader.check()

    depot = desk.depot
    yield _Place("the disks", lambda: room.shortages(desk.config), store.mend)
    yield _Place("the tables", lambda: _tables(desk, store), store.mend)
    yield _Place("the store", store_itself, store.mend)
    yield _Place("the workers", lambda: _expired(store), lambda finding: finding.where in store.reap())
    yield _Place("the queues", lambda: unserved.findings(store, depot.machines), store.mend)
    keep = {state: days * DAY for state, days in depot.config.retention.items()}
    more = [duty for application in depot.applications for duty in application.duties]
    for duty in all_duties(more).values():
        if duty.routine:  # so is the store's check, which was made above without waiting for a second round
            continue
        hand = Hand(
            store,
            depot.machines,
            depot.host,
            depot.config.work.root,
            depot.objects,
            depot.open_store,
            keep,
            _missing_hosts(store) if duty.name == Hosts.name else {},
            who=desk.who,
            outfit=depot.outfit,
            thorough=True,
        )
        yield _Place(duty.name, partial(duty.check, hand), partial(duty.mend, hand))


def _remark(desk: Desk, store: Store) -> str | None:
    try:
        return unserved.remark(store, desk.depot.machines)
    except BadStore:  # what cannot be read is a finding
        return None


def _expired(store: Store) -> Iterator[Finding]:
    """Workers that are gone. Only who has been connected for as long as they might be silent may end their sessions:
    often not doctor.
    """
    now = store.now()
    for session in store.sessions():
        if session.expires <= now:
            problem = f"It expired {now - session.expires:.0f} s ago: its worker on {session.host} is gone, and what it held is not free."
            yield Finding("expired session", session.name, problem, "start a worker: it frees what this one held")


def _missing_hosts(store: Store) -> dict[str, Any]:
    """What the duty has noted, which is not written here: how long a host has been missing is known only to whoever
    looked before.
    """
    from waybill.duties import DUTY, Hosts, kept_of

    try:
        return kept_of(store.get(DUTY.name, Hosts.name))
    except NotFound:
        return {}


def _tables(desk: Desk, store: Store) -> Iterator[Finding]:
    """Records in states that this release does not declare: nobody claims them."""
    for kind, machine in sorted(desk.depot.machines.items()):
        for state, count in rules.undeclared(machine, store.tally(kind)).items():
            problem = f"{count} {machine.plural} are in {state}, which this release does not declare."
            yield Finding(
                "undeclared state", f"{kind}.{state}", problem, f"waybill act {kind} ID --to STATE", mendable=False
            )


def _say_finding(desk: Desk, finding: Finding, fix: bool, done: bool) -> None:
    if desk.as_json:
        return desk.print_json({**views.finding(finding), "mended": done}, line=True)
    end = "mended" if done else "not mended" if fix else "to mend"
    return desk.say(f"{finding.rule}, {finding.where}: {finding.problem}\n  {end}: {finding.remedy}")


def migrate(desk: Desk) -> None:
    """Make the store's schema, or upgrade it to this release's."""
    with desk.store(migrate=True) as store:
        url = store.url
    if desk.as_json:
        return desk.print_json({"store": url, "migrated": True})
    return desk.say(f"{url} is up to date.")


def show_config(desk: Desk) -> None:
    """Show the settings in force and where each came from; passwords are masked."""
    values = [(name, value, desk.config.origins[name]) for name, value in config.effective(desk.config).items()]
    loaded: tuple[Application, ...] = ()
    trouble = ""
    try:
        loaded = desk.depot.applications
        values += applications.effective(loaded, desk.config.app)
    except BadApplication as error:  # whoever must correct its settings needs to see them
        values += applications.as_written(desk.config.app)
        trouble = str(error)
    strays = sorted(set(config.strays(os.environ)) - applications.variables(loaded))
    if desk.as_json:
        rows = {name: {"value": value, "from": origin} for name, value, origin in values}
        return desk.print_json({"settings": rows, "unknown_variables": strays, "trouble": trouble or None})
    made = shapes.table("setting", "value", "from")
    for name, value, origin in values:
        made.add_row(name, _said(value), origin)
    desk.out.print(made)
    if trouble:
        desk.note(trouble)
    for stray in strays:
        desk.note(f"{stray} is set in the environment and is no setting of Waybill's.")
    return None


def _said(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return ", ".join(f"{name} = {_said(each)}" for name, each in value.items())
    if isinstance(value, float):
        return f"{value:g}"
    return ", ".join(map(str, value)) if isinstance(value, list) else "" if value is None else str(value)


def sim(
    desk: Desk,
    seeds: Annotated[
        int | None, typer.Option("--seeds", min=1, help="How many seeds to simulate.", show_default="1000")
    ] = None,
    seed: Annotated[int | None, typer.Option("--seed", min=0, help="Only this seed.")] = None,
    minutes: Annotated[
        float | None, typer.Option("--minutes", min=0.01, max=100_000, help="Seed after seed, for so long.")
    ] = None,
    scenario: Annotated[str, typer.Option("--scenario", help="What is simulated.")] = "all",
    processes: Annotated[
        int, typer.Option("--processes", min=1, max=256, help="Seeds simulated at the same time.")
    ] = 1,
    verbose: Annotated[
        bool, typer.Option("--verbose", help="With --seed, the whole trace; otherwise, progress more often.")
    ] = False,
) -> int:
    """Run the whole system in a simulator, with crashes, lost sessions and unknown outcomes, each seed its own story.

    --store says on what: model (the default), sqlite or both. A failure ends with the line that replays it. --json answers with numbers.
    """
    if sum(given is not None for given in (seeds, seed, minutes)) > 1:
        raise Misuse("Give one of --seeds, --seed and --minutes.")
    from waybill.sim import main_sim

    said = ""
    reports: list[Report] = []  # at most one, the sum of all

    def say(line: str) -> None:
        nonlocal said
        said = line
        if not desk.as_json:
            desk.say(line)
        elif verbose:
            desk.print_json({"said": line}, line=True)

    def tell(report: Report) -> None:
        if reports:
            reports[0].join(report)
        else:
            reports.append(report)

    run = partial(
        main_sim,
        store=desk.store_url or "model",
        scenario=scenario,
        verbose=verbose,
        processes=processes,
        say=say,
        tell=tell,
    )
    if minutes is None:
        code = run(seeds=seeds or 1000, seed=seed)
    else:
        deadline, start, code = time.monotonic() + 60 * minutes, 0, 0
        while not code and time.monotonic() < deadline:
            code = run(seeds=PORTION * processes, start=start)
            start += PORTION * processes
    if desk.as_json:
        if not reports:  # it cannot be simulated
            raise Misuse(said)
        desk.print_json(reports[0].as_numbers(), line=verbose)
    return code
