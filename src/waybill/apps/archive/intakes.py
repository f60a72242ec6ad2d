"""Which events of other applications become migrations: those whose data say `archive = "WORKSPACE"` or "WORKSPACE@STORAGE".

    ingest.object.recorded   a profile says so: each version of an object
    lots.lot.available       a dataset says so: each generation of a lot that is complete

The event also says `key` and `version`, by which the objects of the thing are asked for.
"""

from __future__ import annotations

from typing import Any

from waybill.apps.archive.machine.intake import INTAKE, IntakeDocument
from waybill.step import Done, New
from waybill.subscriptions import ReceivedEvent, SubscriberContext


def take_in(event: ReceivedEvent, ctx: SubscriberContext) -> Done | None:
    """Make an intake. Safe to repeat: one for each version, by its idempotency key."""
    wanted, key = _text(event.data.get("archive")), _text(event.data.get("key"))
    if not wanted or not key:
        return None
    version = int(event.data.get("version", 1))
    workspace, _, storage = wanted.partition("@")
    document = IntakeDocument(key, version, workspace, storage, _text(event.data.get("label"))[:200])
    return Done(spawn=(New(INTAKE.name, (document,), idempotency_key=f"{key} {version}"),))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


SUBSCRIBES = {"ingest.object.recorded": take_in, "lots.lot.available": take_in}
