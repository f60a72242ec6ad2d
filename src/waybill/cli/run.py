"""Commands that run Waybill: up (everything in one process), serve, work, step.

`Runtime` builds and runs the process; here are the options and what is printed. `work --once` and `step` take a single
step instead: one that is due, or that of one record.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from waybill.cli.command_context import ID, KIND, CommandContext, command, complete_queue
from waybill.config.settings import SETTINGS_BY_NAME
from waybill.errors import FAILED, MISSING, OK, InputError
from waybill.record import Ref
from waybill.runtime.listening_server import ListeningServer, is_loopback
from waybill.runtime.server_processes import configure_logging

if TYPE_CHECKING:
    from waybill.worker import StepTransition

PANEL = "Running"


def _make_setting_option(name: str, setting: str, more: str = "", **options: Any) -> Any:
    """An option that overrides a setting; its help is the setting's, and what is more to say."""
    declared = SETTINGS_BY_NAME[setting]
    return typer.Option(name, help=declared.description + more, show_default=declared.default, **options)


HOST = Annotated[str | None, _make_setting_option("--host", "http.host")]
PORT = Annotated[int | None, _make_setting_option("--port", "http.port", min=0, max=65535)]
DEMO = Annotated[bool, typer.Option("--demo", help="With the demonstration: shipments, parcels and deposits to try.")]
OPEN_LOOPBACK = Annotated[bool, _make_setting_option("--open-loopback", "open_loopback")]
QUEUES = Annotated[
    list[str] | None,
    _make_setting_option("--queue", "work.queues", " May be repeated.", metavar="QUEUE", autocompletion=complete_queue),
]
THREADS = Annotated[int | None, _make_setting_option("--threads", "work.threads", min=1, max=1024)]
PROCESSES = Annotated[int | None, _make_setting_option("--processes", "work.processes", min=1, max=256)]


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
    """Start everything in one process: the store, the server and a worker; print one URL, which opens the page.

    Ctrl-C or SIGTERM stops it.
    """
    _apply_options(context, host, port, open_loopback, queues, threads, processes, demo)
    context.runtime.prepare()
    if demo:
        context.runtime.load_demo()
    return _exit_code_of(context.runtime.serve(on_start=partial(_print_address, context, signs_in=True)))


def serve(
    context: CommandContext,
    host: HOST = None,
    port: PORT = None,
    demo: DEMO = False,
    open_loopback: OPEN_LOOPBACK = False,
) -> int:
    """Serve the web page and the API; `waybill work` does the work, here or on another host."""
    _apply_options(context, host, port, open_loopback, None, None, None, demo)
    return _exit_code_of(context.runtime.serve(work=False, on_start=partial(_print_address, context)))


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
        return _run_single_step(context, None)
    host = context.config.work.host
    return _exit_code_of(context.runtime.run(on_start=lambda: context.print_note(f"Working as {host}.")))


def step(context: CommandContext, kind: KIND, id: ID) -> int | None:
    """Take exactly one step of one record, if one is due, and print its transition."""
    context.get_machine(kind)
    configure_logging(context.config.log)
    return _run_single_step(context, Ref(kind, id))


def _run_single_step(context: CommandContext, target: Ref | None) -> int | None:
    with context.runtime as runtime:
        return _print_transition(context, runtime.step_once(target))


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


def _print_address(context: CommandContext, server: ListeningServer, *, signs_in: bool = False) -> None:
    """Print where it listens. `signs_in`: as a link that opens the page signed in; over TLS, or on loopback."""
    is_private = is_loopback(context.config.http.host) or context.config.http.tls_certificate is not None
    login_url = f"{server.url}login/{_make_login_link(context)}" if signs_in and is_private else None
    if context.as_json:
        token_file = str(server.token_file) if server.token_file else None
        return context.print_json({"url": server.url, "login_url": login_url, "token_file": token_file}, line=True)
    context.out.print(login_url or server.url, soft_wrap=True)
    if login_url is not None:
        context.print_note("Open it within ten minutes: it signs you in once. `waybill login-link` prints another.")
    if server.token_file is not None:
        context.print_note(f"The admin token, for programs, is in {server.token_file}")
    return None


def _make_login_link(context: CommandContext) -> str:
    from waybill.sign_in import make_login_link

    with context.open_engine() as engine:
        return make_login_link(engine, context.who, "admin", who=context.who).text


def _exit_code_of(was_asked_to_stop: bool) -> int:
    return OK if was_asked_to_stop else FAILED


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
    """Options are settings given on the command line. The log is configured by them."""
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
        raise InputError(
            f"--open-loopback accepts requests from this machine without a token, and {context.config.http.host} is not loopback. "
            "Leave one of the two out.",
            code="usage",
        )
    configure_logging(context.config.log)
