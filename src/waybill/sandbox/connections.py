"""The connections that a command makes to localhost:80 of its sandbox, and the handler outside that answers them.

The runner makes the listening socket, in the sandbox's own network, and passes it to the worker before the first command
starts. A socket belongs to the network in which it was made: connections from inside arrive at the worker as ordinary
sockets, with no process in between, and nothing inside can accept them instead.

A connection belongs to the command that made it. When the command ends, its connections end: those that nobody has
accepted are closed unread, the others are shut down, and `end_command` returns when their handlers have.
"""

from __future__ import annotations

import logging
import select
import socket
import threading
from collections.abc import Callable

MAX_CONNECTIONS = 64  # at a time; more wait in the queue of the socket
HANDLER_TIMEOUT = 5.0  # seconds that a handler has to return once its connection is shut down

log = logging.getLogger("waybill")


class ConnectionServer:
    """Accepts in a thread of its own, and calls `handler` in a thread for each connection, which it closes afterwards."""

    def __init__(self, listener: socket.socket, handler: Callable[[socket.socket], None]) -> None:
        self._listener = listener
        self._listener.setblocking(False)
        self._handler = handler
        self._live: set[socket.socket] = set()
        self._changed = threading.Condition()
        self._wake, self._wakened = socket.socketpair()
        self._closed = False
        self._thread = threading.Thread(target=self._serve, name="sandbox connections", daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        poller = select.poll()
        poller.register(self._listener, select.POLLIN)
        poller.register(self._wakened, select.POLLIN)
        while True:
            poller.poll()
            with self._changed:
                self._changed.wait_for(lambda: self._closed or len(self._live) < MAX_CONNECTIONS)
                if self._closed:
                    return
                connection = self._accept()
                if connection is None:
                    continue
                self._live.add(connection)
            threading.Thread(target=self._handle, args=(connection,), name="sandbox handler", daemon=True).start()

    def _accept(self) -> socket.socket | None:
        try:
            connection, _ = self._listener.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return None
        connection.setblocking(True)
        return connection

    def _handle(self, connection: socket.socket) -> None:
        try:
            self._handler(connection)
        except ConnectionError:
            log.debug("A connection of a command ended early.", exc_info=True)
        except Exception:  # a fault of the handler ends one connection, not the sandbox
            log.exception("The handler of a sandbox failed.")
        finally:
            connection.close()
            with self._changed:
                self._live.discard(connection)
                self._changed.notify_all()

    def end_command(self) -> None:
        with self._changed:
            while (unread := self._accept()) is not None:
                unread.close()
            if not self._live:
                return
            for connection in self._live:
                _shut_down(connection)
            if not self._changed.wait_for(lambda: not self._live, HANDLER_TIMEOUT):
                log.warning("%d handlers of a sandbox still run after their command has ended.", len(self._live))

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            for connection in self._live:
                _shut_down(connection)
        self._wake.send(b"x")
        self._thread.join()
        for end in (self._listener, self._wake, self._wakened):
            end.close()


def _shut_down(connection: socket.socket) -> None:
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        return  # the other end has gone already
