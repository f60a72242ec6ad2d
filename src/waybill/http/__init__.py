"""Waybill over HTTP: `create_app` puts the application together, `Server` runs it until it is told to stop.

The names are looked up when they are asked for: a process that only needs the token machine does not load a web
framework.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from waybill.http.app import create_app
    from waybill.http.server import Server

__all__ = ["Server", "create_app"]


def __getattr__(name: str) -> Any:
    if name == "create_app":
        from waybill.http.app import create_app

        return create_app
    if name == "Server":
        from waybill.http.server import Server

        return Server
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
