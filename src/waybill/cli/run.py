"""Commands that run Waybill: up (everything in one process), serve, work, step.

A process that serves or works lives like this:

    apply the options -> prepare: folders, log, object store, schema, maintenance records -> run until it is stopped
    (server_processes)

`work --once` and `step` take a single step instead: one that is due, or that of one record.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Annotated, Any

import typer

from waybill.cli import server_processes
from waybill.cli.command_context import ID, KIND, CommandContext, command, complete_queue
from waybill.cli.http_server import ListeningServer, is_loopback
from waybill.cli.problems import MISSING, UsageError
from waybill.cli.server_processes import ServerSession, run_until_stopped
from waybill.cli.worker_processes import WorkerProcesses
from waybill.config import DAY, DEMO_FILE, sqlite_path
from waybill.environment import Environment, make_data_folder
from waybill.record import Conflict, Record, Ref
from waybill.rules import list_pause_holds
from waybill.rules.triggered_maintenance import MAINTENANCE_KIND

if TYPE_CHECKING:
    from waybill.maintenance import MaintenanceScheduler
    from waybill.worker import StepTransition, Worker

PANEL = "Running"

HOST = Annotated[str | None, typer.Option("--host", help="The address to listen on.", show_default="127.0.0.1")]
PORT = Annotated[
    int | None, typer.Option("--port", min=0, max=65535, help="The port; 0 takes a free one.", show_default="8700")
]
DEMO = Annotated[bool, typer.Option("--demo", help="With the demonstration: shipments, parcels and deposits to try.")]
OPEN_LOOPBACK = Annotated[
    bool,
    typer.Option(
        "--open-loopback", help="Accept requests from this machine without a token, as admin; on loopback only."
    ),
]
QUEUES = Annotated[
    list[str] | None,
    typer.Option(
        "--queue",
        metavar="QUEUE",
        help='A queue to serve: "kind", "kind.State" or "maintenance"; may be repeated.',
        show_default="all",
        autocompletion=complete_queue,
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
        help="Worker processes, each with its own threads; at most one for each core is useful.",
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
            "waybill work --queue parcel.Sending --threads 8",
            "waybill work --queue maintenance",
            "waybill work --once --queue parcel",
        ),
    )(work)
    command(app, panel=PANEL, examples=("waybill step parcel pcl0000000001",))(step)


def up(
    context: CommandContext,
    host: HOST = None,
    port: PORT = None,
    demo: DEMO = False,
    open_loopback: OPEN_LOOPBACK = False,
    queues: QUEUES = None,
    threads: THREADS = None,
    processes: PROCESSES = None,
) -> int:
    """Start everything in one process: the store, the server and a worker; print one URL.

    Ctrl-C or SIGTERM stops it.
    """
    _apply_options(context, host, port, open_loopback, queues, threads, processes, demo)
    environment = _prepare_environment(context)
    if demo:
        with context.open_engine() as engine:
            for application in environment.applications:
                if application.demo is not None:
                    application.demo(environment, engine)
    return run_until_stopped(
        context,
        server=ListeningServer(environment),
        worker=_build_worker(environment),
        worker_processes=_build_worker_processes(context),
    )


def serve(
    context: CommandContext,
    host: HOST = None,
    port: PORT = None,
    demo: DEMO = False,
    open_loopback: OPEN_LOOPBACK = False,
) -> int:
    """Serve the web page and the API; `waybill work` does the work, here or on another host."""
    _apply_options(context, host, port, open_loopback, None, None, None, demo)
    environment = _prepare_environment(context)
    is_sqlite = sqlite_path(context.config.store) is not None
    return run_until_stopped(
        context, server=ListeningServer(environment), server_session=ServerSession(environment) if is_sqlite else None
    )


def work(
    context: CommandContext,
    queues: QUEUES = None,
    threads: THREADS = None,
    processes: PROCESSES = None,
    demo: DEMO = False,
    once: Annotated[
        bool,
        typer.Option("--once", help="Take exactly one due step and print its transition; exit code 3: none is due."),
    ] = False,
) -> int | None:
    """Claim records, run their steps and commit the outcomes, until Ctrl-C or SIGTERM."""
    _apply_options(context, None, None, False, queues, threads, processes, demo)
    if once:
        server_processes.configure_logging(context.config.log)
        return _run_single_step(context, None)
    return run_until_stopped(
        context, worker=_build_worker(_prepare_environment(context)), worker_processes=_build_worker_processes(context)
    )


def step(context: CommandContext, kind: KIND, id: ID) -> int | None:
    """Take exactly one step of one record, if one is due, and print its transition."""
    context.get_machine(kind)
    server_processes.configure_logging(context.config.log)
    return _run_single_step(context, Ref(kind, id))


# --- a single step


def _run_single_step(context: CommandContext, target: Ref | None) -> int | None:
    """Take one step: that of `target`, or one that is due in the queues of this process."""
    from waybill.worker import run_one_step

    environment, settings = context.environment, context.config.work
    with context.open_store() as store:
        holds = store.list_holds()
        if target is not None:
            queues = _queues_of_record(environment, store.get(*target), holds)
        else:
            queues = _list_unpaused_queues(environment, holds)
    if not queues:
        return _print_transition(context, None)
    make_data_folder(settings.root)
    _build_maintenance_scheduler(environment).register_step()
    transition = run_one_step(
        environment.open_store,
        environment.machines,
        host=environment.host,
        work_root=settings.root,
        objects=environment.objects,
        target=target,
        queues=queues,
        shared=settings.shared,
        ttl=settings.ttl,
        resources_of=environment.get_resources,
    )
    return _print_transition(context, transition)


def _queues_of_record(environment: Environment, record: Record, holds: Collection[str]) -> tuple[str, ...]:
    if pauses := list_pause_holds(environment.machines[record.kind], record.state) & set(holds):
        raise Conflict(f"Work on {record.ref} is paused by {', '.join(sorted(pauses))}; `waybill release` that first.")
    return (record.kind,)


def _list_unpaused_queues(environment: Environment, holds: Collection[str]) -> tuple[str, ...]:
    """The queues of this process without those that are paused: nothing is due there."""
    from waybill.worker import queues_of

    # Maintenance is due at any time, so it is left out unless it is asked for.
    names = environment.config.work.queues or tuple(
        kind for kind in _list_queues(environment) if kind != MAINTENANCE_KIND
    )
    return tuple(
        f"{queue.kind}.{queue.state}"
        for queue in queues_of(environment.machines, names)
        if not list_pause_holds(environment.machines[queue.kind], queue.state) & set(holds)
    )


def _print_transition(context: CommandContext, transition: StepTransition | None) -> int | None:
    if transition is None:
        if context.as_json:
            context.print_json({"transition": None})
        context.print_note("No step is due.")
        return MISSING
    if context.as_json:
        context.print_json(
            {
                "transition": {
                    "kind": transition.ref.kind,
                    "id": transition.ref.id,
                    "before": transition.before,
                    "after": transition.after,
                    "cause": transition.cause,
                    "message": transition.message,
                }
            }
        )
    else:
        message = f" ({transition.message})" if transition.message else ""
        context.print_line(f"{transition.ref}: {transition.before} → {transition.after}, {transition.cause}{message}")
    return None


# --- building a process


def _apply_options(
    context: CommandContext,
    host: str | None,
    port: int | None,
    open_loopback: bool,
    queues: list[str] | None,
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
    context.settings.update(
        given | {"work.queues": queues or None, "work.threads": threads, "work.processes": processes}
    )
    if context.config.open_loopback and not is_loopback(context.config.http.host):
        raise UsageError(
            f"--open-loopback accepts requests from this machine without a token, and {context.config.http.host} is not loopback. "
            "Leave one of the two out."
        )


def _prepare_environment(context: CommandContext) -> Environment:
    """Configure the log, make the folders, make or upgrade the store, and create the records that every process needs."""
    server_processes.configure_logging(context.config.log)
    environment = context.environment
    make_data_folder(context.config.data)
    if context.config.demo and context.config.origins["demo"] != "default":
        (context.config.data / DEMO_FILE).touch()
    # An S3 server that is unavailable, or that lacks what Waybill needs, is reported now and not in the middle of a step.
    _ = environment.objects.capabilities
    if any(application.has_catalogues for application in environment.applications):
        environment.open_index().close()  # so is an index
    scheduler = _build_maintenance_scheduler(environment)
    scheduler.register_step()
    with context.open_store(migrate=True) as store:
        if sqlite_path(context.config.store) is not None:
            # Opening a session fails when workers of another host use this file. A server opens none of its own here, but
            # must not write that file either.
            store.close_session(store.open_session(host=environment.host, ttl=context.config.work.ttl, about={}))
        scheduler.ensure_records(environment.make_engine(store))
    return environment


def _build_maintenance_scheduler(environment: Environment) -> MaintenanceScheduler:
    from waybill.maintenance import MaintenanceScheduler, collect_routines

    of_applications = [routine for application in environment.applications for routine in application.maintenance]
    retention = {state: days * DAY for state, days in environment.config.retention.items()}
    return MaintenanceScheduler(
        collect_routines(of_applications),
        environment.machines,
        environment.host,
        environment.config.work.root,
        environment.objects,
        environment.open_store,
        retention,
        environment.get_resources,
    )


def _build_worker(environment: Environment) -> Worker:
    from waybill.worker import Worker

    settings = environment.config.work
    make_data_folder(settings.root)
    return Worker(
        environment.open_store,
        environment.machines,
        host=environment.host,
        work_root=settings.root,
        objects=environment.objects,
        queues=_list_queues(environment),
        shared=settings.shared,
        threads=settings.threads,
        ttl=settings.ttl,
        max_claims=settings.claim_max,
        resources_of=environment.get_resources,
    )


def _build_worker_processes(context: CommandContext) -> WorkerProcesses | None:
    """The other worker processes; None when this process is the only one."""
    settings, count = context.config.work, context.config.work.processes - 1
    if not count:
        return None
    queues = [argument for queue in settings.queues for argument in ("--queue", queue)]
    demo = ["--demo"] if context.config.demo else []
    # In the environment, which only this user can read: the store's URL may hold a password.
    variables = {
        "WAYBILL_DATA": str(context.config.data),
        "WAYBILL_STORE": context.config.store,
        "WAYBILL_INDEX": context.config.index,
    }
    if context.config_file is not None:
        variables["WAYBILL_CONFIG"] = str(context.config_file.absolute())
    return WorkerProcesses(
        ["work", "--processes", "1", "--threads", str(settings.threads), *queues, *demo], count, variables
    )


def _list_queues(environment: Environment) -> tuple[str, ...]:
    """The queues of the settings, or every kind that has work."""
    return environment.config.work.queues or tuple(
        kind for kind, machine in environment.machines.items() if machine.list_work_states()
    )
