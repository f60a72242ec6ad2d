"""What steps, maintenance routines, routes and commands of archive share; made once in each process."""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, cast
from urllib.parse import unquote, urlsplit

from msgspec.structs import replace

from waybill.apps.archive.catalogue import CatalogueConnections
from waybill.apps.archive.files import ArchiveLimits, UserIdentity, find_user
from waybill.apps.archive.settings import StorageSettings, WorkspaceSettings, parse_size
from waybill.apps.archive.settings import read as read_settings
from waybill.apps.archive.storages import (
    DirectoryStorage,
    FtpSecurity,
    FtpServer,
    FtpStorage,
    LimitedStorage,
    S3Storage,
    Storage,
    TapeStorage,
    create_storage_folder,
)
from waybill.errors import InputError, NotFound
from waybill.objects import S3Credentials
from waybill.step import StepContext

if TYPE_CHECKING:
    from waybill.environment import Environment
    from waybill.objects import Objects

LOCAL_STORAGE, DEFAULT_WORKSPACE = "local", "default"
EVERYBODY = "*"


class ArchiveResources:
    def __init__(self, environment: Environment) -> None:
        self.environment = environment
        data = environment.config.data
        self.settings = read_settings(environment.config.app.get("archive", {}))
        if not self.settings.storages:
            local = StorageSettings(path=str(data / "archive-storage"), title="Folder of this server")
            self.settings = replace(self.settings, storages={LOCAL_STORAGE: local})
        if not self.settings.workspaces:
            self.settings = replace(
                self.settings, workspaces={DEFAULT_WORKSPACE: WorkspaceSettings(members=(EVERYBODY,))}
            )
        self.connections = CatalogueConnections(environment.open_index)
        self.staging = Path(self.settings.staging) if self.settings.staging else data / "archive-staging"
        self._is_local_default = tuple(self.settings.storages) == (LOCAL_STORAGE,) and not environment.config.app.get(
            "archive", {}
        ).get("storages")
        self._lock = threading.Lock()
        self._storages: dict[str, Storage] = {}
        self.clock: Callable[[], float] = time.time

    @property
    def objects(self) -> Objects:
        return self.environment.objects

    def close(self) -> None:
        with self._lock:
            opened, self._storages = list(self._storages.values()), {}
        for storage in opened:
            storage.close()
        self.connections.close()

    # --- storages

    @property
    def intake_folder(self) -> Path:
        """Where intakes gather copies, each in a folder of its own."""
        return self.staging.parent / f"{self.staging.name}-intake"

    def get_storage_settings(self, name: str) -> StorageSettings:
        try:
            return self.settings.storages[name]
        except KeyError:
            known = ", ".join(sorted(self.settings.storages))
            raise NotFound(f"There is no storage {name}; there are {known}.", code="unknown-storage") from None

    def open_storage(self, name: str) -> Storage:
        """The storage, opened once in each process; for all threads."""
        settings = self.get_storage_settings(name)
        with self._lock:
            if name not in self._storages:
                opened = self._open_storage(name, settings)
                self._storages[name] = LimitedStorage(opened, settings.transfers or None)
            return self._storages[name]

    def _open_storage(self, name: str, settings: StorageSettings) -> Storage:
        root = Path(settings.path)
        if settings.type == "directory":
            if self._is_local_default and not root.exists():
                create_storage_folder(root)
            return DirectoryStorage(name, root)
        if settings.type == "tape":
            return TapeStorage(name, root, clock=lambda: self.clock(), mount_delay=settings.mount_delay)
        if settings.type == "s3":
            access_key, secret_key = _read_secret(name, "ACCESS_KEY"), _read_secret(name, "SECRET_KEY")
            # Without keys of its own: those of the environment or of the machine's role.
            return S3Storage(
                name, settings.url, credentials=S3Credentials(access_key, secret_key) if access_key else None
            )
        return FtpStorage(name, _parse_ftp(name, settings.url))

    def create_storage(self, name: str) -> None:
        """Make the folder of a storage, once, by an operator."""
        settings = self.get_storage_settings(name)
        if settings.type == "directory":
            create_storage_folder(Path(settings.path))
        elif settings.type == "tape":
            TapeStorage.create(Path(settings.path))
        else:
            raise InputError(
                f"The storage {name} is of the type {settings.type}: it is made with that service's own tools."
            )

    def get_limits(self, storage: str) -> ArchiveLimits:
        settings = self.get_storage_settings(storage)
        return ArchiveLimits(parse_size(settings.minimum), parse_size(settings.maximum), settings.files)

    # --- workspaces

    def get_workspace(self, name: str) -> WorkspaceSettings:
        try:
            return self.settings.workspaces[name]
        except KeyError:
            known = ", ".join(sorted(self.settings.workspaces))
            raise NotFound(f"There is no workspace {name}; there are {known}.", code="unknown-workspace") from None

    def get_limit(self, workspace: str, storage: str) -> int:
        """The bytes that a workspace may have on a storage; 0: no limit."""
        settings = self.settings.workspaces.get(workspace)
        return parse_size(settings.limits.get(storage, 0)) if settings is not None else 0

    def is_member(self, user: str, workspace: str) -> bool:
        settings = self.get_workspace(workspace)
        return not {user, EVERYBODY}.isdisjoint((*settings.members, *settings.managers))

    def is_manager(self, user: str, workspace: str) -> bool:
        return user in self.get_workspace(workspace).managers

    # --- files

    def find_user(self, name: str) -> UserIdentity | None:
        """As whom files are read and written: the user, if this process may become it; otherwise this process itself."""
        return find_user(name) if os.geteuid() == 0 and name != "root" else None


def resources_of(ctx: StepContext) -> ArchiveResources:
    return cast(ArchiveResources, ctx.resources)


def _read_secret(storage: str, what: str) -> str:
    """ARCHIVE_TAPE_PASSWORD: a secret of a storage, which is never in the settings file."""
    return os.environ.get(f"ARCHIVE_{re.sub('[^A-Z0-9]', '_', storage.upper())}_{what}", "")


_FTP_SECURITY: dict[str, tuple[FtpSecurity, int]] = {
    "ftp": ("none", 21),
    "ftpes": ("explicit", 21),
    "ftps": ("implicit", 990),
}


def _parse_ftp(storage: str, url: str) -> FtpServer:
    parts = urlsplit(url)
    if parts.scheme not in _FTP_SECURITY or not parts.hostname or parts.password:
        raise InputError(
            f"The url of the storage {storage} must be ftpes://user@host/folder (TLS), ftps:// (TLS from the start) or ftp:// (no TLS), "
            "without a password.",
            code="bad-config",
        )
    security, port = _FTP_SECURITY[parts.scheme]
    return FtpServer(
        host=parts.hostname,
        port=parts.port or port,
        user=unquote(parts.username or "anonymous"),
        password=_read_secret(storage, "PASSWORD"),
        folder=unquote(parts.path) or "/",
        security=security,
    )
