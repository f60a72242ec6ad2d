"""Import of a profile: one of Merritt's properties files into a profile document, with remarks on what has no place
there.

    ProfileID: demo_content                 Collection.1: ark:/13030/m5qv8jks         Notification.1: jane@example.org
    Owner: ark:/13030/j2rn30xp              CallbackURL: https://example.org/done     HandlerProcess.3: org....HandlerMinter

Lists are numbered keys, and count in the order of their numbers. Handlers are classes of the older system: their names
are kept for people to read, and Waybill's own steps do the work.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from urllib.parse import unquote, urlsplit, urlunsplit

import msgspec

from waybill.apps.ingest import names, properties
from waybill.apps.ingest.profile import BadProfile, Profile, from_document
from waybill.notify import recipients

_NUMBERED = re.compile(r"(.+)\.([0-9]{1,6})")
_HANDLER = re.compile(r"Handler\w*")
_SHOULDER = re.compile(r".*/shoulder/ark:/([0-9]+)/([a-z0-9]+)/?")
_TEXTS = {
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
    **{field: key for key, field in _TEXTS.items()},
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
_OTHERS = {
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


class Imported(msgspec.Struct, frozen=True):
    profile: Profile
    remarks: list[str]


def import_profile(data: bytes, name: str = "") -> Imported:
    """The profile of a properties file. `name`: the file's own, which deposits use; it wins over ProfileID."""
    lines, unread = properties.read_all(data)
    said = {key: value.strip() for key, value in lines.items()}
    if not said:
        raise BadProfile([str(each) for each in unread] or ["The file has no settings in it."])
    importing = _Importing(said)
    importing.faults = [str(each) for each in unread]
    document = importing.document()
    if not unread and not any(importing.knows(key) for key in said):
        raise BadProfile(
            [
                "Nothing in it is a setting of a profile: it is no properties file, or is not saved as UTF-8 or ISO-8859-1."
            ]
        )
    if name:
        if document.get("name", name) != name:
            importing.remarks.append(
                f"ProfileID is {names.shown(str(document['name']))}, and the file is called {names.shown(name)}."
            )
        document["name"] = name
    try:
        profile = from_document(Profile, document, called)
    except BadProfile as error:
        raise BadProfile([*importing.faults, *error.every]) from None
    if importing.faults:
        raise BadProfile(importing.faults)
    return Imported(profile, importing.remarks)


def called(where: str) -> str:
    """What a field of a profile is called in a properties file; of a list, with the place in it."""
    stem, _, place = where.partition(".")
    return f"Collection ({place} in their order)" if stem == "collections" and place else _KEYS.get(where, where)


class _Importing:
    """One file on its way into a document."""

    def __init__(self, said: Mapping[str, str]) -> None:
        self._said = said
        self._numbered: dict[str, list[tuple[int, str]]] = {}
        for key, value in said.items():
            numbered = _NUMBERED.fullmatch(key)
            if numbered and value:
                self._numbered.setdefault(numbered[1], []).append((int(numbered[2]), value))
        self.faults: list[str] = []
        self.remarks: list[str] = []

    def document(self) -> dict[str, object]:
        document: dict[str, object] = {field: self._said[key] for key, field in _TEXTS.items() if self._said.get(key)}
        document["collections"] = self._list("Collection")
        document["minter"] = self._minter()
        document["mail"] = self._mail()
        document["callback"] = self._callback()
        document["priority"] = self._number("Priority")
        document["storage_node"] = self._number("StorageNode")
        document["local_id_in_dublin_core"] = self._said.get("SuppressDublinCoreLocalID", "").lower() not in (
            "true",
            "yes",
        )
        document["handlers"] = self._handlers()
        return document

    def _minter(self) -> dict[str, str]:
        scheme = self._said.get("Identifier-scheme", "") or "ARK"
        if scheme.upper() != "ARK":
            self.faults.append(f"Identifier-scheme is {names.shown(scheme)}, and only ARKs are minted.")
        url = self._said.get("ObjectMinterURL", "")
        found = _SHOULDER.fullmatch(url)
        minter = {
            "url": url,
            "naan": self._said.get("Identifier-namespace", ""),
            "co_owner": self._said.get("EZID_co-owner", ""),
        }
        if found:
            if minter["naan"] not in ("", found[1]):
                self.remarks.append(
                    f"Identifier-namespace is {names.shown(minter['naan'])}, and ObjectMinterURL mints under {found[1]}."
                )
            minter |= {"naan": found[1], "shoulder": found[2]}
        if url and not found:
            self.remarks.append("ObjectMinterURL does not end with a shoulder, as EZID's do.")
        return minter

    def _mail(self) -> dict[str, object]:
        suppression = self._said.get("NotificationSuppression", "").lower()
        if suppression not in ("", "full", "none", "false"):
            self.remarks.append(
                f"NotificationSuppression is {names.shown(suppression)}, which is not known: mail is sent."
            )
        return {
            "to": list(self._addresses()),
            "format": self._said.get("NotificationFormat", ""),
            "kind": self._said.get("NotificationType", ""),
            "suppressed": suppression == "full",
        }

    def _addresses(self) -> Iterator[str]:
        """Some put several into one line, or a name before the address."""
        for value in self._list("Notification"):
            found = recipients(value)
            if found and found != (value,):
                self.remarks.append(f"Notification {names.shown(value)} was read as {' and '.join(found)}.")
            yield from found or (value,)

    def _callback(self) -> dict[str, str]:
        """The user and password of the URL go into fields of their own, so that the URL can be shown."""
        url = self._said.get("CallbackURL", "")
        try:
            parts = urlsplit(url)
        except ValueError:
            return {"url": url}
        if "@" not in parts.netloc:
            return {"url": url}
        self.remarks.append("CallbackURL holds a user name or password: they are kept apart from the URL.")
        user, _, host = parts.netloc.rpartition("@")
        name, _, password = user.partition(":")
        return {"url": urlunsplit(parts._replace(netloc=host)), "user": unquote(name), "password": unquote(password)}

    def _number(self, key: str) -> int | None:
        text = self._said.get(key, "")
        if not text:
            return None
        if not (text.isascii() and text.isdecimal() and len(text) < 10):
            self.faults.append(f"{key} is {names.shown(text)}, and must be a number.")
            return None
        return int(text)

    def knows(self, key: str) -> bool:
        numbered = _NUMBERED.fullmatch(key)
        stem = numbered[1] if numbered else key
        return stem in _TEXTS or stem in _OTHERS or bool(numbered and _HANDLER.fullmatch(stem))

    def _handlers(self) -> dict[str, list[str]]:
        """The names of the handlers of each phase; and a remark for every key that nothing was made of."""
        phases = {
            stem: [each.rpartition(".")[2].removeprefix("Handler") for each in self._list(stem)]
            for stem in self._numbered
            if _HANDLER.fullmatch(stem)
        }
        for key, value in self._said.items():
            if value and not self.knows(key):
                self.remarks.append(f"{names.shown(key)} has no place in a profile and was left out.")
        return phases

    def _list(self, stem: str) -> list[str]:
        """The values of numbered keys, by number."""
        return [value for _, value in sorted(self._numbered.get(stem, []))]
