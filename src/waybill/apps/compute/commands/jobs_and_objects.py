"""`waybill compute ...`: jobs and objects from the command line, on the data folder itself.

A job runs where a worker runs: `waybill up`, or `waybill work`. `run --watch` waits for the end and prints the outputs.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import typer

from waybill.apps.compute.errors import MantaError
from waybill.apps.compute.job_tables import JobTables
from waybill.apps.compute.jobs import LISTS, Jobs
from waybill.apps.compute.live import JobFeed, follow_job
from waybill.apps.compute.manifest import JobManifest, PhaseOptions, check_manifest, check_native_manifest
from waybill.apps.compute.paths import StoragePath, parse_path
from waybill.apps.compute.resources import ComputeResources
from waybill.apps.compute.storage import ObjectHeaders, iso_time
from waybill.apps.compute.templates import fill_template, load_template
from waybill.cli.command_context import CommandContext, command
from waybill.errors import InputError

JOBS_PANEL, OBJECTS_PANEL = "Jobs", "Objects"
MAX_SHOWN = 20  # running jobs of the overview
POLL = 0.2  # seconds between two looks at a job that is watched
CHUNK = 1024 * 1024
ACCOUNT_VARIABLE = "WAYBILL_ACCOUNT"

PathArgument = Annotated[str, typer.Argument(metavar="PATH", help="/ACCOUNT/stor/...; ~~ is your own account.")]
JobArgument = Annotated[str, typer.Argument(metavar="JOB", help="The id of a job.")]
AccountOption = Annotated[
    str,
    typer.Option(
        "--account",
        "-a",
        metavar="NAME",
        help="Whose jobs and objects.",
        show_default=f"{ACCOUNT_VARIABLE}, or your user name",
    ),
]


def build_commands() -> typer.Typer:
    app = typer.Typer(name="compute")
    command(app, "overview", without_subcommand=True, examples=("waybill compute", "waybill compute --json"))(
        show_overview
    )
    _register(app, "run", run, JOBS_PANEL, "waybill compute run wc ~~/stor/a.txt --watch",
              "waybill compute run 'grep -c ERROR' --reduce 'sort -n' --find ~~/stor/logs --watch")  # fmt: skip
    _register(app, "jobs", list_jobs, JOBS_PANEL, "waybill compute jobs --running")
    _register(app, "status", show_status, JOBS_PANEL, "waybill compute status 01a1f0e9-493b-727d-81e7-edd624e6ffb6")
    _register(app, "list", print_list, JOBS_PANEL, "waybill compute list out 01a1f0e9-493b-727d-81e7-edd624e6ffb6")
    _register(
        app, "rerun", rerun, JOBS_PANEL, "waybill compute rerun 01a1f0e9-493b-727d-81e7-edd624e6ffb6 --failed --watch"
    )
    _register(app, "cancel", cancel, JOBS_PANEL, "waybill compute cancel 01a1f0e9-493b-727d-81e7-edd624e6ffb6")
    _register(app, "remove", remove, JOBS_PANEL, "waybill compute remove 01a1f0e9-493b-727d-81e7-edd624e6ffb6")
    _register(app, "ls", list_directory, OBJECTS_PANEL, "waybill compute ls ~~/stor")
    _register(app, "put", put, OBJECTS_PANEL, "waybill compute put report.txt ~~/stor/reports/report.txt -p")
    _register(app, "get", get, OBJECTS_PANEL, "waybill compute get ~~/stor/reports/report.txt > report.txt")
    _register(app, "rm", remove_object, OBJECTS_PANEL, "waybill compute rm ~~/stor/reports -r")
    _register(app, "mkdir", make_directory, OBJECTS_PANEL, "waybill compute mkdir ~~/stor/reports/2026")
    return app


def _register(app: typer.Typer, name: str, function: Any, panel: str, *examples: str) -> None:
    command(app, name=name, panel=panel, examples=examples)(function)


def _jobs_of(context: CommandContext) -> Jobs:
    return Jobs(context.environment.resources_of("compute"), context.open_engine)


def _account(given: str) -> str:
    if given:
        return given
    # Read here: an option that the environment gives would count as written before the name of a command.
    return os.environ.get(ACCOUNT_VARIABLE) or os.environ.get("USER") or "operator"


def _path(text: str, account: str) -> StoragePath:
    """The path that somebody wrote, with ~~ for the own account."""
    return parse_path(f"/{account}{text[2:]}" if text.startswith("~~") else text)


def show_overview(context: CommandContext, account: AccountOption = "") -> None:
    """Show your running jobs, the latest first, with how far they are."""
    who, jobs, resources = _account(account), _jobs_of(context), context.environment.resources_of("compute")
    with resources.connections.open() as tables:
        running = [row["job"] for row in JobTables(tables).list_running(who, MAX_SHOWN)]
    rows = [row for job in running if (row := resources.find_job(job)) is not None]
    found = [jobs.read_status(row) for row in rows]
    if context.as_json:
        return context.print_json({"account": who, "running": found})
    if not found:
        context.print_line(f"No job of {who} is running.")
    for status in found:
        _print_status(context, status)
    return None


# --- jobs


def run(
    context: CommandContext,
    exec_command: Annotated[
        str, typer.Argument(metavar="CMD", help="The command, run once for each key with the object as its input.")
    ] = "",
    keys: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="KEY...", help="The objects. Without any, and without --find: one in each line of standard input."
        ),
    ] = None,
    find: Annotated[str, typer.Option("--find", metavar="PATH", help="All objects below a directory.")] = "",
    reduce: Annotated[
        list[str] | None,
        typer.Option("--reduce", "-r", metavar="CMD", help="A command that gets all outputs; may be repeated."),
    ] = None,
    count: Annotated[int, typer.Option("--count", min=1, help="How many reducers the first --reduce has.")] = 1,
    name: Annotated[str, typer.Option("--name", "-n", help="A name for the job.")] = "",
    init: Annotated[
        str, typer.Option("--init", metavar="CMD", help="Run once in each sandbox, before its tasks.")
    ] = "",
    asset: Annotated[
        list[str] | None, typer.Option("--asset", metavar="PATH", help="An object that tasks see below /assets.")
    ] = None,
    memory: Annotated[int | None, typer.Option("--memory", metavar="MB", help="Memory of each task.")] = None,
    disk: Annotated[int | None, typer.Option("--disk", metavar="GB", help="Disk of each task.")] = None,
    timeout: Annotated[
        float, typer.Option("--timeout", min=0, metavar="SECONDS", help="A task that takes longer fails.")
    ] = 0.0,
    retries: Annotated[
        int, typer.Option("--retries", min=0, max=20, help="How often a task that fails is tried again.")
    ] = 0,
    halt: Annotated[int, typer.Option("--halt", min=0, metavar="N", help="Cancel the job after so many errors.")] = 0,
    dry_run: Annotated[int, typer.Option("--dry-run", min=0, metavar="N", help="Only the first N keys.")] = 0,
    keep_order: Annotated[
        bool, typer.Option("--keep-order", "-k", help="List the outputs in the order of the keys.")
    ] = False,
    template: Annotated[
        str, typer.Option("--template", metavar="PATH", help="A template of a job; then CMD is the first of the keys.")
    ] = "",
    parameter: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="A parameter of the template.")
    ] = None,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Wait for the end and print the outputs.")] = False,
    account: AccountOption = "",
) -> int:
    """Run a command over objects."""
    who = _account(account)
    if template:
        given = _fill_template(context, who, template, parameter or [])
        manifest = check_native_manifest({**given, "name": name or given.get("name", "")})
        return _start(
            context, who, manifest, [exec_command, *(keys or [])] if exec_command else keys, find, dry_run, watch
        )
    extra = {"init": init, "assets": [str(_path(each, who)) for each in asset or ()], "memory": memory, "disk": disk}
    common = {key: value for key, value in extra.items() if value}
    phases: list[dict[str, Any]] = [{"exec": exec_command, "type": "map", **common}]
    for number, each in enumerate(reduce or ()):
        phases.append(
            {"exec": each, "type": "reduce", **common, **({"count": count} if number == 0 and count > 1 else {})}
        )
    manifest = check_manifest({"name": name, "phases": phases}, PhaseOptions(timeout, retries, halt, keep_order))
    return _start(context, who, manifest, keys, find, dry_run, watch)


def _fill_template(context: CommandContext, account: str, template: str, parameters: list[str]) -> dict[str, Any]:
    values = dict[str, str]()
    for each in parameters:
        parameter, equals, value = each.partition("=")
        if not equals:
            raise InputError(f"--set {each} is not of the form NAME=VALUE.", code="usage")
        values[parameter] = value
    found = load_template(context.environment.resources_of("compute"), account, str(_path(template, account)))
    return fill_template(found, values)


def _start(
    context: CommandContext, who: str, manifest: JobManifest, keys: list[str] | None, find: str, dry_run: int, watch: bool
) -> int:  # fmt: skip
    jobs = _jobs_of(context)
    inputs = _iter_keys(context, keys, find, who)
    job = jobs.make(who, manifest, who=context.runtime.who)
    added = _add_keys(jobs, who, job, _take(inputs, dry_run))
    if not watch:
        if context.as_json:
            context.print_json({"job": job, "inputs": added})
        else:
            context.print_line(job)
        return 0
    return _watch(context, jobs, who, job)


def _take(keys: Iterator[str], count: int) -> Iterator[str]:
    for number, key in enumerate(keys):
        if count and number >= count:
            return
        yield key


def _iter_keys(context: CommandContext, keys: list[str] | None, find: str, account: str) -> Iterator[str]:
    if find:
        storage = context.environment.resources_of("compute").storage
        with storage.open_entries() as entries:
            for path, entry in entries.iter_below(_path(find, account)):
                if not entry.is_directory:
                    yield str(path)
        return
    for key in keys or (line.rstrip("\n") for line in sys.stdin):
        if key:
            yield str(_path(key, account)) if key.startswith(("~~", "/")) else key


def _add_keys(jobs: Jobs, account: str, job: str, keys: Iterator[str]) -> int:
    row = jobs.find(account, job)
    count = jobs.add_input(row, (f"{key}\n".encode() for key in keys))
    jobs.end_input(row)
    return count


def _watch(context: CommandContext, jobs: Jobs, account: str, job: str) -> int:
    """Print outputs and errors as they come; with keep_order the outputs at the end."""
    resources: ComputeResources = context.environment.resources_of("compute")
    is_ordered = jobs.find(account, job).read_manifest().options.keep_order
    feed = JobFeed(resources, jobs, account, job)
    printed, printed_errors = 0, set[str]()
    status: dict[str, Any] = {}
    for event in follow_job(feed, lambda: time.sleep(POLL)):
        status = event.data
        if context.as_json:
            continue
        if event.name == "output" and not is_ordered:
            for key in event.data["keys"]:
                _print_object(resources, key)
            printed += len(event.data["keys"])
        elif event.name == "error":
            _print_error(context, event.data)
            printed_errors.add(event.data["taskId"])
    if context.as_json:
        context.print_json(status)
    else:  # what came between the last look and the archive, in whose out.txt all is in the same order
        row = jobs.find(account, job)
        for line in islice(_iter_text(jobs.iter_live(row, "out")), printed, None):
            _print_object(resources, line)
        for line in _iter_text(jobs.iter_live(row, "err")):
            if (error := json.loads(line))["taskId"] not in printed_errors:
                _print_error(context, error)
    return 1 if status["stats"]["errors"] or status["cancelled"] else 0


def _print_object(resources: ComputeResources, key: str) -> None:
    try:
        entry = resources.storage.get(parse_path(key))
    except MantaError as error:
        if error.status != 404:
            raise
        return  # removed by somebody in the meantime
    with resources.storage.open(entry) as body:
        for piece in body:
            sys.stdout.buffer.write(piece)
    sys.stdout.flush()


def _print_error(context: CommandContext, error: dict[str, Any]) -> None:
    context.print_note(f"{error['code']}: {error['message']}: {error['what']}")


def _iter_text(pieces: Iterator[bytes]) -> Iterator[str]:
    rest = b""
    for piece in pieces:
        *lines, rest = (rest + piece).split(b"\n")
        yield from (line.decode() for line in lines)
    if rest:
        yield rest.decode()


def list_jobs(
    context: CommandContext,
    running: Annotated[bool, typer.Option("--running", help="Only jobs that are running.")] = False,
    limit: Annotated[int, typer.Option("--limit", min=1, max=1000, help="At most so many jobs.")] = 100,
    account: AccountOption = "",
) -> None:
    """List jobs in the order in which they were made."""
    who, resources = _account(account), context.environment.resources_of("compute")
    with resources.storage.open_entries() as entries:
        found = [entry.name for entry in entries.list(StoragePath(who, "jobs"), limit=limit).entries]
    rows = [
        row for job in found if (row := resources.find_job(job)) is not None and (row.state == "running" or not running)
    ]
    if context.as_json:
        return context.print_json(
            [{"id": row.job, "name": row.name, "state": row.state, "created": iso_time(row.created)} for row in rows]
        )
    for row in rows:
        context.print_line(f"{row.job}  {row.state:8} {iso_time(row.created)}  {row.name}")
    return None


def show_status(context: CommandContext, job: JobArgument, account: AccountOption = "") -> None:
    """Show a job: its state, its counts and its phases."""
    jobs = _jobs_of(context)
    status = jobs.read_status(jobs.find(_account(account), job))
    if context.as_json:
        return context.print_json(status)
    _print_status(context, status)
    return None


def _print_status(context: CommandContext, status: dict[str, Any]) -> None:
    stats = status["stats"]
    context.print_line(
        f"{status['id']}  {status['name']}  {status['state']}{', cancelled' if status['cancelled'] else ''}"
    )
    context.print_line(
        f"tasks {stats['tasksDone']} of {stats['tasks']}, outputs {stats['outputs']}, errors {stats['errors']}"
    )


def print_list(
    context: CommandContext,
    which: Annotated[str, typer.Argument(metavar="LIST", help=f"One of {', '.join(LISTS)}.")],
    job: JobArgument,
    account: AccountOption = "",
) -> None:
    """Print inputs, outputs, errors or failures of a job: the latest of a running one, all of a done one."""
    if which not in LISTS:
        raise InputError(f"{which} is no list of a job; there are {', '.join(LISTS)}.", code="usage")
    jobs = _jobs_of(context)
    for piece in jobs.iter_live(jobs.find(_account(account), job), which):
        sys.stdout.buffer.write(piece)
    sys.stdout.flush()


def rerun(
    context: CommandContext,
    job: JobArgument,
    failed: Annotated[bool, typer.Option("--failed", help="Only the inputs that failed.")] = False,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Wait for the end and print the outputs.")] = False,
    account: AccountOption = "",
) -> int:
    """Run a job that is done again, with all its inputs or with those that failed."""
    who, jobs = _account(account), _jobs_of(context)
    row = jobs.find(who, job)
    if not row.archived:
        raise MantaError("InvalidJobState", f"job {job} is in state '{row.state}': wait for its end")
    new = jobs.rerun(row, failed=failed, who=context.runtime.who)
    if watch:
        return _watch(context, jobs, who, new)
    if context.as_json:
        context.print_json({"job": new})
    else:
        context.print_line(new)
    return 0


def cancel(context: CommandContext, job: JobArgument, account: AccountOption = "") -> None:
    """Cancel a job: its tasks are killed."""
    jobs = _jobs_of(context)
    jobs.cancel(jobs.find(_account(account), job))


def remove(context: CommandContext, job: JobArgument, account: AccountOption = "") -> None:
    """Remove a job that is done, with all its files."""
    jobs = _jobs_of(context)
    jobs.remove(jobs.find(_account(account), job), who=context.runtime.who)


# --- objects


def list_directory(
    context: CommandContext,
    path: PathArgument,
    limit: Annotated[int, typer.Option("--limit", min=1, max=1024, help="At most so many entries.")] = 1024,
    after: Annotated[str, typer.Option("--after", metavar="NAME", help="Begin with this name.")] = "",
    account: AccountOption = "",
) -> None:
    """List a directory."""
    storage = context.environment.resources_of("compute").storage
    page = storage.list(_path(path, _account(account)), limit=limit, marker=after)
    if context.as_json:
        return context.print_json(
            [
                {"name": each.name, "type": each.type, "size": each.size, "mtime": iso_time(each.mtime)}
                for each in page.entries
            ]
        )
    for each in page.entries:
        context.print_line(f"{each.name}/" if each.is_directory else each.name)
    return None


def put(
    context: CommandContext,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A file, or - for standard input.")],
    path: PathArgument,
    parents: Annotated[bool, typer.Option("--parents", "-p", help="Make the directories above.")] = False,
    account: AccountOption = "",
) -> None:
    """Store a file as an object."""
    storage, target = context.environment.resources_of("compute").storage, _path(path, _account(account))
    if parents:
        storage.make_directories(target.parent)
    storage.check_put(target)
    stream = sys.stdin.buffer if str(file) == "-" else file.open("rb")
    with stream:
        entry = storage.put(target, iter(lambda: stream.read(CHUNK), b""), ObjectHeaders())
    if context.as_json:
        context.print_json({"path": str(target), "size": entry.size, "md5": entry.md5, "etag": entry.etag})


def get(context: CommandContext, path: PathArgument, account: AccountOption = "") -> None:
    """Write an object to standard output."""
    storage = context.environment.resources_of("compute").storage
    target = _path(path, _account(account))
    entry = storage.get(target)
    if entry.is_directory:
        raise MantaError("OperationNotAllowedOnDirectory", f"{target} is a directory")
    with storage.open(entry) as body:
        for piece in body:
            sys.stdout.buffer.write(piece)
    sys.stdout.flush()


def remove_object(
    context: CommandContext,
    path: PathArgument,
    recursive: Annotated[bool, typer.Option("--recursive", "-r", help="With everything below.")] = False,
    account: AccountOption = "",
) -> None:
    """Remove an object or a directory."""
    storage, target = context.environment.resources_of("compute").storage, _path(path, _account(account))
    if recursive:
        storage.delete_tree(target)
    else:
        storage.delete(target)


def make_directory(context: CommandContext, path: PathArgument, account: AccountOption = "") -> None:
    """Make a directory, and those above it."""
    context.environment.resources_of("compute").storage.make_directories(_path(path, _account(account)))
