"""Processing: the object of a job gets its ARK, is described, and is passed to storage.

1. Its local ids are looked up in the inventory, which must not lack objects (inventory/identity.py): each must belong to no
   object, or to the one of this deposit.
2. The ARK is the one that was submitted, or that of the local ids, or a new one, **saved before it is used for anything**.
3. The object is described in system files beside the depositor's own (description.py).
4. The ARK is registered with EZID, if the profile names EZID.
5. Storage writes a version; or, with the state Storing, the request to storage is written into the document `store`.
"""

from __future__ import annotations

from collections.abc import Iterator

from waybill.apps.ingest import object_versions
from waybill.apps.ingest.description import EmbeddedMetadata
from waybill.apps.ingest.documents import MintedArk, StoreRequest
from waybill.apps.ingest.identifiers import ezid
from waybill.apps.ingest.identifiers.minter import Shoulder, shoulder_of
from waybill.apps.ingest.identifiers.noid import find_ark_fault
from waybill.apps.ingest.machine.job import STORING_STATE
from waybill.apps.ingest.object_versions import STORAGE_MANIFEST, PreparedObject
from waybill.apps.ingest.profile import Profile
from waybill.apps.ingest.resources import IngestResources, resources_of
from waybill.apps.ingest.storage import NotInStorage
from waybill.apps.ingest.submission import JobIdentifiers, JobMetadata, Submission
from waybill.apps.ingest.working_files import read_embedded_metadata_of
from waybill.errors import InputError
from waybill.files.names import quote_text
from waybill.record import Record
from waybill.step import Done, Fail, StepContext, Wait
from waybill.transfer import TransferError

INVENTORY_WAIT = 30.0  # seconds between two looks at an inventory that may lack objects
MAX_DRAWN_ARKS = 100  # ARKs in a row that turn out to be in use


def run_step(job: Record, ctx: StepContext) -> Done | Wait:
    resources = resources_of(ctx)
    if problem := resources.find_inventory_problem(ctx.run_on_store):
        return Wait(INVENTORY_WAIT, problem)
    submission = Submission.from_job(job)
    profile = resources.get_profile(ctx, submission)
    embedded = read_embedded_metadata_of(job, ctx)
    job, ark = _identify_object(job, ctx, submission, profile)
    prepared = object_versions.prepare_object(job, ctx, profile, ark, embedded)
    shoulder = shoulder_of(profile, resources.settings.minter)
    if shoulder.ezid_url:
        job, ark, prepared = _register_with_ezid(job, ctx, profile, shoulder, prepared, embedded)
    erc = prepared.description.erc
    metadata = JobMetadata(erc.who, erc.what, erc.when, ark)
    if resources.settings.storing_state:
        return Done((metadata, _build_store_request(ctx, profile, prepared)))
    return object_versions.finish_version(job, ctx, object_versions.write_version(job, ctx, prepared), metadata)


def _build_store_request(ctx: StepContext, profile: Profile, prepared: PreparedObject) -> StoreRequest:
    """The request to storage, in the vocabulary of the services that share the tree."""
    system = ctx.folder / "system"
    mode = "update" if prepared.submission.update else "add"
    delete = (
        (ctx.folder / "producer" / "mrt-delete.txt").as_uri()
        if prepared.deletions and not prepared.submission.deletions
        else ""
    )
    return StoreRequest(
        (system / STORAGE_MANIFEST).as_uri(), f"{mode}/{profile.storage_node or 0}/{prepared.ark}", delete
    )


# --- identifiers


def _identify_object(job: Record, ctx: StepContext, submission: Submission, profile: Profile) -> tuple[Record, str]:
    """The job with its ARK saved, and the ARK."""
    resources = resources_of(ctx)
    if submission.primary_id and (fault := find_ark_fault(submission.primary_id)):
        raise Fail(fault)
    found = _find_ark_of_local_ids(resources, submission, submission.owner or profile.owner)
    if submission.primary_id and found and found != submission.primary_id:
        local = next(
            local
            for local in submission.local_ids
            if resources.inventory.ark_of(submission.owner or profile.owner, local) == found
        )
        raise Fail(
            f"The local id {quote_text(local)} belongs to {found}, and the deposit is for {submission.primary_id}: "
            "submit it for that object, or with another local id."
        )
    ark = submission.primary_id or found
    if not ark:
        return _mint_ark(job, ctx, submission, shoulder_of(profile, resources.settings.minter))
    _check_owner(resources, ark, submission.owner or profile.owner)
    if STORING_STATE not in resources.settings.external_states:
        object_versions.check_stored_here(resources, ark)
    known = job.find_document(JobIdentifiers)
    if known is not None and known.primary_id == ark:
        return job, ark
    return _save_identifiers(ctx, submission, ark), ark


def _check_owner(resources: IngestResources, ark: str, owner: str) -> None:
    """An object stays with its owner: no deposit of another owner, or of none, becomes a version of it."""
    row = resources.inventory.get_object(ark)
    if row is not None and row["owner"] and row["owner"] != owner:
        whose = owner or "nobody"
        raise Fail(
            f"{ark} belongs to {row['owner']}, and the deposit to {whose}: submit it with a profile of the object's owner."
        )


