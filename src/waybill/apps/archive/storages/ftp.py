"""FtpStorage: a folder for each container, a file for each archive, on an FTP server, with TLS unless told otherwise.

An archive is sent to `<name>.unfinished` in parts: each part is one transfer that begins where the last one ended, and is
counted by a checkpoint when the server says that the file is as long as it should be. When all parts are there the file
gets its name. So a put that is resumed goes on after the last part, and a file under an archive's name is whole.

FTP says nothing about disks: what the server has acknowledged may be in its memory. Reading back over the network reads
what the server has, which may be its cache; the SHA-256 that is compared tells what it sends.

Calls at the same time have a connection each; one that was used without an error is kept for the next call. The folder of
the storage must exist on the server.
"""

from __future__ import annotations

import ftplib
import socket
import ssl
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Literal, Self, TypeAlias

from waybill.apps.archive.storages.errors import (
    ArchiveNotFound,
    CredentialsRefused,
    ExternalStorageError,
    StorageFull,
    StorageRefused,
    StorageUnavailable,
)
from waybill.apps.archive.storages.protocol import (
    DEFAULT_PART_SIZE,
    UNFINISHED_SUFFIX,
    ArchiveSource,
    Batch,
    BatchKind,
    BatchStatus,
    SaveCheckpoint,
    StorageTraits,
    StoredArchive,
    UploadCheckpoint,
    check_batch,
    check_storage_name,
    open_named_batch,
)
from waybill.apps.archive.storages.sources import CHUNK_SIZE, PartStream, resume_stream

FtpSecurity: TypeAlias = Literal["explicit", "implicit", "none"]  # AUTH TLS; TLS from the start; no TLS at all

_LOGIN_REFUSED = "530"
_FULL = ("452", "552")


@dataclass(frozen=True, slots=True)
class FtpServer:
    """Where the server is, and how to sign in."""

    host: str
    port: int
    user: str
    password: str = field(repr=False)
    folder: str = "/"
    security: FtpSecurity = "explicit"
    certificates: str | None = None  # a file of those that are trusted; None: those of the system
    timeout: float = 30.0


