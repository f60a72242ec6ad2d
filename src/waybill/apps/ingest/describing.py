"""Describing: the system files of an object, and what the inventory is told of it.

    mrt-ingest.txt        how it came: batch, job, submitter, profile, payload
    mrt-owner.txt         whose it is
    mrt-membership.txt    the collections it lies in
    mrt-mom.txt           what it is: its ARK, its local ids, type, role and aggregate
    mrt-erc.txt           who, what, when, where
    mrt-dc.xml            Dublin Core

A depositor may send a description among his files: mrt-erc.txt, mrt-dc.xml, mrt-datacite.xml. Of each single thing that
can be said, the first of these counts that says it: **the submission, mrt-erc.txt, mrt-dc.xml, mrt-datacite.xml**. The
submission is said last and for this one object, while files are often made long before. mrt-embargo.txt says until when
the object is not to be shown, and mrt-delete.txt what an update takes away. Such a file that cannot be read is the
depositor's mistake, and is never passed over in silence.

An update keeps what none of them says: local ids, each element of Dublin Core, and an embargo for as long as its file
is in the object.

Everything here is a function of its arguments: a second run describes an object in the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from waybill.apps.ingest import anvl, dublincore
from waybill.apps.ingest.anvl import MISSING, BadAnvl, Element, Erc
from waybill.apps.ingest.dublincore import BadDublinCore
from waybill.apps.ingest.profile import Profile
from waybill.apps.ingest.safexml import BadXml, parse
from waybill.apps.ingest.submission import Submission

PRODUCER = "producer/"
SYSTEM = "system/"
ERC, DC, DATACITE, EMBARGO, DELETE = (
    "mrt-erc.txt",
    "mrt-dc.xml",
    "mrt-datacite.xml",
    "mrt-embargo.txt",
    "mrt-delete.txt",
)
READ = frozenset({ERC, DC, DATACITE, EMBARGO, DELETE})  # files of the depositor that are read
LARGEST = 5_000_000  # bytes of one of them


class BadDescription(Exception):
    """A file in which the depositor describes the object cannot be read."""

    permanent = True


class Told(msgspec.Struct, frozen=True):
    """What the depositor's own files say."""

    erc: Erc = Erc()
    dc: dict[str, list[str]] = {}
    embargo: datetime | None = None
    deletions: tuple[str, ...] = ()
    files: frozenset[str] = frozenset()  # the names of those that say it


class Kept(msgspec.Struct, frozen=True):
    """What was said of an object before an update, which keeps it where nobody says otherwise."""

    erc: Erc = Erc()
    local_ids: tuple[str, ...] = ()
    dc: dict[str, list[str]] = {}  # as the version before was described
    told: Told = Told()  # by files that the update leaves in the object
    # files that speak of the deposit before alone, by their paths in the object: these are not kept
    papers: tuple[str, ...] = ()


class Description(msgspec.Struct, frozen=True):
    """An object as its system files and the inventory describe it."""

    erc: Erc
    files: dict[str, bytes]  # by their names below system/
    about: dict[str, Any]


def told_by(files: Mapping[str, bytes]) -> Told:
    """What the depositor's files say, by their names below producer/; BadDescription names the one that cannot be
    read.
    """
    try:
        erc = anvl.read_erc(files[ERC]) if ERC in files else Erc()
    except BadAnvl as error:
        raise _bad(ERC, error) from error
    try:
        dc = dublincore.read(files[DC]) if DC in files else {}
    except BadDublinCore as error:
        raise _bad(DC, error) from error
    try:
        cited = read_datacite(files[DATACITE]) if DATACITE in files else {}
    except BadXml as error:
        raise _bad(DATACITE, error) from error
    try:
        embargo = anvl.read_embargo(files[EMBARGO]) if EMBARGO in files else None
    except BadAnvl as error:
        raise _bad(EMBARGO, error) from error
    try:
        deletions = tuple(anvl.read_deletions(files[DELETE])) if DELETE in files else ()
    except BadAnvl as error:
        raise _bad(DELETE, error) from error
    return Told(erc, {**cited, **dc}, embargo, deletions, frozenset(files))


