"""Runs the application: uvicorn, which ends live streams first when it is told to stop.

A stream of events has no end of its own, and uvicorn waits for every answer to end before it lets the application
close. So the streams are told to end at the moment the stop begins.
"""

from __future__ import annotations

import socket

import uvicorn
from fastapi import FastAPI

GRACE = 10  # seconds for requests at work when the server stops


class Server(uvicorn.Server):
    """`run()` blocks until `should_exit` is set or a signal comes; signals are heard in the main thread only."""

    def __init__(
        self, app: FastAPI, host: str, port: int, *, log_level: str = "info", access_log: bool = False
    ) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                host,
                port,
                log_level=log_level,
                access_log=access_log,
                log_config=None,
                timeout_graceful_shutdown=GRACE,
                server_header=False,
                ws="none",
            )
        )
        self._end_streams = app.state.front.hub.stop

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._end_streams()
        await super().shutdown(sockets)

    def stop(self) -> None:
        """From any thread."""
        self.should_exit = True

    @property
    def address(self) -> tuple[str, int]:
        """Where it listens, once it has started; the port is known then even if 0 was asked for."""
        host, port = self.servers[0].sockets[0].getsockname()[:2]
        return host, port
