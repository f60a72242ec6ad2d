"""Secrets in what people and logs are shown."""

import pytest

from waybill.masking import hide_secret, mask_document, mask_foreign_url, mask_secrets, remove_account


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
        ("https://host/a?pass=secret&PWD=secret&id=7", "https://host/a?pass=***&PWD=***&id=7"),
        ("https://host/a?6f0c", "https://host/a?***"),
        ("https://host/a?x=&page=2&anything=secret#top", "https://host/a?x=&page=2&anything=***#top"),
        ("it failed: https://host/a?b=secret (403)? yes=no", "it failed: https://host/a?b=*** (403)? yes=no"),
        ("see https://me:secret@host/a", "see https://me:***@host/a"),
        ("postgresql://ann:secret@secret@db:5433/x?sslmode=on", "postgresql://ann:***@db:5433/x?sslmode=on"),
        ("postgresql://ann:sec ret@db/x", "postgresql://ann:***@db/x"),
        ("postgresql://db/x?user=ann&sslpassword=secret", "postgresql://db/x?user=ann&sslpassword=***"),
    ],
)
def test_secrets_in_urls_are_masked(url: str, shown: str) -> None:
    assert mask_secrets(url) == shown


def test_the_account_of_a_url_in_a_document_is_removed() -> None:
    document = {"url": "https://token@host/a?token=1", "more": ["https://me:secret@host/b", 7, None]}
    assert mask_document(document) == {"url": "https://host/a?token=***", "more": ["https://host/b", 7, None]}


def test_a_secret_that_is_not_set_is_shown_as_empty() -> None:
    assert (hide_secret("sesame"), hide_secret("")) == ("***", "")


def test_the_account_of_a_url_that_somebody_sent_is_removed_and_text_beside_it_stays() -> None:
    assert mask_foreign_url("https://token@host/a?X-Amz-Signature=6f0c") == "https://host/a?X-Amz-Signature=***"
    assert mask_foreign_url("see https://host or write to me@host") == "see https://host or write to me@host"


def test_what_is_hardly_a_url_shows_no_account_either() -> None:
    assert [remove_account(text) for text in ("me:secret@host/a", "ftp:/me@secret@host", "host/a")] == [
        "host/a",
        "host",
        "host/a",
    ]
