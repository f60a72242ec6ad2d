"""Gathering: the objects are copied into a folder of this record, and a MIGRATE of the folder is made.

Safe to repeat: a copy that is there and has the right digest is kept, any other is made anew under another name first; and
once the request exists, which is looked for before anything else, nothing is copied any more, because the request owns the
folder from then on.
"""

from __future__ import annotations

import hashlib
import os
import pwd
from contextlib import nullcontext
from pathlib import Path

from waybill.apps.archive.machine import REQUEST
from waybill.apps.archive.machine.documents import RequestDocument
from waybill.apps.archive.machine.intake import IntakeDocument, IntakeResult
from waybill.apps.archive.resources import resources_of
from waybill.apps.archive.service.access import Caller
from waybill.apps.archive.service.requests import ArchiveRequests
from waybill.errors import ActionRefused, InputError
from waybill.files.names import find_fault, quote_text
from waybill.objects import ObjectNotFound
from waybill.published_objects import PublishedObject
from waybill.record import Record, RecordNotFound, Store
from waybill.step import Done, Fail, Outcome, StepContext

CHUNK = 1024 * 1024
UNFINISHED = ".unfinished"


def run_step(record: Record, ctx: StepContext) -> Outcome:
    resources, intake = resources_of(ctx), record.document(IntakeDocument)
    made = _find_request(ctx, record.id)
    files = size = 0
    if made is None:
        folder = resources.intake_folder / record.id
        try:
            for each in resources.environment.list_objects_of(intake.origin, intake.version):
                ctx.check()
                _copy(ctx, each, folder)
                files, size = files + 1, size + each.size
                ctx.report_progress(files, None, "files")
            if not files:
                raise InputError("it has no objects.")
            # Safe to repeat: the id of this record is the idempotency key of the request.
            made = _submit(ctx, intake, folder)
        except (ActionRefused, ObjectNotFound) as error:  # wrong, gone, or refused by the workspace
            raise Fail(f"{intake.origin} cannot be archived: {error}") from error
    request = made.document(RequestDocument)
    return Done(
        (IntakeResult(request.migration_number, made.id, files, size),), message=f"migration {request.migration_number}"
    )


def _find_request(ctx: StepContext, key: str) -> Record | None:
    try:
        return ctx.run_on_store(lambda store: store.get_by_idempotency_key(REQUEST.name, key))
    except RecordNotFound:
        return None


def _submit(ctx: StepContext, intake: IntakeDocument, folder: Path) -> Record:
    """Make the MIGRATE, on the worker's own connection to the store."""
    resources, owner = resources_of(ctx), pwd.getpwuid(os.geteuid()).pw_name  # the copies belong to this process

    def put(store: Store) -> Record:
        engine = resources.environment.make_engine(store)
        return ArchiveRequests(resources, lambda: nullcontext(engine), who="archive").put(
            Caller(owner, is_operator=True),
            [str(folder)],
            kind="MIGRATE",
            workspace=intake.workspace,
            storage=intake.storage,
            label=intake.label or intake.origin,
            origin=(intake.origin, intake.version),
            idempotency_key=ctx.record.id,
        )

    return ctx.run_on_store(put)


def _copy(ctx: StepContext, published: PublishedObject, folder: Path) -> None:
    """Copy one object, compare it, and only then give it its name."""
    if (fault := find_fault(published.name)) is not None:
        raise InputError(f"{quote_text(published.name)} cannot be the name of a file: {fault}.")
    target = folder / published.name
    if _is_copied(target, published):
        return
    target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    unfinished = target.with_name(f"{target.name[:200]}.{ctx.claim_version}{UNFINISHED}")
    digest, size = hashlib.sha256(), 0
    with ctx.objects.get(published.object) as body, unfinished.open("wb") as file:
        for chunk in body:
            ctx.check()
            digest.update(chunk)
            size += len(chunk)
            file.write(chunk)
        file.flush()
        os.fsync(file.fileno())
    if size != published.size or (published.sha256 and digest.hexdigest() != published.sha256):
        unfinished.unlink()
        raise InputError(f"{quote_text(published.name)} is not what its application says: its size or digest differs.")
    unfinished.replace(target)


def _is_copied(target: Path, published: PublishedObject) -> bool:
    if not published.sha256 or not target.is_file() or target.stat().st_size != published.size:
        return False
    with target.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() == published.sha256
