"""Signatures of requests, against the examples in Amazon's documentation ("Signature Calculations for the
Authorization Header").
"""

import hashlib
from datetime import UTC, datetime

import pytest

from waybill.objects.s3_signing import S3Credentials, credentials_from_environment, path_of, query_of, sign_request

EXAMPLE = S3Credentials("AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY")
HOST = {"host": "examplebucket.s3.amazonaws.com"}
BODY = b"Welcome to Amazon S3."
PUT = {"date": "Fri, 24 May 2013 00:00:00 GMT", "x-amz-storage-class": "REDUCED_REDUNDANCY"}


@pytest.mark.parametrize(
    ("method", "path", "query", "headers", "body", "signature"),
    [
        (
            "GET",
            "/test.txt",
            "",
            {"range": "bytes=0-9"},
            b"",
            "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41",
        ),
        ("PUT", "/test%24file.text", "", PUT, BODY, "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd"),
        ("GET", "/", "lifecycle=", {}, b"", "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"),
        (
            "GET",
            "/",
            "max-keys=2&prefix=J",
            {},
            b"",
            "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7",
        ),
    ],
)
def test_the_examples_of_amazon(
    method: str, path: str, query: str, headers: dict[str, str], body: bytes, signature: str
) -> None:
    signed = sign_request(
        method,
        path,
        query,
        {**HOST, **headers},
        hashlib.sha256(body).hexdigest(),
        credentials=EXAMPLE,
        region="us-east-1",
        now=datetime(2013, 5, 24, tzinfo=UTC),
    )
    assert signed["authorization"].endswith(f",Signature={signature}")


def test_paths_and_queries_in_the_form_that_is_signed() -> None:
    assert path_of("b", "a b/é+%~'(1).txt") == "/b/a%20b/%C3%A9%2B%25~%27%281%29.txt"
    assert path_of("b", "") == "/b"
    assert query_of([("uploads", ""), ("prefix", "a/b c")]) == "prefix=a%2Fb%20c&uploads="


def test_a_session_token_is_signed_and_shown_nowhere() -> None:
    credentials = S3Credentials("key", "secret", "token")
    signed = sign_request(
        "GET", "/", "", HOST, "x", credentials=credentials, region="r", now=datetime(2013, 5, 24, tzinfo=UTC)
    )
    assert signed["x-amz-security-token"] == "token"
    assert "x-amz-security-token" in signed["authorization"]
    assert repr(credentials) == "S3Credentials(access_key='key')"


def test_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_SESSION_TOKEN", raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY", raising=False)
    assert credentials_from_environment() is None
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    assert credentials_from_environment() == S3Credentials("key", "secret")
