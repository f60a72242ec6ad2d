"""Commands that work: up (everything in one process), serve, work, step.

A process that serves or works lives like this:

    put together -> migrate the store, make the duties' records -> start -> say where -> until a signal or a fault -> stop in order

SIGTERM and SIGINT end it cleanly: no new claims, running steps end or give up at a safe point, requests are answered, the session is
closed, and what applications have opened. A second signal does not wait.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from waybill.cli import logs
from waybill.cli.desk import ID, KIND, Desk, command
from waybill.cli.problems import FAILED, MISSING, Misuse
from waybill.cli.processes import STOP, Processes
from waybill.cli.site import Site, is_loopback
from waybill.config import DAY, DEMO_FILE, sqlite_path
from waybill.depot import Depot, make_folder
from waybill.record import Conflict, Record, Ref

if TYPE_CHECKING:
    from waybill.duties import Post
    from waybill.worker import Arrow, Worker

PANEL = "Running"
PATIENCE = 60.0  # seconds from the signal to the end: steps have half of them
log = logging.getLogger("waybill")

HOST = Annotated[str | None, typer.Option("--host", help="The address to listen on.", show_default="127.0.0.1")]
PORT = Annotated[int | None, typer.Option("--port", min=0, max=65535, help="The port; 0 takes a free one.", show_default="8700")]
DEMO = Annotated[bool, typer.Option("--demo", help="With the demonstration: shipments, parcels and deposits to look at.")]
OPEN = Annotated[bool, typer.Option(
    "--open-loopback", help="Let in whoever asks from this machine without a token, as admin; on loopback only.",
)]  # fmt: skip
ROLES = Annotated[list[str] | None, typer.Option(
    "--role", metavar="ROLE", help='A queue to serve: "kind", "kind.State" or "duty"; may be repeated.', show_default="all",
)]  # fmt: skip
THREADS = Annotated[int | None, typer.Option("--threads", min=1, max=1024, help="Steps that run at the same time.", show_default="4")]
PROCESSES = Annotated[int | None, typer.Option(
    "--processes", min=1, max=256, help="Worker processes, each with so many threads; one for each core is most.", show_default="1",
)]  # fmt: skip


def register(app: typer.Typer) -> None:
    command(app, panel=PANEL, examples=("waybill up", "waybill up --data /srv/waybill --port 8700", "waybill up --demo"))(up)
    command(app, panel=PANEL, examples=("waybill serve --host 127.0.0.1 --port 8700",))(serve)
    command(app, panel=PANEL, examples=(
        "waybill work", "waybill work --role parcel.Sending --threads 8", "waybill work --role duty", "waybill work --once --role parcel",
    ))(work)  # fmt: skip
    command(app, panel=PANEL, examples=("waybill step parcel pcl0000000001",))(step)


def up(
    desk: Desk,
    host: HOST = None,
    port: PORT = None,
    demo: DEMO = False,
    open_loopback: OPEN = False,
    role: ROLES = None,
    threads: THREADS = None,
    processes: PROCESSES = None,
) -> int:
    """Start everything in one process: the store, the server and a worker; print one URL. Ctrl-C or SIGTERM stops it."""
    _take(desk, host, port, open_loopback, role, threads, processes, demo)
    depot = _ready(desk)
    if demo:
        with desk.engine() as engine:
            for application in depot.applications:
                if application.demo is not None:
                    application.demo(depot, engine)
    return _until_stopped(desk, site=Site(depot), worker=_worker(depot))


def serve(desk: Desk, host: HOST = None, port: PORT = None, demo: DEMO = False, open_loopback: OPEN = False) -> int:
    """Serve the page and the API; the work is done by `waybill work`, here or elsewhere."""
    _take(desk, host, port, open_loopback, None, None, None, demo)
    depot = _ready(desk)
    return _until_stopped(desk, site=Site(depot))


def work(
    desk: Desk,
    role: ROLES = None,
    threads: THREADS = None,
    processes: PROCESSES = None,
    demo: DEMO = False,
    once: Annotated[bool, typer.Option("--once", help="Take exactly one due step and print its arrow; exit code 3: none is due.")] = False,
) -> int | None:
    """Do the work: claim records, run their steps, commit what comes of them, until Ctrl-C or SIGTERM."""
    _take(desk, None, None, False, role, threads, processes, demo)
    if once:
        logs.set_up(desk.config.log)
        return _step(desk, None)
    return _until_stopped(desk, worker=_worker(_ready(desk)))


def step(desk: Desk, kind: KIND, id: ID) -> int | None:
    """Take exactly one step of one record, if one is due, and print the arrow that it took."""
    desk.machine(kind)
    logs.set_up(desk.config.log)
    return _step(desk, Ref(kind, id))


# --- putting it together


def _take(
    desk: Desk, host: str | None, port: int | None, open_loopback: bool, roles: list[str] | None, threads: int | None,
    processes: int | None, demo: bool,
) -> None:  # fmt: skip
    """Options are settings given on the command line."""
    given: dict[str, Any] = {"http.host": host, "http.port": port, "open_loopback": open_loopback or None, "demo": demo or None}
    desk.settings.update(given | {"work.roles": roles or None, "work.threads": threads, "work.processes": processes})
    if desk.config.open_loopback and not is_loopback(desk.config.http.host):
        raise Misuse(
            f"--open-loopback lets in without a token whoever asks from this machine, and {desk.config.http.host} is not loopback. "
            "Leave one of the two out."
        )  # fmt: skip


def _ready(desk: Desk) -> Depot:
    """The store made or upgraded, what every process needs in it, and the log."""
    logs.set_up(desk.config.log)
    depot = desk.depot
    make_folder(desk.config.data)
    if desk.config.demo and desk.config.origins["demo"] != "default":
        (desk.config.data / DEMO_FILE).touch()
    _ = depot.objects.conditions  # an S3 server that is away, or not worth much, is told now and not in the middle of a step
    if any(application.catalogues for application in depot.applications):
        depot.open_index().close()  # the same of an index
    post = _post(depot)
    post.take_up()
    with desk.store(migrate=True) as store:
        if sqlite_path(desk.config.store) is not None:
            # A server has no session that would be refused, but must not write a file that workers of another host use either.
            store.close_session(store.open_session(host=depot.host, ttl=desk.config.work.ttl, about={}))
        post.ensure(depot.engine(store))
    return depot


def _post(depot: Depot) -> Post:
    from waybill.duties import Post, all_duties

    more = [duty for application in depot.applications for duty in application.duties]
    keep = {state: days * DAY for state, days in depot.config.retention.items()}
    return Post(all_duties(more), depot.machines, depot.host, depot.config.work.root, depot.objects, depot.open_store, keep, depot.outfit)


def _worker(depot: Depot) -> Worker:
    from waybill.worker import Worker

    settings = depot.config.work
    make_folder(settings.root)
    return Worker(
        depot.open_store, depot.machines, host=depot.host, work_root=settings.root, objects=depot.objects, roles=_roles(depot),
        shared=settings.shared, threads=settings.threads, ttl=settings.ttl, portion=settings.portion_max, outfit=depot.outfit,
    )  # fmt: skip


def _others(desk: Desk) -> Processes | None:
    """The other worker processes, where there is to be more than this one."""
    settings, count = desk.config.work, desk.config.work.processes - 1
    if not count:
        return None
    roles = [argument for role in settings.roles for argument in ("--role", role)]
    demo = ["--demo"] if desk.config.demo else []
    # In the environment, which only this user may read: the store's URL may hold a password.
    told = {"WAYBILL_DATA": str(desk.config.data), "WAYBILL_STORE": desk.config.store, "WAYBILL_INDEX": desk.config.index}
    if desk.config_file is not None:
        told["WAYBILL_CONFIG"] = str(desk.config_file.absolute())
    return Processes(["work", "--processes", "1", "--threads", str(settings.threads), *roles, *demo], count, told)


def _roles(depot: Depot) -> tuple[str, ...]:
    """What was asked for, or every kind in which work is done."""
    return depot.config.work.roles or tuple(kind for kind, machine in depot.machines.items() if machine.working())


def _step(desk: Desk, target: Ref | None) -> int | None:
    from waybill.worker import step_once

    depot, settings = desk.depot, desk.config.work
    with desk.store() as store:
        roles = _unpaused(depot, store.marks(), store.get(*target) if target is not None else None)
    if not roles:
        return _say_arrow(desk, None)
    make_folder(settings.root)
    _post(depot).take_up()
    arrow = step_once(
        depot.open_store, depot.machines, host=depot.host, work_root=settings.root, objects=depot.objects, target=target,
        roles=roles, shared=settings.shared, ttl=settings.ttl, outfit=depot.outfit,
    )  # fmt: skip
    return _say_arrow(desk, arrow)


def _unpaused(depot: Depot, marks: Iterable[str], target: Record | None) -> tuple[str, ...]:
    """The roles of a single step, without those whose queue is paused: nothing is due there."""
    from waybill.worker import roles_of

    paused = set(marks)

    def by(kind: str, state: str) -> set[str]:
        return {depot.machines[kind].queue, f"queue/{kind}.{state}"} & paused

    if target is not None:
        if stops := by(target.kind, target.state):
            raise Conflict(f"Work on {target.ref} is paused by {', '.join(sorted(stops))}; `waybill release` that first.")
        return (target.kind,)
    # Upkeep is due at any time, so it is taken only by whoever asks for it.
    words = depot.config.work.roles or tuple(kind for kind in _roles(depot) if kind != "duty")
    return tuple(f"{role.kind}.{role.state}" for role in roles_of(depot.machines, words) if not by(role.kind, role.state))


def _say_arrow(desk: Desk, arrow: Arrow | None) -> int | None:
    if arrow is None:
        if desk.as_json:
            desk.print_json({"arrow": None})
        desk.note("No step is due.")
        return MISSING
    if desk.as_json:
        desk.print_json({"arrow": {
            "kind": arrow.ref.kind, "id": arrow.ref.id, "before": arrow.before, "after": arrow.after, "event": arrow.event,
            "message": arrow.message,
        }})  # fmt: skip
    else:
        said = f" ({arrow.message})" if arrow.message else ""
        desk.say(f"{arrow.ref}: {arrow.before} → {arrow.after}, {arrow.event}{said}")
    return None


# --- living and stopping


def _until_stopped(desk: Desk, *, site: Site | None = None, worker: Worker | None = None) -> int:
    """Run until a signal, or until a part ends by itself, which is a fault."""
    ended = threading.Event()
    faults: list[BaseException] = []

    def part(run: Callable[[], None], name: str) -> threading.Thread:
        def guarded() -> None:
            try:
                run()
            except BaseException as error:  # noqa: BLE001 - said by the main thread, which ends the process
                faults.append(error)
            finally:
                ended.set()

        thread = threading.Thread(target=guarded, name=name)
        thread.start()
        return thread

    signals: list[int] = []

    def stop(number: int, frame: FrameType | None) -> None:
        signals.append(number)
        if len(signals) > 1:
            os._exit(128 + number)  # asked twice: as after a crash, claims are left to expire, and other processes end with this one
        ended.set()

    told = threading.Event()

    def stop_with_parent(number: int, frame: FrameType | None) -> None:
        told.set()
        ended.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    signal.signal(STOP, stop_with_parent)
    parts: list[threading.Thread] = []
    others = _others(desk) if worker is not None else None
    if site is not None:
        parts.append(part(site.run, "server"))
        site.ready.wait()
    if not faults:
        if worker is not None:
            parts.append(part(worker.run, "worker"))
        if others is not None:
            parts.append(part(others.run, "processes"))
        _say_where(desk, site)
        ended.wait()
    log.info("stopping")
    if site is not None:
        site.stop()
    if worker is not None and len(parts) > (site is not None):
        worker.stop()
    if others is not None:
        others.stop()
    leave = time.monotonic() + PATIENCE
    for thread in parts:
        thread.join(max(0.0, leave - time.monotonic()))
    if any(thread.is_alive() for thread in parts):
        log.error("still waiting for the store or a request after %.0f s: leaving; claims are left to expire", PATIENCE)
        if others is not None:
            others.kill()
        logging.shutdown()
        os._exit(FAILED)  # a thread that waits for an answer cannot be ended otherwise
    desk.depot.close()  # nobody uses it any more: an index on SQLite goes out of its WAL into its file
    if faults:
        raise faults[0]
    return 0 if signals or told.is_set() else FAILED


def _say_where(desk: Desk, site: Site | None) -> None:
    if site is None:
        return desk.note(f"Working as {desk.config.work.host}.")
    if desk.as_json:
        return desk.print_json({"url": site.url, "token_file": str(site.token_file) if site.token_file else None}, line=True)
    desk.out.print(site.url)
    if site.token_file is not None:
        desk.note(f"The admin token is in {site.token_file}")
    return None
