"""Commands of operators: hold and release, pause and unpause, resume, restart, fail, delete; locks, lock, unlock."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import msgspec
import typer

from waybill.apps.ingest import service
from waybill.apps.ingest.commands.support import register_command
from waybill.apps.ingest.job_refusal import is_refusal_final
from waybill.apps.ingest.machine.job import JOB
from waybill.cli import terminal
from waybill.cli.actions import YES, ActionResults, confirm_on_record
from waybill.cli.command_context import WHY, CommandContext
from waybill.cli.records import LIMIT
from waybill.cli.terminal import pluralize
from waybill.engine import Engine
from waybill.errors import FAILED, InputError
from waybill.record import Record
from waybill.rules import ActionRefused

PANEL = "Operations"

RECORD_IDS = Annotated[list[str] | None, typer.Argument(metavar="JOB|BATCH...", help="Jobs or batches, by their ids.")]
COLLECTION = Annotated[
    str | None, typer.Option("--collection", metavar="NAME", help="A collection's mnemonic, or a profile's name.")
]
BATCH = Annotated[str | None, typer.Option("--batch", metavar="BATCH", help="All of this batch.")]
LOCK = Annotated[str, typer.Argument(metavar="LOCK", help="storage/ARK, inventory/ARK or localid/LOCALID_OWNER.")]
QUEUE = Annotated[
    service.PausableQueue, typer.Argument(help="The queue: all deposits, small assemblies, large assemblies.")
]


def register(app: typer.Typer) -> None:
    register_command(
        app,
        "hold",
        panel=PANEL,
        examples=(
            "waybill ingest hold --collection demo --why 'the curator asked'",
            "waybill ingest hold jid0000000007",
        ),
    )(hold)
    register_command(
        app,
        "release",
        panel=PANEL,
        examples=(
            "waybill ingest release --collection demo",
            "waybill ingest release bid0000000001",
            "waybill ingest release jid0000000007 --json",
        ),
    )(release)
    register_command(
        app, "pause", panel=PANEL, examples=("waybill ingest pause --why 'maintenance'", "waybill ingest pause large")
    )(pause)
    register_command(app, "unpause", panel=PANEL, examples=("waybill ingest unpause", "waybill ingest unpause large"))(
        unpause
    )
    register_command(
        app,
        "resume",
        panel=PANEL,
        examples=(
            "waybill ingest resume jid0000000007",
            "waybill ingest resume --batch bid0000000001 --why 'their server is back'",
            "waybill ingest resume --all",
        ),
    )(resume)
    register_command(
        app, "restart", panel=PANEL, examples=("waybill ingest restart jid0000000007 --why 'the files were replaced'",)
    )(restart)
    register_command(
        app, "fail", panel=PANEL, examples=("waybill ingest fail jid0000000007 --yes --why 'wrong collection'",)
    )(fail)
    register_command(
        app,
        "delete",
        panel=PANEL,
        examples=("waybill ingest delete jid0000000007", "waybill ingest delete bid0000000001 --yes"),
    )(delete)
    register_command(app, "locks", panel=PANEL, examples=("waybill ingest locks", "waybill ingest locks --json"))(
        list_locks
    )
    register_command(
        app, "lock", panel=PANEL, examples=("waybill ingest lock storage/ark:/99999/fk4abc --why 'it is being moved'",)
    )(lock)
    register_command(app, "unlock", panel=PANEL, examples=("waybill ingest unlock storage/ark:/99999/fk4abc --yes",))(
        unlock
    )


def hold(context: CommandContext, names: RECORD_IDS = None, collection: COLLECTION = None, why: WHY = "") -> int | None:
    """Hold jobs or batches that have not started, or a whole collection: they stay in Held until they are released."""
    _require_one_of(names, collection, "JOB|BATCH or --collection")
    with context.open_engine() as engine:
        if collection is None:
            return _act_on(context, engine, names or [], "hold", why)
        known = service.hold_collection(engine, collection, who=context.who, why=why)
    if context.as_json:
        context.print_json({"collection": collection, "on_hold": True, "known": known})
    else:
        context.print_line(
            f"{collection} is on hold: its deposits stay in Held and do not start. Those that have started go on."
        )
        if not known:
            context.print_note(
                f"There is no collection or profile {collection}; deposits of other services may still name it."
            )
    return None


def release(
    context: CommandContext, names: RECORD_IDS = None, collection: COLLECTION = None, why: WHY = ""
) -> int | None:
    """Release what is held: jobs, batches with their jobs, or a collection with everything held for it."""
    _require_one_of(names, collection, "JOB|BATCH or --collection")
    with context.open_engine() as engine:
        if collection is None:
            return _act_on(context, engine, names or [], "release", why, child_state="Held")
        bulk = service.release_collection(engine, collection, who=context.who, why=why)
    if context.as_json:
        context.print_json({"collection": collection, "on_hold": False, **msgspec.to_builtins(bulk)})
    else:
        for refusal in bulk.refusals:
            context.print_line(f"{refusal['kind']} {refusal['id']}: {refusal['why']}")
        context.print_line(
            f"{collection} is no longer on hold: {bulk.done + bulk.pending} released, {bulk.refusal_count} refused."
        )
    return FAILED if bulk.refusal_count else None


def pause(context: CommandContext, queue: QUEUE = "ingest", why: WHY = "") -> None:
    """Start no new work in a queue; running steps finish."""
    with context.open_engine() as engine:
        service.pause_queue(engine, queue, who=context.who, why=why)
    if context.as_json:
        return context.print_json({"queue": queue, "paused": True})
    return context.print_line(
        f"The queue {queue} is paused; running steps finish. `waybill ingest unpause {queue}` continues it."
    )


def unpause(context: CommandContext, queue: QUEUE = "ingest", why: WHY = "") -> None:
    """Continue a paused queue."""
    with context.open_engine() as engine:
        service.unpause_queue(engine, queue, who=context.who, why=why)
    if context.as_json:
        return context.print_json({"queue": queue, "paused": False})
    return context.print_line(f"The queue {queue} continues.")


def resume(
    context: CommandContext,
    names: RECORD_IDS = None,
    batch: BATCH = None,
    all_jobs: Annotated[bool, typer.Option("--all", help="All failed jobs that can be resumed.")] = False,
    why: WHY = "",
) -> int | None:
    """Resume failed jobs after the last step that was done. Jobs with a faulty payload are refused: they must be
    submitted again.
    """
    if sum((bool(names), batch is not None, all_jobs)) != 1:
        raise InputError("Give JOB..., or --batch BATCH, or --all.", code="usage")
    with context.open_engine() as engine:
        if names:
            return _act_on(context, engine, names, "resume", why, child_state="Failed")
        results, final_count = ActionResults(context), 0
        parent = service.find_batch(engine, batch).ref if batch is not None else None

        def can_be_resumed(job: Record) -> bool:
            nonlocal final_count
            is_final = job.state == JOB.failed and is_refusal_final(job)
            final_count += is_final  # not requested: all that can be resumed
            return job.state == JOB.failed and not is_final

        state = JOB.failed if parent is None else None  # the store filters by one of them
        for ref, answer in engine.act_all(
            "job", "resume", state=state, parent=parent, where=can_be_resumed, who=context.who, why=why
        ):
            results.add(ref, answer)
    if final_count:
        context.print_note(f"{final_count} cannot be resumed and must be submitted again.")
    if batch is not None and results.done_count and not context.as_json:
        context.print_note(
            f"When they have settled: waybill ingest report {batch} --send reports to the depositor what has changed."
        )
    return results.finish("resume")


def restart(context: CommandContext, names: RECORD_IDS = None, batch: BATCH = None, why: WHY = "") -> int | None:
    """Restart failed jobs from the download, for example when files were replaced at their URLs."""
    _require_one_of(names, batch, "JOB... or --batch")
    with context.open_engine() as engine:
        return _act_on(context, engine, names or [str(batch)], "restart", why, child_state="Failed")


def fail(context: CommandContext, names: RECORD_IDS = None, yes: YES = False, why: WHY = "") -> int | None:
    """Stop jobs now, in any state; they become Failed and can be resumed or deleted."""
    with context.open_engine() as engine:
        return _act_on(context, engine, names or [], "fail", why, yes=yes)


def delete(context: CommandContext, names: RECORD_IDS = None, yes: YES = False, why: WHY = "") -> int | None:
    """Delete failed or held jobs, or batches with all their jobs; working folders are removed."""
    with context.open_engine() as engine:
        return _act_on(context, engine, names or [], "delete", why, yes=yes)


def _require_one_of(names: list[str] | None, other: str | None, what: str) -> None:
    if bool(names) == (other is not None):
        raise InputError(f"Give {what}.", code="usage")


def _find_job_or_batch(engine: Engine, id: str) -> Record:
    """Return a job by its id, or a batch by its id or batchID."""
    return service.find_job(engine, id) if id.startswith("jid") else service.find_batch(engine, id)


def _act_on(
    context: CommandContext,
    engine: Engine,
    names: list[str],
    action: str,
    why: str,
    *,
    yes: bool = False,
    child_state: str | None = None,
) -> int | None:
    """Apply the action to each named record. `child_state`: a batch also stands for its jobs in this state."""
    if not names:
        raise InputError("Give the id of at least one job or batch.", code="usage")
    records = [_find_job_or_batch(engine, name) for name in names]
    results = ActionResults(context)
    for record in records:
        wanted = context.get_machine(record.kind).find_action(action)
        with_jobs = child_state is not None and record.kind == "batch"
        if wanted is None and not with_jobs:
            raise InputError(f"{action} is for jobs, and {record.id} is a {record.kind}.", code="usage")
        if wanted is not None and (record.state in wanted.sources or not with_jobs):
            confirmed = confirm_on_record(context, wanted, record, engine.store, yes)
            try:
                results.add(record.ref, engine.act(record.ref, action, who=context.who, why=why, confirmed=confirmed))
            except ActionRefused as refusal:
                if len(records) == 1:
                    raise
                results.add(record.ref, refusal)
        if with_jobs:
            is_wanted = partial(_has_state, child_state)
            for ref, answer in engine.act_all(
                "job", action, parent=record.ref, where=is_wanted, who=context.who, why=why
            ):
                results.add(ref, answer)
    return results.finish(action)


def _has_state(state: str | None, job: Record) -> bool:
    return job.state == state


def list_locks(
    context: CommandContext,
    limit: LIMIT = 100,
    after: Annotated[
        str, typer.Option("--after", metavar="LOCK", help="Continue after this lock, the last of an earlier page.")
    ] = "",
) -> None:
    """List paused queues, collections on hold, and the locks of objects and local ids with their owners."""
    with context.open_engine() as engine:
        holds = [hold for hold in service.list_active_holds(engine) if hold.scope != "other"]
        rows = list(service.list_active_locks(engine, after=after, limit=limit))
    next_lock = rows[-1]["lock"] if len(rows) == limit else None
    if context.as_json:
        return context.print_json({"holds": msgspec.to_builtins(holds), "locks": rows, "next": next_lock})
    if not holds and not rows:
        return context.print_note("Nothing is locked, held or paused.")
    table = terminal.make_table("lock", "", "by")
    for hold in holds:
        table.add_row(hold.hold_name, "on hold" if hold.scope == "collection" else "paused", hold.about.rstrip(": "))
    for row in rows:
        owner = row["owner"]
        table.add_row(
            row["lock"],
            row["state"] or "locked",
            f"{owner['kind']} {owner['id']}: {row['why']}" if owner else row["why"],
        )
    context.out.print(table)
    if next_lock:
        context.print_note(f"There may be more: add --after {next_lock}")
    return None


def lock(context: CommandContext, lock_name: LOCK, why: WHY = "") -> None:
    """Prevent writes to an object, or minting for a local id, until it is unlocked. In force when no other record owns
    the lock.
    """
    with context.open_engine() as engine:
        record = service.set_operator_lock(engine, lock_name, who=context.who, why=why)
    if context.as_json:
        return context.print_json({"lock": lock_name, "id": record.id, "state": record.state})
    return context.print_line(f"{record.ref} requests {lock_name}; `waybill ingest locks` shows when it is in force.")


def unlock(context: CommandContext, lock_name: LOCK, yes: YES = False, why: WHY = "") -> None:
    """Release an operator's lock; or, with --yes, remove a lock that a dead service left behind."""
    with context.open_engine() as engine:
        # Locks are listed by name, so this one comes soon after its name without the last character.
        found = next(
            (
                row
                for row in service.list_active_locks(engine, after=lock_name[:-1], limit=1000)
                if row["lock"] == lock_name
            ),
            None,
        )
        if found is not None and found["owner"] is None and not yes:
            raise ActionRefused(
                f"{lock_name} is another service's lock. If that service is dead, add --yes to remove it; if it is alive, it may write too."
            )
        ended = service.release_operator_lock(engine, lock_name, who=context.who, why=why)
    if context.as_json:
        return context.print_json({"lock": lock_name, "ended": ended})
    return context.print_line(f"{lock_name} is free: {pluralize(ended, 'lock')} released.")
