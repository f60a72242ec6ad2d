"""AWS Signature Version 4 of one S3 request, as headers.

obstore signs its own requests; this is for the requests that it does not have (s3_multipart.py). Credentials come from
the caller or from the environment, never from a URL, and are not shown by `repr`.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from urllib.parse import quote


@dataclass(frozen=True, slots=True)
class S3Credentials:
    access_key: str
    secret_key: str = field(repr=False)
    token: str | None = field(default=None, repr=False)


def credentials_from_environment() -> S3Credentials | None:
    """Return the credentials that AWS's own tools would take from the environment; with None obstore looks for them,
    also in the machine's role.
    """
    access_key, secret_key = os.environ.get("AWS_ACCESS_KEY_ID"), os.environ.get("AWS_SECRET_ACCESS_KEY")
    if access_key and secret_key:
        return S3Credentials(access_key, secret_key, os.environ.get("AWS_SESSION_TOKEN"))
    return None


def path_of(bucket: str, key: str) -> str:
    """Return the path of a request, in the canonical form that is signed."""
    return quote(f"/{bucket}/{key}" if key else f"/{bucket}", safe="/~")


def query_of(pairs: Sequence[tuple[str, str]]) -> str:
    return "&".join(f"{quote(name, safe='~')}={quote(value, safe='~')}" for name, value in sorted(pairs))


def sign_request(
    method: str,
    path: str,
    query: str,
    headers: Mapping[str, str],
    sha256: str,
    *,
    credentials: S3Credentials,
    region: str,
    now: datetime,
) -> dict[str, str]:
    """Return the headers (with lower-case names, including `host`) and those that sign them; `sha256` is that of the
    request's body.
    """
    stamp = now.strftime("%Y%m%dT%H%M%SZ")
    scope = f"{stamp[:8]}/{region}/s3/aws4_request"
    signed = {**headers, "x-amz-content-sha256": sha256, "x-amz-date": stamp}
    if credentials.token:
        signed["x-amz-security-token"] = credentials.token
    listed = ";".join(sorted(signed))
    canonical = "\n".join(
        [method, path, query, *(f"{name}:{signed[name].strip()}" for name in sorted(signed)), "", listed, sha256]
    )
    text = "\n".join(["AWS4-HMAC-SHA256", stamp, scope, hashlib.sha256(canonical.encode()).hexdigest()])
    key = b"AWS4" + credentials.secret_key.encode()
    for step in (stamp[:8], region, "s3", "aws4_request"):
        key = hmac.digest(key, step.encode(), "sha256")
    signature = hmac.digest(key, text.encode(), "sha256").hex()
    value = f"AWS4-HMAC-SHA256 Credential={credentials.access_key}/{scope},SignedHeaders={listed},Signature={signature}"
    return {**signed, "authorization": value}
