"""Digests: the algorithms that depositors and archives name, computed together in one pass, and compared with the
expected values.

Names are accepted as people write them: `SHA-256`, `sha256`, `sha_256` are the same. MD5, SHA-1, Adler-32 and CRC-32
detect damage, not malice; they are here because foreign manifests contain them.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from waybill.errors import InputError


class _Hash(Protocol):
    def update(self, data: bytes, /) -> None: ...

    def hexdigest(self) -> str: ...


class _Checksum:
    """A 32-bit checksum of zlib with the interface of a hash; eight hex digits."""

    def __init__(self, add: Callable[[bytes, int], int], start: int) -> None:
        self._add = add
        self._sum = start

    def update(self, data: bytes, /) -> None:
        self._sum = self._add(data, self._sum)

    def hexdigest(self) -> str:
        return f"{self._sum:08x}"


_CONSTRUCTORS: dict[str, Callable[[], _Hash]] = {
    "adler32": lambda: _Checksum(zlib.adler32, 1),
    "crc32": lambda: _Checksum(zlib.crc32, 0),
    "md5": lambda: hashlib.md5(usedforsecurity=False),
    "sha1": lambda: hashlib.sha1(usedforsecurity=False),
    "sha224": hashlib.sha224,
    "sha256": hashlib.sha256,
    "sha384": hashlib.sha384,
    "sha512": hashlib.sha512,
}
_DISPLAY_NAMES = {  # for sentences
    "adler32": "an Adler-32",
    "crc32": "a CRC-32",
    "md5": "an MD5",
    "sha1": "a SHA-1",
    "sha224": "a SHA-224",
    "sha256": "a SHA-256",
    "sha384": "a SHA-384",
    "sha512": "a SHA-512",
}
_MISSPELLINGS = {"alder32": "adler32"}


def normalize_algorithm(name: str) -> str:
    """Return the name as it is used here: lower case, without dashes."""
    plain = name.lower().replace("-", "").replace("_", "").strip()
    plain = _MISSPELLINGS.get(plain, plain)
    if plain not in _CONSTRUCTORS:
        raise InputError(
            f"{name!r} is not a digest that can be checked: use one of {', '.join(sorted(_CONSTRUCTORS))}.",
            code="unknown-digest",
        )
    return plain


def normalize_digests(digests: Mapping[str, str]) -> dict[str, str]:
    """Return expected digests with names and values as they are used here. Raises InputError if one cannot be
    checked.
    """
    normalized: dict[str, str] = {}
    for name, value in digests.items():
        algorithm, lowered = normalize_algorithm(name), value.strip().lower()
        if len(lowered) != len(_CONSTRUCTORS[algorithm]().hexdigest()) or any(
            letter not in "0123456789abcdef" for letter in lowered
        ):
            raise InputError(f"{value[:140]!r} is not {_DISPLAY_NAMES[algorithm]} in hex.", code="unknown-digest")
        if normalized.setdefault(algorithm, lowered) != lowered:
            raise InputError(f"Two different values of {name} were promised.", code="unknown-digest")
    return normalized


class Digests:
    """Several digests of the same bytes; SHA-256 is always among them."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._hashes = {
            name: _CONSTRUCTORS[name]() for name in dict.fromkeys(["sha256", *map(normalize_algorithm, names)])
        }
        self.size = 0

    def update(self, data: bytes) -> None:
        self.size += len(data)
        for each in self._hashes.values():
            each.update(data)

    @property
    def values(self) -> dict[str, str]:
        """The computed digests, by the names used here."""
        return {name: each.hexdigest() for name, each in self._hashes.items()}

    @property
    def sha256(self) -> str:
        return self._hashes["sha256"].hexdigest()

    def find_mismatch(self, size: int | None, digests: Mapping[str, str]) -> str | None:
        """Return what differs from the expected size and digests (as `normalize_digests` returns them), in words; None
        if nothing does.
        """
        if size is not None and size != self.size:
            return f"{self.size} bytes came, and {size} were promised"
        for name, value in digests.items():
            actual = self._hashes[name].hexdigest()
            if actual != value:
                return f"what came has the {name} {actual}, and {value} was promised"
        return None
