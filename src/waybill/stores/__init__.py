"""Stores, opened by URL. A driver's client library is imported only when a URL asks for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from waybill.record import BadStore, Store

FORMS = "sqlite:///path, postgresql://user@host/database or zookeeper://host:port,host:port/chroot"


def open_store(url: str, *, clock: Callable[[], float] | None = None, migrate: bool = True, **options: Any) -> Store:
    """Open the store that `url` names. `migrate`: make or upgrade its schema; otherwise an old one is refused with a
    sentence.

    `clock` is the store's clock where the store has none of its own (SQLite, ZooKeeper); PostgreSQL keeps the server's.
    """
    scheme = urlsplit(url).scheme
    try:
        if scheme == "sqlite":
            from waybill.stores.sqlite import SqliteStore

            return SqliteStore(url, clock=clock, migrate=migrate, **options)
        if scheme in ("postgresql", "postgres"):
            from waybill.stores.postgres import PostgresStore

            return PostgresStore(url, migrate=migrate, **options)
        if scheme == "zookeeper":
            from waybill.stores.zookeeper import ZookeeperStore

            return ZookeeperStore(url, clock=clock, migrate=migrate, **options)
    except ModuleNotFoundError as error:
        raise BadStore(
            f"The driver for {scheme}: needs the package {error.name}; install waybill[{_extra(scheme)}]."
        ) from error
    raise BadStore(f"{scheme or 'that'} is no kind of store; a store URL is {FORMS}.")


def _extra(scheme: str) -> str:
    return {"postgresql": "postgres", "postgres": "postgres"}.get(scheme, scheme)