def read_datacite(data: bytes) -> dict[str, list[str]]:
    """Of a DataCite description what Dublin Core has too; elements by their plain names, since its namespaces carry
    versions.
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
        value = anvl.one_line("".join(element.itertext()))
        if name in known and value and value != MISSING:
            found.setdefault(known[name], []).append(value)
    return found


def describe(
    said: Submission,
    profile: Profile,
    ark: str,
    told: Told = Told(),  # noqa: B008
    kept: Kept = Kept(),  # noqa: B008 - frozen
) -> Description:
    """`kept`: of an update."""
    local_ids = tuple(dict.fromkeys((*kept.local_ids, *said.local_ids)))
    erc = _erc(said, (ark, *local_ids), told, kept)
    embargo = told.embargo if EMBARGO in told.files else kept.told.embargo
    owner = said.owner or profile.owner
    files = {
        "mrt-ingest.txt": _ingest(said),
        "mrt-owner.txt": _lines([owner]),
        "mrt-membership.txt": _lines(profile.collections or said.collections),
        "mrt-mom.txt": _mom(profile, ark, local_ids),
        ERC: anvl.write_erc(erc),
        DC: _dublin_core(said, profile, erc, told, kept),
    }
    about: dict[str, Any] = {
        "owner": owner,
        "collections": list(dict.fromkeys((*profile.collections, *said.collections))),
        "local_ids": list(local_ids),
        "title": erc.what,
        "creator": erc.who,
        "date": erc.when,
    }
    if embargo is not None:
        about["embargo"] = embargo.isoformat().replace("+00:00", "Z")
    return Description(erc, files, about)


def deletions_of(said: Submission, told: Told) -> tuple[str, ...]:
    """The files that an update takes away, by their paths in the object: a plain name is one of the depositor's
    files.
    """
    if not said.update:
        return ()  # a version that is added has nothing of the ones before
    wanted = (*told.deletions, *said.deletions)
    return tuple(dict.fromkeys(name if name.startswith(PRODUCER) else PRODUCER + name for name in wanted))


def _erc(said: Submission, where: tuple[str, ...], told: Told, kept: Kept) -> Erc:
    def first(*values: str) -> str:
        return next((plain for value in values if (plain := anvl.one_line(value)) and plain != MISSING), "")

    def cited(told: Told, name: str) -> str:
        return "; ".join(told.dc.get(name, ()))

    old = kept.told
    return Erc(
        who=first(said.creator, told.erc.who, cited(told, "creator"), kept.erc.who, old.erc.who, cited(old, "creator")),
        what=first(said.title, told.erc.what, cited(told, "title"), kept.erc.what, old.erc.what, cited(old, "title")),
        when=first(said.date, told.erc.when, cited(told, "date"), kept.erc.when, old.erc.when, cited(old, "date")),
        where=where,
    )


def _dublin_core(said: Submission, profile: Profile, erc: Erc, told: Told, kept: Kept) -> bytes:
    form = dublincore.from_form(said.dc)
    known: dict[str, list[str]] = {**told.dc, **_cited(_erc(said, (), told, Kept())), **form}
    if said.datacite_type and "type" not in known:
        known["type"] = [said.datacite_type]
    known = {**kept.told.dc, **_cited(erc), **kept.dc, **known}
    ark, *local = erc.where
    known["identifier"] = list(
        dict.fromkeys((ark, *known.get("identifier", ()), *(local if profile.local_id_in_dublin_core else ())))
    )
    try:
        return dublincore.write(known)
    except BadDublinCore as error:
        raise BadDescription(f"The object cannot be described in Dublin Core: {error}") from error


def _cited(erc: Erc) -> dict[str, list[str]]:
    """A citation in Dublin Core."""
    return dublincore.from_form({"title": erc.what, "creator": erc.who, "date": erc.when})


def _ingest(said: Submission) -> bytes:
    known = (
        ("ingest", "Waybill"),
        ("submissionDate", said.submitted),
        ("batch", said.batch_id),
        ("job", said.job_id),
        ("userAgent", said.submitter),
        ("profile", said.profile),
        ("type", said.type.value if said.type else ""),
        ("mode", "update" if said.update else "add"),
        ("file", said.filename),
        ("note", said.note),
    )
    return _anvl(known)


def _mom(profile: Profile, ark: str, local_ids: Sequence[str]) -> bytes:
    known = [
        ("primaryIdentifier", ark),
        ("type", profile.type or "MRT-curatorial"),
        ("role", profile.role or "MRT-content"),
    ]
    known += [("aggregate", profile.aggregate), *(("localIdentifier", local) for local in local_ids)]
    return _anvl(known)


def _anvl(known: Iterable[tuple[str, str]]) -> bytes:
    return anvl.write(Element(label, value) for label, value in known if anvl.one_line(value))


def _lines(texts: Sequence[str]) -> bytes:
    return "".join(f"{line}\n" for text in texts if (line := anvl.one_line(text))).encode("utf-8", "replace")


def _bad(name: str, error: Exception) -> BadDescription:
    return BadDescription(f"{PRODUCER}{name} cannot be read: {error}")
