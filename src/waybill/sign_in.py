"""Signing in to the pages with a browser, without a password: by a link that works once.

    waybill login-link -> Unused -> (its button is pressed) -> Used, and a sign-in: Active -> (sign out, or ended) -> Ended

A link is a record of the built-in machine `login-link`, a sign-in one of `sign-in`, so both have a history like any other record.
The link holds `<id>.<secret>` and works for ten minutes; the cookie of a sign-in holds the same of the sign-in and works for two weeks.
Secrets are 256 random bits; the store keeps only their SHA-256, which is compared in constant time.

A GET of the link shows a button, and only its POST uses the link up: programs that look at links in mail do not press buttons.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from typing import NamedTuple

from typing_extensions import TypedDict

from waybill.engine import Engine
from waybill.errors import ActionRefused, InputError
from waybill.machine import Document, Machine, action, end, rest
from waybill.record import DocumentStruct, Record, RecordNotFound, Ref, Store, StructType
from waybill.step import New
from waybill.tokens import TOKEN, Identity, Role, is_role_sufficient
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


class SignInDocument(DocumentStruct, frozen=True):
    """Who is signed in, and how."""

    name: str
    role: Role
    hash: str
    by: str = ""  # how: the link that was used
    address: str = ""  # from where


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
    made_by="a login link",
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
PRIVATE_KINDS = frozenset((TOKEN.name, LOGIN_LINK.name, SIGN_IN.name))


class SignInView(TypedDict):
    id: str
    name: str
    role: str
    address: str
    created: str | None
    is_active: bool


class NewCredential(NamedTuple):
    """A link or a sign-in, with the text that only its holder has."""

    record: Record
    text: str  # <id>.<secret>


def make_login_link(engine: Engine, name: str, role: Role, *, who: str = "") -> NewCredential:
    """Create a link that signs in once, within ten minutes."""
    if not name.strip() or len(name) > MAX_NAME or not name.isprintable():
        raise InputError(f"The name of who signs in is 1 to {MAX_NAME} printable characters.", code="invalid-request")
    id, secret = _new_secret()
    new = New(LOGIN_LINK.name, (LoginLinkDocument(name, role, _hash_secret(secret)),), id=id, owner=name)
    return NewCredential(engine.submit(new, who=who, why=f"role {role}"), f"{id}.{secret}")


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
    return sign_in(engine, link.name, link.role, by=f"login link {link_id}", address=address)


def sign_in(engine: Engine, name: str, role: Role, *, by: str, address: str = "") -> NewCredential:
    id, secret = _new_secret()
    document = SignInDocument(name, role, _hash_secret(secret), by, address)
    record = engine.submit(New(SIGN_IN.name, (document,), id=id, owner=name), who=name, why=by)
    return NewCredential(record, f"{id}.{secret}")


def identify_sign_in(store: Store, text: str) -> Identity | None:
    """Return who is signed in with this cookie; None when nobody is, or no longer."""
    record = _find_credential(store, SIGN_IN.name, SignInDocument, text)
    if record is None or not _is_valid(store, record):
        return None
    document = record.document(SignInDocument)
    return Identity(document.name, document.role, sign_in=record.id)


def is_sign_in_active(store: Store, id: str) -> bool:
    try:
        return _is_valid(store, store.get(SIGN_IN.name, id))
    except RecordNotFound:
        return False


def end_sign_in(engine: Engine, id: str, *, who: str = "", why: str = "") -> None:
    """End a sign-in: when this returns, its cookie is refused everywhere. Safe to repeat."""
    if is_sign_in_active(engine.store, id):
        engine.act(Ref(SIGN_IN.name, id), "end", who=who, why=why)


def to_sign_in_view(record: Record, now: float) -> SignInView:
    document = record.document(SignInDocument)
    return {
        "id": record.id,
        "name": document.name,
        "role": document.role,
        "address": document.address,
        "created": format_time(record.created),
        "is_active": record.state == SIGN_IN.initial_state and now <= record.created + SIGN_IN_LIFETIME,
    }


def may_link(identity: Identity, role: str) -> bool:
    """Whether somebody may make a link of this role: nobody can give more than they have."""
    return is_role_sufficient(identity.role, role)


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
