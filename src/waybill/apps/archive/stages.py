"""What the stages of a request share: the run of a stage, what follows from its errors, and what failing gives back.

    Stage        a record with its migration, its storage and its catalogue, for the run of one stage
    run_stage    calls the work of a stage, and decides what its errors mean:

        a storage that is unavailable, full or refuses credentials      the request waits, for as long as it takes
        an error of a user, or one that no repetition can help          it fails at once
        any other error                                                 it is tried again, SYSTEM_TRIES times

Before a request fails it gives back what it took, and only then it rests in FAILED:

    Failing is written, the migration of a PUT becomes FAILED -> owners and modes are given back -> the mail is made -> FAILED

A crash in between begins again where `Failing` says why; each part is safe to repeat.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import cached_property
from typing import NoReturn

import msgspec
from msgspec.structs import replace

from waybill.apps.archive.catalogue import ArchiveTables
from waybill.apps.archive.files import (
    AccessRefused,
    ArchiveInvalid,
    FileAccess,
    FileEntry,
    FileFailure,
    FileSetChanged,
    ReportFailure,
    open_access,
    read_entry_list,
    unlock_files,
)
from waybill.apps.archive.machine import (
    Failing,
    MigrationDocument,
    MigrationFiles,
    Progress,
    PutAttempts,
    Released,
    RequestDocument,
    RequestReport,
)
from waybill.apps.archive.machine.request import BACKOFF, PUT_FLOW, SYSTEM_TRIES, migration_ref
from waybill.apps.archive.notices import make_failure_mail
from waybill.apps.archive.resources import ArchiveResources, resources_of
from waybill.apps.archive.storages import (
    ArchiveNotFound,
    ArchiveSource,
    CredentialsRefused,
    ExternalStorageDamaged,
    SourceChanged,
    Storage,
    StorageRefused,
    StorageUnavailable,
)
from waybill.errors import InputError, NotFound
from waybill.manifests import ManifestError
from waybill.manifests.record_lists import RecordList, write_list
from waybill.record import DocumentError, Record, StoreError
from waybill.step import Act, Done, Fail, Outcome, StepContext, Wait

PERMANENT = (
    Fail,
    StorageRefused,
    ExternalStorageDamaged,
    ArchiveNotFound,
    ArchiveInvalid,
    AccessRefused,
    FileSetChanged,
    SourceChanged,
    ManifestError,
    DocumentError,
    InputError,
    NotFound,
)
MAX_SHOWN_FAILURES = 5
CREDENTIALS_PAUSE = 300.0  # seconds


class Stage:
    """One run of a stage of a request."""

    def __init__(self, ctx: StepContext) -> None:
        self.ctx = ctx
        self.request = ctx.record.document(RequestDocument)
        self.resources: ArchiveResources = resources_of(ctx)

    @property
    def record(self) -> Record:
        return self.ctx.record

    @cached_property
    def migration_record(self) -> Record:
        """The migration as it was when the stage began; what a commit of this request changes is read again."""
        return self.ctx.get(*migration_ref(self.record))

    def forget_migration(self) -> None:
        self.__dict__.pop("migration_record", None)

    @property
    def migration(self) -> MigrationDocument:
        return self.migration_record.document(MigrationDocument)

    @property
    def files(self) -> MigrationFiles:
        return self.migration_record.find_document(MigrationFiles) or MigrationFiles()

    @property
    def progress(self) -> Progress:
        return self.record.find_document(Progress) or Progress()

    @property
    def storage(self) -> Storage:
        return self.resources.open_storage(self.migration.storage)

    def open_tables(self) -> AbstractContextManager[ArchiveTables]:
        return self.resources.connections.open()

    def open_access(self) -> FileAccess:
        """The files, with the rights of the request's owner."""
        return open_access(self.resources.find_user(self.record.owner))

    def list_name(self, what: str) -> str:
        """The name of a list that this run of the stage writes."""
        return f"archive/migrations/{self.request.migration_number:010d}/{self.ctx.claim_version}/{what}"

    def batch_token(self, stage: str) -> str:
        """The same for every run of a stage, and another when a request was resumed or began anew: then the batch of before
        may have ended.
        """
        attempts = self.record.find_document(PutAttempts)
        return f"{self.record.id}-{stage}-{self.record.resume_count}-{attempts.restarts if attempts is not None else 0}"

    def read_entries(self, entries: RecordList | None) -> Iterator[FileEntry]:
        if entries is None:
            raise Fail(f"The list of files of migration {self.migration.number} is missing. Nothing was removed.")
        return read_entry_list(self.ctx.objects, entries)

    def save_progress(self, progress: Progress) -> None:
        self.ctx.save((progress,))

    def act_on_migration(self, action: str, **args: object) -> Act:
        return Act(self.migration_record.ref, action, args)

    def wait_for_storage(self, message: str) -> Wait:
        return Wait(self.resources.settings.poll, message)


StageWork = Callable[[Stage], Outcome]


