"""The machines of what holds for deposits: profiles, collections, and the minters that count ARKs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from waybill.apps.ingest import submission
from waybill.apps.ingest.profile import BadProfile, Collection, Profile, changed
from waybill.machine import STAY, Document, Machine, action, end, rest
from waybill.record import Record, Store
from waybill.rules import Refused

# of batches: their jobs may still be at work
_NOT_OVER = ("Pending", "Held", "Processing", "Reporting", "Failed", "UpdateReporting")
_FIRST = 3  # batches that are named


def kept_machine(type: type[Profile | Collection], plural: str, doc: str, secret: tuple[str, ...] = ()) -> Machine:
    """Something that people write and change, and that deposits refer to."""
    name = body = type.__name__.lower()

    def rewritten(record: Record, args: Mapping[str, Any]) -> Mapping[str, Any]:
        try:
            return {body: changed(type, record.id, record.docs.get(body), dict(args))}
        except BadProfile as error:
            raise Refused(str(error)) from None

    return Machine(
        name=name,
        plural=plural,
        doc=doc,
        made_by=f"PUT /api/v1/ingest/{plural}/NAME, or by `waybill ingest {name} add`",
        states=(
            rest("Active", "In force."),
            rest("Retired", "No longer to be named by new deposits; those under way go on."),
            end("Deleted", "Removed.", keep=0.0),
        ),
        actions=(
            action("change", "Active", STAY, f"Write another {body}.", writes=rewritten, role="admin"),
            action("retire", "Active", "Retired", "Let no new deposit name it.", role="admin"),
            action("restore", "Retired", "Active", "Let deposits name it again.", role="admin"),
            action("delete", "Retired", "Deleted", "Remove it.", confirm="Nobody can restore it.", role="admin",
                   guard=no_deposit_needs_it if type is Profile else None),
        ),
        documents=(Document(body, "service", doc, v=None, secret=secret),),
    )  # fmt: skip


def no_deposit_needs_it(profile: Record, store: Store) -> str | None:
    """Without its profile a deposit would be minted for on another shoulder, and nobody would be called or written
    to.
    """
    found: list[str] = []
    for state in _NOT_OVER:
        after: int | None = None
        while True:
            page = store.find("batch", state=state, after=after, docs=True)
            found += [batch.id for batch in page.records if submission.of_batch(batch).profile == profile.id]
            if len(found) >= _FIRST or page.after is None:
                break
            after = page.after
    if not found:
        return None
    named = ", ".join(found[:_FIRST])
    return f"Batches that are not over name it: {named}{' and others' if len(found) > _FIRST else ''}. Wait for them, or delete them first."


def nothing_was_drawn(minter: Record, store: Store) -> str | None:
    """A counter that is gone would begin again, and give the ARKs of some objects to others."""
    used = minter.docs.get("numbers", {}).get("next", 0)
    return (
        f"{used} numbers of {minter.id} were drawn, so it must go on counting. Give profiles another shoulder instead."
        if used
        else None
    )


def _draw(minter: Record, args: Mapping[str, Any]) -> Mapping[str, Any]:
    """The next numbers are the asker's: from the old `next` up to the new one."""
    before = minter.docs.get("numbers", {"next": 0})
    return {"numbers": {**before, "next": before["next"] + max(1, min(1000, int(args.get("count", 1))))}}


def minter_machine() -> Machine:
    return Machine(
        name="minter",
        plural="minters",
        made_by="the first deposit that draws from its shoulder",
        doc="Counts the ARKs of one shoulder. Numbers are drawn in portions; one that was drawn and not used is never used.",
        states=(rest("Active", "Numbers can be drawn."), end("Closed", "No number was ever drawn.")),
        actions=(
            action("draw", "Active", STAY, "Take the next numbers.", writes=_draw, role="admin"),
            action(
                "close",
                "Active",
                "Closed",
                "Give up a shoulder that was never used.",
                guard=nothing_was_drawn,
                role="admin",
            ),
        ),
        documents=(Document("numbers", "service", "The next number.", v=1),),
    )
