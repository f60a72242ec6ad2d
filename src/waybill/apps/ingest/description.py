"""The description of an object: its system files, and what the inventory records about it.

    mrt-ingest.txt        how it was deposited: batch, job, submitter, profile, payload
    mrt-owner.txt         the owner
    mrt-membership.txt    the collections that it belongs to
    mrt-mom.txt           its ARK, its local ids, type, role and aggregate
    mrt-erc.txt           who, what, when, where
    mrt-dc.xml            Dublin Core

A depositor may send descriptions among the files: mrt-erc.txt, mrt-dc.xml, mrt-datacite.xml. Each element is taken from
the first source that has it: **the submission, mrt-erc.txt, mrt-dc.xml, mrt-datacite.xml**. The submission is written
last and for this one object, while files are often made long before. mrt-embargo.txt says until when the object is not
to be shown, and mrt-delete.txt what an update deletes. If such a file cannot be read, the deposit is refused: the file is
never ignored.

An update keeps what none of them sets: local ids, each element of Dublin Core, and an embargo for as long as its file is
in the object.

Everything here is a function of its arguments: a second run describes an object in the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from waybill.apps.ingest.formats import anvl, dublin_core
from waybill.apps.ingest.formats.anvl import MISSING, AnvlElement, Erc
from waybill.apps.ingest.formats.safe_xml import parse
from waybill.apps.ingest.profile import Profile
from waybill.apps.ingest.submission import Submission
from waybill.errors import FormatError

PRODUCER_PREFIX = "producer/"
SYSTEM_PREFIX = "system/"
INGEST_FILE = "mrt-ingest.txt"
ERC_FILE, DC_FILE, DATACITE_FILE, EMBARGO_FILE, DELETE_FILE = (
    "mrt-erc.txt",
    "mrt-dc.xml",
    "mrt-datacite.xml",
    "mrt-embargo.txt",
    "mrt-delete.txt",
)
# the files of the depositor that are read here
DESCRIPTION_FILES = frozenset({ERC_FILE, DC_FILE, DATACITE_FILE, EMBARGO_FILE, DELETE_FILE})
MAX_DESCRIPTION_BYTES = 5_000_000  # of one of them


class EmbeddedMetadata(msgspec.Struct, frozen=True):
    """The content of the depositor's description files."""

    erc: Erc = Erc()
    dc: dict[str, list[str]] = {}
    embargo: datetime | None = None
    deletions: tuple[str, ...] = ()
    files: frozenset[str] = frozenset()  # the names of these files


class PreviousMetadata(msgspec.Struct, frozen=True):
    """The description of the previous version, which an update keeps where nothing replaces it."""

    erc: Erc = Erc()
    local_ids: tuple[str, ...] = ()
    dc: dict[str, list[str]] = {}  # from the system file of the previous version
    embedded: EmbeddedMetadata = EmbeddedMetadata()  # from files that the update leaves in the object
    # files about the previous deposit alone, by their paths in the object: these are not kept
    obsolete_files: tuple[str, ...] = ()


class ObjectDescription(msgspec.Struct, frozen=True):
    """An object as its system files and the inventory describe it."""

    erc: Erc
    files: dict[str, bytes]  # by their names below system/
    about: dict[str, Any]


def read_embedded_metadata(files: Mapping[str, bytes]) -> EmbeddedMetadata:
    """Read the depositor's description files, given by their names below producer/; FormatError names the one that
    cannot be read.
    """
    try:
        erc = anvl.read_erc(files[ERC_FILE]) if ERC_FILE in files else Erc()
    except FormatError as error:
        raise _make_error(ERC_FILE, error) from error
    try:
        dc = dublin_core.read(files[DC_FILE]) if DC_FILE in files else {}
    except FormatError as error:
        raise _make_error(DC_FILE, error) from error
    try:
        datacite = read_datacite(files[DATACITE_FILE]) if DATACITE_FILE in files else {}
    except FormatError as error:
        raise _make_error(DATACITE_FILE, error) from error
    try:
        embargo = anvl.read_embargo(files[EMBARGO_FILE]) if EMBARGO_FILE in files else None
    except FormatError as error:
        raise _make_error(EMBARGO_FILE, error) from error
    try:
        deletions = tuple(anvl.read_deletions(files[DELETE_FILE])) if DELETE_FILE in files else ()
    except FormatError as error:
        raise _make_error(DELETE_FILE, error) from error
    return EmbeddedMetadata(erc, {**datacite, **dc}, embargo, deletions, frozenset(files))


def read_datacite(data: bytes) -> dict[str, list[str]]:
    """The elements of a DataCite description that Dublin Core has too. Elements are matched by their local names, since the
    namespaces carry versions.
    """
    known = {
        "creatorName": "creator",
        "title": "title",
        "publicationYear": "date",
        "publisher": "publisher",
        "subject": "subject",
    }
    found: dict[str, list[str]] = {}
    for element in parse(data).iter():
        name = element.tag.rpartition("}")[2]
        value = anvl.to_one_line("".join(element.itertext()))
        if name in known and value and value != MISSING:
            found.setdefault(known[name], []).append(value)
    return found


