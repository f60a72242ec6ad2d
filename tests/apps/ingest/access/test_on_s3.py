"""Assemblies whose objects lie in S3: packed in parts while they are read, fetched, expired."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.apps.ingest.access.holdings import Holdings
from tests.apps.ingest.access.test_assemblies import TOP, asked_for, unpacked
from tests.apps.ingest.duties.test_audit import hand_of
from tests.apps.ingest.routes.serving import serving
from tests.apps.ingest.site import Site
from waybill.apps.ingest.access import tokens
from waybill.apps.ingest.duties import Expiry
from waybill.apps.ingest.outfit import Outfit, Parts
from waybill.duties import a_round

LONG = bytes(range(256)) * 50_000  # more than goes in one request


@pytest.fixture
def site(tmp_path: Path, s3_server: Any, s3_bucket: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", s3_server.credentials.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", s3_server.credentials.secret_key)
    address = f"s3://{s3_bucket}/site?endpoint={s3_server.endpoint}&region=us-east-1"
    with Site(tmp_path, objects=address, settings={"access": {"keep": 100.0}}) as made:
        yield made


def test_packed_fetched_and_removed(site: Site) -> None:
    Holdings(site).add({"producer/a.txt": b"hello", "producer/long.bin": LONG})
    asked = asked_for(site, form="zip-stored")
    with site.workers():
        record = site.wait(asked.record.kind, asked.record.id, "Completed")
    files = unpacked(site, record)
    assert files[f"{TOP}/producer/a.txt"] == b"hello"
    assert files[f"{TOP}/producer/long.bin"] == LONG
    with serving(site) as front:
        whole = front.get(record.docs["token"]["url"], role=None)
        assert (whole.status_code, len(whole.content)) == (200, record.docs["packed"]["size"])
        part = front.get(record.docs["token"]["url"], role=None, headers={"Range": "bytes=-100"})
        assert (part.status_code, part.content) == (206, whole.content[-100:])
    objects = site.depot.objects
    objects.put(f"{tokens.place_of('z' * 43)}/7/late.zip", b"late")
    with site.engine() as engine:
        engine.act(record.ref, "delete")
    for _ in range(3):
        with hand_of(site) as hand:
            a_round(Expiry(age=-60.0), hand)
    assert list(objects.list(tokens.ROOT)) == []


def test_a_very_long_archive_goes_in_parts_of_its_own(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Outfit, "parts", Parts(content=1000))
    holdings = Holdings(site)
    holdings.add({"producer/long.bin": LONG})
    asked = asked_for(site, form="zip-stored")
    with site.workers():
        record = site.wait(asked.record.kind, asked.record.id, "Completed")
    assert unpacked(site, record)[f"{TOP}/producer/long.bin"] == LONG
