"""From the working folder of a job to a version in storage, for the state that does it (Processing, or Storing).

    prepare_object           describes the object, and writes its system files beside the fetched files (working_files.py)
    write_version            storage copies all files, compares them with their digests, and returns the version
    finish_version           Done, with the documents of the job that name the version
    read_previous_metadata   the description of the previous version, which an update keeps where nothing replaces it

System files are passed to storage from memory, and published in the working folder as well.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

import msgspec

from waybill.apps.ingest.description import (
    DC_FILE,
    DELETE_FILE,
    DESCRIPTION_FILES,
    MAX_DESCRIPTION_BYTES,
    PRODUCER_PREFIX,
    SYSTEM_PREFIX,
    EmbeddedMetadata,
    ObjectDescription,
    PreviousMetadata,
    deletions_of,
    describe_object,
    read_embedded_metadata,
)
from waybill.apps.ingest.documents import InventoryRequest, JobRestarts, JobWarnings, PayloadFiles
from waybill.apps.ingest.embargo import close_object
from waybill.apps.ingest.formats.anvl import Erc
from waybill.apps.ingest.formats.checkm import ManifestRow, write_object_manifest, write_storage_manifest
from waybill.apps.ingest.formats.dublin_core import read as read_dublin_core
from waybill.apps.ingest.inventory import InventoryConflict, LocalIdTaken
from waybill.apps.ingest.job_refusal import SubmissionRefused, save_refusal
from waybill.apps.ingest.job_warnings import find_warnings
from waybill.apps.ingest.machine.job import RECORDING_STATE
from waybill.apps.ingest.object_paths import BAG_TAGS
from waybill.apps.ingest.profile import Profile
from waybill.apps.ingest.resources import IngestResources, resources_of
from waybill.apps.ingest.storage import (
    Deposit,
    FileToStore,
    InvalidDeposit,
    NotInStorage,
    StorageDamaged,
    StorageService,
    StoredVersion,
)
from waybill.apps.ingest.storage.sources import FILE_SCHEME, SourceMissing
from waybill.apps.ingest.submission import JobConfiguration, Submission
from waybill.apps.ingest.working_files import DEPOSITOR_MANIFEST, StagedFile, find_changed_files, list_working_files
from waybill.errors import FormatError
from waybill.files.folders import publish_folder
from waybill.manifests import ManifestEntry, ManifestError, record_lists
from waybill.objects import ContentMismatch, ObjectNotFound
from waybill.record import Record
from waybill.step import Done, Fail, StepContext

STORAGE_MANIFEST = "mrt-manifest.txt"
SUBMISSION_MANIFEST = "mrt-submission-manifest.txt"
_MIME = {".txt": "text/plain; charset=UTF-8", ".xml": "application/xml"}
# without mrt-delete.txt: what was deleted once is not deleted again
_KEPT_DESCRIPTIONS = frozenset(PRODUCER_PREFIX + name for name in DESCRIPTION_FILES - {DELETE_FILE})
_SYSTEM_DC_PATH = SYSTEM_PREFIX + DC_FILE
_READ_PATHS = _KEPT_DESCRIPTIONS | {_SYSTEM_DC_PATH}  # none of them is longer than MAX_DESCRIPTION_BYTES
_OBSOLETE_PATHS = frozenset({PRODUCER_PREFIX + DELETE_FILE, PRODUCER_PREFIX + DEPOSITOR_MANIFEST})
_BAG_TAGS_PREFIX = f"{PRODUCER_PREFIX}{BAG_TAGS}/"
_BAG_DECLARATION = _BAG_TAGS_PREFIX + "bagit.txt"


class PreparedObject(NamedTuple):
    """An object that is described and ready to be stored."""

    ark: str
    submission: Submission
    description: ObjectDescription
    system_files: tuple[StagedFile, ...]
    deletions: tuple[str, ...]  # requested by the depositor
    obsolete_files: tuple[str, ...]  # about the previous deposit alone, which an update does not keep


def prepare_object(
    job: Record, ctx: StepContext, profile: Profile, ark: str, embedded: EmbeddedMetadata
) -> PreparedObject:
    """Describe the object, and publish its system files in the working folder: for operators, and for another service that
    may have to store it.
    """
    submission = Submission.from_job(job)
    try:
        previous = _read_previous(job, ctx, profile, ark, embedded) if submission.update else PreviousMetadata()
        description = describe_object(submission, profile, ark, embedded, previous)
    except FormatError as error:
        raise Fail(str(error)) from error
    system_files = tuple(
        StagedFile(SYSTEM_PREFIX + name, len(data), hashlib.sha256(data).hexdigest(), _MIME[Path(name).suffix])
        for name, data in description.files.items()
    )
    prepared = PreparedObject(
        ark, submission, description, system_files, deletions_of(submission, embedded), previous.obsolete_files
    )
    write_system_files(job, ctx, description.files, system_files)
    return prepared


def _read_previous(
    job: Record, ctx: StepContext, profile: Profile, ark: str, embedded: EmbeddedMetadata
) -> PreviousMetadata:
    submission = Submission.from_job(job)
    replaced_paths = {PRODUCER_PREFIX + name for name in embedded.files}.union(deletions_of(submission, embedded))
    return read_previous_metadata(
        resources_of(ctx), ark, submission.owner or profile.owner, storage_request_of(job), replaced_paths
    )


def write_version(job: Record, ctx: StepContext, prepared: PreparedObject) -> StoredVersion:
    """Have storage write a version. Safe to repeat: for the same request storage returns the version that it wrote."""
    with resources_of(ctx).sources.lend_files(prepared.description.files) as lent:
        deposit = Deposit(
            object=prepared.ark,
            request=storage_request_of(job),
            mode="update" if prepared.submission.update else "add",
            deletions=(*prepared.deletions, *prepared.obsolete_files),
            files=_list_files_to_store(job, ctx, prepared, lent),
            message=prepared.submission.note,
            user=prepared.submission.submitter or "waybill",
            about=prepared.description.about,
        )
        try:
            return store_deposit(ctx, deposit)
        except (ContentMismatch, SourceMissing) as error:
            changed = next(find_changed_files(job, ctx), None)
            if changed is not None and job.error_count:  # the first time the folder may just have been replaced
                raise Fail(
                    f"The working copy of {changed} is not what was fetched: `restart` fetches it again."
                ) from error
            raise


def _list_files_to_store(job: Record, ctx: StepContext, prepared: PreparedObject, lent: str) -> Iterator[FileToStore]:
    below = f"{FILE_SCHEME}{ctx.folder.relative_to(resources_of(ctx).environment.config.work.root).as_posix()}/"
    for file in list_working_files(job, ctx):
        yield FileToStore(file.path, file.size, file.sha256, below + file.path, file.mime)
    for file in prepared.system_files:
        yield FileToStore(file.path, file.size, file.sha256, lent + file.path.removeprefix(SYSTEM_PREFIX), file.mime)


def check_stored_here(resources: IngestResources, ark: str) -> None:
    """Raise Fail if another storage service keeps the object: a version written here would lack its files, and have a
    number that is in use there.
    """
    if resources.inventory.is_stored_elsewhere(ark):
        raise Fail(
            f"Another storage service keeps {ark}, so no version of it can be written here: leave the state Storing to that service "
            '(settings storing_state = true, external_states = ["Storing"]).'
        )


def store_deposit(ctx: StepContext, deposit: Deposit) -> StoredVersion:
    resources = resources_of(ctx)
    if damaged := resources.inventory.list_damaged_of(deposit.object):
        deposit = msgspec.structs.replace(deposit, damaged_places=tuple(str(row["place"]) for row in damaged))
    if embargo := deposit.about.get("embargo"):
        close_object(resources.inventory, deposit.object, str(embargo))
    try:
        version = resources.storage.write(deposit, check=ctx.check)
        if RECORDING_STATE in resources.settings.external_states:
            # Our inventory needs it all the same: local ids are looked up there, and the service that records it reads the
            # manifest by our routes. Safe to repeat: a version that is recorded already is left as it is.
            resources.inventory.record(version, resources.storage)
        return version
    except (InvalidDeposit, StorageDamaged, LocalIdTaken, InventoryConflict) as error:
        if error.code == "deletion-target-missing":
            hint = f"`waybill ingest object {deposit.object}` lists what it has."
            raise save_refusal(ctx, SubmissionRefused(f"{error} {hint}")) from error
        raise Fail(str(error)) from error


def finish_version(job: Record, ctx: StepContext, version: StoredVersion, *documents: msgspec.Struct) -> Done:
    """Done, for a job whose version is in storage, with these documents and those that name the version."""
    warnings = find_warnings(job, ctx, version)
    inventory = InventoryRequest(manifest_url_of(ctx, version.object, version.version), "add")
    if not warnings.count:
        return Done((*documents, version, inventory), remove=(JobWarnings,))
    return Done((*documents, warnings, version, inventory))


def manifest_url_of(ctx: StepContext, ark: str, version: int) -> str:
    """The URL of the manifest of a version; signed, if services that have no token share the tree."""
    resources = resources_of(ctx)
    url, lifetime = (
        resources.api_url_of("objects", ark, "versions", str(version), "manifest"),
        resources.settings.storage.signed_url_seconds,
    )
    if not resources.is_tree_shared or not lifetime:
        return url
    signer = resources.get_manifest_signer(ctx.run_on_store)
    return f"{url}?{signer.sign_query((ark, str(version)), int(ctx.now() + lifetime))}"


def storage_request_of(job: Record) -> str:
    """The name of a job's deposit among all deposits of its object.

    After a restart it is another deposit: the files may have changed, and those stored before do not count.
    """
    restarts = job.find_document(JobRestarts)
    return f"{job_name_of(job)}.{restarts.count}" if restarts is not None else job_name_of(job)


def job_name_of(job: Record) -> str:
    """The name of the job itself, the same after a restart.

    Without a jobID, that of the batch makes it unique.
    """
    configuration = job.find_document(JobConfiguration)
    job_id = configuration.submission.job_id if configuration is not None else ""
    return job_id or "/".join(part for part in (Submission.from_job(job).batch_id, job.id) if part)


# --- the folder `system` of a job, for a storage service that reads it: the system files, and two manifests


def write_system_files(
    job: Record, ctx: StepContext, files: Mapping[str, bytes], system_files: Iterable[StagedFile]
) -> None:
    """Write the files by their names, and the two manifests; `system_files` has their sizes and digests."""
    folder = ctx.workdir / "system"  # in the folder of this attempt: a second run has another
    folder.mkdir(exist_ok=True)
    for name, data in files.items():
        with open(folder / name, "wb", buffering=0) as small:
            small.write(data)  # not synced: it is built again from the record whenever it is needed
    with open(folder / SUBMISSION_MANIFEST, "wb") as file:
        listed = job.find_document(PayloadFiles)
        rows = record_lists.read_list(ctx.objects, listed, ManifestRow) if listed is not None else ()
        file.writelines(write_object_manifest(_to_writable_row(row) for row in rows))
    with open(folder / STORAGE_MANIFEST, "wb") as file:
        file.writelines(
            write_storage_manifest(
                _manifest_rows_of(itertools.chain(list_working_files(job, ctx), system_files), ctx.folder)
            )
        )
    publish_folder(ctx, "system")


def _manifest_rows_of(files: Iterable[StagedFile], folder: Path) -> Iterator[ManifestRow]:
    for staged in files:
        # For a storage service that shares the disk; quoting leaves no | in it.
        url = f"file://{quote(str(folder))}/{quote(staged.path)}"
        yield _to_writable_row(ManifestRow(0, url, staged.path, "sha256", staged.sha256, staged.size, "", staged.mime))


def _to_writable_row(row: ManifestRow) -> ManifestRow:
    """The row with characters that the format cannot hold in a name percent-encoded."""
    name = row.name.replace("|", "%7C")
    if name != name.strip():
        name = quote(name[:1]) + name[1:-1] + quote(name[-1:])
    return msgspec.structs.replace(row, name=name) if name != row.name else row


# --- the description of the previous version, which an update keeps where nothing replaces it


def read_previous_metadata(
    resources: IngestResources, ark: str, owner: str, storage_request: str, replaced_paths: Container[str]
) -> PreviousMetadata:
    """`storage_request`: that of the update itself; `replaced_paths`: files that it replaces or deletes, by their paths in
    the object.
    """
    row = resources.inventory.get_object(ark)
    erc = Erc(who=row["creator"], what=row["title"], when=row["date"]) if row is not None else Erc()
    entries = _read_previous_entries(resources.storage, ark, storage_request, replaced_paths)
    files = {
        entry.uri: _read_entry(resources.storage, ark, entry)
        for entry in entries
        if entry.uri in _READ_PATHS and entry.size <= MAX_DESCRIPTION_BYTES
    }
    try:
        embedded = read_embedded_metadata(
            {path.removeprefix(PRODUCER_PREFIX): data for path, data in files.items() if path in _KEPT_DESCRIPTIONS}
        )
    except FormatError as error:
        raise Fail(
            f"{error} It is in {ark}, and the update leaves it there: send another one, or delete it."
        ) from error
    return PreviousMetadata(
        erc,
        resources.inventory.list_local_ids(ark, owner),
        _read_previous_dublin_core(files),
        embedded,
        _find_obsolete_files([entry.uri for entry in entries]),
    )


def _find_obsolete_files(paths: Sequence[str]) -> tuple[str, ...]:
    is_bag = _BAG_DECLARATION in paths  # otherwise the folder only has that name
    return tuple(path for path in paths if path in _OBSOLETE_PATHS or (is_bag and path.startswith(_BAG_TAGS_PREFIX)))


def _read_previous_dublin_core(files: Mapping[str, bytes]) -> dict[str, list[str]]:
    try:
        return read_dublin_core(files[_SYSTEM_DC_PATH]) if _SYSTEM_DC_PATH in files else {}
    except FormatError:
        return {}  # another program wrote it: the depositor cannot repair it, and ours replaces it


def _read_previous_entries(
    storage: StorageService, ark: str, request: str, replaced_paths: Container[str]
) -> list[ManifestEntry]:
    """The entries of the previous version that describe the object and are not replaced, and those that become obsolete."""
    try:
        earlier = list(takewhile(lambda version: version.request != request, storage.list_versions(ark)))
        if not earlier:
            return []
        stored = storage.get_version(ark, earlier[-1].number)
        with storage.open_manifest(stored) as reader:
            return [entry for entry in reader if _is_wanted(entry.uri, replaced_paths)]
    except NotInStorage:
        return []  # it is not stored yet; or another service keeps it, or another program wrote it
    except (ManifestError, ObjectNotFound, StorageDamaged) as error:
        raise Fail(f"The manifest of the version of {ark} before this one cannot be read: {error}") from error


def _is_wanted(path: str, replaced_paths: Container[str]) -> bool:
    return (
        path == _SYSTEM_DC_PATH
        or path in _OBSOLETE_PATHS
        or path.startswith(_BAG_TAGS_PREFIX)
        or (path in _KEPT_DESCRIPTIONS and path not in replaced_paths)
    )


def _read_entry(storage: StorageService, ark: str, entry: ManifestEntry) -> bytes:
    try:
        with storage.read(ark, str(entry.extra.get("place", ""))) as body:
            data = body.read()
    except ObjectNotFound:
        data = b""
    if (len(data), hashlib.sha256(data).hexdigest()) != (entry.size, entry.sha256):
        raise Fail(f"{entry.uri} of {ark} is damaged in storage: `waybill ingest audit {ark}` says how.")
    return data
