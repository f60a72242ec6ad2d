"""Owning: whose the local ids of a job are, where its configuration does not say it.

Our own submissions name the owner. Other services leave him to the profile, and lock local ids as his: so a job of
theirs gets a document that names him, before the state in which its local ids are locked.
"""

from __future__ import annotations

from typing import Any

from waybill.apps.ingest import submission
from waybill.apps.ingest.outfit import outfit_of
from waybill.record import Record
from waybill.step import Context


def owned(job: Record, ctx: Context) -> dict[str, Any]:
    """The document of a job that needs it. Safe to repeat: it says the same."""
    said = submission.of_job(job)
    if said.owner or not said.local_ids:
        return {}
    owner = outfit_of(ctx).profile(ctx, said).owner
    return {"owner": {"ark": owner}} if owner else {}
