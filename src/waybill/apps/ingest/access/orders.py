"""Requests and orders of assemblies.

A user requests an object, a version or some files of it (`AssemblyRequest`). The request becomes an order, in which the
version is fixed, and a record in the small or the large queue, by its size in the inventory. The order is the document
`order` of the record:

    {"object": "ark:/99999/fk4x", "version": 2, "form": "zip", "content": "full", "files": {"count": 1, "rows":
    ["producer/a.txt"]}}

`version` 0 means all versions, each in its own folder (v1, v2 ...). With `files` only these files of the version are
packed. A user who repeats a request gets the same assembly until it is about to expire.

Assemblies of other services, which share the tree, have no order; they are left to those services. Assemblies imported
from Merritt's old queues have none either, and fail.
"""

from __future__ import annotations

import hashlib
from typing import NamedTuple

import msgspec

from waybill.apps.ingest.access import tokens
from waybill.apps.ingest.documents import (
    ALL_VERSIONS,
    ArchiveContent,
    ArchiveForm,
    AssemblyOrder,
    AssemblyToken,
    PackedArchive,
)
from waybill.apps.ingest.machine.access import ASSEMBLY
from waybill.apps.ingest.resources import IngestResources
from waybill.engine import Engine
from waybill.files.names import quote_text
from waybill.manifests import record_lists
from waybill.record import MAX_PAGE, Record, RecordNotFound, Store
from waybill.rules import ActionRefused
from waybill.step import New, Wait

MAX_FILES = 1000  # named files of one order
IMPORTED_PREFIX = "legacy/"  # of the idempotency keys of imported assemblies
FOREIGN_POLL_SECONDS = 24 * 3600.0  # seconds between two reads of an assembly of another service
ASK_AGAIN = "It was requested in the old system, which stored the request elsewhere: request it again."
SEARCH_HINT = "Search for it: `waybill ingest search`, or GET /api/v1/ingest/objects."
FILES_HINT = (
    "Its files: `waybill ingest object ARK --files`, or GET /api/v1/ingest/objects/{ark}/versions/{number}/files."
)
MAX_EXPIRED = 100  # expired assemblies of one order that are not yet removed
MIN_SECONDS = 1.0  # seconds that the smallest assembly takes


def is_imported(record: Record) -> bool:
    """Whether it was imported from an old queue of Merritt's: no other service owns it, and its order is unknown."""
    return (record.idempotency_key or "").startswith(IMPORTED_PREFIX) and record.find_document(AssemblyOrder) is None


def leave_to_other_service(record: Record) -> Wait:
    return Wait(FOREIGN_POLL_SECONDS, record.message)


class AssemblyRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a user requests. `version` None: the newest; 0: all."""

    object: str
    version: int | None = None
    form: ArchiveForm = "zip"
    content: ArchiveContent = "full"
    files: tuple[str, ...] = ()


class RequestedAssembly(NamedTuple):
    record: Record
    is_new: bool  # False: an earlier assembly of the same request


class ContentSize(NamedTuple):
    files: int
    bytes: int


def request_assembly(
    engine: Engine,
    resources: IngestResources,
    assembly_request: AssemblyRequest,
    *,
    owner: str,
    ignores_embargo: bool = False,
) -> RequestedAssembly:
    """Return an assembly for the request: an existing one, or a new one. Raises RecordNotFound or ActionRefused.

    `ignores_embargo`: the request is an operator's, so the URL works despite an embargo. The caller checks embargoes,
    because it knows who requests.
    """
    order, size = measure_order(resources, assembly_request)
    order = msgspec.structs.replace(order, ignores_embargo=ignores_embargo)
    kind = "access-small" if size.bytes <= resources.settings.access.small_bytes else "access-large"
    token = tokens.generate_token(resources.draw_random_bytes)
    place = tokens.place_of(token)
    if assembly_request.files:
        # a long list is stored as an object at the place of the assembly
        files = record_lists.write_list(resources.objects, f"{place}/files.jsonl", assembly_request.files)
        order = msgspec.structs.replace(order, files=files)
    now = engine.store.now()
    ready = estimate_ready_time(engine.store, resources, kind, size.bytes, now)
    documents = (
        order,
        AssemblyToken.create(token, tokens.url_of(resources, token), size.bytes, ASSEMBLY.initial, ready),
    )
    key = first_key = f"access/{_order_digest_of(order, assembly_request, owner)}"
    for _ in range(MAX_EXPIRED):
        submitted = engine.submit(
            New(kind, documents, owner=owner, idempotency_key=key), who=owner, why=f"{order.form} of {order.object}"
        )
        record = engine.store.get(*submitted.ref)
        if tokens.token_of(record) == token:
            tokens.write_pointer(
                resources.objects, record
            )  # safe to repeat: the step Pending does it too, in case of a crash here
            return RequestedAssembly(record, True)
        if is_alive(record, now, resources.settings.access.keep_seconds):
            tokens.remove_files(resources.objects, place)  # file names written for a record that was not created
            return RequestedAssembly(record, False)
        key = f"{first_key}/{record.id}"  # that one has expired: the next key is the same for all concurrent requests
    raise ActionRefused(f"{order.object} has too many expired assemblies that are not yet removed. Try again later.")


def measure_order(resources: IngestResources, assembly_request: AssemblyRequest) -> tuple[AssemblyOrder, ContentSize]:
    """Return the order with its version fixed, and its size, by the inventory: only recorded objects can be requested."""
    inventory, ark = resources.inventory, assembly_request.object
    object_row = inventory.get_object(ark)
    if object_row is None:
        raise RecordNotFound(f"There is no object {quote_text(ark)} in the inventory.", hint=SEARCH_HINT)
    number = int(object_row["head"]) if assembly_request.version is None else assembly_request.version
    order = AssemblyOrder(object=ark, version=number, form=assembly_request.form, content=assembly_request.content)
    if assembly_request.files:
        if number == ALL_VERSIONS:
            raise ActionRefused("Files can be requested from one version, not from all.")
        return order, _measure_files(resources, order, assembly_request.files)
    size = ContentSize(0, 0)
    after = number - 1 if number != ALL_VERSIONS else 0
    while rows := inventory.list_versions(ark, after=after, limit=1 if number != ALL_VERSIONS else 100):
        for row in rows:
            if number in (ALL_VERSIONS, row["number"]):
                size = ContentSize(size.files + row["files"] + 1, size.bytes + row["bytes"] + row["size"])
        after = rows[-1]["number"]
        if number != ALL_VERSIONS:
            break
    if size.files == 0:
        raise RecordNotFound(f"{ark} has no version {number}; its newest is {object_row['head']}.", hint=SEARCH_HINT)
    return order, size


def _measure_files(resources: IngestResources, order: AssemblyOrder, files: tuple[str, ...]) -> ContentSize:
    if len(files) > MAX_FILES:
        raise ActionRefused(f"At most {MAX_FILES} files can be named, not {len(files)}. Request the version.")
    if len(set(files)) < len(files):
        raise ActionRefused("A file is named twice. Name each once.")
    total = 0
    for path in files:
        row = resources.inventory.get_file(order.object, order.version, path)
        if row is None:
            raise RecordNotFound(
                f"Version {order.version} of {order.object} has no file {quote_text(path)}.", hint=FILES_HINT
            )
        total += int(row["size"])
    return ContentSize(len(files), total)


def estimate_ready_time(store: Store, resources: IngestResources, kind: str, size: int, now: float) -> float:
    """Return when an assembly of this size will be ready: after those before it in its queue (at most MAX_PAGE per
    state), at the configured speed.
    """
    bytes_ahead = 0
    for state in ASSEMBLY.live:
        bytes_ahead += sum(
            token.content_bytes
            for record in store.find(kind, state=state, limit=MAX_PAGE, documents=True).records
            if (token := record.find_document(AssemblyToken)) is not None
        )
    return now + MIN_SECONDS + (bytes_ahead + size) / resources.settings.access.bytes_per_second


def is_alive(record: Record, now: float, keep: float) -> bool:
    """Whether its token can be returned to a repeated request."""
    if record.state == ASSEMBLY.completed:
        packed = record.find_document(PackedArchive)
        return packed is not None and packed.expires - now >= keep / 2
    return record.state in ASSEMBLY.live


def _order_digest_of(order: AssemblyOrder, assembly_request: AssemblyRequest, owner: str) -> str:
    parts = [
        owner,
        order.object,
        order.version,
        order.form,
        order.content,
        sorted(assembly_request.files),
        *(["ignores_embargo"] if order.ignores_embargo else []),
    ]
    return hashlib.sha256(msgspec.json.encode(parts)).hexdigest()
