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
from tests.apps.ingest.ingest_fixture import IngestFixture
from waybill.apps.ingest.maintenance import ListRemovalRoutine, UploadRemovalRoutine
from waybill.apps.ingest.submission import PayloadType, Submission
from waybill.config import sqlite_path
from waybill.maintenance import MaintenanceContext, run_round
from waybill.maintenance.retention import RetentionRoutine
from waybill.maintenance.store_indexes import StoreIndexRoutine
from waybill.maintenance.working_folders import WorkingFolderRoutine
from waybill.step import New

STORES = {"sqlite": "", "postgres": "fast_postgres_url", "zookeeper": "zookeeper_url"}
ARK, OWNER = "ark:/99999/fk4deleted", "ark:/99999/owner"


@pytest.mark.parametrize("store", sorted(STORES))
def test_nothing_of_a_deleted_batch_stays_in_any_store(
    tmp_path: Path, store: str, request: pytest.FixtureRequest
) -> None:
    fixture = STORES[store]
    with IngestFixture(tmp_path, store=request.getfixturevalue(fixture) if fixture else "") as ingest:
        batches.profile(ingest, owner=OWNER)
        payload = "ingest/payloads/bid-gone.abc/a.txt"
        ingest.environment.objects.put(payload, b"hello")
        submission = Submission(
            profile="demo",
            url=f"waybill:{payload}",
            type=PayloadType.FILE,
            batch_id="bid-gone",
            local_ids=("l1",),
            owner=OWNER,
            primary_id=ARK,
            filename="a.txt",
            is_profile_checked=True,
        )
        with ingest.engine() as engine:
            batch = engine.submit(New("batch", {"submission": submission.to_document()}, idempotency_key="bid-gone"))
        ingest.step_until(batch.ref, "Processing")
        ingest.step(batch.ref)
        (job,) = batches.jobs(ingest, batch)
        ingest.step_until(job.ref, "Processing")
        names = (batch.id, job.id, "bid-gone", "fk4deleted", "l1_ark")
        assert found(ingest, names), "else nothing is looked for"
        with ingest.engine() as engine:
            engine.act(job.ref, "fail", who="op", confirmed=True)
        ingest.step_until(batch.ref, "Failed")
        with ingest.engine() as engine:
            engine.act(batch.ref, "delete", who="op", confirmed=True)
            hand = MaintenanceContext(
                engine.store,
                engine.machines,
                ingest.environment.host,
                ingest.root,
                ingest.environment.objects,
                resources_of=ingest.environment.resources_of,
            )
            for duty in (
                UploadRemovalRoutine(),
                RetentionRoutine(),
                WorkingFolderRoutine(),
                ListRemovalRoutine(age=-1),
                StoreIndexRoutine(),
            ):
                run_round(duty, hand)
            assert list(engine.store.check()) == []
        assert found(ingest, names) == []
        assert [info.name for info in ingest.environment.objects.list("ingest")] == []
        assert not list((ingest.root / "queue").iterdir())


def found(ingest: IngestFixture, names: tuple[str, ...]) -> list[str]:
    """Every row or node that names one of them."""
    return [row for row in raw(ingest.environment.config.store) if any(name in row for name in names)]


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
