"""http://localhost:80/ inside a task: Manta's storage, with the rights of the job and no others.

Connections come out of the sandbox as sockets; a server in this process answers them with the protocol's own code, in an
event loop of its own. What a task sends with `x-manta-stream: stdout` is an output of the task.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from typing import TYPE_CHECKING, Any

import uvicorn
from starlette.types import Scope
from uvicorn.server import ServerState

from waybill.apps.compute.access import Caller, check_access
from waybill.apps.compute.errors import MantaError
from waybill.apps.compute.paths import StoragePath
from waybill.apps.compute.protocol.app import Call, MantaApp
from waybill.apps.compute.protocol.requests import Reply, StorageRequest
from waybill.apps.compute.protocol.storage_calls import StorageCalls
from waybill.apps.compute.task_lines import TaskOutput

if TYPE_CHECKING:
    from waybill.apps.compute.resources import ComputeResources

MAX_OUTPUTS = 100_000  # of one task
MAX_REDUCER = 1023


class TaskServer:
    """Answers the connections of one task, and notes its outputs."""

    def __init__(self, resources: ComputeResources, caller: Caller) -> None:
        self._loop = resources.task_loop
        self._caller = caller
        self._calls = StorageCalls(resources.storage)
        self._lock = threading.Lock()
        self.outputs: list[TaskOutput] = []
        self._is_closed = False

    def handle(self, connection: socket.socket) -> None:
        """In a thread of the sandbox: until the connection ends."""
        self._loop.serve(connection.dup(), MantaApp(self._authenticate, self._find_call))

    def close(self) -> None:
        """The command has ended: nothing more is an output of it."""
        with self._lock:
            self._is_closed = True

    async def _authenticate(self, scope: Scope, path: StoragePath) -> Caller:
        return self._caller

    def _find_call(self, request: StorageRequest) -> Call:
        calls: dict[str, Call] = {
            "PUT": self._put,
            "GET": self._calls.get,
            "HEAD": self._calls.get,
            "DELETE": self._calls.delete,
        }
        if request.method not in calls:
            raise MantaError("MethodNotAllowed", f"{request.method} is not allowed in a task")
        return calls[request.method]

    def _put(self, request: StorageRequest) -> Reply:
        reducer = _read_reducer(request.headers.get("x-manta-reducer", ""))
        if request.headers.get("x-manta-reference", "").lower() == "true":
            check_access(self._caller, request.path, "read")
            self._note(TaskOutput(str(request.path), reducer))
            return Reply(204)
        reply = self._calls.put(request, make_parents=request.path.job_id == self._caller.job)
        if request.headers.get("x-manta-stream", "").lower() == "stdout":
            self._note(TaskOutput(str(request.path), reducer))
        return reply

    def _note(self, output: TaskOutput) -> None:
        with self._lock:
            if self._is_closed or len(self.outputs) >= MAX_OUTPUTS:
                raise MantaError(
                    "InvalidArgument", f"A task has at most {MAX_OUTPUTS} outputs, and none after its end."
                )
            self.outputs.append(output)


def _read_reducer(text: str) -> int:
    if not text:
        return -1
    if not text.isascii() or not text.isdigit() or int(text) > MAX_REDUCER:
        raise MantaError("InvalidArgument", f"reducer {text[:20]!r} is not a number from 0 to {MAX_REDUCER}")
    return int(text)


class TaskLoop:
    """The event loop that serves tasks, in a thread that starts with the first connection."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def serve(self, connection: socket.socket, app: MantaApp) -> None:
        """Serve one connection to its end."""
        loop, ended = self._start(), threading.Event()
        config = uvicorn.Config(app, log_config=None, access_log=False, server_header=False, ws="none", lifespan="off")
        config.load()
        protocol_class: Any = config.http_protocol_class

        class WatchedProtocol(protocol_class):  # type: ignore[misc] # chosen at run time
            def connection_lost(self, error: Exception | None) -> None:
                super().connection_lost(error)
                ended.set()

        async def attach() -> None:
            try:
                await loop.connect_accepted_socket(
                    lambda: WatchedProtocol(config=config, server_state=ServerState(), app_state={}, _loop=loop),
                    connection,
                )
            except OSError:
                connection.close()
                ended.set()

        connection.setblocking(False)
        asyncio.run_coroutine_threadsafe(attach(), loop).result()
        ended.wait()

    def _start(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=self._loop.run_forever, name="waybill-task-http", daemon=True)
                self._thread.start()
            return self._loop

    def close(self) -> None:
        with self._lock:
            if self._loop is not None and self._thread is not None:
                self._loop.call_soon_threadsafe(self._loop.stop)
                self._thread.join()
                self._loop.close()
                self._loop = None
