"""Refusals: jobs that fail because of what was submitted, with every reason, and whether only a new submission helps.

    raise save_refusal(ctx, error)      saves the document `refusal`, and returns the `Fail` to raise

Of many reasons the document holds the first hundred; all of them are in a list beside it.
"""

from __future__ import annotations

from collections.abc import Sequence

from waybill.apps.ingest.documents import Refusal
from waybill.errors import WaybillError
from waybill.manifests import record_lists
from waybill.record import Record
from waybill.step import Fail, StepContext

MAX_REASONS = 100  # reasons that the document holds
MAX_MESSAGE_REASONS = 5  # reasons that the message holds
MAX_REASON_LENGTH = 1000  # characters of one reason


class SubmissionRefused(WaybillError):
    """What was submitted cannot be ingested. `is_final`: only a new submission helps; otherwise the cause may be
    repaired and the job resumed.
    """

    code = "submission-refused"

    def __init__(self, reason: str, reasons: Sequence[str] = (), *, is_final: bool = True) -> None:
        super().__init__(reason)
        self.reason, self.reasons, self.is_final = reason, list(reasons), is_final


def save_refusal(ctx: StepContext, error: SubmissionRefused) -> Fail:
    """Save the reasons, and return what to raise. Safe to repeat: a second run writes the document again."""
    name = f"ingest/lists/job/{ctx.record.id}/{ctx.claim_version}/reasons"
    refusal = Refusal(
        error.is_final,
        error.reason,
        tuple(each[:MAX_REASON_LENGTH] for each in error.reasons[:MAX_REASONS]),
        record_lists.write_list(ctx.objects, name, error.reasons) if len(error.reasons) > MAX_REASONS else None,
    )
    ctx.save((refusal,))
    return Fail(error.reason + (" It cannot be resumed: submit it again." if error.is_final else ""))


def is_refusal_final(job: Record) -> bool:
    """Whether the job failed because of what was submitted, and cannot be resumed."""
    refusal = job.find_document(Refusal)
    return refusal is not None and refusal.final


def join_first_reasons(reasons: Sequence[str]) -> str:
    """The first reasons in one message."""
    more = f" (and {len(reasons) - MAX_MESSAGE_REASONS} more)" if len(reasons) > MAX_MESSAGE_REASONS else ""
    return " ".join(each[:MAX_REASON_LENGTH] for each in reasons[:MAX_MESSAGE_REASONS]) + more
