"""Stores, opened by URL. A driver and its client library are imported only when a URL names them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from waybill.record import BadStore, Store

URL_FORMS = "sqlite:///path, postgresql://user@host/database or zookeeper://host:port,host:port/chroot"


def open_store(url: str, *, clock: Callable[[], float] | None = None, migrate: bool = True, **options: Any) -> Store:
    """Open the store that `url` names. With `migrate` its schema is created or upgraded; otherwise a missing or old schema
    raises BadStore.

    `clock` is the store's clock where the store has none of its own (SQLite, ZooKeeper); PostgreSQL uses the server's.
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
            f"The driver for {scheme}: needs the package {error.name}; install waybill-engine[{_extra_of(scheme)}]."
        ) from error
    raise BadStore(f"{scheme or 'that'} is no kind of store; a store URL is {URL_FORMS}.")


def _extra_of(scheme: str) -> str:
    return {"postgresql": "postgres", "postgres": "postgres"}.get(scheme, scheme)
