"""Refusals: why something that a user asked of ingest is not done, in sentences. All are `Refused`, so that every caller can tell them."""

from __future__ import annotations

from waybill.rules import Refused


class Unfit(Refused):
    """What was sent cannot be taken as it is."""


class Missing(Unfit):
    """What was named is not there."""


class TooLarge(Unfit):
    """What was sent is larger than is taken."""


class OtherBatch(Refused):
    """The batchID belongs to another submission."""
