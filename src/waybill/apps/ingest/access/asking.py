"""Asking for an assembly: an object, a version or some files of it become a record in the small or the large queue,
and a token.

    asked = ask(engine, outfit, Wanted(object="ark:/99999/fk4x"), owner="jo")
    asked.record.docs["token"]["url"]                  works until it expires

Whoever asks twice for the same gets the same token, as long as its assembly is under way, or is ready and has at least
half of its time left; another person gets a token of his own, so that nobody's URL ends because somebody else's did.
"""

from __future__ import annotations

import hashlib
from typing import NamedTuple

import msgspec

from waybill.apps.ingest.access import tokens
from waybill.apps.ingest.access.order import ALL, MOST_FILES, Content, Form, Order, bytes_said, kept
from waybill.apps.ingest.names import shown
from waybill.apps.ingest.outfit import Outfit
from waybill.engine import Engine
from waybill.record import MAX_PAGE, NotFound, Record, Store
from waybill.rules import Refused
from waybill.step import New

SEARCH = "Search for it: `waybill ingest search`, or GET /api/v1/ingest/objects."
LISTED = "Its files: `waybill ingest object ARK --files`, or GET /api/v1/ingest/objects/{ark}/versions/{number}/files."
MOST_BEFORE = 100  # assemblies of the same order that are over and not yet removed
LEAST_SECONDS = 1.0  # that an assembly takes, however small


class Wanted(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a user asks for. `version` None: the newest; 0: all of them."""

    object: str
    version: int | None = None
    form: Form = "zip"
    content: Content = "full"
    files: tuple[str, ...] = ()


class Asked(NamedTuple):
    record: Record
    fresh: bool  # it was made now


class Size(NamedTuple):
    files: int
    bytes: int


def ask(engine: Engine, outfit: Outfit, wanted: Wanted, *, owner: str, lifted: bool = False) -> Asked:
    """An assembly of what is wanted: one that is there already, or a new one. NotFound or Refused says why not.

    `lifted`: an operator asks, for whom and for whose URL no embargo holds. Whether one holds is asked by whoever knows
    who asks.
    """
    order, size = measured(outfit, wanted)
    order = msgspec.structs.replace(order, lifted=lifted)
    kind = "access-small" if size.bytes <= outfit.settings.access.small else "access-large"
    token = tokens.new_token(outfit.draw)
    place = tokens.place_of(token)
    if wanted.files:
        order = msgspec.structs.replace(order, files=kept(outfit.objects, place, wanted.files))
    now = engine.store.now()
    ready = anticipated(engine.store, outfit, kind, size.bytes, now)
    docs = {
        "order": msgspec.structs.asdict(order),
        "token": tokens.document(token, tokens.url_of(outfit, token), size.bytes, "Pending", ready),
    }
    request = first = f"access/{_digest(order, wanted, owner)}"
    for _ in range(MOST_BEFORE):
        made = engine.submit(
            New(kind, docs, owner=owner, request=request), who=owner, why=f"{order.form} of {order.object}"
        )
        record = engine.store.get(*made.ref)
        if tokens.token_of(record) == token:
            tokens.point(outfit.objects, record)  # safe to repeat: Pending does so too, in case we die here
            return Asked(record, True)
        if is_alive(record, now, outfit.settings.access.keep):
            tokens.remove_all(outfit.objects, place)  # the names of files that we kept for a record that was not made
            return Asked(record, False)
        request = f"{first}/{record.id}"  # that one is over: the next of its line, the same for everybody who asks now
    raise Refused(f"{order.object} was asked for too often, and what is over is not yet removed. Try again later.")


def measured(outfit: Outfit, wanted: Wanted) -> tuple[Order, Size]:
    """The order with its version settled, and how much it is; by the inventory, for only what is recorded can be
    asked for.
    """
    inventory, ark = outfit.inventory, wanted.object
    found = inventory.object(ark)
    if found is None:
        raise NotFound(f"There is no object {shown(ark)} in the inventory.", SEARCH)
    number = int(found["head"]) if wanted.version is None else wanted.version
    order = Order(object=ark, version=number, form=wanted.form, content=wanted.content)
    if wanted.files:
        if number == ALL:
            raise Refused("Files are asked for by name from one version, not from all of them.")
        return order, _of_files(outfit, order, wanted.files)
    size = Size(0, 0)
    after = number - 1 if number != ALL else 0
    while rows := inventory.versions(ark, after=after, most=1 if number != ALL else 100):
        for row in rows:
            if number in (ALL, row["number"]):
                size = Size(size.files + row["files"] + 1, size.bytes + row["bytes"] + row["size"])
        after = rows[-1]["number"]
        if number != ALL:
            break
    if size.files == 0:
        raise NotFound(f"{ark} has no version {number}; its newest is {found['head']}.", SEARCH)
    return order, size


def _of_files(outfit: Outfit, order: Order, files: tuple[str, ...]) -> Size:
    if len(files) > MOST_FILES:
        raise Refused(f"At most {MOST_FILES} files can be asked for by name, not {len(files)}. Ask for the version.")
    if len(set(files)) < len(files):
        raise Refused("A file is asked for twice. Name each once.")
    total = 0
    for path in files:
        row = outfit.inventory.file(order.object, order.version, path)
        if row is None:
            raise NotFound(f"Version {order.version} of {order.object} has no file {shown(path)}.", LISTED)
        total += int(row["size"])
    return Size(len(files), total)


def anticipated(store: Store, outfit: Outfit, kind: str, size: int, now: float) -> float:
    """When an assembly of this size will be ready: after those before it in its queue (the first thousand), at the
    usual pace.
    """
    ahead = 0
    for state in ("Processing", "Pending"):
        ahead += sum(bytes_said(record) for record in store.find(kind, state=state, limit=MAX_PAGE, docs=True).records)
    return now + LEAST_SECONDS + (ahead + size) / outfit.settings.access.pace


def is_alive(record: Record, now: float, keep: float) -> bool:
    """Whether its token can be handed out once more."""
    if record.state == "Completed":
        packed = record.docs.get("packed")
        return isinstance(packed, dict) and packed.get("expires", 0) - now >= keep / 2
    return record.state in ("Pending", "Processing")


def _digest(order: Order, wanted: Wanted, owner: str) -> str:
    said = [
        owner,
        order.object,
        order.version,
        order.form,
        order.content,
        sorted(wanted.files),
        *(["lifted"] if order.lifted else []),
    ]
    return hashlib.sha256(msgspec.json.encode(said)).hexdigest()