def run_stage(ctx: StepContext, work: StageWork) -> Outcome:
    record = ctx.record
    stage = Stage(ctx)
    is_put = record.state in PUT_FLOW
    if (failing := record.find_document(Failing)) is not None:
        _fail(stage, failing)
    if is_put and record.state not in ("PUT_START", "PUT_TIDY") and record.find_document(Released) is not None:
        # It failed, and the files had their owners back. They may be other files by now.
        return Done(to="PUT_START", remove=(Progress,), message="The files are locked and compared again.")
    try:
        return work(stage)
    except CredentialsRefused as error:
        return Wait(CREDENTIALS_PAUSE, f"{error} It goes on when other credentials are given.")
    except StorageUnavailable as error:
        return Wait(stage.resources.settings.poll, str(error))
    except SourceChanged as error:
        if record.state not in ("PUT_PACKING", "PUTTING"):
            _fail(stage, Failing(str(error)))
        return _begin_anew(stage, str(error))
    except PERMANENT as error:
        if record.state == "PUT_TIDY":
            raise  # it is retried for ever: from here on the storage may have the only copy
        _fail(stage, Failing(str(error)))
    except StoreError:
        raise
    except Exception as error:
        if record.state != "PUT_TIDY" and record.error_count + 1 >= SYSTEM_TRIES:
            _fail(stage, Failing(f"{type(error).__name__}: {error}. It was tried {SYSTEM_TRIES} times."))
        raise


MAX_RESTARTS = 5


def _begin_anew(stage: Stage, why: str) -> Done:
    """A file changed after it was locked. All are listed again; what has not changed stays as it was sent."""
    attempts = stage.record.find_document(PutAttempts) or PutAttempts()
    if attempts.restarts >= MAX_RESTARTS:
        _fail(
            stage,
            Failing(f"{why} This has happened {attempts.restarts} times: end what is writing to it, then resume."),
        )
    return Done((PutAttempts(attempts.restarts + 1),), to="PUT_START", remove=(Progress,), message=why)


def _fail(stage: Stage, failing: Failing) -> NoReturn:
    """Give back what the request took; then raise Fail. Safe to repeat: a second run goes on from `Failing`."""
    ctx, is_put = stage.ctx, stage.record.state in PUT_FLOW
    if ctx.record.find_document(Failing) is None:
        acts = (stage.act_on_migration("fail", why=failing.why),) if is_put else ()
        ctx.save((failing,), acts=acts)
    if is_put:
        give_back_files(stage)
    if not failing.is_told:
        ctx.spawn(
            make_failure_mail(stage.record, failing.why, at=ctx.now()), {"failing": replace(failing, is_told=True)}
        )
    raise Fail(failing.why)


def give_back_files(stage: Stage, *, is_all_gone: bool = False) -> list[FileFailure]:
    """Give owners and modes back. Returns what could not be given back. Safe to repeat. `is_all_gone`: the files are removed."""
    files, ctx = stage.files, stage.ctx
    failures: list[FileFailure] = []
    if not files.is_locked:
        return failures
    if files.file_set is not None and files.found is not None and not is_all_gone:
        try:
            # Only to the recorded device and inode, with what the list says: a second run gives the same.
            unlock_files(files.file_set, stage.read_entries(files.found), limit_report(failures))
        except FileSetChanged as error:
            failures.append(FileFailure(files.file_set.folder, str(error)))
    ctx.save(
        (Released(ctx.now()),), acts=(stage.act_on_migration("note_files", files=msgspec.to_builtins(replace(files, is_locked=False))),)
    )  # fmt: skip
    stage.forget_migration()
    return failures


# --- per-file failures


MAX_REPORTED_FAILURES = 100_000


def limit_report(failures: list[FileFailure]) -> ReportFailure:
    """Collect the first failures; a tree that cannot be read at all has millions."""

    def report(failure: FileFailure) -> None:
        if len(failures) < MAX_REPORTED_FAILURES:
            failures.append(failure)

    return report


def describe_failures(failures: Sequence[FileFailure]) -> str:
    shown = "; ".join(f"{each.path}: {each.reason.rstrip('.')}" for each in failures[:MAX_SHOWN_FAILURES])
    more = len(failures) - MAX_SHOWN_FAILURES
    return f"{shown}; and {more} more" if more > 0 else shown


def write_failures(stage: Stage, failures: Iterable[FileFailure]) -> RecordList:
    return write_list(stage.ctx.objects, stage.list_name("failures"), failures)


def report_of(stage: Stage) -> RequestReport:
    return stage.record.find_document(RequestReport) or RequestReport()


# --- sources


class WatchedSource:
    """A source that stops when the step must, and says how far it is."""

    def __init__(self, source: ArchiveSource, stage: Stage, sent: int, total: int) -> None:
        self._source, self._stage, self._sent, self._total = source, stage, sent, total
        self.path = source.path

    @property
    def size(self) -> int:
        return self._source.size

    def iter_chunks(self) -> Iterator[bytes | memoryview]:
        ctx, passed = self._stage.ctx, self._sent
        chunks = iter(self._source.iter_chunks())
        try:
            for chunk in chunks:
                ctx.check()
                yield chunk
                passed += len(chunk)
                ctx.report_progress(passed, self._total, "bytes")
        finally:
            if isinstance(chunks, Generator):
                chunks.close()  # at once: a thread may be reading the files


__all__ = [
    "BACKOFF",
    "Stage",
    "StageWork",
    "WatchedSource",
    "describe_failures",
    "give_back_files",
    "limit_report",
    "report_of",
    "run_stage",
    "write_failures",
]
