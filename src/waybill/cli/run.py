"""Commands that work: up (everything in one process), serve, work, step.

A process that serves or works lives like this:

    put together -> migrate the store, make the duties' records -> live until stopped (`life`)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from waybill.cli import logs
from waybill.cli.attending import Attendance
from waybill.cli.desk import ID, KIND, Desk, command, complete_role
from waybill.cli.life import until_stopped
from waybill.cli.problems import Misuse
from waybill.cli.processes import Processes
from waybill.cli.site import Site, is_loopback
from waybill.cli.stepping import take_one
from waybill.config import DAY, DEMO_FILE, sqlite_path
from waybill.depot import Depot, make_folder
from waybill.record import Ref

if TYPE_CHECKING:
    from waybill.duties import Post
    from waybill.worker import Worker

PANEL = "Running"

HOST = Annotated[str | None, typer.Option("--host", help="The address to listen on.", show_default="127.0.0.1")]
PORT = Annotated[
    int | None, typer.Option("--port", min=0, max=65535, help="The port; 0 takes a free one.", show_default="8700")
]
DEMO = Annotated[
    bool, typer.Option("--demo", help="With the demonstration: shipments, parcels and deposits to look at.")
]
OPEN = Annotated[
    bool,
    typer.Option(
        "--open-loopback", help="Let in whoever asks from this machine without a token, as admin; on loopback only."
    ),
]
ROLES = Annotated[
    list[str] | None,
    typer.Option(
        "--role",
        metavar="ROLE",
        help='A queue to serve: "kind", "kind.State" or "duty"; may be repeated.',
        show_default="all",
        autocompletion=complete_role,
    ),
]
THREADS = Annotated[
    int | None, typer.Option("--threads", min=1, max=1024, help="Steps that run at the same time.", show_default="4")
]
PROCESSES = Annotated[
    int | None,
    typer.Option(
        "--processes",
        min=1,
        max=256,
        help="Worker processes, each with so many threads; one for each core is most.",
        show_default="1",
    ),
]


def register(app: typer.Typer) -> None:
    command(
        app, panel=PANEL, examples=("waybill up", "waybill up --data /srv/waybill --port 8700", "waybill up --demo")
    )(up)
    command(app, panel=PANEL, examples=("waybill serve --host 127.0.0.1 --port 8700",))(serve)
    command(
        app,
        panel=PANEL,
        examples=(
            "waybill work",
            "waybill work --role parcel.Sending --threads 8",
            "waybill work --role duty",
            "waybill work --once --role parcel",
        ),
    )(work)
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
    """Start everything in one process: the store, the server and a worker; print one URL.

    Ctrl-C or SIGTERM stops it.
    """
    _take(desk, host, port, open_loopback, role, threads, processes, demo)
    depot = _ready(desk)
    if demo:
        with desk.engine() as engine:
            for application in depot.applications:
                if application.demo is not None:
                    application.demo(depot, engine)
    return until_stopped(desk, site=Site(depot), worker=_worker(depot), others=_others(desk))


def serve(desk: Desk, host: HOST = None, port: PORT = None, demo: DEMO = False, open_loopback: OPEN = False) -> int:
    """Serve the page and the API; the work is done by `waybill work`, here or elsewhere."""
    _take(desk, host, port, open_loopback, None, None, None, demo)
    depot = _ready(desk)
    alone = sqlite_path(desk.config.store) is not None
    return until_stopped(desk, site=Site(depot), attendance=Attendance(depot) if alone else None)


def work(
    desk: Desk,
    role: ROLES = None,
    threads: THREADS = None,
    processes: PROCESSES = None,
    demo: DEMO = False,
    once: Annotated[
        bool, typer.Option("--once", help="Take exactly one due step and print its arrow; exit code 3: none is due.")
    ] = False,
) -> int | None:
    """Do the work: claim records, run their steps, commit what comes of them, until Ctrl-C or SIGTERM."""
    _take(desk, None, None, False, role, threads, processes, demo)
    if once:
        logs.set_up(desk.config.log)
        return _one_step(desk, None)
    return until_stopped(desk, worker=_worker(_ready(desk)), others=_others(desk))


def step(desk: Desk, kind: KIND, id: ID) -> int | None:
    """Take exactly one step of one record, if one is due, and print the arrow that it took."""
    desk.machine(kind)
    logs.set_up(desk.config.log)
    return _one_step(desk, Ref(kind, id))


def _one_step(desk: Desk, target: Ref | None) -> int | None:
    return take_one(desk, target, _roles(desk.depot), lambda: _post(desk.depot).take_up())


# --- putting it together


def _take(
    desk: Desk,
    host: str | None,
    port: int | None,
    open_loopback: bool,
    roles: list[str] | None,
    threads: int | None,
    processes: int | None,
    demo: bool,
) -> None:
    """Options are settings given on the command line."""
    given: dict[str, Any] = {
        "http.host": host,
        "http.port": port,
        "open_loopback": open_loopback or None,
        "demo": demo or None,
    }
    desk.settings.update(given | {"work.roles": roles or None, "work.threads": threads, "work.processes": processes})
    if desk.config.open_loopback and not is_loopback(desk.config.http.host):
        raise Misuse(
            f"--open-loopback lets in without a token whoever asks from this machine, and {desk.config.http.host} is not loopback. "
            "Leave one of the two out."
        )


def _ready(desk: Desk) -> Depot:
    """The store made or upgraded, what every process needs in it, and the log."""
    logs.set_up(desk.config.log)
    depot = desk.depot
    make_folder(desk.config.data)
    if desk.config.demo and desk.config.origins["demo"] != "default":
        (desk.config.data / DEMO_FILE).touch()
    # an S3 server that is away, or not worth much, is told now and not in the middle of a step
    _ = depot.objects.conditions
    if any(application.catalogues for application in depot.applications):
        depot.open_index().close()  # the same of an index
    post = _post(depot)
    post.take_up()
    with desk.store(migrate=True) as store:
        if sqlite_path(desk.config.store) is not None:
            # A server has no session that would be refused, but must not write a file that workers of another host use
            # either.
            store.close_session(store.open_session(host=depot.host, ttl=desk.config.work.ttl, about={}))
        post.ensure(depot.engine(store))
    return depot


def _post(depot: Depot) -> Post:
    from waybill.duties import Post, all_duties

    more = [duty for application in depot.applications for duty in application.duties]
    keep = {state: days * DAY for state, days in depot.config.retention.items()}
    return Post(
        all_duties(more),
        depot.machines,
        depot.host,
        depot.config.work.root,
        depot.objects,
        depot.open_store,
        keep,
        depot.outfit,
    )


def _worker(depot: Depot) -> Worker:
    from waybill.worker import Worker

    settings = depot.config.work
    make_folder(settings.root)
    return Worker(
        depot.open_store,
        depot.machines,
        host=depot.host,
        work_root=settings.root,
        objects=depot.objects,
        roles=_roles(depot),
        shared=settings.shared,
        threads=settings.threads,
        ttl=settings.ttl,
        portion=settings.portion_max,
        outfit=depot.outfit,
    )


def _others(desk: Desk) -> Processes | None:
    """The other worker processes, where there is to be more than this one."""
    settings, count = desk.config.work, desk.config.work.processes - 1
    if not count:
        return None
    roles = [argument for role in settings.roles for argument in ("--role", role)]
    demo = ["--demo"] if desk.config.demo else []
    # In the environment, which only this user may read: the store's URL may hold a password.
    told = {
        "WAYBILL_DATA": str(desk.config.data),
        "WAYBILL_STORE": desk.config.store,
        "WAYBILL_INDEX": desk.config.index,
    }
    if desk.config_file is not None:
        told["WAYBILL_CONFIG"] = str(desk.config_file.absolute())
    return Processes(["work", "--processes", "1", "--threads", str(settings.threads), *roles, *demo], count, told)


def _roles(depot: Depot) -> tuple[str, ...]:
    """What was asked for, or every kind in which work is done."""
    return depot.config.work.roles or tuple(kind for kind, machine in depot.machines.items() if machine.working())
