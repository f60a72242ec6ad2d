"""The SSH keys of users: added, removed, and found by their fingerprints.

The id of a key's record is the SHA-256 of the key, and its idempotency key the MD5, by which Manta's clients name it: both are
looked up without a search. A key has one user for ever.
"""

from __future__ import annotations

import hashlib
from typing import NamedTuple

from typing_extensions import TypedDict

from waybill.accounts.directory import find_account
from waybill.accounts.machines import KEY, USER, KeyDocument
from waybill.accounts.ssh_keys import SshKey, normalize_fingerprint, parse_public_key
from waybill.engine import Engine
from waybill.errors import ActionRefused
from waybill.record import Record, RecordExists, RecordNotFound, Store
from waybill.step import New

MAX_KEYS = 100  # of a user
MAX_NAME = 100


class KeyView(TypedDict):
    id: str
    user: str
    name: str
    type: str
    bits: int
    md5: str
    sha256: str
    line: str
    state: str


class FoundKey(NamedTuple):
    """A key whose signatures are accepted now, and whose it is."""

    user: str
    id: str
    key: SshKey


def add_key(engine: Engine, user: str, line: str, *, name: str = "", who: str = "") -> Record:
    """Add a key to a user. Safe to repeat; a key that was removed is accepted again."""
    key = parse_public_key(line)
    name = (name or key.comment or key.type).strip()
    if len(name) > MAX_NAME or not name.isprintable():
        raise ActionRefused(f"The name of a key has at most {MAX_NAME} printable characters.")
    owner = engine.store.get(USER.name, user)
    if owner.state != "Active":
        raise ActionRefused(f"The user {user} is {owner.state.lower()}.")
    if len(list_keys(engine.store, user)) >= MAX_KEYS:
        raise ActionRefused(f"{user} has {MAX_KEYS} keys, the most that are possible. Remove one first.")
    document = KeyDocument(name, key.line, key.md5, key.sha256)
    fingerprint = "md5-" + key.md5.replace(":", "")
    new = New(KEY.name, (document,), id=_id_of(key), owner=user, idempotency_key=fingerprint)
    try:
        record = engine.submit(new, who=who, why=key.sha256)
    except RecordExists:
        record = engine.store.get(KEY.name, _id_of(key))
    if record.owner != user or record.id != _id_of(key):
        raise ActionRefused("This key is known here as that of another user. Make a key of your own.")
    if record.state == "Compromised":
        raise ActionRefused("This key is marked as compromised: others have it. Make another one.")
    if record.state == "Removed":
        record = engine.act(record.ref, "restore", args={"name": name}, who=who).record
    return engine.store.get(*record.ref)


def remove_key(
    engine: Engine, user: str, fingerprint: str, *, is_compromised: bool = False, who: str = "", why: str = ""
) -> Record:
    """Refuse a key from now on. Raises RecordNotFound where the user has none of this fingerprint, or of this name."""
    record = get_key(engine.store, user, fingerprint)
    return engine.act(record.ref, "mark-compromised" if is_compromised else "remove", who=who, why=why).record


def get_key(store: Store, user: str, fingerprint: str) -> Record:
    """Return a key of a user by one of its fingerprints, its id or its name. Raises RecordNotFound."""
    record = _find_record(store, fingerprint)
    if record is None:
        named = [each for each in list_keys(store, user) if each.document(KeyDocument).name == fingerprint]
        record = named[0] if len(named) == 1 else None
    if record is None or record.owner != user:
        raise RecordNotFound(f"{user} has no key {fingerprint[:100]!r}.")
    return record


def list_keys(store: Store, user: str) -> list[Record]:
    """The keys of a user that were not removed, oldest first."""
    records = store.find(KEY.name, owner=user, limit=1000, documents=True).records
    return [record for record in records if record.state == "Active"]


def find_key(store: Store, fingerprint: str) -> FoundKey | None:
    """Return the key of a fingerprint, MD5 or SHA256, and whose it is; None where it, or its user, is refused now."""
    record = _find_record(store, fingerprint)
    if record is None or record.state != "Active":
        return None
    user = find_account(store, USER.name, record.owner)
    if user is None or user.state != "Active":
        return None
    return FoundKey(record.owner, record.id, parse_public_key(record.document(KeyDocument).line))


def to_key_view(record: Record) -> KeyView:
    document = record.document(KeyDocument)
    key = parse_public_key(document.line)
    return {
        "id": record.id,
        "user": record.owner,
        "name": document.name,
        "type": key.type,
        "bits": key.bits,
        "md5": document.md5,
        "sha256": document.sha256,
        "line": document.line,
        "state": record.state,
    }


def _find_record(store: Store, fingerprint: str) -> Record | None:
    wanted = normalize_fingerprint(fingerprint)
    try:
        if wanted.startswith("sha256-"):
            return store.get(KEY.name, wanted.removeprefix("sha256-"))
        return store.get_by_idempotency_key(KEY.name, wanted) if wanted else None
    except RecordNotFound:
        return None


def _id_of(key: SshKey) -> str:
    return hashlib.sha256(key.blob).hexdigest()
