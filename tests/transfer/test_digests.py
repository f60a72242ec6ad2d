"""Digests as people name them."""

import pytest

from waybill.digests import Digests, normalize_algorithm, normalize_digests
from waybill.errors import InputError

# Of b"abc": RFC 1321, FIPS 180-4, and zlib's own documentation.
ABC = {
    "MD5": "900150983cd24fb0d6963f7d28e17f72",
    "SHA-1": "a9993e364706816aba3e25717850c26c9cd0d89d",
    "sha-256": "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
    "SHA512": "ddaf35a193617abacc417349ae20413112e6fa4e89a97ea20a9eeee64b55d39a"
    "2192992a274fc1a836ba3c23a3feebbd454d4423643ce80e2a9ac94fa54ca49f",
    "Alder-32": "024d0127",
    "CRC-32": "352441c2",
}


@pytest.mark.parametrize("name", ABC)
def test_known_answers(name: str) -> None:
    digests = Digests([name])
    digests.update(b"a")
    digests.update(b"bc")
    assert digests.find_mismatch(3, normalize_digests({name: ABC[name].upper()})) is None
    wrong = ("0" if ABC[name][0] != "0" else "1") + ABC[name][1:]
    assert "was promised" in (digests.find_mismatch(3, normalize_digests({name: wrong})) or "")
    assert "4 were promised" in (digests.find_mismatch(4, {}) or "")


def test_names_as_people_write_them() -> None:
    assert {normalize_algorithm(name) for name in ("SHA-256", "sha256", "Sha_256", " sha-256 ")} == {"sha256"}
    for bad in ("", "md2", "sha-3", "shake_128", "blake2b"):
        with pytest.raises(InputError):
            normalize_algorithm(bad)


@pytest.mark.parametrize(
    "digests", [{"md5": "abc"}, {"md5": "z" * 32}, {"md5": ""}, {"md5": "0" * 32, "MD-5": "1" * 32}]
)
def test_what_is_no_digest(digests: dict[str, str]) -> None:
    with pytest.raises(InputError):
        normalize_digests(digests)
