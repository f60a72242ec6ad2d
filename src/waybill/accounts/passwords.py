"""Passwords: only their argon2id hash is stored, and comparing one takes as long whether or not there is a hash."""

from __future__ import annotations

from functools import cache

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

from waybill.errors import ActionRefused

MIN_LENGTH = 10
MAX_LENGTH = 500  # characters; hashing a book would occupy a server

# argon2id as OWASP recommends it for servers: 19 MiB and about 20 ms for each try, so that tries do not occupy the server
_hasher = PasswordHasher(time_cost=2, memory_cost=19_456, parallelism=1)


def hash_password(password: str) -> str:
    """Return what is stored of a password. Raises ActionRefused for one that is too short or too long."""
    if not MIN_LENGTH <= len(password) <= MAX_LENGTH:
        raise ActionRefused(f"A password has {MIN_LENGTH} to {MAX_LENGTH} characters; this one has {len(password)}.")
    return _hasher.hash(password)


def is_password(stored: str, password: str) -> bool:
    """Compare a password with its stored hash; with none, the answer takes as long and is no."""
    try:
        _hasher.verify(stored or _hash_of_nobody(), password[: MAX_LENGTH + 1])
    except (VerificationError, InvalidHashError):
        return False
    return bool(stored)


@cache
def _hash_of_nobody() -> str:
    return _hasher.hash("nobody has this password")
