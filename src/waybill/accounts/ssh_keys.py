"""SSH public keys: strictly parsed, named by their fingerprints, and used to verify signatures.

    key = parse_public_key("ssh-ed25519 AAAA... alice@laptop")
    key.md5             aa:bb:...           as Manta's clients name a key
    key.sha256          SHA256:...          as ssh-keygen -l does
    verify_signature(key, "rsa-sha256", signature, data)

A line is taken apart by hand and must be exactly what OpenSSH would write: one type that we know, no byte missing or left
over, numbers in their shortest form, sizes within limits. Only then `cryptography` makes a key of it.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from typing import NamedTuple

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
from cryptography.hazmat.primitives.serialization import load_ssh_public_key

from waybill.errors import ActionRefused

MAX_LINE = 16_384  # characters of a key and its comment
MAX_COMMENT = 200
MIN_RSA_BITS, MAX_RSA_BITS = 2048, 8192
CURVES = {"nistp256": 65, "nistp384": 97, "nistp521": 133}  # with the bytes of an uncompressed point
KEY_TYPES = ("ssh-rsa", *(f"ecdsa-sha2-{curve}" for curve in CURVES), "ssh-ed25519")

# The names of HTTP signatures (draft-cavage-http-signatures). SHA-1 only with RSA: older clients of Manta have nothing
# else, and what they sign is a date that they choose themselves.
_HASHES: dict[str, hashes.HashAlgorithm] = {
    "sha1": hashes.SHA1(),
    "sha256": hashes.SHA256(),
    "sha384": hashes.SHA384(),
    "sha512": hashes.SHA512(),
}
SIGNATURE_ALGORITHMS = (
    "rsa-sha1", "rsa-sha256", "rsa-sha512", "ecdsa-sha256", "ecdsa-sha384", "ecdsa-sha512", "ed25519-sha512",
)  # fmt: skip


class SshKey(NamedTuple):
    """A public key."""

    type: str
    bits: int
    blob: bytes  # what the base64 of its line holds
    comment: str

    @property
    def sha256(self) -> str:
        return "SHA256:" + base64.b64encode(hashlib.sha256(self.blob).digest()).rstrip(b"=").decode()

    @property
    def md5(self) -> str:
        digest = hashlib.md5(self.blob, usedforsecurity=False).hexdigest()
        return ":".join(digest[n : n + 2] for n in range(0, 32, 2))

    @property
    def line(self) -> str:
        """As OpenSSH writes it."""
        return f"{self.type} {base64.b64encode(self.blob).decode()} {self.comment}".rstrip()


def parse_public_key(line: str) -> SshKey:
    """Return the key of a line such as `ssh-ed25519 AAAA... comment`. Raises ActionRefused for anything else."""
    if len(line) > MAX_LINE:
        raise ActionRefused(f"This has {len(line):,} characters; the line of a public key has at most {MAX_LINE:,}.")
    if "PRIVATE KEY" in line:
        raise ActionRefused("This is a private key, which nobody else may have: give the file that ends in .pub.")
    parts = line.strip().split(None, 2)
    if len(parts) < 2 or "\n" in line.strip():
        raise ActionRefused("This is no SSH public key: it is one line, TYPE BASE64 COMMENT, as in id_ed25519.pub.")
    type, encoded, comment = parts[0], parts[1], parts[2] if len(parts) == 3 else ""
    if type not in KEY_TYPES:
        raise ActionRefused(f"Keys of the type {type[:40]!r} are not accepted; these are: {', '.join(KEY_TYPES)}.")
    if len(comment) > MAX_COMMENT or not comment.isprintable():
        raise ActionRefused(f"The comment of a key has at most {MAX_COMMENT} printable characters.")
    try:
        blob = base64.b64decode(encoded.encode("ascii"), validate=True)
    except (UnicodeEncodeError, binascii.Error) as error:
        raise _damaged("its base64 is not complete") from error
    return SshKey(type, _check_blob(type, blob), blob, comment)


def verify_signature(key: SshKey, algorithm: str, signature: bytes, data: bytes) -> bool:
    """Return whether a signature of HTTP, by an algorithm such as rsa-sha256, is of this key over these bytes."""
    if algorithm not in SIGNATURE_ALGORITHMS:
        return False
    family, _, digest = algorithm.partition("-")
    public = load_ssh_public_key(key.line.encode())
    try:
        if isinstance(public, rsa.RSAPublicKey) and family == "rsa":
            public.verify(signature, data, padding.PKCS1v15(), _HASHES[digest])
        elif isinstance(public, ec.EllipticCurvePublicKey) and family == "ecdsa":
            public.verify(signature, data, ec.ECDSA(_HASHES[digest]))
        elif isinstance(public, ed25519.Ed25519PublicKey) and family == "ed25519":
            public.verify(signature, data)
        else:
            return False
    except InvalidSignature:
        return False
    return True


def normalize_fingerprint(text: str) -> str:
    """Return a fingerprint as keys are found by it, `sha256-HEX` or `md5-HEX`; empty when it is none."""
    text = text.strip()
    if text.startswith("SHA256:"):
        try:
            digest = base64.b64decode(text.removeprefix("SHA256:").encode("ascii") + b"=", validate=True)
        except (UnicodeEncodeError, binascii.Error):
            return ""
        return f"sha256-{digest.hex()}" if len(digest) == 32 else ""
    plain = text.removeprefix("MD5:").replace(":", "").lower()
    is_hex = all(c in "0123456789abcdef" for c in plain)
    return f"md5-{plain}" if is_hex and len(plain) == 32 else f"sha256-{plain}" if is_hex and len(plain) == 64 else ""


def _check_blob(type: str, blob: bytes) -> int:
    """Return the size of the key in bits, or raise ActionRefused."""
    fields = _read_fields(blob)
    if not fields or fields[0] != type.encode():
        raise _damaged(f"what is encoded is not of the type {type}")
    if type == "ssh-rsa":
        bits = _check_rsa(fields)
    elif type == "ssh-ed25519":
        if len(fields) != 2 or len(fields[1]) != 32:
            raise _damaged("an Ed25519 key has 32 bytes")
        bits = 256
    else:
        curve = type.removeprefix("ecdsa-sha2-")
        if len(fields) != 3 or fields[1] != curve.encode() or len(fields[2]) != CURVES[curve] or fields[2][0] != 4:
            raise _damaged(f"it is no point of {curve}")
        bits = int(curve.removeprefix("nistp"))
    try:
        load_ssh_public_key(f"{type} {base64.b64encode(blob).decode()}".encode())
    except (ValueError, UnsupportedAlgorithm) as error:
        raise _damaged("its numbers are no key") from error
    return bits


def _check_rsa(fields: list[bytes]) -> int:
    if len(fields) != 3:
        raise _damaged("an RSA key has an exponent and a modulus")
    exponent, modulus = (_read_number(field) for field in fields[1:])
    bits = modulus.bit_length()
    if not MIN_RSA_BITS <= bits <= MAX_RSA_BITS:
        raise ActionRefused(
            f"This RSA key has {bits:,} bits; keys of {MIN_RSA_BITS} to {MAX_RSA_BITS} bits are accepted. "
            "`ssh-keygen -t ed25519` makes a good one."
        )
    if exponent < 3 or exponent.bit_length() > 32 or not exponent & 1 or not modulus & 1:
        raise _damaged("its numbers are no RSA key")
    return bits


def _read_fields(blob: bytes) -> list[bytes]:
    fields: list[bytes] = []
    at = 0
    while at < len(blob):
        size = int.from_bytes(blob[at : at + 4], "big")
        if len(blob) - at < 4 or len(blob) - at - 4 < size or len(fields) == 3:
            raise _damaged("bytes are missing or left over")
        fields.append(blob[at + 4 : at + 4 + size])
        at += 4 + size
    return fields


def _read_number(field: bytes) -> int:
    """A positive number in its shortest form, with a zero in front only where its first bit is set."""
    if not field or field[0] & 0x80 or (field[0] == 0 and not (len(field) > 1 and field[1] & 0x80)):
        raise _damaged("a number is not in its shortest form")
    return int.from_bytes(field, "big")


def _damaged(why: str) -> ActionRefused:
    return ActionRefused(f"This is no SSH public key, or it was damaged when it was copied: {why}.")
