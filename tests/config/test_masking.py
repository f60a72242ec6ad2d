"""Secrets in what people and logs are shown."""

import pytest

from waybill.masking import hide_secret, mask_document, mask_secrets


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://me:secret@host:5432/db", "postgresql://me:***@host:5432/db"),
        ("postgresql://me@host/db?password=secret&sslmode=on", "postgresql://me@host/db?password=***&sslmode=on"),
        ("postgresql:///db?host=/run", "postgresql:///db?host=/run"),
        ("postgresql:///db?password=secret", "postgresql:///db?password=***"),
        ("zookeeper://a:1,b:2/x", "zookeeper://a:1,b:2/x"),
        ("s3://key:secret@bucket/prefix", "s3://key:***@bucket/prefix"),
        ("/a/folder", "/a/folder"),
        ("sqlite:///a/b.db", "sqlite:///a/b.db"),
        ("https://host/a?X-Amz-Signature=6f0c&id=7", "https://host/a?X-Amz-Signature=***&id=7"),
        ("see https://me:secret@host/a", "see https://me:***@host/a"),
    ],
)
def test_secrets_in_urls_are_masked(url: str, shown: str) -> None:
    assert mask_secrets(url) == shown


def test_the_account_of_a_url_in_a_document_is_removed() -> None:
    document = {"url": "https://token@host/a?token=1", "more": ["https://me:secret@host/b", 7, None]}
    assert mask_document(document) == {"url": "https://host/a?token=***", "more": ["https://host/b", 7, None]}


def test_a_secret_that_is_not_set_is_shown_as_empty() -> None:
    assert (hide_secret("sesame"), hide_secret("")) == ("***", "")
