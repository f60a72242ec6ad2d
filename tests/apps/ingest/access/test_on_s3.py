"""Assemblies whose objects lie in S3: packed in parts while they are read, fetched, expired."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.apps.ingest.access.stored_objects import StoredObjects
from tests.apps.ingest.access.test_assemblies import TOP, asked_for, read_members
from tests.apps.ingest.ingest_fixture import IngestFixture
from tests.apps.ingest.maintenance.contexts import make_context
from tests.apps.ingest.routes.objects_server import serve_objects
from waybill.apps.ingest.access import tokens
from waybill.apps.ingest.maintenance import AssemblyExpiryRoutine
from waybill.apps.ingest.resources import IngestResources
from waybill.files.containers import UploadPartSizes
from waybill.maintenance import run_round

LONG = bytes(range(256)) * 50_000  # more than goes in one request


@pytest.fixture
def ingest(tmp_path: Path, s3_server: Any, s3_bucket: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[IngestFixture]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", s3_server.credentials.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", s3_server.credentials.secret_key)
    address = f"s3://{s3_bucket}/ingest?endpoint={s3_server.endpoint}&region=us-east-1"
    with IngestFixture(tmp_path, objects=address, settings={"access": {"keep_seconds": 100.0}}) as made:
        yield made


def test_packed_fetched_and_removed(ingest: IngestFixture) -> None:
    StoredObjects(ingest).add({"producer/a.txt": b"hello", "producer/long.bin": LONG})
    request = asked_for(ingest, form="zip-stored")
    with ingest.workers():
        record = ingest.wait(request.record.kind, request.record.id, "Completed")
    files = read_members(ingest, record)
    assert files[f"{TOP}/producer/a.txt"] == b"hello"
    assert files[f"{TOP}/producer/long.bin"] == LONG
    with serve_objects(ingest) as front:
        whole = front.get(record.documents["token"]["url"], role=None)
        assert (whole.status_code, len(whole.content)) == (200, record.documents["packed"]["size"])
        part = front.get(record.documents["token"]["url"], role=None, headers={"Range": "bytes=-100"})
        assert (part.status_code, part.content) == (206, whole.content[-100:])
    objects = ingest.environment.objects
    objects.put(f"{tokens.place_of('z' * 43)}/7/late.zip", b"late")
    with ingest.engine() as engine:
        engine.act(record.ref, "delete")
    for _ in range(3):
        with make_context(ingest) as context:
            run_round(AssemblyExpiryRoutine(age=-60.0), context)
    assert list(objects.list(tokens.ROOT)) == []


def test_a_very_long_archive_goes_in_parts_of_its_own(ingest: IngestFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(IngestResources, "part_sizes", UploadPartSizes(min_content=1000))
    stored_objects = StoredObjects(ingest)
    stored_objects.add({"producer/long.bin": LONG})
    request = asked_for(ingest, form="zip-stored")
    with ingest.workers():
        record = ingest.wait(request.record.kind, request.record.id, "Completed")
    assert read_members(ingest, record)[f"{TOP}/producer/long.bin"] == LONG
