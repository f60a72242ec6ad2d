"""The paths of a deposit's files in their object, and why a name cannot be stored; from the names alone, nothing is
read.

    producer/NAME            a file of a manifest or of a container; of a bag, what is data/NAME in it
    producer/mrt-bag/NAME    of a bag, everything beside its payload

The check before a submission and the steps that ingest it both use these functions, so that the steps do not refuse
what the check has accepted.
"""

from __future__ import annotations

import re

from waybill.files import names

PRODUCER = "producer"  # the folder of the depositor's files
BAG_TAGS = "mrt-bag"  # the folder of a bag's own files

_BAG_PAYLOAD = "data/"
_UNWRITABLE = re.compile("[|\x00-\x1f\x7f]")


def find_fault(name: str) -> str | None:
    """Why a file of this name cannot be stored, as a sentence; None if it can.

    This is stricter than a disk: storage manifests separate columns by `|`, and strip spaces.
    """
    fault = names.find_fault(name) or names.find_fault(f"{PRODUCER}/{name}")
    if fault is None and (bad := _UNWRITABLE.search(name)):
        fault = (
            f"{names.quote_text(name)} cannot be stored: a manifest cannot hold {bad[0]!a} in a name. Rename the file."
        )
    if fault is None and name != name.strip():
        fault = (
            f"{names.quote_text(name)} cannot be stored: a manifest cannot hold a name that begins or ends with a space. "
            "Rename the file."
        )
    return fault


def bag_path_of(top: str, name: str) -> str:
    """The path in the object of a file of a bag that is in the folder `top` of its container; empty for files beside the
    bag, such as those that macOS adds.
    """
    if not name.startswith(top):
        return ""
    within = name.removeprefix(top)
    return within.removeprefix(_BAG_PAYLOAD) if within.startswith(_BAG_PAYLOAD) else f"{BAG_TAGS}/{within}"


def find_bag_fault(top: str, name: str) -> str | None:
    """Why this file of a bag cannot be stored, as a sentence; None if it can, or is left out."""
    path = bag_path_of(top, name)
    if path.split("/")[0] == BAG_TAGS and name.startswith(f"{top}{_BAG_PAYLOAD}"):
        return (
            f"{names.quote_text(name)} is in the way: {BAG_TAGS}/ in the payload is where a bag's own files are kept. "
            "Rename that folder."
        )
    return find_fault(path) if path else None
