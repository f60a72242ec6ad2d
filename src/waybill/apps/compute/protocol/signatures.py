"""HTTP signatures: a request, or a URL, that is signed with the SSH key of an account.

    Authorization: Signature keyId="/alice/keys/<MD5 fingerprint>",algorithm="rsa-sha256",headers="date",signature="..."
    GET /alice/stor/a?algorithm=RSA-SHA256&expires=1793700000&keyId=...&signature=...          (a presigned URL)

    what was signed -> the key that is named -> does the algorithm fit the key? -> verified -> the account it belongs to

node-manta signs with rsa-sha256, ecdsa-sha256 or ed25519-sha512, python-manta with rsa-sha1 or ecdsa. A signature of a
request covers its date at least, which may be five minutes old: as in Manta's own protocol, what is signed is who asks.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Mapping
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import NamedTuple
from urllib.parse import parse_qsl, quote

from waybill.accounts import SIGNATURE_ALGORITHMS, SshKey, verify_signature
from waybill.apps.compute.errors import MantaError

MAX_AGE = 300.0  # seconds between the date of a request and now, either way
MAX_HEADER = 8192  # characters of a signature with everything
_PARAMETER = re.compile(r'\s*([A-Za-z]+)="([^"]*)"\s*(?:,|$)')
_KEY_ID = re.compile(r"/([^/]{1,64})(?:/(?:users?/)?([^/]{1,64}))?/keys/([^/]{1,128})")


class KeyId(NamedTuple):
    """What a signature says of its key. `subuser`: a user that acts for the account, which is then a group of it."""

    account: str
    subuser: str
    fingerprint: str

    @property
    def user(self) -> str:
        return self.subuser or self.account


FindKey = Callable[[KeyId], SshKey]  # raises MantaError where there is no such account, user or key


class SignatureVerifier:
    def __init__(self, find_key: FindKey) -> None:
        self._find_key = find_key

    def verify_request(
        self, method: str, target: str, headers: Mapping[str, str], authorization: str, now: float
    ) -> KeyId:
        """`target`: path and query as they were sent; names of headers in lower case. Raises MantaError."""
        parameters = _read_parameters(authorization)
        names = (parameters.get("headers") or "date").lower().split()
        dated = next((name for name in ("x-date", "date") if name in names), "")
        if not dated:
            raise MantaError("InvalidSignature", "the signature does not cover the date")
        _check_date(headers.get(dated, ""), now)
        lines = []
        for name in names:
            if name == "(request-target)":
                lines.append(f"(request-target): {method.lower()} {target}")
            elif name == "request-line":
                lines.append(f"{method} {target} HTTP/1.1")
            elif name in headers:
                lines.append(f"{name}: {headers[name]}")
            else:
                raise MantaError("InvalidSignature", f"the signature covers {name[:40]!r}, which was not sent")
        return self._verify(parameters, "\n".join(lines))

    def verify_url(self, method: str, host: str, path: str, query: str, now: float) -> KeyId:
        """A presigned URL: for its methods, its host, its path and its time only. Raises MantaError."""
        values = parse_qsl(query, keep_blank_values=True)
        parameters = dict(values)
        expires = parameters.get("expires", "")
        if not expires.isascii() or not expires.isdigit() or len(expires) > 15:
            raise MantaError("PreSignedRequest", "expires is no time in seconds")
        if float(expires) < now:
            raise MantaError("PreSignedRequest", "the signed URL has expired")
        methods = parameters.get("method") or method
        allowed = methods.split(",")
        if method not in allowed and not (method == "HEAD" and "GET" in allowed):
            raise MantaError("PreSignedRequest", f"the URL is signed for {methods[:100]}, not for {method}")
        signed = sorted(((n, v) for n, v in values if n != "signature"), key=lambda pair: pair[0].lower())
        line = "&".join(f"{_quote(name)}={_quote(value)}" for name, value in signed)
        # A URL for GET alone names no method, and its client may ask for the head of the object as well.
        tried = [methods] if "method" in parameters or method != "HEAD" else ["HEAD", "GET"]
        problem: MantaError | None = None
        for each in tried:
            try:
                return self._verify(parameters, f"{each}\n{host}\n{path}\n{line}")
            except MantaError as error:
                problem = error
        assert problem is not None
        raise problem

    def _verify(self, parameters: Mapping[str, str], text: str) -> KeyId:
        key_id = parameters.get("keyId", "")
        match = _KEY_ID.fullmatch(key_id)
        if match is None:
            raise MantaError(
                "InvalidKeyId", f"the keyId {key_id[:100]!r} is none: it must be /ACCOUNT/keys/FINGERPRINT"
            )
        found = KeyId(match[1], match[2] or "", match[3])
        algorithm = parameters.get("algorithm", "").lower()
        if algorithm not in SIGNATURE_ALGORITHMS:
            raise MantaError("InvalidAlgorithm", f"{algorithm[:40]!r} is no algorithm of a signature")
        key = self._find_key(found)
        try:
            signature = base64.b64decode(parameters.get("signature", ""), validate=True)
        except (ValueError, binascii.Error):
            raise MantaError("InvalidSignature", "the signature is not base64") from None
        if not verify_signature(key, algorithm, signature, text.encode("latin-1", "replace")):
            raise MantaError("InvalidSignature", "The signature we calculated does not match the one you sent")
        return found


def _read_parameters(authorization: str) -> dict[str, str]:
    scheme, _, rest = authorization.partition(" ")
    if scheme.lower() != "signature" or len(rest) > MAX_HEADER:
        raise MantaError("InvalidSignature", "the Authorization header is no HTTP signature")
    found, at = {}, 0
    while at < len(rest):
        if (match := _PARAMETER.match(rest, at)) is None:
            raise MantaError("InvalidSignature", 'the Authorization header is not of the form name="value",...')
        found[match[1]] = match[2]
        at = match.end()
    return found


def _check_date(text: str, now: float) -> None:
    try:
        date = parsedate_to_datetime(text)
    except ValueError:
        raise MantaError("InvalidHeader", f"Date is {text[:60]!r}, which is no date") from None
    if abs((date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp() - now) > MAX_AGE:
        raise MantaError("RequestExpired", f"Date is {text}: more than {MAX_AGE:.0f} seconds from now")


def _quote(text: str) -> str:
    """As RFC 3986 has it, which is how clients quote what they sign."""
    return quote(text, safe="-_.~")
