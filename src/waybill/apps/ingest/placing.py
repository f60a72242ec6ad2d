"""Placing: under which name a file of a deposit lies in its object, and why it cannot; told from the names alone,
nothing is read.

    producer/NAME            a file of a manifest or of a container; of a bag, what is data/NAME in it
    producer/mrt-bag/NAME    of a bag, everything beside its payload

Whoever checks a deposit before it is submitted and the steps that take it ask here, so that what one calls good the
other does not refuse.
"""

from __future__ import annotations

import re

from waybill.apps.ingest import names

PRODUCER = "producer"  # the folder of what the depositor sent
TAGS = "mrt-bag"  # the folder of what a bag says of itself

_PAYLOAD = "data/"
_UNWRITABLE = re.compile("[|\x00-\x1f\x7f]")


def fault(name: str) -> str | None:
    """Why a file of this name cannot be stored, as a sentence; None if it can.

    More than a disk asks for: storage manifests part their columns by `|`, and cut spaces off.
    """
    wrong = names.fault(name) or names.fault(f"{PRODUCER}/{name}")
    if wrong is None and (bad := _UNWRITABLE.search(name)):
        wrong = f"{names.shown(name)} cannot be stored: a manifest cannot hold {bad[0]!a} in a name. Rename the file."
    if wrong is None and name != name.strip():
        wrong = f"{names.shown(name)} cannot be stored: a manifest cannot hold a name that begins or ends with a space. Rename the file."
    return wrong


def of_bag(top: str, name: str) -> str:
    """Where a file of a bag goes that lies in the folder `top` of its container; empty for what lies beside the bag,
    a Mac's own files.
    """
    if not name.startswith(top):
        return ""
    within = name.removeprefix(top)
    return within.removeprefix(_PAYLOAD) if within.startswith(_PAYLOAD) else f"{TAGS}/{within}"


def fault_of_bag(top: str, name: str) -> str | None:
    """Why this file of a bag cannot be stored, as a sentence; None if it can, or need not."""
    placed = of_bag(top, name)
    if placed.split("/")[0] == TAGS and name.startswith(f"{top}{_PAYLOAD}"):
        return f"{names.shown(name)} is in the way: {TAGS}/ in the payload is where a bag's own files are kept. Rename that folder."
    return fault(placed) if placed else None
