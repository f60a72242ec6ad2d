"""The fields of Merritt's form, as they come one by one, and the submission that they make."""

from __future__ import annotations

import re
from collections.abc import Mapping

from waybill.apps.ingest import anvl, names
from waybill.apps.ingest.service import Unfit
from waybill.apps.ingest.submission import DC, Submission, Type, local_ids, type_of
from waybill.digests import UnknownDigest, algorithm

MOST_WARNINGS = 20

FIELDS: Mapping[str, str] = {
    "file": "The payload.",
    "type": f"What the payload is: {', '.join(Type)}. Without it: guessed from its name and its first bytes.",
    "profile": "What holds for deposits of its kind. Must be there.",
    "submitter": "Who submits; without it, whose token it is.",
    "filename": "The name of the payload; without it, the file's own.",
    "size": "Its size in bytes; another size is refused.",
    "digestType": "Such as SHA-256 or MD5.",
    "digestValue": "The digest of the payload, in hex.",
    "primaryIdentifier": "The object's ARK.",
    "object": "The same.",
    "localIdentifier": "Local ids, parted by semicolons.",
    "creator": "Who made it.",
    "title": "What it is called.",
    "date": "When it was made.",
    "erc": "who, what, when and where, as ANVL; the fields above win.",
    "note": "For people.",
    "notification": "Mail addresses in place of the profile's.",
    "notificationFormat": "How mail is written.",
    "responseForm": "xml or json; without it, as the header Accept says.",
    "DataCite.resourceType": "The type, in DataCite's words.",
    "retainTargetURL": "true: the ARK goes on leading where it leads.",
    "batchID": "Sent twice with one batchID, made once. It comes before the file.",
    **{f"DC.{word}": f"Dublin Core: {word}." for word in DC},
}
_LISTS = ("localIdentifier", *(f"DC.{word}" for word in DC))  # what comes again is added


class Fields:
    def __init__(self) -> None:
        self.warnings: list[str] = []
        self._said: dict[str, str] = {}
        self._file_name = ""

    def take(self, name: str, value: str) -> None:
        value = value.strip()
        if name not in FIELDS:
            self.warn(f"The field {names.shown(name)} is not known and was left out.")
        elif name in self._said and name in _LISTS:
            self._said[name] += f"; {value}"
        else:
            if self._said.get(name, value) != value:
                self.warn(f"The field {name} came more than once; the last one counts.")
            self._said[name] = value

    def warn(self, text: str) -> None:
        if len(self.warnings) < MOST_WARNINGS and text not in self.warnings:
            self.warnings.append(text)

    def one(self, name: str) -> str:
        return self._said.get(name, "")

    def sent_as(self, filename: str) -> None:
        """What the file is called where it comes from."""
        self._file_name = filename.replace("\\", "/").rpartition("/")[2]

    def digests(self) -> list[str]:
        """What is known by now of the digest that the depositor will compare."""
        try:
            return [algorithm(self.one("digestType"))]
        except UnknownDigest:
            return []  # not said yet, or wrong: then it is refused when all has come

    def said(self, batch_id: str, *, update: bool, primary_id: str) -> Submission:
        """What they say together; Unfit for what cannot be meant."""
        if self.one("batchID") not in ("", batch_id):
            raise Unfit("The field batchID must come before the file.")
        erc = self._erc()
        named = {each for each in (primary_id, self.one("primaryIdentifier"), self.one("object")) if each}
        if len(named) > 1:
            raise Unfit(
                f"Two identifiers are named, {' and '.join(names.shown(each) for each in sorted(named))}: which is the object's?"
            )
        arks = [place for place in erc.where if place.startswith("ark:")]
        return Submission(
            profile=self.one("profile"),
            url="",
            type=self._type(),
            filename=self.one("filename") or self._file_name,
            size=self._size(),
            digest_type=self.one("digestType"),
            digest_value=self.one("digestValue"),
            update=update,
            submitter=self.one("submitter"),
            creator=self.one("creator") or erc.who,
            title=self.one("title") or erc.what,
            date=self.one("date") or erc.when,
            primary_id=next(iter([*named, *arks]), ""),
            local_ids=local_ids(self.one("localIdentifier"))
            or tuple(place for place in erc.where if place not in arks),
            notification=self.one("notification"),
            notification_format=self.one("notificationFormat"),
            response_form=self.one("responseForm"),
            note=self.one("note"),
            datacite_type=self.one("DataCite.resourceType"),
            dc={word: self.one(f"DC.{word}") for word in DC if self.one(f"DC.{word}")},
            batch_id=batch_id,
            retain_target=self.one("retainTargetURL").lower() in ("true", "yes", "1"),
        )

    def _type(self) -> Type | None:
        text = self.one("type")
        if text and type_of(text) is None:
            raise Unfit(f"{names.shown(text)} is not a type of payload; the types are {', '.join(Type)}.")
        return type_of(text) if text else None

    def _size(self) -> int | None:
        text = self.one("size")
        if text and not re.fullmatch("[0-9]{1,18}", text):
            raise Unfit(f"{names.shown(text)} is not a size: write the number of bytes in digits.")
        return int(text) if text else None

    def _erc(self) -> anvl.Erc:
        try:
            return anvl.read_erc(self.one("erc").encode()) if self.one("erc") else anvl.Erc()
        except anvl.BadAnvl as error:
            raise Unfit(f"The field erc cannot be read: {error}") from None
