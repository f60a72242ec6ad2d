"""Rebuilding: objects are recorded in the inventory again, each as it is in storage, while the rebuild owns its inventory
lock.
"""

from __future__ import annotations

from waybill.apps.ingest.inventory import LocalIdTaken, rebuild_object
from waybill.apps.ingest.machine.rebuild import arks_of
from waybill.apps.ingest.resources import resources_of
from waybill.apps.ingest.storage import StorageError
from waybill.manifests import ManifestError
from waybill.objects import ObjectNotFound
from waybill.record import Record
from waybill.step import Done, Fail, Outcome, StepContext

MAX_FAILURES = 20  # failures that the document lists


def run_step(record: Record, ctx: StepContext) -> Outcome:
    resources, arks = resources_of(ctx), arks_of(record)
    versions, failures = 0, list[str]()
    for count, ark in enumerate(arks):
        ctx.check()
        ctx.report_progress(count, len(arks), "objects")
        try:
            # safe to repeat: storage says the same each time
            versions += rebuild_object(resources.inventory, resources.storage, ark)
        except (StorageError, ManifestError, LocalIdTaken, ObjectNotFound) as error:
            failures.append(f"{ark}: {error}")
    rebuilt = {"objects": len(arks) - len(failures), "versions": versions, "failures": failures[:MAX_FAILURES]}
    if failures:
        ctx.save({"rebuilt": rebuilt})  # safe to repeat: a second run writes its own
        raise Fail(f"{len(failures)} of {len(arks)} objects could not be recorded. {failures[0]}")
    return Done({"rebuilt": rebuilt})