class FtpStorage:
    """Archives in a folder of an FTP server."""

    def __init__(
        self, name: str, server: FtpServer, *, part_size: int = DEFAULT_PART_SIZE, max_transfers: int = 2
    ) -> None:
        self.name = name
        self.traits = StorageTraits(part_size=part_size, max_transfers=max_transfers)
        self._server = server
        self._idle: list[ftplib.FTP] = []  # used by no thread; taken and given back in one operation each

    def check(self) -> None:
        with self._connect():
            pass

    def open_batch(self, kind: BatchKind, container: str, token: str) -> Batch:
        batch = open_named_batch(kind, container, token)
        with self._connect() as ftp:
            if kind == "put" and not _has_folder(ftp, container):
                ftp.mkd(container)  # safe to repeat: one that is there is not made
        return batch

    def put(
        self,
        batch: Batch,
        name: str,
        source: ArchiveSource,
        *,
        resume: UploadCheckpoint | None = None,
        save: SaveCheckpoint = lambda _: None,
    ) -> StoredArchive:
        """Send an archive. A second run replaces what the first sent, or goes on where it was: both end with the same."""
        check_batch(batch, "put", name)
        unfinished = f"{batch.container}/{name}{UNFINISHED_SUFFIX}"
        with self._connect() as ftp:
            stored = _size_of(ftp, unfinished)
        stream, _ = resume_stream(source, self.traits.part_size, resume, stored or 0)
        while not stream.is_finished:
            self._send_part(unfinished, stream)
            if not stream.is_finished:
                save(stream.make_checkpoint(name))
        with self._connect() as ftp:
            _rename(ftp, unfinished, f"{batch.container}/{name}")
            if _size_of(ftp, f"{batch.container}/{name}") != stream.size:
                raise StorageUnavailable(f"The FTP server has another number of bytes of {name} than {stream.size}.")
        return stream.to_archive(name)

    def _send_part(self, path: str, stream: PartStream) -> None:
        start = stream.size
        chunks = stream.iter_part()
        with self._connect() as ftp:
            connection = ftp.transfercmd(f"STOR {path}", rest=start or None)
            is_sent = False
            try:
                for chunk in _untranslated(chunks):
                    connection.sendall(chunk)
                is_sent = True
            finally:
                if not is_sent:
                    connection.close()
                    ftp.close()
            _finish_transfer(ftp, connection)
            found = _size_of(ftp, path)
            if found is None or found < stream.size:
                raise StorageUnavailable(f"The FTP server has {found} bytes of {path}; {stream.size} were sent.")

    def request(self, batch: Batch, name: str) -> None:
        check_batch(batch, "get", name)
        with self._connect() as ftp:
            if _size_of(ftp, f"{batch.container}/{name}") is None:
                raise ArchiveNotFound(f"There is no archive {name} in {batch.container} on {self.name}.")

    def delete(self, batch: Batch, name: str) -> None:
        check_batch(batch, "delete", name)
        with self._connect() as ftp:
            for path in (f"{batch.container}/{name}", f"{batch.container}/{name}{UNFINISHED_SUFFIX}"):
                _delete(ftp, path)

    def close_batch(self, batch: Batch) -> None:
        """Nothing is left to do."""

    def poll(self, batch: Batch) -> BatchStatus:
        self.check()
        return BatchStatus(is_done=True)

    def read(
        self, batch: Batch, name: str, *, start: int = 0, end: int | None = None
    ) -> Generator[bytes | memoryview, None, None]:
        check_batch(batch, "get", name)
        path = f"{batch.container}/{name}"
        with self._connect() as ftp:
            size = _size_of(ftp, path)
            if size is None:
                raise ArchiveNotFound(f"There is no archive {name} in {batch.container} on {self.name}.")
            left = (size if end is None else min(end, size)) - start
            if left <= 0:
                return
            connection = ftp.transfercmd(f"RETR {path}", rest=start or None)
            is_at_end = False
            try:
                while left:
                    chunk = connection.recv(min(CHUNK_SIZE, left))
                    if not chunk:
                        raise StorageUnavailable(f"The FTP server stopped sending {name} with {left} bytes to come.")
                    left -= len(chunk)
                    yield chunk
                is_at_end = end is None or end >= size
            finally:
                if not is_at_end:  # the rest is not wanted: there is no other way to say so that all servers understand
                    connection.close()
                    ftp.close()
            if is_at_end:
                _finish_transfer(ftp, connection)

    def end_batch(self, batch: Batch) -> None:
        """Nothing is kept of a batch. An unfinished put is resumed by the next one, or removed with its container."""

    def list_archives(self, container: str) -> Iterator[StoredArchive]:
        check_storage_name(container, "a container")
        with self._connect() as ftp:
            found = [
                StoredArchive(name, int(facts.get("size", -1)))
                for name, facts in _list_folder(ftp, container)
                if facts.get("type") == "file" and not name.endswith(UNFINISHED_SUFFIX)
            ]
        yield from sorted(found, key=lambda archive: archive.name)

    def list_containers(self) -> Iterator[str]:
        with self._connect() as ftp:
            names = [name for name, facts in _list_folder(ftp, "") if facts.get("type") == "dir"]
        yield from sorted(name for name in names if not name.startswith("."))

    def remove_container(self, container: str) -> None:
        """Remove the files of a container, then its folder. A second run finds what is left."""
        check_storage_name(container, "a container")
        with self._connect() as ftp:
            for name, facts in _list_folder(ftp, container):
                if facts.get("type") == "file":
                    _delete(ftp, f"{container}/{name}")
            try:
                ftp.rmd(container)
            except ftplib.error_perm:
                if _has_folder(ftp, container):
                    raise

    def close(self) -> None:
        while self._idle:
            _quit(self._idle.pop())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @contextmanager
    def _connect(self) -> Iterator[ftplib.FTP]:
        """A connection in the folder of the storage, with the errors of storages. It is kept for the next call unless
        this one failed, or closed it.
        """
        try:
            ftp = self._take_connection()
            is_usable = False
            try:
                yield ftp
                is_usable = ftp.sock is not None
            finally:
                if is_usable and len(self._idle) < self.traits.max_transfers:
                    self._idle.append(ftp)
                else:
                    ftp.close()
        except _SourceError as wrapped:
            raise wrapped.error from None
        except (ftplib.Error, OSError, EOFError) as error:
            raise to_storage_error(error, self._server.host) from error

    def _take_connection(self) -> ftplib.FTP:
        """One that is still good, or a new one; in the folder of the storage, which is there."""
        with suppress(IndexError):
            ftp = self._idle.pop()
            try:
                ftp.cwd(self._server.folder)
                return ftp
            except (
                ftplib.Error,
                OSError,
                EOFError,
            ):  # the server has closed it, or the folder is gone: a new one tells
                ftp.close()
        ftp = _open_connection(self._server)
        try:
            ftp.voidcmd("TYPE I")
            try:
                ftp.cwd(self._server.folder)
            except ftplib.error_perm as error:
                raise StorageUnavailable(
                    f"The folder {self._server.folder} is not there on the FTP server {self._server.host}: {error}"
                ) from error
        except BaseException:
            ftp.close()
            raise
        return ftp


def _quit(ftp: ftplib.FTP) -> None:
    with suppress(OSError, EOFError, ftplib.Error):  # all was done before
        ftp.quit()
    ftp.close()


