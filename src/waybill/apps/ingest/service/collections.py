"""Collections: which of them a deposit lies in, by the mnemonics that they are held by."""

from __future__ import annotations

from waybill.apps.ingest.outfit import Outfit
from waybill.apps.ingest.profile import Profile
from waybill.apps.ingest.service.refusals import Unfit
from waybill.apps.ingest.service.shelf import COLLECTIONS
from waybill.engine import Engine


def mnemonics_of(engine: Engine, outfit: Outfit, profile: Profile) -> tuple[str, ...]:
    """The mnemonics of the profile's collections, as far as they are known here; Unfit if one of them is retired.

    A profile names collections by their ARKs. One that nobody has put on the shelf can still be held, by the name of
    the profile.
    """
    if not profile.collections:
        return ()
    found: list[str] = []
    for record in COLLECTIONS.each(engine):
        collection = COLLECTIONS.read(record)
        if collection.ark and collection.ark in profile.collections:
            if record.state != "Active":
                raise Unfit(
                    f"The collection {record.id} of the profile {profile.name} is {record.state}: nothing new goes into it."
                )
            found.append(record.id)
    return tuple(found)
