"""The machines of the documents that deposits refer to, profiles and collections; and of the minters that count ARKs."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Any

from waybill.apps.ingest.machine.batch import BATCH
from waybill.apps.ingest.machine.state_names import StateNames
from waybill.apps.ingest.profile import BadProfile, Collection, Profile, replace_document
from waybill.apps.ingest.submission import Submission
from waybill.machine import STAY, Document, Machine, action, end, rest
from waybill.record import Record, Store
from waybill.rules import ActionRefused

_STATES = (
    rest("Active", description="In force."),
    rest("Retired", description="Not to be named by new deposits; those in progress continue."),
    end("Deleted", description="Removed.", keep=0.0),
)
MANAGED = StateNames.from_states(_STATES)
_MAX_NAMED_BATCHES = 3  # batches that the refusal names


def build_managed_machine(
    document_type: type[Profile | Collection], plural: str, description: str, secret: tuple[str, ...] = ()
) -> Machine:
    """A machine for documents that users write and change, and that deposits refer to."""
    name = body = document_type.__name__.lower()

    def rewrite_document(record: Record, args: Mapping[str, Any]) -> Mapping[str, Any]:
        try:
            return {body: replace_document(document_type, record.id, record.documents.get(body), dict(args))}
        except BadProfile as error:
            raise ActionRefused(str(error)) from None

    return Machine(
        name=name,
        plural=plural,
        description=description,
        made_by=f"PUT /api/v1/ingest/{plural}/NAME, or by `waybill ingest {name} add`",
        states=_STATES,
        actions=(
            action("change", "Active", STAY, f"Replace the {body}.", writes=rewrite_document, role="admin"),
            action("retire", "Active", "Retired", "Let no new deposit name it.", role="admin"),
            action("restore", "Retired", "Active", "Let deposits name it again.", role="admin"),
            action("delete", "Retired", "Deleted", "Remove it.", confirm="Nobody can restore it.", role="admin",
                   guard=check_no_deposit_needs_it if document_type is Profile else None),
        ),
        documents=(Document(body, None, "service", description, v=None, secret=secret),),
    )  # fmt: skip


def check_no_deposit_needs_it(profile: Record, store: Store) -> str | None:
    """Without its profile a deposit would get an ARK from another shoulder, and nobody would get a callback or mail."""
    in_need = (
        batch.id
        for state in BATCH.unfinished  # jobs of a batch that is not over may still be running
        for batch in store.each("batch", state=state, documents=True)
        if Submission.from_batch(batch).profile == profile.id
    )
    found = list(islice(in_need, _MAX_NAMED_BATCHES + 1))
    if not found:
        return None
    named = ", ".join(found[:_MAX_NAMED_BATCHES]) + (" and others" if len(found) > _MAX_NAMED_BATCHES else "")
    return f"Batches that are not over name it: {named}. Wait for them, or delete them first."


def check_nothing_was_drawn(minter: Record, store: Store) -> str | None:
    """A counter that was removed would start again from zero, and give the ARKs of some objects to others."""
    used = minter.documents.get("numbers", {}).get("next", 0)
    return (
        f"{used} numbers of {minter.id} were drawn, so its counter must be kept. Give profiles another shoulder instead."
        if used
        else None
    )


def _advance_counter(minter: Record, args: Mapping[str, Any]) -> Mapping[str, Any]:
    """The numbers from the old `next` up to the new one belong to the caller."""
    before = minter.documents.get("numbers", {"next": 0})
    return {"numbers": {**before, "next": before["next"] + max(1, min(1000, int(args.get("count", 1))))}}


def build_minter_machine() -> Machine:
    return Machine(
        name="minter",
        plural="minters",
        made_by="the first deposit that draws from its shoulder",
        description="Counts the ARKs of one shoulder. Numbers are drawn in blocks; a number that was drawn and not used is never used.",
        states=(
            rest("Active", description="Numbers can be drawn."),
            end("Closed", description="No number was ever drawn."),
        ),
        actions=(
            action("draw", "Active", STAY, "Draw the next numbers.", writes=_advance_counter, role="admin"),
            action(
                "close",
                "Active",
                "Closed",
                "Give up a shoulder that was never used.",
                guard=check_nothing_was_drawn,
                role="admin",
            ),
        ),
        documents=(Document("numbers", None, "service", "The next number.", v=1),),
    )
