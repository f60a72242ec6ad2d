"""Taking: the objects of a thing of another application arrive in a dataset.

What lies below the dataset's path arrives where it is; anything else is copied there first, under names of the thing and its
version. Safe to repeat: a copy has the same name and the same bytes each time, an arrival that is known stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from waybill.apps.lots.arrival_service import find_boundary
from waybill.apps.lots.arrivals import ReportedArrival, report_arrivals
from waybill.apps.lots.catalogue import LotTables
from waybill.apps.lots.declaration.changes import read_applied
from waybill.apps.lots.declaration.documents import DatasetDeclaration
from waybill.apps.lots.machine import BOUNDARY
from waybill.apps.lots.object_intake import ObjectIntakeDocument
from waybill.apps.lots.resources import LotsResources, resources_of
from waybill.apps.lots.subjects import find_dataset_named
from waybill.errors import InputError, NotFound
from waybill.files.names import to_file_name
from waybill.objects import ObjectNotFound
from waybill.record import Record, Ref
from waybill.step import Done, Fail, Outcome, StepContext


def run_step(record: Record, ctx: StepContext) -> Outcome:
    resources, intake = resources_of(ctx), record.document(ObjectIntakeDocument)
    applied = ctx.run_on_store(read_applied)
    try:
        dataset = find_dataset_named(intake.dataset, applied)
        boundary = find_boundary(dataset, applied)
        with resources.open_catalogue() as tables:
            counts = report_arrivals(
                tables,
                resources.locations,
                dataset,
                boundary,
                _iter_arrivals(ctx, resources, tables, dataset, intake),
                now=datetime.fromtimestamp(ctx.now(), UTC),
            )
    except (NotFound, InputError, ObjectNotFound) as error:
        raise Fail(f"{intake.origin} cannot arrive in {intake.dataset}: {error}") from error
    return Done(
        wakes=(Ref(BOUNDARY.name, boundary.id),),
        message=f"{counts.new} new in {dataset.title}, {counts.known} known, {counts.filtered} left out by the filter",
    )


def _iter_arrivals(
    ctx: StepContext,
    resources: LotsResources,
    tables: LotTables,
    dataset: DatasetDeclaration,
    intake: ObjectIntakeDocument,
) -> Iterator[ReportedArrival]:
    root = resources.locations.absolute(dataset.path)
    folder = resources.locations.find_folder(dataset.path)
    at = datetime.fromtimestamp(intake.at, UTC).isoformat()
    for each in resources.environment.list_objects_of(intake.origin, intake.version):
        ctx.check()
        uri, sha256 = resources.locations.uri_of(each.object), each.sha256 or None
        if not uri.startswith(root):
            below = f"{to_file_name(intake.origin)}/v{intake.version}/{each.name}"
            name = f"{folder.name}/{below}" if folder.name else below
            with resources.objects.get(each.object) as body:
                sha256 = folder.objects.put(name, body, sha256=sha256).sha256
            uri = f"{root}{resources.locations.quote_below(root, below)}"
        tables.enter_origins(dataset.id, (uri,), intake.origin)
        yield ReportedArrival(uri, each.size, sha256, at=at)
