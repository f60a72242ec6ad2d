"""`waybill lots retry`, `clean`, `pause`, `backfill`, `replay`: what operators do about lots."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer

from waybill.apps.lots.backfills import BackfillPreview, check_which, preview_backfill, start_backfill
from waybill.apps.lots.catalogue import LotTables
from waybill.apps.lots.commands.reports import AfterOption, FirstOption
from waybill.apps.lots.declaration.documents import ArcDeclaration
from waybill.apps.lots.machine import RUN, arc_hold_of, run_id_of
from waybill.apps.lots.reports import LotReports
from waybill.apps.lots.subjects import ArcSubject
from waybill.apps.lots.units import Lot
from waybill.cli.command_context import CommandContext, command
from waybill.errors import InputError, NotFound
from waybill.record import Ref

PANEL = "Runs"
ArcArgument = Annotated[str, typer.Argument(metavar="ARC", help="PROJECT/NAME, or NAME alone.")]
LotsArgument = Annotated[list[str], typer.Argument(metavar="LOT...", help="Lots.")]
WhyOption = Annotated[str, typer.Option("--why", help="The reason, for the history.")]


def register(app: typer.Typer) -> None:
    command(app, name="retry", panel=PANEL, examples=("waybill lots retry shop/count 20230206PT5M286",))(retry)
    command(app, name="clean", panel=PANEL, examples=("waybill lots clean shop/count 20230206PT5M286 --yes",))(clean)
    command(
        app, name="pause", panel=PANEL, examples=("waybill lots pause shop/count --why 'the table is being rebuilt'",)
    )(pause)
    command(app, name="unpause", panel=PANEL, examples=("waybill lots unpause shop/count",))(unpause)
    command(app, name="backfill", panel=PANEL, examples=(
        "waybill lots backfill shop/count --from 7d --dry-run",
        "waybill lots backfill shop/count --from 20230101PT5M000 --to 20230201PT5M000 --which missing --at-once 20 --yes",
    ))(backfill)  # fmt: skip
    command(
        app,
        name="replay",
        panel=PANEL,
        examples=("waybill lots replay shop/count --from 20230206PT5M000 --to 20230207PT5M000 --yes",),
    )(replay)


def _find_arc(context: CommandContext, tables: LotTables, name: str) -> tuple[ArcDeclaration, LotReports]:
    with context.open_store() as store:
        reports = LotReports.read(store, tables, datetime.now(UTC))
    subject = reports.find(f"arc {name}" if not name.startswith("arc ") else name)
    if not isinstance(subject, ArcSubject):
        raise NotFound(f"There is no arc {name!r}.")
    return subject.declared, reports


def _act_on_lots(context: CommandContext, name: str, lots: list[str], action: str, *, why: str) -> int:
    resources = context.environment.resources_of("lots")
    with resources.open_catalogue() as tables, context.runtime.open_engine() as engine:
        arc, _ = _find_arc(context, tables, name)
        for text in lots:
            lot = Lot.parse(text)
            row = tables.find_run(arc.id, lot)
            if row is None:
                raise NotFound(f"{arc.title} has no run of {lot}; `waybill lots backfill` starts one.")
            ref = Ref(RUN.name, run_id_of(arc.id, lot, row.generation))
            result = engine.act(ref, action, who=context.who, why=why, confirmed=True)
            answer = {"arc": arc.title, "lot": str(lot), "generation": row.generation, "state": result.record.state}
            if context.as_json:
                context.print_json(answer, line=True)
            else:
                context.print_line(f"{arc.title} {lot}: {result.record.state}")
    return 0


def retry(context: CommandContext, arc: ArcArgument, lots: LotsArgument, why: WhyOption = "") -> int:
    """Run what failed of some lots again, and only that."""
    return _act_on_lots(context, arc, lots, "retry", why=why)


def clean(
    context: CommandContext,
    arc: ArcArgument,
    lots: LotsArgument,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    why: WhyOption = "",
) -> int:
    """Remove all that failed runs have written; then these lots are known to be missing."""
    if not yes and not (context.is_interactive and typer.confirm("What their good parts made is removed too. Go on?")):
        raise InputError("What their good parts made is removed too. Pass --yes.", code="usage")
    return _act_on_lots(context, arc, lots, "clean", why=why)


def pause(context: CommandContext, arc: ArcArgument, why: WhyOption = "") -> None:
    """Start no more runs of an arc; its lots wait, and none is lost."""
    with context.environment.resources_of("lots").open_catalogue() as tables, context.runtime.open_engine() as engine:
        found, _ = _find_arc(context, tables, arc)
        engine.set_hold(arc_hold_of(found.id), who=context.who, why=why)
    context.print_note(f"{found.title} is paused; `waybill lots unpause {found.title}` lets it go on.")


def unpause(context: CommandContext, arc: ArcArgument) -> None:
    """Let an arc go on."""
    with context.environment.resources_of("lots").open_catalogue() as tables, context.runtime.open_engine() as engine:
        found, _ = _find_arc(context, tables, arc)
        engine.clear_hold(arc_hold_of(found.id))
    context.print_note(f"{found.title} goes on.")


WhichOption = Annotated[str, typer.Option("--which", metavar="CHOICE", help="missing, failed, stale or all.")]
AtOnceOption = Annotated[
    int, typer.Option("--at-once", min=1, max=1000, metavar="N", help="How many lots run at once.")
]
AMinuteOption = Annotated[
    int, typer.Option("--a-minute", min=0, metavar="N", help="How many start in a minute; 0: no limit.")
]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Only show what would run.")]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Start it without asking.")]


def backfill(
    context: CommandContext, arc: ArcArgument, first: FirstOption = "7d", after: AfterOption = "", which: WhichOption = "missing",
    at_once: AtOnceOption = 10, a_minute: AMinuteOption = 0, dry_run: DryRunOption = False, yes: YesOption = False, why: WhyOption = "",
) -> int:  # fmt: skip
    """Run the lots of a range that are missing, failed or stale. First it shows exactly which, and why each."""
    return _backfill(context, arc, first, after, which, at_once, a_minute, dry_run, yes, why)


def replay(
    context: CommandContext, arc: ArcArgument, first: FirstOption, after: AfterOption = "", at_once: AtOnceOption = 10,
    a_minute: AMinuteOption = 0, dry_run: DryRunOption = False, yes: YesOption = False, why: WhyOption = "",
) -> int:  # fmt: skip
    """Make every lot of a range again; a complete one becomes a new generation, and the old one stays until then."""
    return _backfill(context, arc, first, after, "all", at_once, a_minute, dry_run, yes, why)


def _backfill(
    context: CommandContext, name: str, first: str, after: str, which: str, at_once: int, a_minute: int, dry_run: bool, yes: bool, why: str
) -> int:  # fmt: skip
    chosen = check_which(which)
    with context.environment.resources_of("lots").open_catalogue() as tables:
        arc, reports = _find_arc(context, tables, name)
        # a backfill may begin before the arc did: that is what it is for
        from waybill.apps.lots.subjects import parse_range

        begin, end = parse_range(ArcSubject(arc, reports.applied, tables), first, after, now=reports.now)
        preview = preview_backfill(tables, arc, begin, end, chosen)
    if not context.as_json:
        _print_preview(context, preview)
    if dry_run or not preview.run_count:
        if context.as_json:
            context.print_json(preview.describe())
        return 0
    if not yes and not (context.is_interactive and typer.confirm(f"Start these {preview.run_count} runs?")):
        raise InputError(
            f"{preview.run_count} lots would run. Pass --yes to start them, or --dry-run to look.", code="usage"
        )
    with context.runtime.open_engine() as engine:
        record = start_backfill(
            engine, arc, begin, end, chosen, at_once=at_once, a_minute=a_minute, who=context.who, reason=why
        )
    if context.as_json:
        context.print_json({**preview.describe(), "backfill": record.id})
    else:
        context.print_line(
            f"{record.id} runs them; `waybill show backfill {record.id}` shows how far it is, `waybill act "
            f"backfill {record.id} cancel` ends it."
        )
    return 0


def _print_preview(context: CommandContext, preview: BackfillPreview) -> None:
    for each in preview.lots:
        context.print_line(f"{each.lot}  {'cannot run: ' if each.blocked else ''}{each.why}")
    if len(preview.lots) < preview.run_count + preview.blocked:
        context.print_line(f"... and {preview.run_count + preview.blocked - len(preview.lots)} more")
    context.print_line(
        f"{preview.run_count} lots would run, {preview.blocked} cannot: {preview.arc}, from {preview.first} to before {preview.after}."
    )
