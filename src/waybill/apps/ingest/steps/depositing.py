"""Depositing: from a job's working folder to a version in storage, for whichever state does it (Processing, or
Storing).

    prepare    the object is described, and its system files are made beside what was fetched (working.py)
    write      storage copies all of it, compares it with the digests, and answers with the version

System files are lent to storage out of memory, and published in the working folder as well (system.py).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from waybill.apps.ingest import submission
from waybill.apps.ingest.anvl import BadAnvl
from waybill.apps.ingest.describing import (
    PRODUCER,
    SYSTEM,
    BadDescription,
    Description,
    Kept,
    Told,
    deletions_of,
    describe,
)
from waybill.apps.ingest.inventory import Contradiction, LocalIdTaken
from waybill.apps.ingest.outfit import Outfit, outfit_of
from waybill.apps.ingest.profile import Profile
from waybill.apps.ingest.steps.damage import warned
from waybill.apps.ingest.steps.held import Held
from waybill.apps.ingest.steps.keeping import kept_of
from waybill.apps.ingest.steps.refusal import Unfit, refused
from waybill.apps.ingest.steps.system import write_system
from waybill.apps.ingest.steps.working import changed, working_files
from waybill.apps.ingest.storage import Deposit, FileToStore, NoSuchFile, NotStorable, Stored, Unsound
from waybill.apps.ingest.storage.sources import FILE, SourceGone
from waybill.apps.ingest.submission import Submission
from waybill.objects import Damaged
from waybill.record import Record
from waybill.step import Context, Fail

_MIME = {".txt": "text/plain; charset=UTF-8", ".xml": "application/xml"}


class Prepared(NamedTuple):
    """An object that is described and ready to be stored."""

    ark: str
    said: Submission
    description: Description
    system: tuple[Held, ...]
    deletions: tuple[str, ...]  # that the depositor asked for
    papers: tuple[str, ...]  # of the deposit before, which an update does not keep


def prepare(job: Record, ctx: Context, profile: Profile, ark: str, told: Told) -> Prepared:
    """Describe the object, and publish its system files in the working folder: for people, and for whoever else may
    have to store it.
    """
    said = submission.of_job(job)
    try:
        kept = _kept(job, ctx, profile, ark, told) if said.update else Kept()
        description = describe(said, profile, ark, told, kept)
    except (BadDescription, BadAnvl) as error:
        raise Fail(str(error)) from error
    system = tuple(
        Held(SYSTEM + name, len(data), hashlib.sha256(data).hexdigest(), _MIME[Path(name).suffix])
        for name, data in description.files.items()
    )
    prepared = Prepared(ark, said, description, system, deletions_of(said, told), kept.papers)
    write_system(job, ctx, description.files, system)
    return prepared


def _kept(job: Record, ctx: Context, profile: Profile, ark: str, told: Told) -> Kept:
    said = submission.of_job(job)
    gone = {PRODUCER + name for name in told.files}.union(deletions_of(said, told))
    return kept_of(outfit_of(ctx), ark, said.owner or profile.owner, request_of(job), gone)


def write(job: Record, ctx: Context, prepared: Prepared) -> Stored:
    """Let storage make a version of it. Safe to repeat: the same request is answered with the version that it made."""
    with outfit_of(ctx).sources.lending(prepared.description.files) as lent:
        deposit = Deposit(
            object=prepared.ark,
            request=request_of(job),
            mode="update" if prepared.said.update else "add",
            deletions=(*prepared.deletions, *prepared.papers),
            files=_to_store(job, ctx, prepared, lent),
            message=prepared.said.note,
            user=prepared.said.submitter or "waybill",
            about=prepared.description.about,
        )
        try:
            return stored(ctx, deposit)
        except (Damaged, SourceGone) as error:
            other = next(changed(job, ctx), None)
            if other is not None and job.tries:  # at first it may only be that the folder was just being replaced
                raise Fail(
                    f"The working copy of {other} is not what was fetched: `restart` fetches it again."
                ) from error
            raise


def _to_store(job: Record, ctx: Context, prepared: Prepared, lent: str) -> Iterator[FileToStore]:
    below = f"{FILE}{ctx.folder.relative_to(outfit_of(ctx).depot.config.work.root).as_posix()}/"
    for held in working_files(job, ctx):
        yield FileToStore(held.path, held.size, held.sha256, below + held.path, held.mime)
    for held in prepared.system:
        yield FileToStore(held.path, held.size, held.sha256, lent + held.path.removeprefix(SYSTEM), held.mime)


def check_kept_here(outfit: Outfit, ark: str) -> None:
    """No version is written beside those that another storage service keeps: it would have none of their files, and
    a number of theirs.
    """
    if outfit.inventory.kept_elsewhere(ark):
        raise Fail(
            f"Another storage service keeps {ark}, so no version of it can be written here: leave the state Storing to that service "
            '(settings storing = true, outside = ["Storing"]).'
        )


def stored(ctx: Context, deposit: Deposit) -> Stored:
    outfit = outfit_of(ctx)
    if damaged := outfit.inventory.damaged_of(deposit.object):
        deposit = msgspec.structs.replace(deposit, damaged=tuple(str(row["place"]) for row in damaged))
    try:
        version = outfit.storage.write(deposit, check=ctx.check)
        if "Recording" in outfit.settings.outside:
            # It must be known here all the same: local ids are looked up in our inventory, and whoever records it reads
            # its manifest by our routes. Safe to repeat: a version that is there is left as it is.
            outfit.inventory.record(version, outfit.storage)
        return version
    except NoSuchFile as error:
        raise refused(ctx, Unfit(f"{error} `waybill ingest object {deposit.object}` lists what it has.")) from error
    except (NotStorable, Unsound, LocalIdTaken, Contradiction) as error:
        raise Fail(str(error)) from error


def documents(job: Record, ctx: Context, version: Stored) -> dict[str, Any]:
    """What the job says of a version that storage has made."""
    return {
        **warned(job, ctx, version),
        "stored": msgspec.to_builtins(version),
        "inventory": {"manifest_url": manifest_url(ctx, version.object, version.version), "mode": "add"},
    }


def manifest_url(ctx: Context, ark: str, version: int) -> str:
    """Where the manifest of a version can be read: with a token, or as it is by services that know none
    (sealing.py).
    """
    outfit = outfit_of(ctx)
    url, signed = outfit.address("objects", ark, "versions", str(version), "manifest"), outfit.settings.storage.signed
    if not outfit.shared or not signed:
        return url
    return f"{url}?{outfit.seal(ctx.call).query(ark, version, int(ctx.now() + signed))}"


def request_of(job: Record) -> str:
    """The name of a job's deposit among all of its object.

    What an operator had begun again is another deposit: the files may be others now, and those that were stored before
    are not they.
    """
    again = job.docs.get("restarted", {}).get("count", 0)
    return f"{name_of(job)}.{again}" if again else name_of(job)


def name_of(job: Record) -> str:
    """The name of the job itself, however often it was begun again.

    Without an id of its own, that of the batch makes it unique.
    """
    said = submission.read(job.docs.get("configuration"))
    return said.job_id or "/".join(part for part in (submission.of_job(job).batch_id, job.id) if part)
