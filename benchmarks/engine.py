"""Lifecycles a second: records through eight durable states by one worker process, beside the peers' nearest thing.

engine.sqlite      DBOS Transact's workflows of 8 steps; Huey's chain of 8 tasks
engine.postgres    the same DBOS on the same server; PgQueuer's chain of 8 jobs
engine.zookeeper   Merritt's Java library (published: it is not run here); a kazoo client that does one `multi` per transition
"""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from tests.servers.postgres import PostgresServer
from tests.servers.zookeeper import ZooKeeperServer

from benchmarks.disk import Disk
from benchmarks.effort import Effort
from benchmarks.figure import Figure
from benchmarks.rounds import Contestant, Results, rounds, strongest

UNIT = "lifecycles/s"
OURS = "waybill"
DBOS, HUEY = "benchmarks.peers.dbos_workflows", "benchmarks.peers.huey_chain"
PGQUEUER, KAZOO = "benchmarks.peers.pgqueuer_chain", "benchmarks.peers.kazoo_multi"
# jobs/s, created and led through 8 transitions: the best of several runs of mrt-zk, 4 threads with their own sessions
MERRITT_JAVA = 10.2

# Room for a run's writes, so that nobody's run is the one that meets the checkpoint. The same for all on the server.
POSTGRES = {"shared_buffers": "256MB", "max_wal_size": "4GB"}


def sqlite(effort: Effort) -> Iterator[Figure]:
    with tempfile.TemporaryDirectory(prefix="waybill-bench-") as folder:
        file = _files(Path(folder))
        results, disk = _measure(
            effort,
            Contestant(OURS, "benchmarks.lifecycles", lambda: f"sqlite:///{file()}", (effort.pick(20_000, 40),)),
            *(
                Contestant(f"dbos {how}", DBOS, lambda: f"sqlite:///{file()}", (effort.pick(50, 2), how))
                for how in ("sequential", "threads", "queue")
            ),
            *(Contestant(f"huey {threads}", HUEY, file, (effort.pick(300, 2), threads)) for threads in (1, 2, 4)),
        )
    yield _against("engine.sqlite.dbos", results, "dbos", 100)
    yield _against("engine.sqlite.huey", results, "huey", 10)
    yield disk.figure("engine.sqlite")


def postgres(effort: Effort) -> Iterator[Figure]:
    with PostgresServer(settings=POSTGRES) as server:
        results, disk = _measure(
            effort,
            Contestant(OURS, "benchmarks.lifecycles", server.create_database, (effort.pick(20_000, 40),)),
            *(
                Contestant(f"dbos {how}", DBOS, server.create_database, (effort.pick(100, 2), how))
                for how in ("sequential", "threads", "queue")
            ),
            *(
                Contestant(f"pgqueuer {batch}", PGQUEUER, server.create_database, (effort.pick(400, 2), batch, 1))
                for batch in (10, 50, 100)
            ),
            Contestant("pooled pgqueuer", PGQUEUER, server.create_database, (effort.pick(400, 2), 50, 10)),
        )
    yield _against("engine.postgres.dbos", results, "dbos", 50)
    yield _against("engine.postgres.pgqueuer", results, "pgqueuer", 15)
    yield _against("engine.postgres.pgqueuer-pooled", results, "pooled pgqueuer", None)
    yield disk.figure("engine.postgres")


def zookeeper(effort: Effort) -> Iterator[Figure]:
    with ZooKeeperServer() as server:
        count = effort.pick(2_000, 20)
        results, disk = _measure(
            effort,
            Contestant(OURS, "benchmarks.lifecycles", server.create_chroot, (count, "job")),
            Contestant("kazoo", KAZOO, server.create_chroot, (effort.pick(300, 4),)),
        )
    ours = results[OURS]
    yield Figure(
        "engine.zookeeper.merritt",
        ours.median("created_rate"),
        UNIT,
        MERRITT_JAVA,
        50,
        note="creation counted too; on Merritt's layout; the peer's is the best published and was not run here",
    )
    yield _against("engine.zookeeper.kazoo", results, "kazoo", 5)
    yield disk.figure("engine.zookeeper")


def _measure(effort: Effort, *contestants: Contestant) -> tuple[Mapping[str, Results], Disk]:
    disk = Disk.of(effort)
    return rounds(contestants, effort.pick(5, 1), disk.note), disk


def _against(name: str, results: Mapping[str, Results], prefix: str, goal: float | None) -> Figure:
    variant, peer = strongest(results, prefix)
    ours = results[OURS]
    note = f"{variant}; medians of {len(ours.reports)} rounds; at best {ours.best():,.0f} and {peer.best():,.1f}"
    return Figure(name, ours.median(), UNIT, peer.median(), goal, note=note)


def _files(folder: Path) -> Callable[[], str]:
    numbers = itertools.count(1)
    return lambda: f"{folder}/store-{next(numbers)}.db"