def _find_ark_of_local_ids(resources: IngestResources, submission: Submission, owner: str) -> str:
    """The ARK to which the local ids belong; empty if they are new."""
    arks_by_local_id = {
        local: ark for local in submission.local_ids if (ark := resources.inventory.ark_of(owner, local))
    }
    if len(set(arks_by_local_id.values())) > 1:
        both = " and ".join(
            f"{quote_text(local)} belongs to {ark}" for local, ark in _first_two_objects(arks_by_local_id)
        )
        raise Fail(f"The local ids name two objects: {both}. Submit the deposit for one of them.")
    return next(iter(arks_by_local_id.values()), "")


def _first_two_objects(arks_by_local_id: dict[str, str]) -> Iterator[tuple[str, str]]:
    first = next(iter(arks_by_local_id.items()))
    yield first
    yield next((local, ark) for local, ark in arks_by_local_id.items() if ark != first[1])


def _mint_ark(
    job: Record, ctx: StepContext, submission: Submission, shoulder: Shoulder, *, is_replacement: bool = False
) -> tuple[Record, str]:
    resources = resources_of(ctx)
    for _ in range(MAX_DRAWN_ARKS):
        try:
            ark = resources.number_blocks.mint(shoulder, resources.environment.machines, ctx.run_on_store)
        except InputError as error:
            raise Fail(str(error)) from error
        if resources.inventory.get_object(ark) is None and not _is_stored(resources, ark):
            # Safe to repeat: a second run finds it in the job. An ARK that was drawn and not saved is never used.
            return _save_identifiers(
                ctx, submission, ark, is_minted=bool(shoulder.ezid_url), is_replacement=is_replacement
            ), ark
    raise Fail(
        f"{MAX_DRAWN_ARKS} ARKs of {shoulder.prefix} in a row were in use already: give the profile another shoulder."
    )


def _is_stored(resources: IngestResources, ark: str) -> bool:
    """Whether storage has an ARK that the inventory lacks: a depositor chose it for an object that is not recorded yet."""
    try:
        return bool(resources.storage.get_version(ark))
    except NotInStorage:
        return False


def _save_identifiers(
    ctx: StepContext, submission: Submission, ark: str, *, is_minted: bool = False, is_replacement: bool = False
) -> Record:
    identifiers = JobIdentifiers(ark, submission.local_ids)
    documents = (identifiers, MintedArk(ark)) if is_minted else (identifiers,)
    # No one else can know an ARK that was drawn as a replacement: it needs no lock of its own.
    return ctx.save(documents, locks=() if is_replacement else (f"storage/{ark}",))


# --- EZID


def _register_with_ezid(
    job: Record,
    ctx: StepContext,
    profile: Profile,
    shoulder: Shoulder,
    prepared: PreparedObject,
    embedded: EmbeddedMetadata,
) -> tuple[Record, str, PreparedObject]:
    """Register the ARK with EZID. Safe to repeat: by the name of the job EZID knows whether the ARK is the job's own, also
    after a restart.
    """
    resources = resources_of(ctx)
    client = resources.get_ezid_client(shoulder)
    minted = job.find_document(MintedArk)
    ark = prepared.ark
    try:
        if minted is None or minted.ark != ark:
            if ark.startswith(shoulder.prefix):  # an ARK of another shoulder is not ours to describe
                client.update(ark, _build_ezid_metadata(resources, profile, prepared))
            return job, ark, prepared
        for _ in range(MAX_DRAWN_ARKS):
            try:
                client.create(ark, object_versions.job_name_of(job), _build_ezid_metadata(resources, profile, prepared))
                return job, ark, prepared
            except TransferError as error:
                if error.code != "ark-taken":
                    raise
                job, ark = _mint_ark(job, ctx, prepared.submission, shoulder, is_replacement=True)
                prepared = object_versions.prepare_object(job, ctx, profile, ark, embedded)
    except TransferError as error:
        if error.code == "transfer-refused":
            raise Fail(f"The ARK {ark} could not be registered: {error}") from error
        raise
    raise Fail(
        f"{MAX_DRAWN_ARKS} ARKs of {shoulder.prefix} in a row belong to others in EZID: give the profile another shoulder."
    )


def _build_ezid_metadata(resources: IngestResources, profile: Profile, prepared: PreparedObject) -> ezid.EzidMetadata:
    erc = prepared.description.erc
    target = (
        ""
        if prepared.submission.retain_target or not resources.settings.url
        else ezid.target_url_of(resources.settings.url, prepared.ark)
    )
    return ezid.EzidMetadata(
        who=erc.who,
        what=erc.what,
        when=erc.when,
        where=erc.where,
        creator=profile.context,
        target=target,
        co_owner=profile.minter.co_owner,
        reserved=profile.role == "MRT-class",
    )
