"""Imports one of Merritt's properties files as a profile, with remarks on settings that a profile does not have.

    ProfileID: demo_content                 Collection.1: ark:/13030/m5qv8jks         Notification.1: jane@example.org
    Owner: ark:/13030/j2rn30xp              CallbackURL: https://example.org/done     HandlerProcess.3: org....HandlerMinter

Lists are numbered keys, in the order of their numbers. Handlers are Java classes of Merritt: their names are stored for
information only; Waybill's own steps do the work.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from urllib.parse import unquote, urlsplit, urlunsplit

import msgspec

from waybill.apps.ingest.merritt import java_properties
from waybill.apps.ingest.profile import BadProfile, Profile, from_document
from waybill.files import names
from waybill.notify import parse_recipients

_NUMBERED = re.compile(r"(.+)\.([0-9]{1,6})")
_HANDLER = re.compile(r"Handler\w*")
_SHOULDER = re.compile(r".*/shoulder/ark:/([0-9]+)/([a-z0-9]+)/?")
_TEXT_FIELDS = {
    "ProfileID": "name",
    "ProfileDescription": "description",
    "Owner": "owner",
    "Context": "context",
    "Type": "type",
    "Role": "role",
    "Aggregate": "aggregate",
    "StorageService": "storage_service",
    "CreationDate": "created",
    "ModificationDate": "modified",
}
_KEYS = {
    **{field: key for key, field in _TEXT_FIELDS.items()},
    "priority": "Priority",
    "storage_node": "StorageNode",
    "minter.naan": "Identifier-namespace",
    "minter.shoulder": "The shoulder of ObjectMinterURL",
    "minter.url": "ObjectMinterURL",
    "minter.co_owner": "EZID_co-owner",
    "mail.format": "NotificationFormat",
    "mail.kind": "NotificationType",
    "callback.url": "CallbackURL",
    "callback.user": "The user of CallbackURL",
    "callback.password": "The password of CallbackURL",
}
_OTHER_KEYS = {
    "Identifier-scheme",
    "Identifier-namespace",
    "ObjectMinterURL",
    "EZID_co-owner",
    "Collection",
    "Notification",
    "NotificationFormat",
    "NotificationType",
    "NotificationSuppression",
    "CallbackURL",
    "Priority",
    "StorageNode",
    "SuppressDublinCoreLocalID",
}


class ImportedProfile(msgspec.Struct, frozen=True):
    profile: Profile
    remarks: list[str]


def import_profile(data: bytes, name: str = "") -> ImportedProfile:
    """Return the profile of a properties file. `name`: the name of the file, which deposits use; overrides ProfileID."""
    lines, unread = java_properties.read_all(data)
    settings = {key: value.strip() for key, value in lines.items()}
    if not settings:
        raise BadProfile([str(each) for each in unread] or ["The file contains no settings."])
    profile_import = _ProfileImport(settings)
    profile_import.faults = [str(each) for each in unread]
    document = profile_import.to_document()
    if not unread and not any(profile_import.is_known_key(key) for key in settings):
        raise BadProfile(
            ["It contains no setting of a profile: it is not a properties file, or not saved as UTF-8 or ISO-8859-1."]
        )
    if name:
        if document.get("name", name) != name:
            profile_import.remarks.append(
                f"ProfileID is {names.quote_text(str(document['name']))}, and the file is called {names.quote_text(name)}."
            )
        document["name"] = name
    try:
        profile = from_document(Profile, document, field_label_of)
    except BadProfile as error:
        raise BadProfile([*profile_import.faults, *error.all_faults]) from None
    if profile_import.faults:
        raise BadProfile(profile_import.faults)
    return ImportedProfile(profile, profile_import.remarks)


def field_label_of(where: str) -> str:
    """Return the name of a profile field in a properties file; of a list item, with its position."""
    stem, _, place = where.partition(".")
    return f"Collection ({place} in their order)" if stem == "collections" and place else _KEYS.get(where, where)


class _ProfileImport:
    """One properties file, its faults and remarks."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        self._properties = properties
        self._numbered: dict[str, list[tuple[int, str]]] = {}
        for key, value in properties.items():
            numbered = _NUMBERED.fullmatch(key)
            if numbered and value:
                self._numbered.setdefault(numbered[1], []).append((int(numbered[2]), value))
        self.faults: list[str] = []
        self.remarks: list[str] = []

    def to_document(self) -> dict[str, object]:
        document: dict[str, object] = {
            field: self._properties[key] for key, field in _TEXT_FIELDS.items() if self._properties.get(key)
        }
        document["collections"] = self._read_list("Collection")
        document["minter"] = self._read_minter()
        document["mail"] = self._read_mail()
        document["callback"] = self._read_callback()
        document["priority"] = self._read_number("Priority")
        document["storage_node"] = self._read_number("StorageNode")
        document["local_id_in_dublin_core"] = self._properties.get("SuppressDublinCoreLocalID", "").lower() not in (
            "true",
            "yes",
        )
        document["handlers"] = self._read_handlers()
        return document

    def _read_minter(self) -> dict[str, str]:
        scheme = self._properties.get("Identifier-scheme", "") or "ARK"
        if scheme.upper() != "ARK":
            self.faults.append(f"Identifier-scheme is {names.quote_text(scheme)}, and only ARKs are minted.")
        url = self._properties.get("ObjectMinterURL", "")
        found = _SHOULDER.fullmatch(url)
        minter = {
            "url": url,
            "naan": self._properties.get("Identifier-namespace", ""),
            "co_owner": self._properties.get("EZID_co-owner", ""),
        }
        if found:
            if minter["naan"] not in ("", found[1]):
                self.remarks.append(
                    f"Identifier-namespace is {names.quote_text(minter['naan'])}, and ObjectMinterURL mints under {found[1]}."
                )
            minter |= {"naan": found[1], "shoulder": found[2]}
        if url and not found:
            self.remarks.append("ObjectMinterURL does not end with a shoulder, as EZID's do.")
        return minter

    def _read_mail(self) -> dict[str, object]:
        suppression = self._properties.get("NotificationSuppression", "").lower()
        if suppression not in ("", "full", "none", "false"):
            self.remarks.append(
                f"NotificationSuppression is {names.quote_text(suppression)}, which is not known: mail is sent."
            )
        return {
            "to": list(self._read_addresses()),
            "format": self._properties.get("NotificationFormat", ""),
            "kind": self._properties.get("NotificationType", ""),
            "suppressed": suppression == "full",
        }

    def _read_addresses(self) -> Iterator[str]:
        """A line may hold several addresses, or a name before the address."""
        for value in self._read_list("Notification"):
            found = parse_recipients(value)
            if found and found != (value,):
                self.remarks.append(f"Notification {names.quote_text(value)} was read as {' and '.join(found)}.")
            yield from found or (value,)

    def _read_callback(self) -> dict[str, str]:
        """User and password of the URL become separate fields, so that the URL can be shown."""
        url = self._properties.get("CallbackURL", "")
        try:
            parts = urlsplit(url)
        except ValueError:
            return {"url": url}
        if "@" not in parts.netloc:
            return {"url": url}
        self.remarks.append("CallbackURL contains a user name or password: they are stored separately from the URL.")
        user, _, host = parts.netloc.rpartition("@")
        name, _, password = user.partition(":")
        return {"url": urlunsplit(parts._replace(netloc=host)), "user": unquote(name), "password": unquote(password)}

    def _read_number(self, key: str) -> int | None:
        text = self._properties.get(key, "")
        if not text:
            return None
        if not (text.isascii() and text.isdecimal() and len(text) < 10):
            self.faults.append(f"{key} is {names.quote_text(text)}, and must be a number.")
            return None
        return int(text)

    def is_known_key(self, key: str) -> bool:
        numbered = _NUMBERED.fullmatch(key)
        stem = numbered[1] if numbered else key
        return stem in _TEXT_FIELDS or stem in _OTHER_KEYS or bool(numbered and _HANDLER.fullmatch(stem))

    def _read_handlers(self) -> dict[str, list[str]]:
        """Return the handlers of each phase, and add a remark for every unknown key."""
        phases = {
            stem: [each.rpartition(".")[2].removeprefix("Handler") for each in self._read_list(stem)]
            for stem in self._numbered
            if _HANDLER.fullmatch(stem)
        }
        for key, value in self._properties.items():
            if value and not self.is_known_key(key):
                self.remarks.append(f"{names.quote_text(key)} is not a setting of a profile and was ignored.")
        return phases

    def _read_list(self, stem: str) -> list[str]:
        """Return the values of numbered keys, by number."""
        return [value for _, value in sorted(self._numbered.get(stem, []))]