class _SourceError(BaseException):  # not an Exception: nothing in between may take it for one of the server
    """What the source raised, which is not an error of the server."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(str(error))
        self.error = error


def _untranslated(chunks: Iterator[bytes | memoryview]) -> Iterator[bytes | memoryview]:
    try:
        yield from chunks
    except (OSError, EOFError, ftplib.Error) as error:
        raise _SourceError(error) from error


def to_storage_error(error: Exception, host: str) -> ExternalStorageError:
    text = f"The FTP server {host}: {error}"
    code = str(error)[:3]
    if isinstance(error, ssl.SSLCertVerificationError):
        return StorageRefused(f"{text}. Its certificate is not one that is trusted.")
    if code == _LOGIN_REFUSED:
        return CredentialsRefused(text)
    if code in _FULL:
        return StorageFull(text)
    if isinstance(error, ftplib.error_perm):
        return StorageRefused(text)
    return StorageUnavailable(text)


class _SharedSessionFtp(ftplib.FTP_TLS):
    """TLS in which the connection of a transfer continues the session of the commands, as some servers insist."""

    is_implicit = False

    def connect(self, host: str = "", port: int = 0, timeout: float = -999, source_address: Any = None) -> str:
        if not self.is_implicit:
            return super().connect(host, port, timeout, source_address)
        self.host, self.port, self.timeout = host, port, timeout
        plain = socket.create_connection((host, port), timeout)
        self.af = plain.family
        self.sock = self.context.wrap_socket(plain, server_hostname=host)
        self.file = self.sock.makefile("r", encoding=self.encoding)
        self.welcome = self.getresp()
        return self.welcome

    def ntransfercmd(self, cmd: str, rest: int | str | None = None) -> tuple[socket.socket, int | None]:
        connection, size = ftplib.FTP.ntransfercmd(self, cmd, rest)
        assert isinstance(self.sock, ssl.SSLSocket)
        try:
            return (self.context.wrap_socket(connection, server_hostname=self.host, session=self.sock.session), size)
        except BaseException:
            connection.close()
            raise


def _open_connection(server: FtpServer) -> ftplib.FTP:
    if server.security == "none":
        ftp = ftplib.FTP(timeout=server.timeout, encoding="utf-8")
    else:
        context = ssl.create_default_context(cafile=server.certificates)
        ftp = _SharedSessionFtp(timeout=server.timeout, encoding="utf-8", context=context)
        ftp.is_implicit = server.security == "implicit"
    try:
        ftp.connect(server.host, server.port, timeout=server.timeout)
        if isinstance(ftp, _SharedSessionFtp) and not ftp.is_implicit:
            ftp.auth()  # before the password is sent
        ftplib.FTP.login(ftp, server.user, server.password)
        if isinstance(ftp, _SharedSessionFtp):
            ftp.prot_p()
    except BaseException:
        ftp.close()
        raise
    return ftp


def _finish_transfer(ftp: ftplib.FTP, connection: socket.socket) -> None:
    """Say that nothing more follows, and wait until the server has it all."""
    if isinstance(connection, ssl.SSLSocket):
        with suppress(OSError):  # the other end may have closed it already
            connection.unwrap()
    connection.close()
    ftp.voidresp()


def _size_of(ftp: ftplib.FTP, path: str) -> int | None:
    """The size of a file; None if there is none. A refusal has the same code as a file that is missing: a listing tells."""
    ftp.voidcmd("TYPE I")  # a listing has changed it, and a size in lines is none
    try:
        return ftp.size(path)
    except ftplib.error_perm:
        folder, _, name = path.rpartition("/")
        if any(found == name for found, _ in _list_folder(ftp, folder)):
            raise
        return None


def _has_folder(ftp: ftplib.FTP, name: str) -> bool:
    return any(found == name and facts.get("type") == "dir" for found, facts in _list_folder(ftp, ""))


def _list_folder(ftp: ftplib.FTP, path: str) -> list[tuple[str, dict[str, str]]]:
    """What lies in a folder, with its facts; nothing if it is not there."""
    if path and not _has_folder(ftp, path):
        return []
    return [(name, facts) for name, facts in ftp.mlsd(path, facts=["type", "size"]) if name not in (".", "..")]


def _delete(ftp: ftplib.FTP, path: str) -> None:
    try:
        ftp.delete(path)
    except ftplib.error_perm:
        if _size_of(ftp, path) is not None:
            raise


def _rename(ftp: ftplib.FTP, source: str, target: str) -> None:
    """Rename a file over another one, for servers that do not: then the other one goes first, which is whole or gone."""
    try:
        ftp.rename(source, target)
    except ftplib.error_perm:
        if _size_of(ftp, source) is None or _size_of(ftp, target) is None:
            raise
        ftp.delete(target)
        ftp.rename(source, target)
