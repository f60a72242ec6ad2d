"""DELETE_TIDY: the container goes, and what was staged; files of an unfinished PUT get owner and mode back, the quota its bytes.

The quota is given back, and the migration becomes DELETED, in the commit that ends this stage: exactly once. The rows of its
archives and files are removed before that; a second run finds none.
"""

from __future__ import annotations

from collections.abc import Iterator

from waybill.apps.archive.events import make_deleted_event
from waybill.apps.archive.machine import (
    REQUEST,
    MigrationCharge,
    MoveCharge,
    MoveRequest,
    Progress,
    Released,
    RequestDocument,
)
from waybill.apps.archive.moving import remove_other_copies
from waybill.apps.archive.notices import make_completion_mail
from waybill.apps.archive.packed_archives import remove_staged
from waybill.apps.archive.service.quotas import quota_ref
from waybill.apps.archive.stages import Stage, describe_failures, give_back_files, report_of, run_stage
from waybill.record import Record
from waybill.step import Act, Done, Outcome, StepContext

PAGE_SIZE = 100


def run_step(record: Record, ctx: StepContext) -> Outcome:
    return run_stage(ctx, _delete_tidy)


def _delete_tidy(stage: Stage) -> Outcome:
    migration, ctx = stage.migration, stage.ctx
    stage.storage.remove_container(migration.container)  # what is gone is gone
    moves = _list_unfinished_moves(stage)
    for move in moves:
        remove_other_copies(stage, move)
    remove_staged(stage)
    failures = give_back_files(stage)
    with stage.open_tables() as tables:
        tables.remove_migration_rows(migration.number, removed=ctx.now())
    remarks = (f"Owner and mode could not be given back: {describe_failures(failures)}.",) if failures else ()
    return Done(
        remove=(Progress, Released),
        acts=(*_give_back_quota(stage), *_give_back_moves(moves), stage.act_on_migration("forget")),
        spawn=tuple(make_completion_mail(stage.record, report_of(stage), at=ctx.now(), remarks=remarks)),
        events=(make_deleted_event(stage),),
        message=" ".join(remarks),
    )


def _list_unfinished_moves(stage: Stage) -> list[Record]:
    """The MOVEs that the DELETE has stopped: what they have copied and reserved goes too."""
    found: list[Record] = []
    after: int | None = None
    while True:
        page = stage.ctx.find(
            REQUEST.name, parent=stage.migration_record.ref, after=after, limit=PAGE_SIZE, documents=True
        )
        found += [r for r in page.records if r.find_document(MoveRequest) is not None and r.state != "MOVE_COMPLETED"]
        if page.after is None:
            return found
        after = page.after


def _give_back_moves(moves: list[Record]) -> Iterator[Act]:
    for move in moves:
        if (charge := move.find_document(MoveCharge)) is not None and charge.reserved:
            storage = move.document(MoveRequest).to_storage
            workspace = move.document(RequestDocument).workspace
            yield Act(quota_ref(workspace, storage), "give_back", {"reserved": charge.reserved, "used": 0})


def _give_back_quota(stage: Stage) -> tuple[Act, ...]:
    charge = stage.migration_record.find_document(MigrationCharge)
    if charge is None or not (charge.reserved or charge.used):
        return ()
    return (
        Act(
            quota_ref(stage.migration.workspace, charge.storage),
            "give_back",
            {"reserved": charge.reserved, "used": charge.used},
        ),
    )
