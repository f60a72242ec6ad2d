"""Tokens: who may do what.

A token is a record of the built-in machine `token`, so it is created, revoked and recorded in a history like any other:

    issue -> Active -> (revoke) -> Revoked

Its holder sends `wb_<id>_<secret>`. The secret is 256 random bits and is shown once, to whoever created the token. The
store keeps only its SHA-256 (a slow hash is for secrets that people choose), which is compared in constant time.

A token has a role, where it holds (`waybill.accounts.roles`), and perhaps an end. A token of a user allows what its user
may do at that moment, and no more than its own role and scope; it is refused while its user is disabled.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import secrets
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from typing_extensions import TypedDict  # pydantic reads it, and before Python 3.12 only in this form

from waybill.accounts import ROLES, USER, Grant, Identity, Role, identity_of_user, is_role_sufficient, narrow_grants
from waybill.accounts.directory import act_keeping_an_admin
from waybill.accounts.machines import ADMIN, ADMIN_SCOPE
from waybill.accounts.roles import OWN, check_grant_scope, check_role_name
from waybill.engine import Engine
from waybill.errors import InputError
from waybill.machine import STAY, Document, Machine, action, end, rest
from waybill.record import DocumentStruct, Record, RecordExists, RecordNotFound, Ref, Store
from waybill.rules import ActionRefused
from waybill.step import New
from waybill.views import format_time

__all__ = [
    "ROLES",
    "TOKEN",
    "Identity",
    "IssuedToken",
    "Role",
    "TokenDocument",
    "TokenView",
    "ensure_admin_token",
    "find_token",
    "identify",
    "is_active",
    "is_role_sufficient",
    "issue",
    "read_token",
    "revoke",
    "token_view_of",
]

TOKEN_FILE = "admin.token"  # in the data folder
TOKEN_VARIABLE = "WAYBILL_TOKEN"
MAX_NAME = 100
MAX_LIFETIME = 3650 * 86400.0  # seconds


class TokenDocument(DocumentStruct, frozen=True):
    """A token as it is stored."""

    name: str
    role: Role
    hash: str
    scope: str = ""  # where the role holds
    user: str = ""  # whose it is; empty: nobody's but its holder's
    expires: float = 0.0  # by the store's clock; 0: never

    def is_lasting_admin(self) -> bool:
        return Grant(self.role, self.scope) == ADMIN and not self.user and not self.expires


def _scope_of_token(record: Record) -> str:
    token = record.find_document(TokenDocument)
    return ADMIN_SCOPE if token is not None and token.is_lasting_admin() else ""


TOKEN = Machine(
    name="token",
    plural="tokens",
    description="What a program or a person sends to be authorized.",
    made_by="`waybill tokens new`, or by POST /api/v1/tokens",
    scope_of=_scope_of_token,
    states=(
        rest("Active", description="Its holder may do what its role allows, until it expires.", settled=True),
        end("Revoked", description="It is refused."),
    ),
    actions=(
        action("revoke", "Active", "Revoked", "Refuse it from now on.", role="admin"),
        action("remain", "Active", STAY, "It stays an admin's while another one goes.", role="admin",
               writes=lambda record, args: ()),
    ),
    documents=(
        Document("token", TokenDocument, "service", "Its name, role, scope and end, and the SHA-256 of its secret.",
                 secret=("hash",)),
    ),
)  # fmt: skip

_TOKEN_PATTERN = re.compile(r"wb_([0-9a-z]{1,64})_([0-9A-Za-z_-]{43})")
_EMPTY_HASH = "0" * 64  # compared with where there is no hash, so that the answer takes as long


class TokenView(TypedDict):
    id: str
    name: str
    role: str
    scope: str
    user: str
    state: str
    created: str | None
    expires: str | None


class IssuedToken(NamedTuple):
    record: Record
    token: str  # shown once, and stored by nobody but its holder


def token_view_of(record: Record) -> TokenView:
    document = record.document(TokenDocument)
    return {
        "id": record.id,
        "name": document.name,
        "role": document.role,
        "scope": document.scope,
        "user": document.user,
        "state": record.state,
        "created": format_time(record.created),
        "expires": format_time(document.expires),
    }


def issue(
    engine: Engine,
    name: str,
    role: str,
    *,
    scope: str = "",
    user: str = "",
    lifetime: float | None = None,
    who: str = "",
) -> IssuedToken:
    """Create a token. `lifetime`: seconds until it expires; None: it does not."""
    if user and engine.store.get(USER.name, user).state != "Active":
        raise ActionRefused(f"The user {user} is not active, and its tokens would be refused.")
    return _register(engine, _new_id(), secrets.token_urlsafe(32), name, role, who, scope, user, lifetime)


def revoke(engine: Engine, id: str, *, who: str = "", why: str = "") -> Record:
    """Revoke a token: when this returns, it is refused everywhere. Not that of the last admin."""
    return act_keeping_an_admin(engine, Ref(TOKEN.name, id), "revoke", who=who, why=why)


def identify(store: Store, token: str) -> Identity | None:
    """Return whose token this is; None when it is no token, not ours, revoked, expired, or of a user who is disabled."""
    match = _TOKEN_PATTERN.fullmatch(token)
    if match is None:
        return None
    id, secret = match.groups()
    try:
        record = store.get(TOKEN.name, id)
    except RecordNotFound:
        record = None
    stored = record.find_document(TokenDocument) if record is not None else None
    is_same = hmac.compare_digest(_hash_secret(secret), stored.hash if stored is not None else _EMPTY_HASH)
    if record is None or stored is None or not is_same:
        return None
    return _identity_of(store, record, stored)


def identify_by_id(store: Store, id: str) -> Identity | None:
    """Return what a token allows now whose secret was checked before; None: nothing any more."""
    try:
        record = store.get(TOKEN.name, id)
    except RecordNotFound:
        return None
    return _identity_of(store, record, record.document(TokenDocument))


def is_active(store: Store, id: str) -> bool:
    return identify_by_id(store, id) is not None


def _identity_of(store: Store, record: Record, token: TokenDocument) -> Identity | None:
    if record.state != "Active" or (token.expires and token.expires <= store.now()):
        return None
    if not token.user:
        owners = (token.name,) if token.scope == OWN else ()
        return Identity.from_grants(token.name, [Grant(token.role, token.scope)], token=record.id, owners=owners)
    user = identity_of_user(store, token.user)
    if user is None:
        return None
    grants = narrow_grants(user.grants, token.role, token.scope)
    is_limited = Grant(token.role, token.scope) != ADMIN
    return Identity.from_grants(
        user.name, grants, token=record.id, owners=user.owners, user=user.user, is_limited=is_limited
    )


def ensure_admin_token(engine: Engine, path: Path) -> str | None:
    """On the first start, create an admin token and write it to a file that only its owner can read.

    The file is written first and the record after it, so the next start repairs a crash between the two, and two
    processes that start together end with the same token. Once a store has tokens, a missing file is somebody's
    decision and stays missing: None.
    """
    token = read_token(path)
    if token is None:
        if engine.store.count_by_state(TOKEN.name):
            return None
        token = _write_token_file(path, f"wb_{_new_id()}_{secrets.token_urlsafe(32)}")
    match = _TOKEN_PATTERN.fullmatch(token)
    if match is None:
        raise InputError(
            f"{path} does not hold a token; remove the file, then create a token with `waybill tokens new NAME --role ROLE`.",
            code="bad-token-file",
        )
    try:
        engine.store.get(TOKEN.name, match[1])
    except RecordNotFound:
        with suppress(RecordExists):  # another process, started at the same moment, may be faster
            _register(engine, match[1], match[2], "first admin", "admin", "waybill")
    return token


def read_token(path: Path) -> str | None:
    """Return the token in a file, or None when there is no file. Raises InputError for a file that others can read."""
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            content = file.read(1024)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InputError(
            f"{path} cannot be read: {error.strerror}. Give a token with {TOKEN_VARIABLE}.", code="bad-token-file"
        ) from error
    if mode & 0o077:
        raise InputError(
            f"{path} can be read by others (mode {mode & 0o777:o}); revoke that token, or `chmod 600` the file.",
            code="bad-token-file",
        )
    return content.decode("ascii", "replace").strip()


def find_token(data: Path, env: Mapping[str, str]) -> str | None:
    """Return the token that a client on this machine sends: of the environment variable, or of the data folder."""
    return env.get(TOKEN_VARIABLE) or read_token(data / TOKEN_FILE)


def _register(
    engine: Engine,
    id: str,
    secret: str,
    name: str,
    role: str,
    who: str,
    scope: str = "",
    user: str = "",
    lifetime: float | None = None,
) -> IssuedToken:
    grant = Grant(check_role_name(role), check_grant_scope(scope))
    if lifetime is not None and not 0 < lifetime <= MAX_LIFETIME:
        raise ActionRefused(f"A token lasts up to {MAX_LIFETIME / 86400:.0f} days, or until it is revoked.")
    if not name.strip() or len(name) > MAX_NAME or not name.isprintable():
        raise ActionRefused(f"A token's name is 1 to {MAX_NAME} printable characters that say who holds it.")
    expires = engine.store.now() + lifetime if lifetime is not None else 0.0
    document = TokenDocument(name, grant.role, _hash_secret(secret), grant.scope, user, expires)
    new = New(TOKEN.name, (document,), id=id, owner=user or name)
    return IssuedToken(engine.submit(new, who=who, why=f"role {grant}"), f"wb_{id}_{secret}")


def _new_id() -> str:
    """Choose the id here and not in the store: after an unknown outcome the same token can be registered again."""
    return secrets.token_hex(6)


def _hash_secret(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def _write_token_file(path: Path, token: str) -> str:
    """Write the complete file, readable by its owner alone; return what another process has written there meanwhile."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    draft = path.with_name(f".{path.name}.{secrets.token_hex(6)}")
    try:
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(token + "\n")
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(draft, path)
        except FileExistsError:
            return read_token(path) or token
        _sync_folder(path.parent)
    except OSError as error:
        raise InputError(
            f"{path} cannot be written: {error.strerror}. Choose another data folder with --data.",
            code="bad-token-file",
        ) from error
    finally:
        draft.unlink(missing_ok=True)
    return token


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
