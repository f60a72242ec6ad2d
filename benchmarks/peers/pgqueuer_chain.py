"""PgQueuer on PostgreSQL: a chain of 8 jobs that do nothing, each enqueuing the next, in one process.

    python -m benchmarks.peers.pgqueuer_chain URL COUNT BATCH CONNECTIONS

BATCH: how many jobs it takes at once. CONNECTIONS: over how many it enqueues, beside the one on which it consumes; on
that one, every enqueuing would wait behind the listener.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import sys
import time
from contextlib import AsyncExitStack
from datetime import timedelta

import psycopg
from pgqueuer import PsycopgDriver, QueueManager
from pgqueuer.models import Job
from pgqueuer.queries import Queries

from benchmarks.peers.report import report

LINKS = 8
PORTION = 1000


async def main(url: str, count: int, batch: int, connections: int) -> None:
    logging.disable(logging.WARNING)
    async with AsyncExitStack() as stack:

        async def connect() -> Queries:
            connection = await stack.enter_async_context(await psycopg.AsyncConnection.connect(url, autocommit=True))
            return Queries(PsycopgDriver(connection))

        queries = await connect()
        await queries.install()
        outlets = itertools.cycle([await connect() for _ in range(connections)])
        manager = QueueManager(queries)
        ended, at_end = 0, 0.0

        def register(number: int) -> None:
            @manager.entrypoint(f"link{number}")
            async def link(job: Job) -> None:
                nonlocal ended, at_end
                if number < LINKS:
                    await next(outlets).enqueue(f"link{number + 1}", b"")
                    return
                ended += 1
                if ended == count:
                    at_end = time.perf_counter()
                    manager.shutdown.set()

        for number in range(1, LINKS + 1):
            register(number)
        for start in range(0, count, PORTION):
            some = min(PORTION, count - start)
            await queries.enqueue(["link1"] * some, [b""] * some, [0] * some)
        began = time.perf_counter()
        await manager.run(batch_size=batch, dequeue_timeout=timedelta(seconds=0.5))
        report(count, at_end - began)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])))
