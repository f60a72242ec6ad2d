"""Digests: the algorithms that depositors and archives name, computed side by side in one pass, and compared with
what was promised.

Names are taken as people write them: `SHA-256`, `sha256`, `sha_256` are one. MD5, SHA-1, Adler-32 and CRC-32 find
damage, not malice; they are here because manifests of others hold them.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol


class _Hash(Protocol):
    def update(self, data: bytes, /) -> None: ...

    def hexdigest(self) -> str: ...


class _Checksum:
    """A 32-bit sum of zlib in the form of a hash; eight hex digits."""

    def __init__(self, add: Callable[[bytes, int], int], start: int) -> None:
        self._add = add
        self._sum = start

    def update(self, data: bytes, /) -> None:
        self._sum = self._add(data, self._sum)

    def hexdigest(self) -> str:
        return f"{self._sum:08x}"


_NEW: dict[str, Callable[[], _Hash]] = {
    "adler32": lambda: _Checksum(zlib.adler32, 1),
    "crc32": lambda: _Checksum(zlib.crc32, 0),
    "md5": lambda: hashlib.md5(usedforsecurity=False),
    "sha1": lambda: hashlib.sha1(usedforsecurity=False),
    "sha224": hashlib.sha224,
    "sha256": hashlib.sha256,
    "sha384": hashlib.sha384,
    "sha512": hashlib.sha512,
}
_WRITTEN = {  # for sentences
    "adler32": "an Adler-32",
    "crc32": "a CRC-32",
    "md5": "an MD5",
    "sha1": "a SHA-1",
    "sha224": "a SHA-224",
    "sha256": "a SHA-256",
    "sha384": "a SHA-384",
    "sha512": "a SHA-512",
}
_AS_WRITTEN_BY_SOME = {"alder32": "adler32"}


class UnknownDigest(Exception):
    """This digest cannot be checked."""

    permanent = True


def algorithm(name: str) -> str:
    """The name as it is used here: lower case, without dashes."""
    plain = name.lower().replace("-", "").replace("_", "").strip()
    plain = _AS_WRITTEN_BY_SOME.get(plain, plain)
    if plain not in _NEW:
        raise UnknownDigest(f"{name!r} is not a digest that can be checked: use one of {', '.join(sorted(_NEW))}.")
    return plain


def promised(digests: Mapping[str, str]) -> dict[str, str]:
    """Promised digests with their names and values as they are used here; UnknownDigest if one cannot be checked."""
    found: dict[str, str] = {}
    for name, value in digests.items():
        key, lowered = algorithm(name), value.strip().lower()
        if len(lowered) != len(_NEW[key]().hexdigest()) or any(letter not in "0123456789abcdef" for letter in lowered):
            raise UnknownDigest(f"{value[:140]!r} is not {_WRITTEN[key]} in hex.")
        if found.setdefault(key, lowered) != lowered:
            raise UnknownDigest(f"Two different values of {name} were promised.")
    return found


class Digests:
    """Several digests of the same bytes; SHA-256 is always among them."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._hashes = {name: _NEW[name]() for name in dict.fromkeys(["sha256", *map(algorithm, names)])}
        self.size = 0

    def update(self, data: bytes) -> None:
        self.size += len(data)
        for each in self._hashes.values():
            each.update(data)

    @property
    def values(self) -> dict[str, str]:
        """What came, by the names used here."""
        return {name: each.hexdigest() for name, each in self._hashes.items()}

    @property
    def sha256(self) -> str:
        return self._hashes["sha256"].hexdigest()

    def fault(self, size: int | None, digests: Mapping[str, str]) -> str | None:
        """What differs from the promised size and digests (as `promised` returns them), in words; None if nothing
        does.
        """
        if size is not None and size != self.size:
            return f"{self.size} bytes came, and {size} were promised"
        for name, value in digests.items():
            came = self._hashes[name].hexdigest()
            if came != value:
                return f"what came has the {name} {came}, and {value} was promised"
        return None
