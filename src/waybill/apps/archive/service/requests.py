"""What users ask for: PUT, MIGRATE, GET, DELETE, undelete, MOVE, cancel, resume.

A request is made in one commit with all that it does to others: the migration that a PUT creates, the requests that a DELETE
stops. Before a PUT is committed its number, its row in the catalogue and its paths are entered; if the commit fails they are
removed again, here or by maintenance.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

import msgspec

from waybill.apps.archive.catalogue import ArchiveTables, MigrationRow, decode_path, encode_path
from waybill.apps.archive.files import Selection, to_printable
from waybill.apps.archive.machine import (
    MIGRATION,
    REQUEST,
    DeleteRequest,
    GetRequest,
    GetSelection,
    MigrationDocument,
    MoveRequest,
    Notice,
    RequestDocument,
    RequestKind,
    StoppedRequest,
)
from waybill.apps.archive.machine.request import PUT_FLOW, STOPPABLE
from waybill.apps.archive.service.access import Caller, check_member, check_read, check_write
from waybill.apps.archive.service.quotas import ensure_quota, refuse_if_used_up
from waybill.engine import ActionResult, Engine
from waybill.errors import ActionRefused, InputError, NotFound
from waybill.manifests.record_lists import write_list
from waybill.notify import parse_recipients
from waybill.record import CommitOutcomeUnknown, Record, RecordNotFound, Ref
from waybill.step import Act, New

if TYPE_CHECKING:
    from waybill.apps.archive.resources import ArchiveResources

MAX_PATHS = 50_000
MAX_LABEL = 200
MIN_ONLY_COPY_GRACE = 60.0
MAX_ATTEMPTS = 8  # of a commit whose migration keeps changing


def migration_ref(number: int) -> Ref:
    return Ref(MIGRATION.name, f"mig{number:010d}")


def request_ref(number: int) -> Ref:
    return Ref(REQUEST.name, f"req{number:010d}")


class ArchiveRequests:
    """All calls block. `open_engine`: a connection to the store for a short time; `who`: for histories."""

    def __init__(
        self, resources: ArchiveResources, open_engine: Callable[[], AbstractContextManager[Engine]], who: str = ""
    ) -> None:
        self._resources = resources
        self._open_engine = open_engine
        self._who = who

    # --- PUT and MIGRATE

    def put(
        self,
        caller: Caller,
        paths: Sequence[str],
        *,
        kind: RequestKind = "PUT",
        workspace: str = "",
        storage: str = "",
        label: str = "",
        exclude: Sequence[str] = (),
        notify: Iterable[str] = (),
        origin: tuple[str, int] | None = None,
        idempotency_key: str | None = None,
    ) -> Record:
        """Make a PUT or MIGRATE, with its migration. Raises ActionRefused. `origin`: of which thing of another application
        the files are a copy, and of which version.
        """
        resources = self._resources
        workspace = workspace or only_one(resources.settings.workspaces, "workspace")
        storage = storage or only_one(resources.settings.storages, "storage")
        check_member(resources, caller, workspace)
        check_storage(resources, workspace, storage)
        absolute = check_paths(paths)
        label = check_label(label or os.path.basename(absolute[0]) or "files")
        if exclude:
            Selection(globs=exclude)  # raises for one that cannot be read
        with self._open_engine() as engine:
            if idempotency_key is not None and (known := _find_repeated(engine, idempotency_key)) is not None:
                return known
            quota = ensure_quota(engine, resources, workspace, storage, who=self._who)
            refuse_if_used_up(quota, resources.get_limit(workspace, storage))
            return self._put(
                engine, caller, absolute, kind, workspace, storage, label, exclude, notify, origin, idempotency_key
            )

    def _put(
        self, engine: Engine, caller: Caller, paths: Sequence[str], kind: RequestKind, workspace: str, storage: str, label: str,
        exclude: Sequence[str], notify: Iterable[str], origin: tuple[str, int] | None, idempotency_key: str | None,
    ) -> Record:  # fmt: skip
        resources = self._resources
        listed = write_list(resources.objects, f"archive/requests/{uuid.uuid4().hex}/paths", map(encode_path, paths))
        with resources.connections.open() as tables, tables.transaction():
            folder = encode_path(os.path.commonpath(paths))
            row = _find_interrupted(tables, origin, folder)
            if row is None:
                number, request_number = tables.take_number("migration"), tables.take_number("request")
                row = MigrationRow(
                    number, migration_ref(number).id, request_ref(request_number).id, caller.name, workspace, storage, label, folder,
                    engine.store.now(),
                )  # fmt: skip
                tables.enter_migration(row)
                if origin is not None:
                    tables.enter_origin(number, *origin)
            else:
                number, request_number = row.number, int(row.request.removeprefix("req"))
            if (taken := tables.claim_paths(number, paths)) is not None:
                path, other = taken  # nothing of this transaction is kept
                raise ActionRefused(
                    f"{to_printable(decode_path(path))} is being archived by migration {other}. Wait for it, or cancel it.",
                    code="paths-in-use",
                )
        migration = MigrationDocument(
            number=number, workspace=workspace, storage=storage, container=f"migration-{number:010d}", request=row.request,
            removes_originals=kind == "MIGRATE", label=label, common_path=row.common_path,
        )  # fmt: skip
        request = RequestDocument(request_number, kind, row.id, number, workspace, storage, listed, tuple(exclude))
        try:
            _, made = engine.submit_all(
                [
                    New(MIGRATION.name, (migration,), id=row.id, owner=caller.name, idempotency_key=idempotency_key),
                    New(
                        REQUEST.name, (request, Notice(parse_recipients(*notify))), id=row.request, owner=caller.name,
                        parent=Ref(MIGRATION.name, row.id), idempotency_key=idempotency_key,
                    ),
                ],
                who=self._who,
            )  # fmt: skip
        except CommitOutcomeUnknown:
            raise  # maintenance finds out whether it was written
        except Exception:
            with resources.connections.open() as tables:
                tables.forget_migration(number)
            raise
        if made.id != row.request:  # the same key was used a moment ago
            with resources.connections.open() as tables:
                tables.forget_migration(number)
        return made

    # --- GET

    def get(
        self,
        caller: Caller,
        number: int,
        target: str,
        *,
        globs: Sequence[str] = (),
        regexes: Sequence[str] = (),
        paths: Sequence[str] = (),
        overwrite: bool = False,
        notify: Iterable[str] = (),
        idempotency_key: str | None = None,
    ) -> Record:
        """Make a GET. `target`: an absolute path; "": where the files were."""
        row = self.find_row(number)
        check_read(self._resources, caller, row)
        if target and not target.startswith("/"):
            raise InputError(f"The target {to_printable(target)} must be an absolute path.")
        if target and not os.path.isdir(os.path.dirname(os.path.normpath(target))):
            raise InputError(f"The parent of the target {to_printable(target)} does not exist.")
        Selection(globs=globs, regexes=regexes)  # raises for one that cannot be read
        listed = (
            write_list(self._resources.objects, f"archive/requests/{uuid.uuid4().hex}/paths", map(encode_path, paths))
            if paths
            else None
        )
        asked = GetRequest(
            os.path.normpath(target) if target else "", GetSelection(tuple(globs), tuple(regexes), listed), overwrite
        )
        with self._open_engine() as engine:
            migration = self._get_migration(engine, number)
            if migration.state != "ON_STORAGE":
                raise ActionRefused(
                    f"Migration {number} is {migration.state}; it can be restored when it is ON_STORAGE."
                )
            return self._submit(
                engine, caller, row, migration, "GET", "GET_START", (asked,), notify, idempotency_key, "use"
            )

    # --- DELETE

    def delete(
        self,
        caller: Caller,
        number: int,
        *,
        only_copy: bool = False,
        grace: float | None = None,
        notify: Iterable[str] = (),
        idempotency_key: str | None = None,
    ) -> Record:
        """Make a DELETE; in the same commit every other request of the migration is stopped.

        Only the PUT_TIDY of a MIGRATE is not: the DELETE waits for it, as it waits for whatever a worker is just stopping.
        """
        row = self.find_row(number)
        check_write(self._resources, caller, row)
        with self._open_engine() as engine:
            if idempotency_key is not None and (known := _find_repeated(engine, idempotency_key)) is not None:
                return known
            refusal: ActionRefused | None = None
            for _ in range(MAX_ATTEMPTS):
                migration = self._get_migration(engine, number)
                if migration.state in ("DELETING", "DELETED"):
                    raise ActionRefused(f"Migration {number} is {migration.state} already.")
                not_before = self._find_end_of_grace(engine, migration, only_copy, grace)
                stopped = _find_stoppable(engine, migration)
                asked = DeleteRequest(
                    not_before, migration.state, tuple(StoppedRequest(r.id, r.state) for r in stopped)
                )
                acts = (
                    Act(migration.ref, "delete", {"expected": migration.state, "version": migration.version}),
                    *(Act(each.ref, "stop", why=f"migration {number} is deleted") for each in stopped),
                )
                try:
                    return self._submit(
                        engine,
                        caller,
                        row,
                        migration,
                        "DELETE",
                        "DELETE_START",
                        (asked,),
                        notify,
                        idempotency_key,
                        acts,
                    )
                except ActionRefused as error:
                    refusal = error  # something has moved on between the reading and the commit
            assert refusal is not None
            raise refusal

    def _find_end_of_grace(self, engine: Engine, migration: Record, only_copy: bool, grace: float | None) -> float:
        document, settings = migration.document(MigrationDocument), self._resources.settings
        now = engine.store.now()
        if document.is_only_copy:
            if not only_copy:
                raise ActionRefused(
                    f"The originals of migration {document.number} were removed: the storage may have the only copy. Say --only-copy to "
                    "delete it all the same."
                )
            return now + max(settings.only_copy_grace if grace is None else grace, MIN_ONLY_COPY_GRACE)
        if grace is not None:
            return now + grace
        return now + (settings.grace if migration.state == "ON_STORAGE" else 0.0)

    def undelete(self, caller: Caller, number: int) -> ActionResult:
        """Take back the DELETE of a migration whose grace has not ended."""
        check_write(self._resources, caller, self.find_row(number))
        with self._open_engine() as engine:
            for record in engine.store.each(REQUEST.name, parent=migration_ref(number), newest=True):
                if record.state == "DELETE_START":
                    return engine.act(record.ref, "undelete", who=self._who, confirmed=True)
        raise ActionRefused(
            f"There is no DELETE of migration {number} that can be taken back: its grace has ended, or it was never asked for."
        )

    # --- cancel and resume

    def cancel(self, caller: Caller, request_number: int, *, why: str = "") -> Record:
        """End a request and clean up after it: a PUT by deleting its migration, without grace."""
        with self._open_engine() as engine:
            record = self.get_request(engine, request_number)
            asked = record.document(RequestDocument)
            check_write_of_request(self._resources, caller, record, self.find_row(asked.migration_number))
            if asked.kind == "GET":
                engine.act(record.ref, "cancel", who=self._who, why=why, args={"why": why}, confirmed=True)
                return engine.store.get(*record.ref)
            if asked.kind == "MOVE":
                engine.act(record.ref, "cancel_move", who=self._who, why=why, args={"why": why}, confirmed=True)
                return engine.store.get(*record.ref)
            if asked.kind == "DELETE":
                engine.act(record.ref, "undelete", who=self._who, why=why, confirmed=True)
                return engine.store.get(*record.ref)
            if asked.kind in ("PUT", "MIGRATE") and record.state == "PUT_COMPLETED":
                raise ActionRefused(
                    f"Request {request_number} is done; delete migration {asked.migration_number} instead."
                )
        return self.delete(caller, asked.migration_number, grace=0.0)

    def resume(self, caller: Caller, request_number: int) -> Record:
        with self._open_engine() as engine:
            record = self.get_request(engine, request_number)
            row = self.find_row(record.document(RequestDocument).migration_number)
            check_write_of_request(self._resources, caller, record, row)
            engine.act(record.ref, "resume", who=self._who, confirmed=True)
            return engine.store.get(*record.ref)

    # --- looking

    def find_row(self, number: int) -> MigrationRow:
        with self._resources.connections.open() as tables:
            row = tables.find_migration(number)
        if row is None:
            raise NotFound(f"There is no migration {number}.", code="unknown-migration")
        return row

    def get_request(self, engine: Engine, number: int) -> Record:
        try:
            return engine.store.get(*request_ref(number))
        except RecordNotFound:
            raise NotFound(f"There is no request {number}.", code="unknown-migration") from None

    def _get_migration(self, engine: Engine, number: int) -> Record:
        try:
            return engine.store.get(*migration_ref(number))
        except RecordNotFound:
            raise NotFound(f"Migration {number} has no record any more.", code="unknown-migration") from None

    def _submit(
        self, engine: Engine, caller: Caller, row: MigrationRow, migration: Record, kind: RequestKind, state: str,
        documents: tuple[msgspec.Struct, ...], notify: Iterable[str], idempotency_key: str | None, act: str | tuple[Act, ...],
    ) -> Record:  # fmt: skip
        """Make a request of a migration that there is, in one commit with what it does to that."""
        with self._resources.connections.open() as tables:
            number = tables.take_number("request")  # lost if the commit fails: numbers need not be without gaps
        document = migration.document(MigrationDocument)
        request = RequestDocument(number, kind, migration.id, row.number, document.workspace, document.storage)
        new = New(
            REQUEST.name, (request, Notice(parse_recipients(*notify)), *documents), id=request_ref(number).id, state=state,
            owner=caller.name, parent=migration.ref, idempotency_key=idempotency_key,
        )  # fmt: skip
        acts = (Act(migration.ref, act),) if isinstance(act, str) else act
        return engine.submit_all([new], acts=acts, who=self._who)[0]

    def move(
        self,
        caller: Caller,
        number: int,
        storage: str,
        *,
        notify: Iterable[str] = (),
        idempotency_key: str | None = None,
    ) -> Record:
        """Make a MOVE to another storage."""
        row = self.find_row(number)
        check_write(self._resources, caller, row)
        check_storage(self._resources, row.workspace, storage)
        with self._open_engine() as engine:
            migration = self._get_migration(engine, number)
            if migration.document(MigrationDocument).storage == storage:
                raise ActionRefused(f"Migration {number} is on {storage} already.")
            ensure_quota(engine, self._resources, row.workspace, storage, who=self._who)
            asked = MoveRequest(storage, f"migration-{number:010d}")
            return self._submit(
                engine, caller, row, migration, "MOVE", "MOVE_START", (asked,), notify, idempotency_key, "use"
            )


def _find_interrupted(tables: ArchiveTables, origin: tuple[str, int] | None, folder: str) -> MigrationRow | None:
    """What an earlier run for the same copies entered before it died: the same numbers make the same records, so of two
    runs side by side the second finds what the first has written.
    """
    for number, _ in tables.list_migrations_of(origin[0], MAX_ATTEMPTS) if origin is not None else ():
        row = tables.find_migration(number)
        if row is not None and row.common_path == folder:
            return row
    return None


def _find_repeated(engine: Engine, key: str) -> Record | None:
    try:
        return engine.store.get_by_idempotency_key(REQUEST.name, key)
    except RecordNotFound:
        return None


def _find_stoppable(engine: Engine, migration: Record) -> list[Record]:
    """The requests that a DELETE stops. The PUT_TIDY of a MIGRATE is waited for."""
    found = engine.store.each(REQUEST.name, parent=migration.ref, documents=True)
    return [
        record
        for record in found
        if record.state in STOPPABLE
        and not (record.state == "PUT_TIDY" and record.document(RequestDocument).kind == "MIGRATE")
    ]


def check_write_of_request(resources: ArchiveResources, caller: Caller, record: Record, row: MigrationRow) -> None:
    """Whoever made a request may end it, beside those who may change the migration."""
    if record.owner != caller.name or record.state in PUT_FLOW:
        check_write(resources, caller, row)


# --- what comes from outside


def only_one(names: Iterable[str], what: str) -> str:
    """The name that need not be said because there is no other."""
    known = sorted(names)
    if len(known) == 1:
        return known[0]
    raise InputError(f"Say which {what}: {', '.join(known)}.")


def check_storage(resources: ArchiveResources, workspace: str, storage: str) -> None:
    resources.get_storage_settings(storage)
    allowed = resources.get_workspace(workspace).storages
    if allowed and storage not in allowed:
        raise ActionRefused(f"The workspace {workspace} cannot use the storage {storage}, but {', '.join(allowed)}.")


def check_label(label: str) -> str:
    text = " ".join(to_printable(label).split())
    if not 1 <= len(text) <= MAX_LABEL:
        raise InputError(f"A label has 1 to {MAX_LABEL} characters.")
    return text


def check_paths(paths: Sequence[str]) -> list[str]:
    """The paths as they are archived: absolute, each once. Raises InputError with a sentence for each that is wrong."""
    if not paths:
        raise InputError("Name at least one file or folder.")
    if len(paths) > MAX_PATHS:
        raise InputError(f"One request takes at most {MAX_PATHS:,} paths; name the folders that they are in.")
    problems = []
    for path in paths:
        if not path.startswith("/") or "\0" in path:
            problems.append(f"{to_printable(path)} is no absolute path")
        elif not os.path.lexists(path):
            problems.append(f"{to_printable(path)} does not exist")
    if problems:
        raise InputError(
            f"{'; '.join(problems[:20])}{f'; and {len(problems) - 20} more' if len(problems) > 20 else ''}."
        )
    return list(dict.fromkeys(os.path.normpath(path) for path in paths))
