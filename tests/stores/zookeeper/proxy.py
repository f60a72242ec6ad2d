"""A proxy before a ZooKeeper server that can cut connections, or cut one after a write went through and before its
answer came.
"""

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

_WRITES = {1, 2, 5, 14}  # create, delete, set, multi


class Proxy:
    def __init__(self, target: tuple[str, int]) -> None:
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._lock = threading.Lock()
        self._connections: dict[int, Connection] = {}  # by the client's port
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, address = self._listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(self._target, timeout=30)
                server.settimeout(None)
            except OSError:
                client.close()
                continue
            with self._lock:
                self._connections[address[1]] = Connection(client, server)

    def cut(self) -> None:
        """All connections break; clients may come again at once."""
        with self._lock:
            connections, self._connections = list(self._connections.values()), {}
        for connection in connections:
            connection.close()

    @contextmanager
    def lose_answer(self, client_port: int) -> Iterator[None]:
        """The next write of that client reaches the server and is done; its answer is lost and the connection with
        it.
        """
        with self._lock:  # else its frames may be passed on before it is known here
            connection = self._connections[client_port]
        connection.lose_answer = True
        yield
        assert connection.lost, "no write went through the proxy"

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)  # else the thread that accepts would wait for ever
        self._listener.close()
        self.cut()


class Connection:
    def __init__(self, client: socket.socket, server: socket.socket) -> None:
        self._client, self._server = client, server
        self.lose_answer = False
        self.lost = False
        self._victim: int | None = None  # the number of the request whose answer is lost
        threading.Thread(target=self._requests, daemon=True).start()
        threading.Thread(target=self._answers, daemon=True).start()

    def _requests(self) -> None:
        self._forward(self._client, self._server, self._look_at_request)

    def _answers(self) -> None:
        self._forward(self._server, self._client, self._look_at_answer)

    def _forward(self, source: socket.socket, sink: socket.socket, look: Callable[[bytes], bool]) -> None:
        first = True  # the frame by which a session begins has no number
        with suppress(OSError):  # one side went; both go
            while (head := _read(source, 4)) is not None:
                body = _read(source, struct.unpack("!i", head)[0])
                if body is None or (not first and not look(body)):
                    break
                first = False
                sink.sendall(head + body)
        self.close()

    def _look_at_request(self, body: bytes) -> bool:
        if self.lose_answer and len(body) >= 8:
            number, kind = struct.unpack_from("!ii", body)
            if kind in _WRITES:
                self.lose_answer, self._victim = False, number
        return True

    def _look_at_answer(self, body: bytes) -> bool:
        if self._victim is not None and struct.unpack_from("!i", body)[0] == self._victim:
            self.lost = True
            return False
        return True

    def close(self) -> None:
        for each in (self._client, self._server):
            with suppress(OSError):  # gone already
                each.shutdown(socket.SHUT_RDWR)
            each.close()


def _read(source: socket.socket, length: int) -> bytes | None:
    parts = b""
    while len(parts) < length:
        part = source.recv(length - len(parts))
        if not part:
            return None
        parts += part
    return parts
