"""The documents with which records of lots begin in the random walks."""

from __future__ import annotations

from typing import Any

from waybill.apps.lots.machine import RunDocument

REACHES_EVERY_STATE = True
WALK_DOCUMENTS: dict[str, Any] = {"arc-run": (RunDocument("shop:count", "20260301PT5M144", 1),)}
