"""Lots in a bucket: a watched prefix, manifests and data of an arc."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.apps.lots.lots_site import LotsSite
from tests.servers.s3 import SeaweedServer
from waybill.objects import open_objects

PROJECT = """
name = "shop"
[datasets.orders]
path = "s3://BUCKET/orders/"
[datasets.counts]
path = "counts/"
[boundaries.orders-in]
dataset = "orders"
unit = "PT5M"
time = "key"
pattern = '(?P<year>\\d{4})(?P<month>\\d\\d)(?P<day>\\d\\d)T(?P<hour>\\d\\d)(?P<minute>\\d\\d)'
watch = "s3://BUCKET/orders/"
[arcs.count]
sources = { main = "orders" }
sinks = { main = "counts" }
copy = true
"""


def test_a_watched_prefix_becomes_lots_in_the_same_bucket(
    tmp_path: Path, s3_server: SeaweedServer, s3_bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", s3_server.credentials.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", s3_server.credentials.secret_key)
    address = f"s3://{s3_bucket}/waybill?endpoint={s3_server.endpoint}"
    site = LotsSite(tmp_path, "", settings={"objects": address})
    with open_objects(f"s3://{s3_bucket}?endpoint={s3_server.endpoint}") as outside, open_objects(address) as own:
        site.tester.set_objects(own)
        site.apply(PROJECT.replace("BUCKET", s3_bucket))
        outside.put(f"orders/{site.now:%Y%m%dT%H%M}/a.csv", b"1,2\n")
        site.pass_minutes(6)
        row = site.find_lot("counts", site.lot())
        assert row is not None
        assert (row.state, row.count) == ("complete", 1)
        (uri,) = site.manifest(row.manifest).uris
        assert uri.startswith(f"s3://{s3_bucket}/waybill/counts/lot={site.lot()}/attempt=")
        with site.resources.locations.read(uri) as chunks:
            assert b"".join(chunks) == b"1,2\n"
        public = f"waybill/datasets/name=counts/version=1/lot={site.lot()}/state=complete/manifest.json"
        assert outside.head(public).size > 0
