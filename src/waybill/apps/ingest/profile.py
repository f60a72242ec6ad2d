"""Profiles and collections, the documents that deposits refer to.

A **profile** says who owns the deposited objects, to which collections they belong, where their ARKs come from, who gets
mail or a callback, and how urgent the jobs are. A deposit names its profile. A **collection** has a mnemonic, by which
it is put on hold.

A document carries its version `v`; fields that this version of Waybill does not know are kept as they are, for the one
that wrote them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin
from urllib.parse import urlsplit

import msgspec

from waybill.errors import FormatError
from waybill.files import names
from waybill.masking import remove_account

VERSION = 1

MAX_FAULTS = 20  # of one document, that a message lists

# The description of a type completes the message "... must be" of find_faults.
_NAME = "letters, digits and _ . @ -, at most 128 of them, and the first a letter or a digit"
Name = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.@-]{0,127}\Z", description=_NAME)]
Text = Annotated[str, msgspec.Meta(max_length=4096, description="a text of at most 4096 characters")]
_ARK = "an ARK such as ark:/13030/m5abc, of at most 256 characters and without blanks, $ and |"
Ark = Annotated[str, msgspec.Meta(pattern=r"^(ark:/[0-9]+/[^\s|$]+)?\Z", max_length=256, description=_ARK)]
Priority = Annotated[int, msgspec.Meta(ge=0, le=99, description="a number from 0 to 99")]
_NAAN = "a number of 5 to 9 digits"
_SHOULDER = "small letters and digits, at most 32 of them, and the first a letter"

_SECRET_FIELDS = ("password",)
_TYPE_NAMES = {str: "a text", int: "a number", bool: "true or false", tuple: "a list", dict: "a table of fields"}
_MAIL = re.compile(r"[^@\s,;<>]+@[^@\s,;<>]+")


class BadProfile(FormatError):
    """The document has faults; `faults` has the first of them, `all_faults` all."""

    code = "bad-profile"

    def __init__(self, faults: list[str]) -> None:
        more = len(faults) - MAX_FAULTS
        self.all_faults = faults
        self.faults = faults if more <= 0 else [*faults[:MAX_FAULTS], f"And {more} more."]
        super().__init__(" ".join(self.faults))


class ProfileMinter(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where ARKs come from. Without a URL Waybill mints them itself, on the shoulder, and registers them nowhere."""

    scheme: Literal["ARK"] = "ARK"
    naan: Annotated[str, msgspec.Meta(pattern=r"^([0-9]{5,9})?\Z", description=_NAAN)] = ""
    shoulder: Annotated[str, msgspec.Meta(pattern=r"^([a-z][a-z0-9]{0,31})?\Z", description=_SHOULDER)] = ""
    url: Text = ""  # of EZID; its shoulder is at the end: https://ezid.cdlib.org/shoulder/ark:/99999/fk4
    co_owner: Text = ""


class ProfileCallback(msgspec.Struct, frozen=True, omit_defaults=True):
    """The receiver that is called when a job is done: POST url/mc/JOB."""

    url: Text = ""
    user: Text = ""
    password: Text = ""

    def __repr__(self) -> str:
        return f"Callback({self.url!r}, {self.user!r}, ...)"


class ProfileMail(msgspec.Struct, frozen=True, omit_defaults=True):
    """Who gets mail about batches."""

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
    minter: ProfileMinter = ProfileMinter()
    mail: ProfileMail = ProfileMail()
    callback: ProfileCallback = ProfileCallback()
    priority: Priority | None = None
    dataset: Text = ""  # of lots: recorded objects arrive in it, NAME or NAME/VERSION
    archive: Text = ""  # recorded objects are archived in this workspace, WORKSPACE or WORKSPACE@STORAGE
    storage_service: Text = ""
    storage_node: int | None = None
    local_id_in_dublin_core: bool = True
    created: Text = ""
    modified: Text = ""
    handlers: dict[str, tuple[str, ...]] = {}  # of an imported profile, by phase; kept for information
    rest: dict[str, Any] = {}  # fields of a newer version


class Collection(msgspec.Struct, frozen=True, omit_defaults=True):
    mnemonic: Name
    name: Text = ""
    ark: Ark = ""
    owner: Ark = ""
    description: Text = ""
    rest: dict[str, Any] = {}


_Document = TypeVar("_Document", bound=Profile | Collection)


def to_document(value: Profile | Collection) -> dict[str, Any]:
    """The document as it is stored."""
    document: dict[str, Any] = msgspec.to_builtins(value)
    return {**document.pop("rest", {}), **document, "v": VERSION}


