"""Waybill over HTTP: `create_app` builds the web application, `ApiServer` runs it until it is stopped.

Both are imported on first use: a process that does not serve does not load a web framework.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from waybill.http.app import ApiServer, create_app

__all__ = ["ApiServer", "create_app"]


def __getattr__(name: str) -> Any:
    if name == "create_app":
        from waybill.http.app import create_app

        return create_app
    if name == "ApiServer":
        from waybill.http.app import ApiServer

        return ApiServer
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
