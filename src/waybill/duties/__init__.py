"""Upkeep that no user asked for. See duty.py for what a duty is; each of the others has its own file."""

from __future__ import annotations

from collections.abc import Iterable

from waybill.duties.consistency import Consistency
from waybill.duties.duty import DUTY, Duty, Hand, Post, a_round, kept_of
from waybill.duties.folders import Folders
from waybill.duties.hosts import Hosts
from waybill.duties.joins import Joins
from waybill.duties.keys import Keys
from waybill.duties.leftovers import Leftovers
from waybill.duties.requests import Requests
from waybill.duties.retention import Retention
from waybill.duties.upkeep import Upkeep


def all_duties(more: Iterable[Duty] = ()) -> dict[str, Duty]:
    """The built-in duties and those of applications, by name."""
    built_in: tuple[Duty, ...] = (
        Joins(),
        Upkeep(),
        Requests(),
        Hosts(),
        Retention(),
        Folders(),
        Leftovers(),
        Keys(),
        Consistency(),
    )
    return {duty.name: duty for duty in (*built_in, *more)}


__all__ = ["DUTY", "Duty", "Hand", "Hosts", "Post", "a_round", "all_duties", "kept_of"]
