"""A whole PUT, GET and DELETE on a real S3 server."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.apps.archive.archive_fixture import ArchiveFixture, read_tree
from tests.servers.s3 import SeaweedServer


def test_a_migrate_and_a_get_by_s3(
    tmp_path: Path, s3_server: SeaweedServer, s3_bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ARCHIVE_CLOUD_ACCESS_KEY", s3_server.credentials.access_key)
    monkeypatch.setenv("ARCHIVE_CLOUD_SECRET_KEY", s3_server.credentials.secret_key)
    url = f"s3://{s3_bucket}/archives?endpoint={s3_server.endpoint}&region={s3_server.region}"
    with ArchiveFixture(tmp_path, app={"storages": {"cloud": {"type": "s3", "url": url}}}) as archive:
        before = read_tree(archive.source)
        archive.run_until(archive.put(kind="MIGRATE"), "PUT_COMPLETED")
        assert not archive.source.exists()
        archive.run_until(archive.get(), "GET_COMPLETED")
        assert read_tree(archive.target) == before
        archive.run_until(archive.delete(only_copy=True), "DELETE_COMPLETED")
        assert list(archive.tester.resources.open_storage("cloud").list_containers()) == []
