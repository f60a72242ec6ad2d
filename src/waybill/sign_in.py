"""Signing in to the pages with a browser: by a link that works once, or by the password of a user.

    waybill login-link -> Unused -> (its button is pressed) -> Used, and a sign-in: Active -> (sign out, or ended) -> Ended
    name and password -> a sign-in

A link is a record of the built-in machine `login-link`, a sign-in one of `sign-in`, so both have a history like any other record.
The link holds `<id>.<secret>` and works for ten minutes; the cookie of a sign-in holds the same of the sign-in and works for two weeks.
Secrets are 256 random bits; the store keeps only their SHA-256, which is compared in constant time.

Who signs in as a user may do what the user may at that moment, and is out as soon as the user is disabled or has another
password. A GET of the link shows a button, and only its POST uses the link up: programs that look at links in mail do not press buttons.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from typing import NamedTuple

from typing_extensions import TypedDict

from waybill.accounts import ACCOUNT_KINDS, USER, Grant, check_password, identity_of_user
from waybill.activity import ACTIVITY
from waybill.engine import Engine
from waybill.errors import ActionRefused, InputError
from waybill.machine import Document, Machine, action, end, rest
from waybill.record import DocumentStruct, Record, RecordNotFound, Ref, Store, StructType
from waybill.step import New
from waybill.tokens import TOKEN, Identity, Role
from waybill.views import format_time

DAY = 86400.0
LINK_LIFETIME = 600.0  # seconds in which a link must be used
SIGN_IN_LIFETIME = 14 * DAY
MAX_NAME = 100

_CREDENTIAL_PATTERN = re.compile(r"([0-9a-f]{12})\.([0-9A-Za-z_-]{43})")
_EMPTY_HASH = "0" * 64  # compared with where there is no hash, so that the answer takes as long


class LoginLinkDocument(DocumentStruct, frozen=True):
    """Who may sign in with the link."""

    name: str
    role: Role
    hash: str
    is_user: bool = False  # the name is that of a user, whose roles count instead


class SignInDocument(DocumentStruct, frozen=True):
    """Who is signed in, and how."""

    name: str
    role: Role
    hash: str
    by: str = ""  # how: the link that was used, or the password
    address: str = ""  # from where
    is_user: bool = False


LOGIN_LINK = Machine(
    name="login-link",
    plural="login links",
    description="A link that signs in once.",
    made_by="`waybill login-link`",
    states=(
        rest("Unused", description="It can be used for ten minutes.", settled=True, keep=DAY),
        end("Used", description="It signed somebody in, and is refused.", keep=30 * DAY),
    ),
    actions=(action("use", "Unused", "Used", "Sign in with it.", role="admin"),),
    documents=(
        Document("link", LoginLinkDocument, "service", "Who may sign in, and the SHA-256 of its secret.", secret=("hash",)),
    ),
)  # fmt: skip

SIGN_IN = Machine(
    name="sign-in",
    plural="sign-ins",
    description="A browser that is signed in to the pages.",
    made_by="a login link, or a password",
    states=(
        rest("Active", description="Its browser may do what its role allows, for two weeks.", settled=True, keep=30 * DAY),
        end("Ended", description="Signed out, or ended by an admin.", keep=30 * DAY),
    ),
    actions=(action("end", "Active", "Ended", "Sign it out.", role="admin"),),
    documents=(
        Document("sign_in", SignInDocument, "service", "Who, how and from where; the SHA-256 of its secret.", secret=("hash",)),
    ),
)  # fmt: skip

# records that are never shown as records: they have pages and routes of their own
PRIVATE_KINDS = frozenset((TOKEN.name, LOGIN_LINK.name, SIGN_IN.name, ACTIVITY.name)) | ACCOUNT_KINDS


class SignInView(TypedDict):
    id: str
    name: str
    role: str  # empty: that of the user
    address: str
    created: str | None
    is_active: bool


class NewCredential(NamedTuple):
    """A link or a sign-in, with the text that only its holder has."""

    record: Record
    text: str  # <id>.<secret>


def make_login_link(engine: Engine, name: str, role: Role, *, is_user: bool = False, who: str = "") -> NewCredential:
    """Create a link that signs in once, within ten minutes. `is_user`: as the user of this name, with its roles."""
    if not name.strip() or len(name) > MAX_NAME or not name.isprintable():
        raise InputError(f"The name of who signs in is 1 to {MAX_NAME} printable characters.", code="invalid-request")
    if is_user and engine.store.get(USER.name, name).state != "Active":
        raise InputError(f"The user {name} is not active, and nobody can sign in as it.", code="invalid-request")
    id, secret = _new_secret()
    new = New(LOGIN_LINK.name, (LoginLinkDocument(name, role, _hash_secret(secret), is_user),), id=id, owner=name)
    return NewCredential(
        engine.submit(new, who=who, why=f"user {name}" if is_user else f"role {role}"), f"{id}.{secret}"
    )


def find_login_link(store: Store, text: str) -> LoginLinkDocument | None:
    """Return what an unused link allows; None when it is no link, not ours, used, or too old."""
    record = _find_credential(store, LOGIN_LINK.name, LoginLinkDocument, text)
    if record is None or record.state != LOGIN_LINK.initial_state or store.now() > record.created + LINK_LIFETIME:
        return None
    return record.document(LoginLinkDocument)


def sign_in_with_link(engine: Engine, text: str, *, address: str = "") -> NewCredential | None:
    """Use a link up and sign in; None when it cannot be used.

    Of two that press the button at once one gets None: the action is fenced by the record's version. After a crash between the two
    commits the link is used and nobody is signed in: the next link helps.
    """
    link = find_login_link(engine.store, text)
    if link is None:
        return None
    link_id = text.partition(".")[0]
    try:
        engine.act(Ref(LOGIN_LINK.name, link_id), "use", who=link.name, why=f"from {address}" if address else "")
    except ActionRefused:
        return None
    return sign_in(engine, link.name, link.role, by=f"login link {link_id}", address=address, is_user=link.is_user)


def sign_in_with_password(engine: Engine, user: str, password: str, *, address: str = "") -> NewCredential | None:
    """Sign in as a user; None when there is none of this name and password. That takes as long as when there is."""
    if not check_password(engine.store, user, password):
        return None
    return sign_in(engine, user, "reader", by="password", address=address, is_user=True)


def sign_in(
    engine: Engine, name: str, role: Role, *, by: str, address: str = "", is_user: bool = False
) -> NewCredential:
    id, secret = _new_secret()
    document = SignInDocument(name, role, _hash_secret(secret), by, address, is_user)
    record = engine.submit(New(SIGN_IN.name, (document,), id=id, owner=name), who=name, why=by)
    return NewCredential(record, f"{id}.{secret}")


def identify_sign_in(store: Store, text: str) -> Identity | None:
    """Return who is signed in with this cookie; None when nobody is, or no longer."""
    record = _find_credential(store, SIGN_IN.name, SignInDocument, text)
    return _identity_of(store, record) if record is not None else None


def identify_sign_in_by_id(store: Store, id: str) -> Identity | None:
    """Return what a sign-in allows now whose cookie was checked before; None: nothing any more."""
    try:
        return _identity_of(store, store.get(SIGN_IN.name, id))
    except RecordNotFound:
        return None


def is_sign_in_active(store: Store, id: str) -> bool:
    return identify_sign_in_by_id(store, id) is not None


def _identity_of(store: Store, record: Record) -> Identity | None:
    if not _is_valid(store, record):
        return None
    document = record.document(SignInDocument)
    if not document.is_user:
        return Identity.from_grants(document.name, [Grant(document.role)], sign_in=record.id)
    user = identity_of_user(store, document.name)
    return user._replace(sign_in=record.id) if user is not None else None


def end_sign_ins_of(engine: Engine, user: str, *, who: str = "", why: str = "") -> None:
    """End all sign-ins of a user. Safe to repeat."""
    for record in engine.store.each(SIGN_IN.name, owner=user):
        if record.state == SIGN_IN.initial_state:
            engine.act(record.ref, "end", who=who, why=why)


def end_sign_in(engine: Engine, id: str, *, who: str = "", why: str = "") -> None:
    """End a sign-in: when this returns, its cookie is refused everywhere. Safe to repeat."""
    record = engine.store.get(SIGN_IN.name, id)
    if record.state == SIGN_IN.initial_state:
        engine.act(Ref(SIGN_IN.name, id), "end", who=who, why=why)


def to_sign_in_view(record: Record, now: float) -> SignInView:
    document = record.document(SignInDocument)
    return {
        "id": record.id,
        "name": document.name,
        "role": document.role if not document.is_user else "",
        "address": document.address,
        "created": format_time(record.created),
        "is_active": record.state == SIGN_IN.initial_state and now <= record.created + SIGN_IN_LIFETIME,
    }


def _is_valid(store: Store, record: Record) -> bool:
    return record.state == SIGN_IN.initial_state and store.now() <= record.created + SIGN_IN_LIFETIME


def _find_credential(store: Store, kind: str, type: StructType, text: str) -> Record | None:
    """Return the record whose secret this is."""
    match = _CREDENTIAL_PATTERN.fullmatch(text)
    if match is None:
        return None
    id, secret = match.groups()
    try:
        record: Record | None = store.get(kind, id)
    except RecordNotFound:
        record = None
    document = record.find_document(type) if record is not None else None
    stored: str = getattr(document, "hash", _EMPTY_HASH)
    return record if hmac.compare_digest(_hash_secret(secret), stored) and document is not None else None


def _new_secret() -> tuple[str, str]:
    return secrets.token_hex(6), secrets.token_urlsafe(32)


def _hash_secret(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
