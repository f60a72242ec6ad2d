"""A proxy between a store and its server: forwards everything, and loses an answer on request."""

import contextlib
import os
import selectors
import socket
import threading
from pathlib import Path

READY = b"Z\x00\x00\x00\x05I"  # the end of an answer: the transaction is over, the server is ready for the next


class Proxy:
    """Listens on a unix socket in `folder` as a PostgreSQL server does, and forwards to the server whose socket is
    in `server`.
    """

    def __init__(self, folder: Path, server: str) -> None:
        self.folder = folder
        self._server = os.path.join(server, ".s.PGSQL.5432")
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(folder / ".s.PGSQL.5432"))
        self._listener.listen()
        self._losing = threading.Event()
        self.lost = threading.Event()
        threading.Thread(target=self._accept, daemon=True).start()

    def lose_next_answer(self) -> None:
        self.lost.clear()
        self._losing.set()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.socket(socket.AF_UNIX)
            server.connect(self._server)
            threading.Thread(target=self._forward, args=(client, server), daemon=True).start()

    def _forward(self, client: socket.socket, server: socket.socket) -> None:
        withheld = b""
        with client, server, selectors.DefaultSelector() as both:
            for end in (client, server):
                both.register(end, selectors.EVENT_READ)
            while True:
                for ready in [key.fileobj for key, _ in both.select()]:
                    assert isinstance(ready, socket.socket)
                    data = ready.recv(65536)
                    if not data:
                        return
                    if ready is client:
                        server.sendall(data)
                    elif self._losing.is_set():
                        withheld += data
                        if withheld.endswith(READY):  # written, and the answer is dropped
                            self._losing.clear()
                            self.lost.set()
                            return
                    else:
                        client.sendall(data)
