"""Commands for whoever administers a Waybill: doctor, migrate, config, sim."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer
from rich.status import Status

from waybill import config, views
from waybill.application import Application
from waybill.cli import terminal
from waybill.cli.command_context import CommandContext, command
from waybill.errors import FAILED, InputError
from waybill.masking import mask_secrets
from waybill.record import Finding

if TYPE_CHECKING:
    from waybill.sim.seed_runs import SimulationReport

PANEL = "Administration"
SEED_BATCH = 50  # seeds that run before the clock is read again


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
    context: CommandContext, fix: Annotated[bool, typer.Option("--fix", help="Repair what can be repaired.")] = False
) -> int | None:
    """Find what is wrong in the store, the working folders and the queues, and explain it.

    Exit code 1 when something stays wrong.
    """
    from waybill.doctor import describe_sandbox, describe_waiting_work, examine

    found = repaired = 0
    check_name = ""
    with context.open_store() as store, Status("checking …", console=context.err) as status:
        if not context.err.is_terminal or context.as_json:
            status.stop()

        def show_check(name: str) -> None:
            nonlocal check_name
            check_name = name
            status.update(f"checking {name} … {found} found")

        for finding, is_repaired in examine(context.environment, store, who=context.who, fix=fix, on_check=show_check):
            found += 1
            repaired += is_repaired
            _print_finding(context, finding, fix, is_repaired)
            show_check(check_name)
        remark = describe_waiting_work(store, context.environment.machines)
    sandbox = describe_sandbox(context.environment)
    if context.as_json:
        context.print_json({"found": found, "repaired": repaired, "remark": remark, "sandbox": sandbox}, line=True)
    else:
        if remark is not None:
            context.print_line(remark)
        context.print_line(f"Sandbox: {'; '.join(sandbox).rstrip('.')}.")
        hint = "" if fix else " `waybill doctor --fix` repairs what can be repaired."
        context.print_line(f"{found} found, {repaired} repaired.{hint}" if found else "Nothing is wrong.")
    return FAILED if found > repaired else None


def _print_finding(context: CommandContext, finding: Finding, fix: bool, is_repaired: bool) -> None:
    if context.as_json:
        return context.print_json({**views.to_finding_view(finding), "repaired": is_repaired}, line=True)
    status = "repaired" if is_repaired else "not repaired" if fix else "to repair"
    return context.print_line(f"{finding.rule}, {finding.where}: {finding.problem}\n  {status}: {finding.remedy}")


def migrate(context: CommandContext) -> None:
    """Make the store's schema, or upgrade it to this release's."""
    with context.open_store(migrate=True) as store:
        url = store.url
    if context.as_json:
        return context.print_json({"store": url, "migrated": True})
    return context.print_line(f"{url} is up to date.")


def show_config(context: CommandContext) -> None:
    """Show the settings in force and where each came from; passwords are masked."""
    values = [
        (name, value, context.config.origins[name])
        for name, value in config.effective_values_of(context.config).items()
    ]
    loaded: tuple[Application, ...] = ()
    application_error = ""
    try:
        loaded = context.environment.applications
        values += _list_application_settings(loaded, context.config.app)
    except InputError as error:  # whoever must correct its settings needs to see them
        values += _list_written_settings(context.config.app)
        application_error = str(error)
    known_variables = {name for application in loaded for name in application.variables}
    unknown_variables = sorted(set(config.find_unknown_variables(os.environ)) - known_variables)
    if context.as_json:
        rows = {name: {"value": value, "from": origin} for name, value, origin in values}
        return context.print_json(
            {"settings": rows, "unknown_variables": unknown_variables, "application_error": application_error or None}
        )
    table = terminal.make_table("setting", "value", "from")
    for name, value, origin in values:
        table.add_row(name, _format_setting(value), origin)
    context.out.print(table)
    if application_error:
        context.print_note(application_error)
    for variable in unknown_variables:
        context.print_note(f"{variable} is set in the environment and is no setting of Waybill's.")
    return None


def _list_application_settings(
    applications: Iterable[Application], tables: Mapping[str, Mapping[str, Any]]
) -> Iterator[tuple[str, Any, str]]:
    """Name, value and origin of every setting of every application that declares its settings. `tables` are the tables
    [app.NAME] of the settings file.
    """
    for application in applications:
        if application.settings is not None:
            written = tables.get(application.name, {})
            values = msgspec.to_builtins(msgspec.convert(dict(written), application.settings))
            yield from _flatten_settings(f"app.{application.name}", values, written)


def _list_written_settings(tables: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[str, Any, str]]:
    """What the settings file says of applications, whether they can be loaded or not."""
    for name, written in tables.items():
        yield from _flatten_settings(f"app.{name}", written, written)


def _flatten_settings(prefix: str, values: Mapping[str, Any], written: Any) -> Iterator[tuple[str, Any, str]]:
    for name, value in values.items():
        inner = written.get(name) if isinstance(written, Mapping) else None
        if isinstance(value, Mapping):
            yield from _flatten_settings(f"{prefix}.{name}", value, inner)
        else:
            shown = (
                mask_secrets(value) if isinstance(value, str) else list(value) if isinstance(value, tuple) else value
            )
            yield f"{prefix}.{name}", shown, "default" if inner is None else "file"


def _format_setting(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return ", ".join(f"{name} = {_format_setting(each)}" for name, each in value.items())
    if isinstance(value, float):
        return f"{value:g}"
    return ", ".join(map(str, value)) if isinstance(value, list) else "" if value is None else str(value)


def sim(
    context: CommandContext,
    seeds: Annotated[
        int | None, typer.Option("--seeds", min=1, help="How many seeds to simulate.", show_default="1000")
    ] = None,
    seed: Annotated[int | None, typer.Option("--seed", min=0, help="Only this seed.")] = None,
    minutes: Annotated[
        float | None, typer.Option("--minutes", min=0.01, max=100_000, help="Simulate seed after seed for this long.")
    ] = None,
    scenario: Annotated[str, typer.Option("--scenario", help="The scenario to simulate.")] = "all",
    processes: Annotated[
        int, typer.Option("--processes", min=1, max=256, help="Seeds simulated at the same time.")
    ] = 1,
    verbose: Annotated[
        bool, typer.Option("--verbose", help="With --seed, the whole trace; otherwise, progress more often.")
    ] = False,
) -> int:
    """Run the whole system in a simulator, with crashes, lost sessions and unknown outcomes; each seed is a run of its own.

    --store says on which store: model (the default), sqlite or both. A failure ends with the line that replays it. --json prints numbers.
    """
    if sum(given is not None for given in (seeds, seed, minutes)) > 1:
        raise InputError("Give one of --seeds, --seed and --minutes.", code="usage")
    from waybill.sim import run_sim_command

    last_line = ""
    reports: list[SimulationReport] = []  # at most one, the sum of all

    def print_line(line: str) -> None:
        nonlocal last_line
        last_line = line
        if not context.as_json:
            context.print_line(line)
        elif verbose:
            context.print_json({"line": line}, line=True)

    def add_report(report: SimulationReport) -> None:
        if reports:
            reports[0].merge_report(report)
        else:
            reports.append(report)

    run = partial(
        run_sim_command,
        store=context.store_url or "model",
        scenario=scenario,
        verbose=verbose,
        processes=processes,
        write_line=print_line,
        on_report=add_report,
    )
    if minutes is None:
        code = run(seeds=seeds or 1000, seed=seed)
    else:
        deadline, start, code = time.monotonic() + 60 * minutes, 0, 0
        while not code and time.monotonic() < deadline:
            code = run(seeds=SEED_BATCH * processes, start=start)
            start += SEED_BATCH * processes
    if context.as_json:
        if not reports:  # it cannot be simulated
            raise InputError(last_line, code="usage")
        context.print_json(reports[0].to_numbers(), line=verbose)
    return code
