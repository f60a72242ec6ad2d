"""Addresses of objects, and what they must not hold."""

import sys
from pathlib import Path

import pytest

from tests.objects.fake_s3 import FakeS3
from waybill.objects import (
    ContentMismatch,
    DirectoryObjects,
    ObjectNotFound,
    ObjectRequestRefused,
    ObjectsError,
    ObjectStoreUnavailable,
    S3Credentials,
    is_not_found,
    is_permanent,
    open_objects,
)
from waybill.objects.s3 import S3Objects


def test_a_directory_by_path_or_url(tmp_path: Path) -> None:
    for address in (
        tmp_path / "a b",
        str(tmp_path / "a b"),
        f"file://{tmp_path}/a%20b",
        f"file://localhost{tmp_path}/a%20b",
    ):
        with open_objects(address) as objects:
            assert isinstance(objects, DirectoryObjects)
            assert objects.root == tmp_path / "a b"


def test_s3_is_probed_when_it_is_opened() -> None:
    with FakeS3() as server:
        address = f"s3://bucket/some/prefix/?endpoint={server.endpoint}&region=eu-west-1"
        with open_objects(address, credentials=S3Credentials("key", "secret")) as objects:
            assert isinstance(objects, S3Objects)
            assert server.requests
            assert "secret" not in repr(objects)
            objects.put("a", b"")
            assert "some/prefix/a" in server.objects
        found = len(server.requests)
        with open_objects(address, credentials=lambda: S3Credentials("key", "secret"), probe=False) as objects:
            assert len(server.requests) == found
            assert objects.capabilities.create == "atomic"


@pytest.mark.parametrize(
    "address",
    [
        "s3://key:secret@bucket/prefix",
        "s3://bucket/prefix?access_key_id=key&secret_access_key=secret",
        "s3://bucket/prefix?endpoint=http://key:secret@host",
        "file://user:secret@localhost/path",
        "s3://bucket/prefix?token=secret",
    ],
)
def test_credentials_in_an_address_are_refused_and_not_repeated(address: str) -> None:
    with pytest.raises(ObjectRequestRefused, match="credentials") as raised:
        open_objects(address)
    assert "secret@" not in str(raised.value)
    assert "=secret" not in str(raised.value)


@pytest.mark.parametrize(
    "address",
    ["gs://bucket", "http://host/path", "file://host/path", "file:///path?x=1", "s3://", "s3://b?endpoint=ftp://h"],
)
def test_other_addresses_are_refused(address: str) -> None:
    with pytest.raises(ObjectRequestRefused):
        open_objects(address)


def test_without_obstore_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "waybill.objects.s3", None)
    with pytest.raises(ObjectRequestRefused, match=r"waybill-engine\[s3\]"):
        open_objects("s3://bucket")


def test_an_error_without_words_says_what_its_class_says() -> None:
    assert str(ObjectNotFound()) == "There is no such object."
    assert str(ObjectNotFound("Other words.")) == "Other words."
    for error in ObjectsError.__subclasses__():
        assert str(error()).endswith(".")
        assert is_permanent(error()) == (error is not ObjectStoreUnavailable)
        assert is_not_found(error()) == (error is ObjectNotFound)
    assert not is_permanent(ValueError())
    assert is_permanent(ContentMismatch())
