"""Why a request to ingest is refused, in sentences. All are ActionRefused, so that every caller can show them."""

from __future__ import annotations

from waybill.files import names
from waybill.rules import ActionRefused


class InvalidRequest(ActionRefused):
    """What was sent cannot be accepted as it is."""


class TargetNotFound(InvalidRequest):
    """What was named does not exist."""


class ManagedDocumentNotFound(TargetNotFound):
    """There is no profile, or no collection, of this name. Each caller adds how to list those that exist."""

    def __init__(self, kind: str, name: str) -> None:
        super().__init__(f"There is no {kind} {names.quote_text(name)}.")
        self.kind = kind


class PayloadTooLarge(InvalidRequest):
    """What was sent is larger than the limit."""


class BatchIdConflict(ActionRefused):
    """The batchID belongs to another submission."""
