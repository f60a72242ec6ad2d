"""The routes of archive: our API at /api/v1/archive, and that of JDMA where the settings allow it.

api.py    our own
jdma.py   JDMA's, as a foreign protocol
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from waybill.apps.archive.jdma.app import JdmaNetworks
from waybill.apps.archive.routes.api import router
from waybill.apps.archive.routes.jdma import make_jdma_protocol

if TYPE_CHECKING:
    from waybill.apps.archive.resources import ArchiveResources
    from waybill.environment import Environment

__all__ = ["build_routes"]


def build_routes(environment: Environment) -> list[Any]:
    resources: ArchiveResources = environment.resources_of("archive")
    networks = JdmaNetworks(resources.settings.jdma.networks)
    return [router, *([make_jdma_protocol(resources, networks)] if networks else [])]
