"""Refusal: a job that fails by the depositor's mistake, with every reason, and whether only a new submission can
mend it.

    raise refused(ctx, error)      the document `refusal` is saved, and the sentence for `Fail` is made from it

Of many reasons the document holds the first hundred; all of them are in a list beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from waybill.apps.ingest import lists
from waybill.record import Record
from waybill.step import Context, Fail

MOST = 100  # reasons that the document holds
SAID = 5  # reasons that the message holds
LONGEST = 1000  # characters of one reason


class Unfit(Exception):
    """What was submitted cannot be taken. `final`: only a new submission can mend it; otherwise somebody may, and
    resume.
    """

    def __init__(self, reason: str, reasons: Sequence[str] = (), *, final: bool = True) -> None:
        super().__init__(reason)
        self.reason, self.reasons, self.final = reason, list(reasons), final


class Trouble(Exception):
    """The network or a server is to blame: worth another try."""


def refused(ctx: Context, error: Unfit) -> Fail:
    """What to raise, once the reasons are on record. Safe to repeat: a second run writes the same again, and the
    last counts.
    """
    reasons = [each[:LONGEST] for each in error.reasons[:MOST]]
    document: dict[str, Any] = {"final": error.final, "reason": error.reason, "reasons": reasons}
    if len(error.reasons) > MOST:
        document["list"] = lists.keep(
            ctx.objects, f"ingest/lists/job/{ctx.record.id}/{ctx.attempt}/reasons", error.reasons
        )
    ctx.save({"refusal": document})
    return Fail(error.reason + (" It cannot be resumed: submit it again." if error.final else ""))


def gathered(reasons: Sequence[str]) -> str:
    """The first of many reasons in one message."""
    more = f" (and {len(reasons) - SAID} more)" if len(reasons) > SAID else ""
    return " ".join(each[:LONGEST] for each in reasons[:SAID]) + more


def cleared(job: Record) -> dict[str, Any]:
    """For a step that is done after all: what was said before no longer holds."""
    return {"refusal": None} if "refusal" in job.docs else {}
