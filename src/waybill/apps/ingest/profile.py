"""Profiles and collections: what holds for every deposit of a kind, as documents; and profiles taken over from
Merritt's properties files.

A **profile** says who owns what is deposited, in which collections it lies, where its ARKs come from, who is told by
mail or by a callback, and how urgent it is. A deposit names its profile. A **collection** has a mnemonic, by which it
is put on hold.

A document carries its version `v`; fields that this Waybill does not know are kept as they are, for the one that wrote
them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Any, Literal, TypeVar
from urllib.parse import urlsplit

import msgspec

from waybill.apps.ingest import names
from waybill.apps.ingest.mistakes import mistakes

VERSION = 1

MOST_FAULTS = 20  # that are told of one document

# What a rule wants stands in its description: it is what people read when something else is there (mistakes.py).
_NAME = "letters, digits and _ . @ -, at most 128 of them, and the first a letter or a digit"
Name = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.@-]{0,127}\Z", description=_NAME)]
Text = Annotated[str, msgspec.Meta(max_length=4096, description="a text of at most 4096 characters")]
_ARK = "an ARK such as ark:/13030/m5abc, of at most 256 characters and without blanks, $ and |"
Ark = Annotated[str, msgspec.Meta(pattern=r"^(ark:/[0-9]+/[^\s|$]+)?\Z", max_length=256, description=_ARK)]
Priority = Annotated[int, msgspec.Meta(ge=0, le=99, description="a number from 0 to 99")]
_NAAN = "a number of 5 to 9 digits"
_SHOULDER = "small letters and digits, at most 32 of them, and the first a letter"

_MAIL = re.compile(r"[^@\s,;<>]+@[^@\s,;<>]+")


class BadProfile(Exception):
    """The profile has faults: the first of them, if there are many."""

    permanent = True

    def __init__(self, faults: list[str]) -> None:
        more = len(faults) - MOST_FAULTS
        self.every = faults
        self.faults = faults if more <= 0 else [*faults[:MOST_FAULTS], f"And {more} more."]
        super().__init__(" ".join(self.faults))


class Minter(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where ARKs come from. Without a URL Waybill mints them itself, on the shoulder."""

    scheme: Literal["ARK"] = "ARK"
    naan: Annotated[str, msgspec.Meta(pattern=r"^([0-9]{5,9})?\Z", description=_NAAN)] = ""
    shoulder: Annotated[str, msgspec.Meta(pattern=r"^([a-z][a-z0-9]{0,31})?\Z", description=_SHOULDER)] = ""
    url: Text = ""  # of EZID; its shoulder is at the end: https://ezid.cdlib.org/shoulder/ark:/99999/fk4
    co_owner: Text = ""


class Callback(msgspec.Struct, frozen=True, omit_defaults=True):
    """Who is called when a job is done: POST url/mc/JOB."""

    url: Text = ""
    user: Text = ""
    password: Text = ""

    def __repr__(self) -> str:
        return f"Callback({self.url!r}, {self.user!r}, ...)"


class Mail(msgspec.Struct, frozen=True, omit_defaults=True):
    """Who is told of batches."""

    to: tuple[str, ...] = ()
    format: Text = ""
    kind: Text = ""  # verbose | additional
    suppressed: bool = False


class Profile(msgspec.Struct, frozen=True, omit_defaults=True):
    name: Name
    description: Text = ""
    collections: tuple[Ark, ...] = ()
    owner: Ark = ""
    context: Text = ""  # of the group, written beside an ARK as its creator
    type: Text = ""
    role: Text = ""
    aggregate: Text = ""
    minter: Minter = Minter()
    mail: Mail = Mail()
    callback: Callback = Callback()
    priority: Priority | None = None
    storage_service: Text = ""
    storage_node: int | None = None
    local_id_in_dublin_core: bool = True
    created: Text = ""
    modified: Text = ""
    handlers: dict[str, tuple[str, ...]] = {}  # what an imported profile had, by phase; kept for people to read
    rest: dict[str, Any] = {}  # fields of a newer version


