"""Rebuilding: objects are recorded in the inventory again, each as the storage has it, under its inventory key."""

from __future__ import annotations

from waybill.apps.ingest.inventory import LocalIdTaken, rebuild_object
from waybill.apps.ingest.outfit import outfit_of
from waybill.apps.ingest.rebuilding import arks_of
from waybill.apps.ingest.storage import StorageError
from waybill.manifests import ManifestError
from waybill.objects import NotFound
from waybill.record import Record
from waybill.step import Context, Done, Fail, Outcome

FEW = 20  # troubles that are told


def rebuilding(record: Record, ctx: Context) -> Outcome:
    outfit, arks = outfit_of(ctx), arks_of(record)
    versions, troubles = 0, list[str]()
    for count, ark in enumerate(arks):
        ctx.check()
        ctx.progress(count, len(arks), "objects")
        try:
            # safe to repeat: the storage says the same each time
            versions += rebuild_object(outfit.inventory, outfit.storage, ark)
        except (StorageError, ManifestError, LocalIdTaken, NotFound) as error:
            troubles.append(f"{ark}: {error}")
    rebuilt = {"objects": len(arks) - len(troubles), "versions": versions, "troubles": troubles[:FEW]}
    if troubles:
        ctx.save({"rebuilt": rebuilt})  # safe to repeat: a second run writes its own
        raise Fail(f"{len(troubles)} of {len(arks)} objects could not be recorded. {troubles[0]}")
    return Done({"rebuilt": rebuilt})
