"""Refusals: why something that a user asked of ingest is not done, in sentences.

All are `Refused`, so that every caller can tell them.
"""

from __future__ import annotations

from waybill.apps.ingest import names
from waybill.rules import Refused


class Unfit(Refused):
    """What was sent cannot be taken as it is."""


class Missing(Unfit):
    """What was named is not there."""


class NotKept(Missing):
    """There is no profile, or no collection, of this name. Each caller adds how those that there are can be listed."""

    def __init__(self, kind: str, name: str) -> None:
        super().__init__(f"There is no {kind} {names.shown(name)}.")
        self.kind = kind


class TooLarge(Unfit):
    """What was sent is larger than is taken."""


class OtherBatch(Refused):
    """The batchID belongs to another submission."""
