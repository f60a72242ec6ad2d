"""Tokens: who may do what.

A token is a record of the built-in machine `token`, so it is made, revoked and written into history like everything
else:

    issue -> Active -> (revoke) -> Revoked

What its holder shows is `wb_<id>_<secret>`. The secret is 256 random bits, seen once, by whoever made the token; the
store keeps only its SHA-256 (a slow hash is for secrets that people choose), and it is compared in constant time. Roles
include one another:

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

from waybill.engine import Engine
from waybill.machine import Document, Machine, action, end, rest
from waybill.record import Exists, NotFound, Record, Ref, Store
from waybill.rules import Refused
from waybill.step import New

Role = Literal["reader", "submitter", "operator", "admin"]
ROLES: tuple[Role, ...] = ("reader", "submitter", "operator", "admin")
FILE = "admin.token"  # in the data folder of the embedded default
VARIABLE = "WAYBILL_TOKEN"
MAX_NAME = 100

TOKEN = Machine(
    name="token",
    plural="tokens",
    doc="What a program or a person shows to be let in.",
    made_by="`waybill tokens new`, or by POST /api/v1/tokens",
    states=(
        rest("Active", "Whoever shows it may do what its role allows.", settled=True),
        end("Revoked", "It opens nothing any more."),
    ),
    actions=(action("revoke", "Active", "Revoked", "Refuse whoever shows it, from now on.", role="admin"),),
    documents=(Document("token", "service", "Its name, its role, and the SHA-256 of its secret.", secret=("hash",)),),
)

_SHOWN = re.compile(r"wb_([0-9a-z]{1,64})_([0-9A-Za-z_-]{43})")
_NOBODY = "0" * 64  # what a secret is compared with where there is none: the answer then takes as long


class BadTokenFile(Exception):
    """The file with the admin token cannot be used; the text says why and what to do."""


class Identity(NamedTuple):
    """Who asks. `token`: the id of the token that was shown; None: somebody on this machine, let in without one."""

    name: str
    role: Role
    token: str | None = None

    def may(self, role: str) -> bool:
        return allows(self.role, role)


class Issued(NamedTuple):
    record: Record
    token: str  # to be shown once and kept by nobody but its holder


def allows(role: str, needed: str) -> bool:
    """Whether a role includes another. An unknown one allows nothing and is allowed to nobody."""
    return role in ROLES and needed in ROLES and ROLES.index(role) >= ROLES.index(needed)


def issue(engine: Engine, name: str, role: str, *, who: str = "") -> Issued:
    """Make a token."""
    return _register(engine, _new_id(), secrets.token_urlsafe(32), name, role, who)


def revoke(engine: Engine, id: str, *, who: str = "", why: str = "") -> Record:
    """From the moment this returns, the token is refused everywhere."""
    return engine.act(Ref(TOKEN.name, id), "revoke", who=who, why=why).record


def identify(store: Store, shown: str) -> Identity | None:
    """Whose token this is; None when it is no token, not ours, or revoked."""
    match = _SHOWN.fullmatch(shown)
    if match is None:
        return None
    id, secret = match.groups()
    try:
        record = store.get(TOKEN.name, id)
    except NotFound:
        record = None
    body = record.docs.get("token") if record is not None else None
    kept = body.get("hash") if isinstance(body, dict) else None
    same = hmac.compare_digest(_hash(secret), kept if isinstance(kept, str) else _NOBODY)
    if (
        record is None
        or not isinstance(body, dict)
        or not same
        or record.state != "Active"
        or body.get("role") not in ROLES
    ):
        return None
    return Identity(str(body.get("name", "")), body["role"], id)


def is_active(store: Store, id: str) -> bool:
    try:
        return store.get(TOKEN.name, id).state == "Active"
    except NotFound:
        return False


def ensure_admin_token(engine: Engine, path: Path) -> str | None:
    """On the first start, make an admin token and leave it in a file that only its owner can read.

    The file comes first and the record after it, so a crash between the two is mended by the next start, and of two
    processes that start together both end with the same token. Once a store has tokens, a missing file is somebody's
    decision and stays missing: None.
    """
    shown = read_token(path)
    if shown is None:
        if engine.store.tally(TOKEN.name):
            return None
        shown = _keep(path, f"wb_{_new_id()}_{secrets.token_urlsafe(32)}")
    match = _SHOWN.fullmatch(shown)
    if match is None:
        raise BadTokenFile(
            f"{path} does not hold a token; remove the file, then make a token with `waybill tokens new NAME --role ROLE`."
        )
    try:
        engine.store.get(TOKEN.name, match[1])
    except NotFound:
        with suppress(Exists):  # another process, started at the same moment, may be faster
            _register(engine, match[1], match[2], "first admin", "admin", "waybill")
    return shown


def read_token(path: Path) -> str | None:
    """The token in a file, or None when there is no file; refuses a file that others can read."""
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            content = file.read(1024)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise BadTokenFile(f"{path} cannot be read: {error.strerror}. Give a token with {VARIABLE}.") from error
    if mode & 0o077:
        raise BadTokenFile(
            f"{path} can be read by others (mode {mode & 0o777:o}); revoke that token, or `chmod 600` the file."
        )
    return content.decode("ascii", "replace").strip()


def find_token(data: Path, env: Mapping[str, str]) -> str | None:
    """The token that a client on this machine shows: the environment's, or the one of the embedded default."""
    return env.get(VARIABLE) or read_token(data / FILE)


def _register(engine: Engine, id: str, secret: str, name: str, role: str, who: str) -> Issued:
    if role not in ROLES:
        raise Refused(f"{role!r} is no role; the roles are {', '.join(ROLES)}, each including those before it.")
    if not name.strip() or len(name) > MAX_NAME or not name.isprintable():
        raise Refused(f"A token's name is 1 to {MAX_NAME} printable characters that say who holds it.")
    new = New(TOKEN.name, {"token": {"name": name, "role": role, "hash": _hash(secret)}}, id=id, owner=name)
    return Issued(engine.submit(new, who=who, why=f"role {role}"), f"wb_{id}_{secret}")


def _new_id() -> str:
    """Chosen here and not by the store: after an unknown outcome the same token can be registered again."""
    return secrets.token_hex(6)


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def _keep(path: Path, token: str) -> str:
    """Write the file whole and for its owner alone, or answer what another process has written there meanwhile."""
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
        _sync(path.parent)
    except OSError as error:
        raise BadTokenFile(
            f"{path} cannot be written: {error.strerror}. Choose another data folder with --data."
        ) from error
    finally:
        draft.unlink(missing_ok=True)
    return token


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
