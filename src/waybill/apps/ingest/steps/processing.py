"""Processing: a job's object gets its name, is described, and is handed to storage.

1  its local ids are looked up in the inventory: each belongs to no object, or to the one of this deposit
2  an ARK: the one that was submitted, or that of the local ids, or a new one, **saved before it is used for anything**
3  EZID is told, where the profile says that EZID keeps the ARKs
4  it is described in system files beside the depositor's own (describing.py)
5  storage writes a version; or, with the state Storing, it is written down what storage is asked to do
"""

from __future__ import annotations

from collections.abc import Iterator

from waybill.apps.ingest import ezid, submission
from waybill.apps.ingest.describing import Told
from waybill.apps.ingest.minting import Shoulder, shoulder_of
from waybill.apps.ingest.names import shown
from waybill.apps.ingest.noid import NoidError, fault_of_ark
from waybill.apps.ingest.outfit import Outfit, outfit_of
from waybill.apps.ingest.profile import Profile
from waybill.apps.ingest.steps import depositing
from waybill.apps.ingest.steps.depositing import Prepared
from waybill.apps.ingest.steps.system import MANIFEST
from waybill.apps.ingest.steps.working import told_of
from waybill.apps.ingest.storage import NotStored
from waybill.apps.ingest.submission import Submission
from waybill.record import Record
from waybill.step import Context, Done, Fail

MOST_DRAWN = 100  # ARKs of which each turned out to be another's


def processing(job: Record, ctx: Context) -> Done:
    outfit = outfit_of(ctx)
    said = submission.of_job(job)
    profile = outfit.profile(ctx, said)
    told = told_of(job, ctx)
    job, ark = _identified(job, ctx, said, profile)
    prepared = depositing.prepare(job, ctx, profile, ark, told)
    shoulder = shoulder_of(profile, outfit.settings.minter)
    if shoulder.ezid:
        job, ark, prepared = _registered(job, ctx, profile, shoulder, prepared, told)
    erc = prepared.description.erc
    docs = {"metadata": {"erc_who": erc.who, "erc_what": erc.what, "erc_when": erc.when, "erc_where": ark}}
    if outfit.settings.storing:
        return Done({**docs, "store": _asked(ctx, profile, prepared)})
    return Done({**docs, **depositing.documents(job, ctx, depositing.write(job, ctx, prepared))})


def _asked(ctx: Context, profile: Profile, prepared: Prepared) -> dict[str, str]:
    """What storage is to do, in the words of the services that share the tree."""
    system = ctx.folder / "system"
    mode = "update" if prepared.said.update else "add"
    delete = (
        (ctx.folder / "producer" / "mrt-delete.txt").as_uri()
        if prepared.deletions and not prepared.said.deletions
        else ""
    )
    return {
        "manifest_url": (system / MANIFEST).as_uri(),
        "mode": f"{mode}/{profile.storage_node or 0}/{prepared.ark}",
        "delete": delete,
    }


# --- identifiers


def _identified(job: Record, ctx: Context, said: Submission, profile: Profile) -> tuple[Record, str]:
    """The job with its ARK written down, and the ARK."""
    outfit = outfit_of(ctx)
    if said.primary_id and (fault := fault_of_ark(said.primary_id)):
        raise Fail(fault)
    found = _of_local_ids(outfit, said, said.owner or profile.owner)
    if said.primary_id and found and found != said.primary_id:
        local = next(
            local for local in said.local_ids if outfit.inventory.ark_of(said.owner or profile.owner, local) == found
        )
        raise Fail(
            f"The local id {shown(local)} belongs to {found}, and the deposit is for {said.primary_id}: "
            "submit it for that object, or with another local id."
        )
    ark = said.primary_id or found
    if not ark:
        return _minted(job, ctx, said, shoulder_of(profile, outfit.settings.minter))
    _check_owner(outfit, ark, said.owner or profile.owner)
    if "Storing" not in outfit.settings.outside:
        depositing.check_kept_here(outfit, ark)
    known = job.docs.get("identifiers")
    if isinstance(known, dict) and known.get("primary_id") == ark:
        return job, ark
    return _saved(ctx, said, ark), ark


def _check_owner(outfit: Outfit, ark: str, owner: str) -> None:
    """An object stays with its owner: neither somebody else's deposit nor one of nobody's becomes a version of it."""
    row = outfit.inventory.object(ark)
    if row is not None and row["owner"] and row["owner"] != owner:
        whose = owner or "nobody"
        raise Fail(
            f"{ark} belongs to {row['owner']}, and the deposit to {whose}: submit it with a profile of the object's owner."
        )