def from_document(kind: type[_Document], document: object, field_label: Callable[[str], str] = str) -> _Document:
    """From a stored document, or one that a user sent; raises BadProfile with all faults. `field_label` returns the name
    of a field for messages.
    """
    if not isinstance(document, dict) or not all(isinstance(key, str) for key in document):
        raise BadProfile([f"A {kind.__name__.lower()} is an object with fields, as JSON has them."])
    if "v" in document and document["v"] not in (VERSION, VERSION - 1):
        raise BadProfile(
            [f"This is of version {names.quote_text(str(document['v']))}, and this Waybill reads version {VERSION}."]
        )
    own = set(kind.__struct_fields__) - {"rest"}
    known = {key: value for key, value in document.items() if key in own}
    rest = {key: value for key, value in document.items() if key not in own and key != "v"}
    faults_by_field = dict(find_faults(kind, known))
    faults = [f"{field_label(where)} {fault}." for where, fault in faults_by_field.items()]
    try:
        value = msgspec.convert({**known, "rest": rest}, kind)
        faults += _find_profile_faults(value) if isinstance(value, Profile) else []
    except (msgspec.ValidationError, RecursionError) as error:
        valid = {
            key: value
            for key, value in known.items()
            if not any(where.partition(".")[0] == key for where in faults_by_field)
        }
        faults += (
            _find_profile_faults(msgspec.convert({"name": "none", **valid}, Profile))
            if kind is Profile and faults_by_field
            else []
        )
        faults = faults or [f"{str(error).rstrip('.')}."]
    if faults:
        raise BadProfile(faults)
    return value


def replace_document(kind: type[_Document], name: str, before: object, after: object) -> dict[str, Any]:
    """The document that replaces another; raises BadProfile if it has faults.

    The password of a callback is never shown, so who changes another field does not send it: it is kept while URL and
    user stay the same. An empty password removes it.
    """
    value = from_document(kind, after)
    if name_of(value) != name:
        raise BadProfile(
            [
                f"The {kind.__name__.lower()} is called {names.quote_text(name)}, and a name cannot change: create a new one."
            ]
        )
    document = to_document(value)
    old_callback, new_callback = _callback_of(before), _callback_of(after)
    if (
        "password" in old_callback
        and "password" not in new_callback
        and all(old_callback.get(field, "") == new_callback.get(field, "") for field in ("url", "user"))
    ):
        document["callback"] = {**document.get("callback", {}), "password": old_callback["password"]}
    return document


def _callback_of(document: object) -> dict[str, Any]:
    found = document.get("callback") if isinstance(document, dict) else None
    return found if isinstance(found, dict) else {}


def name_of(value: Profile | Collection) -> str:
    """The name that deposits and holds use."""
    return value.name if isinstance(value, Profile) else value.mnemonic


def is_mail_address(text: str) -> bool:
    return _MAIL.fullmatch(text) is not None


def _find_profile_faults(profile: Profile) -> list[str]:
    """Faults that the types alone cannot express."""
    faults = [
        f"{names.quote_text(each)} is not a mail address." for each in profile.mail.to if not is_mail_address(each)
    ]
    for what, url in (
        ("callback", profile.callback.url),
        ("minter", profile.minter.url),
        ("storage service", profile.storage_service),
    ):
        if url and not is_web_address(url):
            shown = names.quote_text(remove_account(url))
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


# --- faults of a document that users write: each with its field, what is there and what must be


def find_faults(
    struct_type: type[msgspec.Struct], document: Mapping[str, Any], prefix: str = ""
) -> Iterator[tuple[str, str]]:
    """Each fault as the path of the field and what is wrong; fields that the type does not have are ignored."""
    for field in msgspec.structs.fields(struct_type):
        where = f"{prefix}{field.name}"
        if field.name in document:
            yield from _find_value_faults(field.type, document[field.name], where)
        elif field.required:
            yield where, "is missing"


def _find_value_faults(expected: Any, value: Any, where: str) -> Iterator[tuple[str, str]]:
    if isinstance(expected, type) and issubclass(expected, msgspec.Struct) and isinstance(value, dict):
        yield from find_faults(expected, value, f"{where}.")
    elif get_origin(expected) is tuple and isinstance(value, (list, tuple)):
        for number, each in enumerate(value, start=1):
            yield from _find_value_faults(get_args(expected)[0], each, f"{where}.{number}")
    elif not _is_valid(expected, value):
        found = "is not right" if where.rpartition(".")[2] in _SECRET_FIELDS else f"is {_describe_value(value)}"
        yield where, f"{found}, and must be {_describe_rule(expected)}"


def _is_valid(expected: Any, value: Any) -> bool:
    try:
        msgspec.convert(value, expected)
    except (msgspec.ValidationError, RecursionError):
        return False
    return True


def _describe_rule(expected: Any) -> str:
    origin = get_origin(expected)
    if origin is Annotated:
        plain, *metas = get_args(expected)
        return next(
            (meta.description for meta in metas if isinstance(meta, msgspec.Meta) and meta.description),
            _describe_rule(plain),
        )
    if origin in (Union, UnionType):
        return " or ".join(_describe_rule(each) for each in get_args(expected) if each is not NoneType)
    if origin is Literal:
        return " or ".join(map(str, get_args(expected)))
    return _TYPE_NAMES.get(origin or expected, "a table of fields")


def _describe_value(value: Any) -> str:
    if isinstance(value, (dict, list)):
        return "a table of fields" if isinstance(value, dict) else "a list"
    return names.quote_text(value) if isinstance(value, str) else names.quote_text(str(value))[1:-1]
