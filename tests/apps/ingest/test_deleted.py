"""Nothing of a batch that an operator deletes stays behind: looked for in the bare tables and nodes of each store,
and on the disk.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import psycopg.sql
import pytest
from kazoo.client import KazooClient

from tests.apps.ingest import batches
from tests.apps.ingest.site import Site
from waybill.apps.ingest.duties import Papers, Payloads
from waybill.apps.ingest.submission import Submission, Type
from waybill.config import sqlite_path
from waybill.duties import Hand, a_round
from waybill.duties.folders import Folders
from waybill.duties.retention import Retention
from waybill.duties.upkeep import Upkeep
from waybill.step import New

STORES = {"sqlite": "", "postgres": "fast_postgres_url", "zookeeper": "zookeeper_url"}
ARK, OWNER = "ark:/99999/fk4deleted", "ark:/99999/owner"


@pytest.mark.parametrize("store", sorted(STORES))
def test_nothing_of_a_deleted_batch_stays_in_any_store(
    tmp_path: Path, store: str, request: pytest.FixtureRequest
) -> None:
    fixture = STORES[store]
    with Site(tmp_path, store=request.getfixturevalue(fixture) if fixture else "") as site:
        batches.profile(site, owner=OWNER)
        payload = "ingest/payloads/bid-gone.abc/a.txt"
        site.depot.objects.put(payload, b"hello")
        said = Submission(
            profile="demo",
            url=f"waybill:{payload}",
            type=Type.FILE,
            batch_id="bid-gone",
            local_ids=("l1",),
            owner=OWNER,
            primary_id=ARK,
            filename="a.txt",
            checked=True,
        )
        with site.engine() as engine:
            batch = engine.submit(New("batch", {"submission": said.document()}, request="bid-gone"))
        site.lead(batch.ref, "Processing")
        site.step(batch.ref)
        (job,) = batches.jobs(site, batch)
        site.lead(job.ref, "Processing")
        names = (batch.id, job.id, "bid-gone", "fk4deleted", "l1_ark")
        assert found(site, names), "else nothing is looked for"
        with site.engine() as engine:
            engine.act(job.ref, "fail", who="op", confirmed=True)
        site.lead(batch.ref, "Failed")
        with site.engine() as engine:
            engine.act(batch.ref, "delete", who="op", confirmed=True)
            hand = Hand(
                engine.store, engine.machines, site.depot.host, site.root, site.depot.objects, outfit=site.depot.outfit
            )
            for duty in (Payloads(), Retention(), Folders(), Papers(age=-1), Upkeep()):
                a_round(duty, hand)
            assert list(engine.store.check()) == []
        assert found(site, names) == []
        assert [info.name for info in site.depot.objects.list("ingest")] == []
        assert not list((site.root / "queue").iterdir())


def found(site: Site, names: tuple[str, ...]) -> list[str]:
    """Every row or node that names one of them."""
    return [row for row in raw(site.depot.config.store) if any(name in row for name in names)]


def raw(url: str) -> Iterator[str]:
    if (path := sqlite_path(url)) is not None:
        with closing(sqlite3.connect(path)) as sqlite:
            for (table,) in sqlite.execute("select name from sqlite_schema where type = 'table'").fetchall():
                yield from (f"{table} {row}" for row in sqlite.execute(f'select * from "{table}"'))
    elif url.startswith("postgresql:"):
        with psycopg.connect(url) as postgres:
            where = "select schemaname, tablename from pg_tables where schemaname not in ('pg_catalog', 'information_schema')"
            for schema, table in postgres.execute(where).fetchall():
                statement = psycopg.sql.SQL("select * from {}").format(psycopg.sql.Identifier(schema, table))
                yield from (f"{table} {row}" for row in postgres.execute(statement))
    else:
        parts = urlsplit(url)
        client = KazooClient(f"{parts.netloc}{parts.path}")
        client.start()
        try:
            yield from _nodes(client, "/")
        finally:
            client.stop()
            client.close()


def _nodes(client: KazooClient, path: str) -> Iterator[str]:
    yield f"{path} {client.get(path)[0]!r}"
    for name in client.get_children(path):
        yield from _nodes(client, f"{path.rstrip('/')}/{name}")
