"""Describing: the system files of an object, and what the inventory is told of it.

    mrt-ingest.txt        how it came: batch, job, submitter, profile, payload
    mrt-owner.txt         whose it is
    mrt-membership.txt    the collections it lies in
    mrt-mom.txt           what it is: its ARK, its local ids, type, role and aggregate
    mrt-erc.txt           who, what, when, where
    mrt-dc.xml            Dublin Core

A depositor may send a description among his files: mrt-erc.txt, mrt-dc.xml, mrt-datacite.xml. Of each single thing that can be said, the
first of these counts that says it: **the submission, mrt-erc.txt, mrt-dc.xml, mrt-datacite.xml**. The submission is said last and for this
one object, while files are often made long before. An update keeps what none of them says. mrt-embargo.txt says until when the object is
not to be shown, and mrt-delete.txt what an update takes away. Such a file that cannot be read is the depositor's mistake, and is never
passed over in silence.

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
ERC, DC, DATACITE, EMBARGO, DELETE = "mrt-erc.txt", "mrt-dc.xml", "mrt-datacite.xml", "mrt-embargo.txt", "mrt-delete.txt"
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


class Description(msgspec.Struct, frozen=True):
    """An object as its system files and the inventory describe it."""

    erc: Erc
    files: dict[str, bytes]  # by their names below system/
    about: dict[str, Any]


def told_by(files: Mapping[str, bytes]) -> Told:
    """What the depositor's files say, by their names below producer/; BadDescription names the one that cannot be read."""
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
    return Told(erc, {**cited, **dc}, embargo, deletions)


def read_datacite(data: bytes) -> dict[str, list[str]]:
    """Of a DataCite description what Dublin Core has too; elements by their plain names, since its namespaces carry versions."""
    known = {"creatorName": "creator", "title": "title", "publicationYear": "date", "publisher": "publisher", "subject": "subject"}
    found: dict[str, list[str]] = {}
    for element in parse(data).iter():
        name = element.tag.rpartition("}")[2]
        value = anvl.one_line("".join(element.itertext()))
        if name in known and value and value != MISSING:
            found.setdefault(known[name], []).append(value)
    return found


def describe(
    said: Submission, profile: Profile, ark: str, told: Told = Told(), before: Erc = Erc()  # noqa: B008 - frozen
) -> Description:
    """`before`: what was said of the object so far, which an update keeps where nobody says otherwise."""
    erc = _erc(said, ark, told, before)
    owner = said.owner or profile.owner
    files = {
        "mrt-ingest.txt": _ingest(said),
        "mrt-owner.txt": _lines([owner]),
        "mrt-membership.txt": _lines(profile.collections or said.collections),
        "mrt-mom.txt": _mom(said, profile, ark),
        ERC: anvl.write_erc(erc),
        DC: _dublin_core(said, profile, ark, erc, told),
    }
    about: dict[str, Any] = {
        "owner": owner, "collections": list(dict.fromkeys((*profile.collections, *said.collections))),
        "local_ids": list(said.local_ids), "title": erc.what, "creator": erc.who, "date": erc.when,
    }  # fmt: skip
    if told.embargo is not None:
        about["embargo"] = told.embargo.isoformat().replace("+00:00", "Z")
    return Description(erc, files, about)


def deletions_of(said: Submission, told: Told) -> tuple[str, ...]:
    """The files that an update takes away, by their paths in the object: a plain name is one of the depositor's files."""
    if not said.update:
        return ()  # a version that is added has nothing of the ones before
    wanted = (*told.deletions, *said.deletions)
    return tuple(dict.fromkeys(name if name.startswith(PRODUCER) else PRODUCER + name for name in wanted))


def _erc(said: Submission, ark: str, told: Told, before: Erc) -> Erc:
    def first(*values: str) -> str:
        return next((plain for value in values if (plain := anvl.one_line(value)) and plain != MISSING), "")

    def cited(name: str) -> str:
        return "; ".join(told.dc.get(name, ()))

    return Erc(
        who=first(said.creator, told.erc.who, cited("creator"), before.who),
        what=first(said.title, told.erc.what, cited("title"), before.what),
        when=first(said.date, told.erc.when, cited("date"), before.when),
        where=(ark, *said.local_ids),
    )


def _dublin_core(said: Submission, profile: Profile, ark: str, erc: Erc, told: Told) -> bytes:
    form = dublincore.from_form(said.dc)
    known: dict[str, list[str]] = {**told.dc, **form}
    for name, value in (("title", erc.what), ("creator", erc.who), ("date", erc.when)):
        if value and name not in form:
            known[name] = dublincore.from_form({name: value})[name]
    local = said.local_ids if profile.local_id_in_dublin_core else ()
    known["identifier"] = list(dict.fromkeys((ark, *known.get("identifier", ()), *local)))
    if said.datacite_type and "type" not in known:
        known["type"] = [said.datacite_type]
    try:
        return dublincore.write(known)
    except BadDublinCore as error:
        raise BadDescription(f"The object cannot be described in Dublin Core: {error}") from error


def _ingest(said: Submission) -> bytes:
    known = (
        ("ingest", "Waybill"), ("submissionDate", said.submitted), ("batch", said.batch_id), ("job", said.job_id),
        ("userAgent", said.submitter), ("profile", said.profile), ("type", said.type.value if said.type else ""),
        ("mode", "update" if said.update else "add"), ("file", said.filename), ("note", said.note),
    )  # fmt: skip
    return _anvl(known)


def _mom(said: Submission, profile: Profile, ark: str) -> bytes:
    known = [("primaryIdentifier", ark), ("type", profile.type or "MRT-curatorial"), ("role", profile.role or "MRT-content")]
    known += [("aggregate", profile.aggregate), *(("localIdentifier", local) for local in said.local_ids)]
    return _anvl(known)


def _anvl(known: Iterable[tuple[str, str]]) -> bytes:
    return anvl.write(Element(label, value) for label, value in known if anvl.one_line(value))


def _lines(texts: Sequence[str]) -> bytes:
    return "".join(f"{line}\n" for text in texts if (line := anvl.one_line(text))).encode("utf-8", "replace")


def _bad(name: str, error: Exception) -> BadDescription:
    return BadDescription(f"{PRODUCER}{name} cannot be read: {error}")