def _of_local_ids(outfit: Outfit, said: Submission, owner: str) -> str:
    """The ARK to which the local ids belong; empty if they are new."""
    known = {local: ark for local in said.local_ids if (ark := outfit.inventory.ark_of(owner, local))}
    if len(set(known.values())) > 1:
        both = " and ".join(f"{shown(local)} belongs to {ark}" for local, ark in _two(known))
        raise Fail(f"The local ids name two objects: {both}. Submit the deposit for one of them.")
    return next(iter(known.values()), "")


def _two(known: dict[str, str]) -> Iterator[tuple[str, str]]:
    first = next(iter(known.items()))
    yield first
    yield next((local, ark) for local, ark in known.items() if ark != first[1])


def _minted(
    job: Record, ctx: Context, said: Submission, shoulder: Shoulder, *, instead: bool = False
) -> tuple[Record, str]:
    outfit = outfit_of(ctx)
    for _ in range(MOST_DRAWN):
        try:
            ark = outfit.blocks.mint(shoulder, outfit.depot.machines, ctx.call)
        except NoidError as error:
            raise Fail(str(error)) from error
        if outfit.inventory.object(ark) is None and not _is_stored(outfit, ark):
            # Safe to repeat: a second run finds it with the job. One that was drawn and not saved is never used.
            return _saved(ctx, said, ark, minted=bool(shoulder.ezid), instead=instead), ark
    raise Fail(
        f"{MOST_DRAWN} ARKs of {shoulder.prefix} in a row were in use already: give the profile another shoulder."
    )


def _is_stored(outfit: Outfit, ark: str) -> bool:
    """Whether storage knows an ARK that the inventory does not: somebody chose it for an object of his, which is not
    recorded yet.
    """
    try:
        return bool(outfit.storage.stored(ark))
    except NotStored:
        return False


def _saved(ctx: Context, said: Submission, ark: str, *, minted: bool = False, instead: bool = False) -> Record:
    docs: dict[str, object] = {"identifiers": {"primary_id": ark, "local_id": list(said.local_ids)}}
    if minted:
        docs["minted"] = {"ark": ark}
    # Nobody else can know an ARK that was drawn instead of another: it needs no key of its own.
    return ctx.save(docs, keys=() if instead else (f"storage/{ark}",))


# --- EZID


def _registered(
    job: Record, ctx: Context, profile: Profile, shoulder: Shoulder, prepared: Prepared, told: Told
) -> tuple[Record, str, Prepared]:
    """Tell EZID of the ARK. Safe to repeat: EZID knows by the job's name whether the ARK is its own, also when it
    was begun again.
    """
    outfit = outfit_of(ctx)
    client = outfit.ezid(shoulder)
    minted = job.docs.get("minted")
    ark = prepared.ark
    try:
        if not isinstance(minted, dict) or minted.get("ark") != ark:
            if ark.startswith(shoulder.prefix):  # an ARK from elsewhere is not ours to describe
                client.update(ark, _told(outfit, profile, prepared))
            return job, ark, prepared
        for _ in range(MOST_DRAWN):
            try:
                client.create(ark, depositing.name_of(job), _told(outfit, profile, prepared))
                return job, ark, prepared
            except ezid.Taken:
                job, ark = _minted(job, ctx, prepared.said, shoulder, instead=True)
                prepared = depositing.prepare(job, ctx, profile, ark, told)
    except ezid.Refused as error:
        raise Fail(f"The ARK {ark} could not be registered: {error}") from error
    raise Fail(
        f"{MOST_DRAWN} ARKs of {shoulder.prefix} in a row belong to others in EZID: give the profile another shoulder."
    )


def _told(outfit: Outfit, profile: Profile, prepared: Prepared) -> ezid.Description:
    erc = prepared.description.erc
    leads = (
        "" if prepared.said.retain_target or not outfit.settings.url else ezid.target(outfit.settings.url, prepared.ark)
    )
    return ezid.Description(
        who=erc.who,
        what=erc.what,
        when=erc.when,
        where=erc.where,
        creator=profile.context,
        target=leads,
        co_owner=profile.minter.co_owner,
        reserved=profile.role == "MRT-class",
    )
