"""A catalogue's bulk load: rows into a table of the index, beside the bare way of the same database.

index.sqlite.load     `CatalogueTables.load`, beside `executemany` of a bare connection with the same pragmas
index.postgres.load   the same, beside COPY of a bare psycopg connection

The rows are those of files: a path, a size, a digest. Both sides load into a new table with the same primary key.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Literal

import apsw
import psycopg
from tests.servers.postgres import PostgresServer

from benchmarks.disk import Disk
from benchmarks.effort import Effort
from benchmarks.engine import POSTGRES
from benchmarks.figure import Figure
from waybill.index import open_index

ROUNDS = 3
COLUMNS = ("path", "size", "sha256")
TABLE = "create table {} (path text not null primary key, size bigint not null, sha256 text not null)"

Row = tuple[str, int, str]


class LoadedFiles:
    name, package = "loaded", "benchmarks.loaded_files"
    durable: Literal[True] = True


def sqlite(effort: Effort) -> Iterator[Figure]:
    with tempfile.TemporaryDirectory(prefix="waybill-bench-") as folder:
        files = iter(range(1000))
        yield from _compare(
            "index.sqlite",
            effort,
            lambda: f"sqlite:///{folder}/{next(files)}.db",
            lambda url, rows: _fill(url[10:], rows),
        )


def postgres(effort: Effort) -> Iterator[Figure]:
    with PostgresServer(settings=POSTGRES) as server:
        yield from _compare("index.postgres", effort, server.create_database, _copy)


def _compare(
    name: str, effort: Effort, make_database: Callable[[], str], load_bare: Callable[[str, Iterator[Row]], float]
) -> Iterator[Figure]:
    count, disk = effort.pick(1_000_000, 1_000), Disk.of(effort)
    ours: list[float] = []
    bare: list[float] = []
    for _ in range(effort.pick(ROUNDS, 1)):
        disk.note()
        bare.append(count / load_bare(make_database(), _rows(count)))
        ours.append(count / _load(make_database(), _rows(count)))
    note = f"{count:,} rows in one load; medians of {len(ours)} rounds; at best {max(ours):,.0f} and {max(bare):,.0f}"
    yield Figure(f"{name}.load", statistics.median(ours), "rows/s", statistics.median(bare), 0.5, note=note)
    yield disk.figure(name)


def _rows(count: int) -> Iterator[Row]:
    for number in range(count):
        yield f"some/longer/path/of/a/dataset/file-{number:09d}.dat", number, f"{number:064x}"


def _load(url: str, rows: Iterator[Row]) -> float:
    with closing(open_index(url)) as index:
        tables = index.open_catalogue(LoadedFiles())
        began = time.perf_counter()
        tables.load("loaded_file", COLUMNS, rows)
        return time.perf_counter() - began


def _fill(path: str, rows: Iterator[Row]) -> float:
    with closing(apsw.Connection(path)) as db:
        for statement in ("pragma journal_mode = wal", "pragma synchronous = full", TABLE.format("bare_file")):
            db.execute(statement).fetchall()
        began = time.perf_counter()
        with db:
            db.executemany("insert into bare_file values (?, ?, ?)", rows)
        return time.perf_counter() - began


def _copy(url: str, rows: Iterator[Row]) -> float:
    with closing(psycopg.connect(url)) as db:
        db.execute(TABLE.format("bare_file"))
        db.commit()
        began = time.perf_counter()
        with db.cursor().copy("copy bare_file from stdin") as copy:
            for row in rows:
                copy.write_row(row)
        db.commit()
        return time.perf_counter() - began
