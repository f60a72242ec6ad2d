"""A migration: a set of files and where it is.

    ON_DISK -> PUTTING -> ON_STORAGE
    ON_DISK, PUTTING -> FAILED -> (its PUT is resumed) -> ON_DISK
    any of these -> DELETING -> DELETED, or back to what it was

It has no steps: every arrow is an act of a request, in the request's own commit. ON_STORAGE is reached in the commit that
ends VERIFYING, and in no other.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from waybill.apps.archive.machine.documents import MigrationCharge, MigrationDocument, MigrationFiles, require_args
from waybill.errors import ActionRefused
from waybill.machine import STAY, Document, Machine, action, end, rest
from waybill.record import Documents, Record

DAY = 86400.0
ON_DISK, PUTTING, ON_STORAGE, FAILED, DELETING, DELETED = (
    "ON_DISK", "PUTTING", "ON_STORAGE", "FAILED", "DELETING", "DELETED"
)  # fmt: skip


def _write_files(record: Record, args: Mapping[str, Any]) -> Documents:
    """The notes of owners and modes, before the first file is taken; or that the files have them back."""
    require_args(args, "files")
    return (msgspec.convert(args["files"], MigrationFiles),)


def _begin(record: Record, args: Mapping[str, Any]) -> Documents:
    require_args(args, "files", "charge")
    return (msgspec.convert(args["files"], MigrationFiles), msgspec.convert(args["charge"], MigrationCharge))


def _charge(record: Record, args: Mapping[str, Any]) -> Documents:
    require_args(args, "charge")
    return (msgspec.convert(args["charge"], MigrationCharge),)


def _store(record: Record, args: Mapping[str, Any]) -> Documents:
    migration = record.document(MigrationDocument)
    return (replace(migration, is_only_copy=migration.is_only_copy or migration.removes_originals, failure=""),)


def _fail(record: Record, args: Mapping[str, Any]) -> Documents:
    return (replace(record.document(MigrationDocument), failure=str(args.get("why", ""))[:2000]),)


def _delete(record: Record, args: Mapping[str, Any]) -> Documents:
    require_args(args, "expected", "version")
    # Whoever uses it writes it, so a request that was made after the caller had read is noticed.
    if record.state != args["expected"] or record.version != args["version"]:
        raise ActionRefused(f"{record.ref} has changed meanwhile, and is {record.state}. Try again.")
    return ()


def _move(record: Record, args: Mapping[str, Any]) -> Documents:
    require_args(args, "storage", "container", "charge")
    moved = replace(record.document(MigrationDocument), storage=str(args["storage"]), container=str(args["container"]))
    return (moved, msgspec.convert(args["charge"], MigrationCharge))


def _forget_files(record: Record, args: Mapping[str, Any]) -> Documents:
    charge = record.find_document(MigrationCharge)
    empty = MigrationCharge(charge.storage if charge is not None else record.document(MigrationDocument).storage)
    return (empty, replace(record.document(MigrationDocument), is_only_copy=False))


def scope_of_workspace(workspace: str) -> str:
    return f"archive/workspace/{workspace}"


MIGRATION = Machine(
    name="archive-migration", plural="archive-migrations", description="A set of files, and where it is.",
    made_by="a PUT or MIGRATE request",
    scope_of=lambda record: scope_of_workspace(record.document(MigrationDocument).workspace),
    states=(
        rest(ON_DISK, description="Its files are on disk; the PUT has not locked them yet."),
        rest(PUTTING, description="Its files are being packed, sent or verified; the originals are there."),
        rest(ON_STORAGE, description="Every archive was read back from the storage, and is what was sent."),
        rest(FAILED, description="Its PUT has failed; the originals are there."),
        rest(DELETING, description="A DELETE waits for its grace to end, or is at work."),
        end(DELETED, keep=365 * DAY, description="Removed from the storage."),
    ),
    initial_states=(ON_STORAGE,),  # of one that is rebuilt from its container
    actions=(
        action("note_files", f"{ON_DISK} {PUTTING} {ON_STORAGE} {FAILED} {DELETING}", STAY,
               "Write down owners and modes before they change.", role="admin", writes=_write_files),
        action("begin", f"{ON_DISK} {PUTTING}", PUTTING, "Its files are locked and shared out among archives.",
               role="admin", writes=_begin),
        action("store", PUTTING, ON_STORAGE, "Every archive was read back and compared.", role="admin", writes=_store),
        action("charge", f"{PUTTING} {ON_STORAGE} {DELETING}", STAY, "Write how much of the quota it holds.", role="admin", writes=_charge),
        action("fail", f"{ON_DISK} {PUTTING} {FAILED}", FAILED, "Its PUT has failed.", role="admin", writes=_fail),
        action("retry", FAILED, ON_DISK, "Its PUT goes on.", role="admin"),
        action("use", ON_STORAGE, STAY, "A GET or MOVE begins.", role="admin"),
        action("move", ON_STORAGE, STAY, "It is on another storage now.", role="admin", writes=_move),
        action("delete", f"{ON_DISK} {PUTTING} {ON_STORAGE} {FAILED}", DELETING, "A DELETE begins.", role="admin", writes=_delete),
        action("undelete_to_disk", DELETING, ON_DISK, "The DELETE is taken back.", role="admin"),
        action("undelete_to_putting", DELETING, PUTTING, "The DELETE is taken back.", role="admin"),
        action("undelete_to_storage", DELETING, ON_STORAGE, "The DELETE is taken back.", role="admin"),
        action("undelete_to_failed", DELETING, FAILED, "The DELETE is taken back.", role="admin"),
        action("forget", DELETING, DELETED, "Nothing of it is left on the storage.", role="admin", writes=_forget_files),
    ),
    documents=(
        Document("migration", MigrationDocument, "service", "Which files, of which workspace, on which storage."),
        Document("charge", MigrationCharge, "service", "How much of the quota it holds."),
        Document("files", MigrationFiles, "service", "How many files, and the owners and modes that they get back."),
    ),
)  # fmt: skip

UNDELETE_ACTIONS = {
    ON_DISK: "undelete_to_disk",
    PUTTING: "undelete_to_putting",
    ON_STORAGE: "undelete_to_storage",
    FAILED: "undelete_to_failed",
}