def describe_object(
    submission: Submission,
    profile: Profile,
    ark: str,
    embedded: EmbeddedMetadata = EmbeddedMetadata(),  # noqa: B008
    previous: PreviousMetadata = PreviousMetadata(),  # noqa: B008 - frozen
) -> ObjectDescription:
    """`previous`: the description that an update keeps."""
    local_ids = tuple(dict.fromkeys((*previous.local_ids, *submission.local_ids)))
    erc = _build_erc(submission, (ark, *local_ids), embedded, previous)
    embargo = embedded.embargo if EMBARGO_FILE in embedded.files else previous.embedded.embargo
    owner = submission.owner or profile.owner
    files = {
        INGEST_FILE: _build_ingest_file(submission),
        "mrt-owner.txt": _to_lines([owner]),
        "mrt-membership.txt": _to_lines(profile.collections or submission.collections),
        "mrt-mom.txt": _build_mom_file(profile, ark, local_ids),
        ERC_FILE: anvl.write_erc(erc),
        DC_FILE: _build_dublin_core(submission, profile, erc, embedded, previous),
    }
    about: dict[str, Any] = {
        "owner": owner,
        "collections": list(dict.fromkeys((*profile.collections, *submission.collections))),
        "local_ids": list(local_ids),
        "title": erc.what,
        "creator": erc.who,
        "date": erc.when,
    }
    if embargo is not None:
        about["embargo"] = embargo.isoformat().replace("+00:00", "Z")
    return ObjectDescription(erc, files, about)


def deletions_of(submission: Submission, embedded: EmbeddedMetadata) -> tuple[str, ...]:
    """The files that an update deletes, by their paths in the object: a plain name is one of the depositor's files."""
    if not submission.update:
        return ()  # a version that is added has no files of earlier ones
    requested = (*embedded.deletions, *submission.deletions)
    return tuple(
        dict.fromkeys(name if name.startswith(PRODUCER_PREFIX) else PRODUCER_PREFIX + name for name in requested)
    )


def _build_erc(
    submission: Submission, where: tuple[str, ...], embedded: EmbeddedMetadata, previous: PreviousMetadata
) -> Erc:
    def first_known(*values: str) -> str:
        return next((plain for value in values if (plain := anvl.to_one_line(value)) and plain != MISSING), "")

    def join_values(metadata: EmbeddedMetadata, name: str) -> str:
        return "; ".join(metadata.dc.get(name, ()))

    earlier = previous.embedded
    return Erc(
        who=first_known(
            submission.creator,
            embedded.erc.who,
            join_values(embedded, "creator"),
            previous.erc.who,
            earlier.erc.who,
            join_values(earlier, "creator"),
        ),
        what=first_known(
            submission.title,
            embedded.erc.what,
            join_values(embedded, "title"),
            previous.erc.what,
            earlier.erc.what,
            join_values(earlier, "title"),
        ),
        when=first_known(
            submission.date,
            embedded.erc.when,
            join_values(embedded, "date"),
            previous.erc.when,
            earlier.erc.when,
            join_values(earlier, "date"),
        ),
        where=where,
    )


def _build_dublin_core(
    submission: Submission, profile: Profile, erc: Erc, embedded: EmbeddedMetadata, previous: PreviousMetadata
) -> bytes:
    from_submission = dublin_core.from_form(submission.dc)
    elements: dict[str, list[str]] = {
        **embedded.dc,
        **_erc_to_dublin_core(_build_erc(submission, (), embedded, PreviousMetadata())),
        **from_submission,
    }
    if submission.datacite_type and "type" not in elements:
        elements["type"] = [submission.datacite_type]
    elements = {**previous.embedded.dc, **_erc_to_dublin_core(erc), **previous.dc, **elements}
    ark, *local = erc.where
    elements["identifier"] = list(
        dict.fromkeys((ark, *elements.get("identifier", ()), *(local if profile.local_id_in_dublin_core else ())))
    )
    try:
        return dublin_core.write(elements)
    except FormatError as error:
        raise FormatError(f"The object cannot be described in Dublin Core: {error}") from error


def _erc_to_dublin_core(erc: Erc) -> dict[str, list[str]]:
    """Who, what and when in Dublin Core."""
    return dublin_core.from_form({"title": erc.what, "creator": erc.who, "date": erc.when})


def _build_ingest_file(submission: Submission) -> bytes:
    elements = (
        ("ingest", "Waybill"),
        ("submissionDate", submission.submitted_at),
        ("batch", submission.batch_id),
        ("job", submission.job_id),
        ("userAgent", submission.submitter),
        ("profile", submission.profile),
        ("type", submission.type.value if submission.type else ""),
        ("mode", "update" if submission.update else "add"),
        ("file", submission.filename),
        ("note", submission.note),
    )
    return _to_anvl(elements)


def _build_mom_file(profile: Profile, ark: str, local_ids: Sequence[str]) -> bytes:
    elements = [
        ("primaryIdentifier", ark),
        ("type", profile.type or "MRT-curatorial"),
        ("role", profile.role or "MRT-content"),
    ]
    elements += [("aggregate", profile.aggregate), *(("localIdentifier", local) for local in local_ids)]
    return _to_anvl(elements)


def _to_anvl(elements: Iterable[tuple[str, str]]) -> bytes:
    return anvl.write(AnvlElement(label, value) for label, value in elements if anvl.to_one_line(value))


def _to_lines(texts: Sequence[str]) -> bytes:
    return "".join(f"{line}\n" for text in texts if (line := anvl.to_one_line(text))).encode("utf-8", "replace")


def _make_error(name: str, error: Exception) -> FormatError:
    return FormatError(f"{PRODUCER_PREFIX}{name} cannot be read: {error}")
