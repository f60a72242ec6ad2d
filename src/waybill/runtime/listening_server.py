"""The HTTP server of a process: its socket, its life, and the address file.

    listen -> make the admin token -> write the address file -> serve until `stop` -> restore the address file

The address file in the data folder tells commands and workers where the server listens.
"""

from __future__ import annotations

import ipaddress
import logging
import os
import socket
import ssl
import threading
from contextlib import closing, suppress
from pathlib import Path
from urllib.parse import urlsplit

from waybill.config import ADDRESS_FILE, HttpSettings
from waybill.environment import Environment, address_of, read_address
from waybill.errors import InputError

log = logging.getLogger("waybill")


def is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class ListeningServer:
    """Listens from its creation, so that a port in use is reported before anything else starts."""

    def __init__(self, environment: Environment) -> None:
        from waybill.http import ApiServer, create_app
        from waybill.pages.site import install_pages
        from waybill.tokens import TOKEN_FILE, ensure_admin_token

        self.ready = threading.Event()  # set when it serves, or has ended
        host, port = environment.config.http.host, environment.config.http.port
        tls = _read_tls_files(environment.config.http)
        self.socket = _open_socket(host, port)
        self._address = address_of(*self.socket.getsockname()[:2], tls=bool(tls))
        path = environment.config.data / TOKEN_FILE
        with closing(environment.open_store()) as store:
            ensure_admin_token(environment.make_engine(store), path)
        self.token_file: Path | None = path if path.exists() else None
        ready = self.ready

        class ReadySignallingServer(ApiServer):
            async def startup(self, sockets: list[socket.socket] | None = None) -> None:
                await super().startup(sockets)
                ready.set()

        app = install_pages(
            create_app(
                environment, open_loopback=environment.config.open_loopback, hosts=environment.config.http.allowed_hosts
            )
        )
        self.server = ReadySignallingServer(app, host, port, log_level=environment.config.log.level, tls=tls)
        self._data = environment.config.data
        self._previous_address = read_address(self._data)
        _write_address_file(self._data, self._address)

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
            self._restore_address()

    def stop(self) -> None:
        self.server.stop()

    def _restore_address(self) -> None:
        """Name the server that was there before, if it still listens; otherwise keep this one's address, which may be
        used again.
        """
        if read_address(self._data) == self._address and _is_listening(self._previous_address):
            _write_address_file(self._data, self._previous_address)


def _is_listening(url: str) -> bool:
    try:
        parts = urlsplit(url)
        with socket.create_connection((parts.hostname or "", parts.port or 0), timeout=1):
            return True
    except (OSError, ValueError):  # no server there, or no address at all
        return False


def _write_address_file(data: Path, url: str) -> None:
    """For commands and workers, whose command lines do not say where the server listens."""
    path = data / ADDRESS_FILE
    temporary = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        temporary.write_text(f"{url}\n", encoding="utf-8")
        temporary.replace(path)
    except OSError as error:  # a full disk must not keep the server from starting
        log.warning(
            "%s cannot be written (%s): URLs in mail and responses may not lead to %s", path, error.strerror, url
        )
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def _read_tls_files(settings: HttpSettings) -> tuple[Path, Path] | None:
    """The files of the certificate and its key, which are tried before anything else starts; None: plain HTTP."""
    if settings.tls_certificate is None:
        if settings.tls_key is not None:
            raise InputError("http.tls_key is set and http.tls_certificate is not: set both.", code="bad-config")
        return None
    files = (settings.tls_certificate, settings.tls_key or settings.tls_certificate)
    try:
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(*files)
    except OSError as error:  # OpenSSL's errors among them
        raise InputError(
            f"The certificate {files[0]} and the key {files[1]} cannot be used ({error.strerror or error}): they are PEM files, "
            "and belong together.",
            code="bad-config",
        ) from error
    return files


def _open_socket(host: str, port: int) -> socket.socket:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        made = socket.socket(family, kind, protocol)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(address)
        made.listen(2048)
    except socket.gaierror as error:
        raise InputError(
            f"{host} is no address of this machine ({error.strerror}); give one with --host.", code="no-socket"
        ) from error
    except OSError as error:
        raise InputError(
            f"Port {port} of {host} cannot be used ({error.strerror}); give another with --port; 0 is a free one.",
            code="no-socket",
        ) from error
    return made