class Collection(msgspec.Struct, frozen=True, omit_defaults=True):
    mnemonic: Name
    name: Text = ""
    ark: Ark = ""
    owner: Ark = ""
    description: Text = ""
    rest: dict[str, Any] = {}


_Document = TypeVar("_Document", bound=Profile | Collection)


def to_document(thing: Profile | Collection) -> dict[str, Any]:
    """As it is kept."""
    document: dict[str, Any] = msgspec.to_builtins(thing)
    return {**document.pop("rest", {}), **document, "v": VERSION}


def from_document(kind: type[_Document], document: object, called: Callable[[str], str] = str) -> _Document:
    """From what was kept, or sent by a user; BadProfile with all that is wrong. `called`: what a field is called
    there.
    """
    if not isinstance(document, dict) or not all(isinstance(key, str) for key in document):
        raise BadProfile([f"A {kind.__name__.lower()} is an object with fields, as JSON has them."])
    if "v" in document and document["v"] not in (VERSION, VERSION - 1):
        raise BadProfile(
            [f"This is of version {names.shown(str(document['v']))}, and this Waybill reads version {VERSION}."]
        )
    own = set(kind.__struct_fields__) - {"rest"}
    known = {key: value for key, value in document.items() if key in own}
    rest = {key: value for key, value in document.items() if key not in own and key != "v"}
    wrong = dict(mistakes(kind, known))
    faults = [f"{called(where)} {words}." for where, words in wrong.items()]
    try:
        thing = msgspec.convert({**known, "rest": rest}, kind)
        faults += _faults(thing) if isinstance(thing, Profile) else []
    except (msgspec.ValidationError, RecursionError) as error:
        sound = {
            key: value for key, value in known.items() if not any(where.partition(".")[0] == key for where in wrong)
        }
        faults += _faults(msgspec.convert({"name": "none", **sound}, Profile)) if kind is Profile and wrong else []
        faults = faults or [f"{str(error).rstrip('.')}."]
    if faults:
        raise BadProfile(faults)
    return thing


def changed(kind: type[_Document], name: str, before: object, after: object) -> dict[str, Any]:
    """The document that takes the place of another; BadProfile if it is not one.

    Nobody is shown the password of a callback, so whoever changes something else does not send it: it stays with its
    URL and user. Send an empty one to remove it.
    """
    thing = from_document(kind, after)
    if name_of(thing) != name:
        raise BadProfile(
            [f"The {kind.__name__.lower()} is called {names.shown(name)}, and a name cannot change: make a new one."]
        )
    document = to_document(thing)
    was, now = _callback(before), _callback(after)
    if (
        "password" in was
        and "password" not in now
        and all(was.get(field, "") == now.get(field, "") for field in ("url", "user"))
    ):
        document["callback"] = {**document.get("callback", {}), "password": was["password"]}
    return document


def _callback(document: object) -> dict[str, Any]:
    found = document.get("callback") if isinstance(document, dict) else None
    return found if isinstance(found, dict) else {}


def name_of(thing: Profile | Collection) -> str:
    """By which deposits and holds name it."""
    return thing.name if isinstance(thing, Profile) else thing.mnemonic


def is_mail_address(text: str) -> bool:
    return _MAIL.fullmatch(text) is not None


def _faults(profile: Profile) -> list[str]:
    """What the types alone cannot say."""
    faults = [f"{names.shown(each)} is not a mail address." for each in profile.mail.to if not is_mail_address(each)]
    for what, url in (
        ("callback", profile.callback.url),
        ("minter", profile.minter.url),
        ("storage service", profile.storage_service),
    ):
        if url and not is_web_address(url):
            shown = names.shown(url.rpartition("@")[2])  # without a password that should not be in it
            faults.append(
                f"The URL of the {what}, {shown}, is not an http or https URL without user name and password."
            )
    return faults


def is_web_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return (
            parts.scheme in ("http", "https")
            and bool(parts.hostname)
            and "@" not in parts.netloc
            and (parts.port or 1) > 0
        )
    except ValueError:
        return False
