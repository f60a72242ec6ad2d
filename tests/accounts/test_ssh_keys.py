"""SSH public keys: those of ssh-keygen are read, everything else is refused with a sentence."""

import base64
import random
import struct

import pytest
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa

from waybill.accounts import SIGNATURE_ALGORITHMS, parse_public_key, verify_signature
from waybill.rules import ActionRefused

Private = rsa.RSAPrivateKey | ed25519.Ed25519PrivateKey | ec.EllipticCurvePrivateKey
RSA = rsa.generate_private_key(65537, 2048)
ED25519 = ed25519.Ed25519PrivateKey.generate()
CURVES = {curve.name: ec.generate_private_key(curve) for curve in (ec.SECP256R1(), ec.SECP384R1(), ec.SECP521R1())}
ALL: tuple[Private, ...] = (RSA, ED25519, *CURVES.values())
DATE = b"date: Thu, 19 Nov 2026 04:00:00 GMT"

# made by ssh-keygen, with its fingerprints
KNOWN = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIDfxOd/3xAA8ywbN6Zri9mxsZJ53hjkYSshSENTuWNe9 ada@laptop"


def line_of(key: Private) -> str:
    public = key.public_key()
    return public.public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH).decode()


def make_line(type: str, *fields: bytes) -> str:
    blob = b"".join(struct.pack(">I", len(field)) + field for field in fields)
    return f"{type} {base64.b64encode(blob).decode()}"


def number(value: int) -> bytes:
    return value.to_bytes(value.bit_length() // 8 + 1, "big")


def test_keys_of_all_types_are_read() -> None:
    expected: list[tuple[Private, str, int]] = [
        (RSA, "ssh-rsa", 2048),
        (ED25519, "ssh-ed25519", 256),
        *((key, f"ecdsa-sha2-nistp{key.curve.key_size}", key.curve.key_size) for key in CURVES.values()),
    ]
    for key, type, bits in expected:
        parsed = parse_public_key(f"  {line_of(key)} ada@laptop \n")
        assert (parsed.type, parsed.bits, parsed.comment) == (type, bits, "ada@laptop")
        assert parsed.line == f"{line_of(key)} ada@laptop"


def test_fingerprints_are_those_of_ssh_keygen() -> None:
    key = parse_public_key(KNOWN)
    assert key.md5 == "35:8b:db:ae:6a:dd:9c:ac:ab:c7:6d:a1:b3:1c:27:86"
    assert key.sha256 == "SHA256:/PU1v86EZya4XQGfPuPYyxIeslicTs+Sp4Fxa0O8kJ0"


def test_a_signature_is_of_one_key_one_algorithm_and_these_bytes() -> None:
    signed: dict[str, tuple[Private, bytes]] = {
        "rsa-sha1": (RSA, RSA.sign(DATE, padding.PKCS1v15(), hashes.SHA1())),
        "rsa-sha256": (RSA, RSA.sign(DATE, padding.PKCS1v15(), hashes.SHA256())),
        "ecdsa-sha256": (
            CURVES["secp256r1"], CURVES["secp256r1"].sign(DATE, ec.ECDSA(hashes.SHA256())),
        ),
        "ecdsa-sha512": (
            CURVES["secp521r1"], CURVES["secp521r1"].sign(DATE, ec.ECDSA(hashes.SHA512())),
        ),
        "ed25519-sha512": (ED25519, ED25519.sign(DATE)),
    }  # fmt: skip
    keys = [parse_public_key(line_of(key)) for key in ALL]
    for algorithm, (private, signature) in signed.items():
        own = parse_public_key(line_of(private))
        assert verify_signature(own, algorithm, signature, DATE)
        assert not verify_signature(own, algorithm, signature, DATE + b" ")
        assert not verify_signature(own, algorithm, signature[:-1], DATE)
        assert not verify_signature(own, algorithm, b"", DATE)
        assert not any(
            verify_signature(own, each, signature, DATE) for each in SIGNATURE_ALGORITHMS if each != algorithm
        )
        assert not any(verify_signature(key, algorithm, signature, DATE) for key in keys if key.blob != own.blob)
    assert not verify_signature(keys[0], "none", b"", DATE)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("", "This is no SSH public key"),
        ("ssh-rsa", "This is no SSH public key"),
        ("hello world", "Keys of the type 'hello' are not accepted"),
        ("ssh-dss AAAAB3NzaC1kc3MAAACB", "Keys of the type 'ssh-dss' are not accepted"),
        (f"{KNOWN}\n{KNOWN}", "it is one line"),
        (f"no-pty {KNOWN}", "Keys of the type 'no-pty'"),
        ("-----BEGIN OPENSSH PRIVATE KEY-----\nb3Blb", "This is a private key"),
        ("ssh-ed25519 AAAA*AAA", "its base64 is not complete"),
        ("ssh-ed25519 ÄÖÜ", "its base64 is not complete"),
        ("ssh-rsa " + KNOWN.split()[1], "what is encoded is not of the type ssh-rsa"),
        ("ssh-ed25519 " + "A" * 20_000, "at most 16,384"),
        (KNOWN + "x" * 300, "The comment of a key"),
        (make_line("ssh-ed25519", b"ssh-ed25519", b"x" * 31), "32 bytes"),
        (make_line("ssh-ed25519", b"ssh-ed25519", b"x" * 32, b"more"), "32 bytes"),
        (make_line("ssh-rsa", b"ssh-rsa", number(65537), number((1 << 16383) | 1)), "has 16,384 bits"),
        (make_line("ssh-rsa", b"ssh-rsa", number(65537), number((1 << 1023) | 1)), "has 1,024 bits"),
        (make_line("ssh-rsa", b"ssh-rsa", number(65536), number((1 << 2047) | 1)), "no RSA key"),
        (make_line("ssh-rsa", b"ssh-rsa", number(1), number((1 << 2047) | 1)), "no RSA key"),
        (make_line("ssh-rsa", b"ssh-rsa", b"\0\0\x03", number((1 << 2047) | 1)), "shortest form"),
        (make_line("ssh-rsa", b"ssh-rsa", b"\xff", number((1 << 2047) | 1)), "shortest form"),
        (make_line("ssh-rsa", b"ssh-rsa"), "an exponent and a modulus"),
        (make_line("ecdsa-sha2-nistp256", b"ecdsa-sha2-nistp256", b"nistp384", b"\4" * 65), "no point of nistp256"),
        (make_line("ecdsa-sha2-nistp256", b"ecdsa-sha2-nistp256", b"nistp256", b"\4" * 65), "its numbers are no key"),
    ],
)
def test_what_is_no_key_is_refused_with_a_sentence(line: str, why: str) -> None:
    with pytest.raises(ActionRefused, match=why):
        parse_public_key(line)


def test_a_damaged_key_is_refused_or_is_another_key() -> None:
    """No byte can change, be missing or be added without being noticed, and nothing but ActionRefused is raised."""
    draw = random.Random(1)
    for private in ALL:
        type, encoded = line_of(private).split()
        blob = base64.b64decode(encoded)
        for _ in range(300):
            at = draw.randrange(len(blob))
            damaged = draw.choice(
                [blob[:at], blob[:at] + blob[at + 1 :], blob[:at] + bytes([blob[at] ^ (1 << draw.randrange(8))]) + blob[at + 1 :],
                 blob + b"\0", blob[:at] + b"\0" + blob[at:]]
            )  # fmt: skip
            try:
                key = parse_public_key(f"{type} {base64.b64encode(damaged).decode()}")
            except ActionRefused:
                continue
            assert key.blob == damaged
            assert len(damaged) == len(blob)
