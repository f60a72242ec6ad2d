"""A Dask cluster that runs the tasks of map phases, slice by slice. Reducers run on the host of the Waybill worker.

A chunk keeps some slices in the cluster at once and takes their results in the order of its keys. The first slices are
small; when tasks turn out to be short, later ones have a hundred keys and more. Dask runs a slice again whose worker died.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from distributed import Client
from distributed.scheduler import KilledWorker

from waybill.apps.compute.machine import ChunkKeys
from waybill.apps.compute.task_lines import InputKey
from waybill.apps.compute.tasks.cluster_slices import ClusterSlice, ClusterUnavailable, run_slice
from waybill.apps.compute.tasks.publishing import GatheredOutputs

if TYPE_CHECKING:
    from waybill.environment import Environment

_Client: Any = Client  # it has no types
CONNECT_TIMEOUT = 10.0  # seconds
LOOK_INTERVAL = 0.5  # seconds between two looks at whether the worker must stop
SLICE_SECONDS = 1.0  # that a slice should take: then its outputs are published
FIRST_SLICE, MAX_SLICE = 4, 500  # keys


class DaskExecutor:
    def __init__(self, address: str, environment: Environment) -> None:
        self._address = address
        self._make_environment = type(environment).from_config
        config = environment.config
        # A slice runs its tasks in the process that gets it: there is no cluster behind the cluster.
        app = {name: dict(table) for name, table in config.app.items()}
        app["compute"] = {name: value for name, value in app.get("compute", {}).items() if name != "dask"}
        self._config = replace(
            config, app=app, retention=_plain(config.retention), origins=_plain(config.origins), webhooks=()
        )
        self._lock = threading.Lock()
        self._client: Any = None

    def _connect(self) -> Any:
        with self._lock:
            if self._client is None:
                try:
                    self._client = _Client(self._address, set_as_default=False, timeout=CONNECT_TIMEOUT)
                except (OSError, TimeoutError) as error:
                    raise ClusterUnavailable(f"The Dask cluster {self._address} cannot be reached: {error}") from error
            return self._client

    def count_threads(self) -> int:
        """Of all its workers; 1 while it cannot be reached."""
        try:
            return max(1, int(sum(self._connect().nthreads().values())))
        except (ClusterUnavailable, OSError, TimeoutError):
            return 1

    def run_keys(
        self, about: ChunkKeys, first: int, keys: list[InputKey], must_stop: Callable[[], bool]
    ) -> Iterator[tuple[GatheredOutputs, int]]:
        """What the tasks put out, in the order of the keys, and how many keys of the chunk are done with it. Ends early
        when the worker must stop, or the job was cancelled.
        """
        client = self._connect()
        window = 2 + self.count_threads() // 2
        pending: deque[tuple[Any, int]] = deque()
        at, size = 0, FIRST_SLICE
        try:
            while at < len(keys) or pending:
                while at < len(keys) and len(pending) < window:
                    part = keys[at : at + size]
                    work = ClusterSlice(self._config, self._make_environment, about, first + at, part)
                    # Not pure: the same slice may have to run anew after its outputs were swept.
                    pending.append((client.submit(run_slice, work, pure=False, retries=2), len(part)))
                    at += len(part)
                future, count = pending[0]
                gathered = _wait(future, must_stop)
                if gathered is None:
                    return
                pending.popleft()
                if len(gathered.lines) < count:  # cancelled
                    if gathered.lines:
                        yield gathered, first + len(gathered.lines)
                    return
                first += count
                yield gathered, first
                took = max(sum(line.wall for line in gathered.lines), 0.001 * count, 1e-3)
                size = max(1, min(MAX_SLICE, int(SLICE_SECONDS * count / took), size * 8))
        except (KilledWorker, OSError, TimeoutError) as error:
            raise ClusterUnavailable(f"The Dask cluster {self._address} has failed: {error}") from error
        finally:
            for future, _ in pending:
                future.cancel()

    def close(self) -> None:
        with self._lock:
            if self._client is not None:
                self._client.close()
                self._client = None


def _wait(future: Any, must_stop: Callable[[], bool]) -> GatheredOutputs | None:
    """The result; None when the worker must stop before."""
    while True:
        try:
            found: GatheredOutputs = future.result(timeout=LOOK_INTERVAL)
            return found
        except TimeoutError:
            if future.done():
                raise  # it is the slice that failed
            if must_stop():
                return None


def _plain(mapping: Any) -> dict[Any, Any]:
    return dict(mapping) if isinstance(mapping, (dict, MappingProxyType)) else dict(mapping.items())
