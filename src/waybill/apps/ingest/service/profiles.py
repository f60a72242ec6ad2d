"""Profiles: what holds for every deposit of a kind, and those taken over from Merritt's properties files."""

from __future__ import annotations

from waybill.apps.ingest import profile_import
from waybill.apps.ingest.profile import BadProfile, Profile, to_document
from waybill.apps.ingest.service.refusals import Unfit
from waybill.apps.ingest.service.shelf import PROFILES
from waybill.engine import Engine
from waybill.record import Record


def usable_profile(engine: Engine, name: str) -> Profile:
    """The profile that a new deposit names."""
    if not name:
        raise Unfit("The profile is missing: every deposit names one.")
    return PROFILES.usable(engine, name)


def import_profile(engine: Engine, data: bytes, name: str = "", *, who: str, why: str = "") -> tuple[Record, list[str]]:
    """Put the profile of one of Merritt's properties files on the shelf; its record, and remarks on what has no
    place there.
    """
    try:
        found = profile_import.import_profile(data, name)
    except BadProfile as error:
        raise Unfit(str(error)) from None
    record, _ = PROFILES.put(engine, to_document(found.profile), who=who, why=why or "imported")
    return record, found.remarks
