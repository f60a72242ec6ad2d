"""Tokens: who may do what.

A token is a record of the built-in machine `token`, so it is created, revoked and recorded in a history like any other:

    issue -> Active -> (revoke) -> Revoked

Its holder sends `wb_<id>_<secret>`. The secret is 256 random bits and is shown once, to whoever created the token. The
store keeps only its SHA-256 (a slow hash is for secrets that people choose), which is compared in constant time. Each
role includes those before it:

    reader < submitter < operator < admin
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
from typing import Literal, NamedTuple

from typing_extensions import TypedDict  # pydantic reads it, and before Python 3.12 only in this form

from waybill.engine import Engine
from waybill.errors import InputError
from waybill.machine import Document, Machine, action, end, rest
from waybill.record import DocumentStruct, Record, RecordExists, RecordNotFound, Ref, Store
from waybill.rules import ActionRefused
from waybill.step import New
from waybill.views import format_time

Role = Literal["reader", "submitter", "operator", "admin"]
ROLES: tuple[Role, ...] = ("reader", "submitter", "operator", "admin")
TOKEN_FILE = "admin.token"  # in the data folder
TOKEN_VARIABLE = "WAYBILL_TOKEN"
MAX_NAME = 100


class TokenDocument(DocumentStruct, frozen=True):
    """A token as it is stored."""

    name: str
    role: Role
    hash: str


TOKEN = Machine(
    name="token",
    plural="tokens",
    description="What a program or a person sends to be authorized.",
    made_by="`waybill tokens new`, or by POST /api/v1/tokens",
    states=(
        rest("Active", description="Its holder may do what its role allows.", settled=True),
        end("Revoked", description="It is refused."),
    ),
    actions=(action("revoke", "Active", "Revoked", "Refuse it from now on.", role="admin"),),
    documents=(
        Document(
            "token", TokenDocument, "service", "Its name, its role, and the SHA-256 of its secret.", secret=("hash",)
        ),
    ),
)

_TOKEN_PATTERN = re.compile(r"wb_([0-9a-z]{1,64})_([0-9A-Za-z_-]{43})")
_EMPTY_HASH = "0" * 64  # compared with where there is no hash, so that the answer takes as long


class Identity(NamedTuple):
    """Who makes a request. `token`: the id of the token; `sign_in`: that of the browser's sign-in; neither: somebody on
    this machine, who needs none.
    """

    name: str
    role: Role
    token: str | None = None
    sign_in: str | None = None

    def has_role(self, role: str) -> bool:
        return is_role_sufficient(self.role, role)


class TokenView(TypedDict):
    id: str
    name: str
    role: str
    state: str
    created: str | None


class IssuedToken(NamedTuple):
    record: Record
    token: str  # shown once, and stored by nobody but its holder


def is_role_sufficient(role: str, needed: str) -> bool:
    """Return whether a role includes the needed one. An unknown role allows nothing and is granted to nobody."""
    return role in ROLES and needed in ROLES and ROLES.index(role) >= ROLES.index(needed)


def token_view_of(record: Record) -> TokenView:
    document = record.document(TokenDocument)
    return {
        "id": record.id,
        "name": document.name,
        "role": document.role,
        "state": record.state,
        "created": format_time(record.created),
    }


def issue(engine: Engine, name: str, role: str, *, who: str = "") -> IssuedToken:
    """Create a token."""
    return _register(engine, _new_id(), secrets.token_urlsafe(32), name, role, who)


def revoke(engine: Engine, id: str, *, who: str = "", why: str = "") -> Record:
    """Revoke a token: when this returns, it is refused everywhere."""
    return engine.act(Ref(TOKEN.name, id), "revoke", who=who, why=why).record


def identify(store: Store, token: str) -> Identity | None:
    """Return whose token this is; None when it is no token, not ours, or revoked."""
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
    if record is None or stored is None or not is_same or record.state != "Active":
        return None
    return Identity(stored.name, stored.role, id)


def is_active(store: Store, id: str) -> bool:
    try:
        return store.get(TOKEN.name, id).state == "Active"
    except RecordNotFound:
        return False


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


def _register(engine: Engine, id: str, secret: str, name: str, role: str, who: str) -> IssuedToken:
    if role not in ROLES:
        raise ActionRefused(f"{role!r} is no role; the roles are {', '.join(ROLES)}, each including those before it.")
    if not name.strip() or len(name) > MAX_NAME or not name.isprintable():
        raise ActionRefused(f"A token's name is 1 to {MAX_NAME} printable characters that say who holds it.")
    new = New(TOKEN.name, (TokenDocument(name, role, _hash_secret(secret)),), id=id, owner=name)
    return IssuedToken(engine.submit(new, who=who, why=f"role {role}"), f"wb_{id}_{secret}")


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
