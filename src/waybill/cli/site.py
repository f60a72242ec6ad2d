"""The server of a process: its socket, its life, and the URL that people are told."""

from __future__ import annotations

import ipaddress
import logging
import os
import socket
import threading
from contextlib import closing, suppress
from pathlib import Path
from urllib.parse import urlsplit

from waybill.config import ADDRESS_FILE
from waybill.depot import Depot, address_in, address_of
from waybill.record import StoreError

log = logging.getLogger("waybill")


class NoSocket(StoreError):
    """The server cannot listen."""

    code = "no-socket"


def is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class Site:
    """Listens from the moment it is made, so that a port in use is known before anything else starts."""

    def __init__(self, depot: Depot) -> None:
        from waybill.http import Server, create_app
        from waybill.tokens import FILE, ensure_admin_token

        self.ready = threading.Event()  # it serves, or it has ended
        host, port = depot.config.http.host, depot.config.http.port
        self.socket = _listen(host, port)
        self._address = address_of(*self.socket.getsockname()[:2])
        path = depot.config.data / FILE
        with closing(depot.open_store()) as store:
            ensure_admin_token(depot.engine(store), path)
        self.token_file: Path | None = path if path.exists() else None
        ready = self.ready

        class Announced(Server):
            async def startup(self, sockets: list[socket.socket] | None = None) -> None:
                await super().startup(sockets)
                ready.set()

        app = create_app(depot, open_loopback=depot.config.open_loopback, hosts=depot.config.http.names)
        self.server = Announced(app, host, port, log_level=depot.config.log.level)
        self._data = depot.config.data
        self._before = address_in(self._data)
        _leave_word(self._data, self._address)

    @property
    def url(self) -> str:
        return f"{self._address}/"

    def run(self) -> None:
        """Serve until `stop`."""
        try:
            self.server.run(sockets=[self.socket])
        finally:
            self.ready.set()
            self.socket.close()
            self._give_back()

    def stop(self) -> None:
        self.server.stop()

    def _give_back(self) -> None:
        """People are told of the server that was there before, if it still is; otherwise of this one, which may come
        again.
        """
        if address_in(self._data) == self._address and _listens(self._before):
            _leave_word(self._data, self._before)


def _listens(url: str) -> bool:
    try:
        parts = urlsplit(url)
        with socket.create_connection((parts.hostname or "", parts.port or 0), timeout=1):
            return True
    except (OSError, ValueError):  # nobody there, or no address at all
        return False


def _leave_word(data: Path, url: str) -> None:
    """For commands and workers, which are not told on their command line where the server listens."""
    path = data / ADDRESS_FILE
    new = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        new.write_text(f"{url}\n", encoding="utf-8")
        new.replace(path)
    except OSError as error:  # a full disk keeps nobody from looking at what is there
        log.warning(
            "%s cannot be written (%s): URLs in letters and answers may lead elsewhere than to %s",
            path,
            error.strerror,
            url,
        )
        with suppress(OSError):
            new.unlink(missing_ok=True)


def _listen(host: str, port: int) -> socket.socket:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        made = socket.socket(family, kind, protocol)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(address)
        made.listen(2048)
    except socket.gaierror as error:
        raise NoSocket(f"{host} is no address of this machine ({error.strerror}); give one with --host.") from error
    except OSError as error:
        raise NoSocket(
            f"Port {port} of {host} cannot be used ({error.strerror}); give another with --port; 0 is a free one."
        ) from error
    return made
