"""Whether the inventory is the one that belongs to the store, and lacks nothing.

Objects are looked up in the inventory before one is minted, so an inventory that was lost, or is older than it should be, or
another store's, would give an object a second ARK. So the two know each other:

    id       the inventory draws it when it is made, the store remembers the first one that it is shown
    epoch    raised in both from time to time, first in the inventory: one that is behind the store is an older copy
    problem  why rows may be missing, as long as they may

`find_problem` compares them when a process starts and with each round of the routine `ingest-inventory`, and `get_problem` is
asked before each mint. While there is a problem deposits wait. `waybill ingest rebuild --all` ends it (`declare_complete`).
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import NamedTuple

from waybill.apps.ingest.inventory.inventory import Inventory
from waybill.apps.ingest.storage import StorageService

NAME = "ingest-inventory"  # of what the store remembers, and of the routine
REMEDY = "`waybill ingest rebuild --all` records what storage has"

Remember = Callable[[str], str]  # shows the store an id; returns the one that it has


class InventoryIdentity(NamedTuple):
    id: str
    epoch: int
    problem: str


def find_problem(
    inventory: Inventory,
    storage: StorageService,
    remember: Remember,
    store_epoch: int,
    draw_random_bytes: Callable[[int], bytes] = secrets.token_bytes,
) -> str:
    """Return why the inventory may lack objects; empty if it is the store's and as new. Safe to repeat."""
    identity = read_identity(inventory)
    is_new = identity is None
    if identity is None:
        inventory.tables.execute(
            "enter_identity", id=draw_random_bytes(16).hex()
        )  # safe to repeat: the first one stays
        identity = read_identity(inventory)
        assert identity is not None
    store_id = remember(identity.id)
    if problem := explain_identity(identity, store_id):
        return problem
    if is_new and not inventory.search(limit=1).rows and next(iter(storage.list_objects()), None) is not None:
        problem = f"The inventory is new and empty, and storage has objects: deposits wait. {REMEDY}."
    elif identity.epoch < store_epoch:
        problem = f"The inventory is an older copy than the store knows: deposits wait. {REMEDY}."
    if problem:
        inventory.tables.execute("set_problem", problem=problem)
    return problem


def explain_identity(identity: InventoryIdentity, store_id: str) -> str:
    if identity.id != store_id:
        return f"The inventory is new, or another store's: it may lack objects, and deposits wait. {REMEDY}."
    return identity.problem


def read_identity(inventory: Inventory) -> InventoryIdentity | None:
    rows = inventory.tables.query("identity")
    return InventoryIdentity(rows[0]["id"], rows[0]["epoch"], rows[0]["problem"]) if rows else None


def raise_epoch(inventory: Inventory) -> int:
    """Return the next epoch, which the store is to know after the inventory has it."""
    inventory.tables.execute("raise_epoch")
    identity = read_identity(inventory)
    return identity.epoch if identity is not None else 0


def declare_complete(inventory: Inventory, remember: Remember, store_epoch: int) -> None:
    """The inventory is this store's and lacks nothing: all of storage was recorded again. Safe to repeat."""
    identity = read_identity(inventory)
    if identity is not None:
        store_id = remember(identity.id)
        inventory.tables.execute("set_identity", id=store_id, epoch=max(identity.epoch, store_epoch))
