"""MerrittLocks: pauses and holds are persistent, and so is Java's lock on an object in storage; the others die with
their session.
"""

import re

from kazoo.exceptions import NodeExistsError

from tests.interop.merritt.client import Client


def _mangled(name: str) -> str:
    return re.sub(":?/", "_", name)


def _path(family: str, name: str) -> str:
    return f"/locks/{family}/{name if family in ('queue', 'collections') else _mangled(name)}"


def lock(client: Client, family: str, name: str) -> bool:
    """family: queue (ingest, accessSmall, accessLarge), collections, storage, inventory, localid (Java only)."""
    lasting = family in ("queue", "collections") or (family == "storage" and not client.ruby)
    try:
        client.create(_path(family, name), ephemeral=not lasting)
    except NodeExistsError:
        return False
    return True


def unlock(client: Client, family: str, name: str) -> None:
    client.delete(_path(family, name))


def is_locked(client: Client, family: str, name: str) -> bool:
    return client.exists(_path(family, name))
