"""What steps, maintenance routines, routes and commands of compute share; made once in each process."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, cast

from waybill.apps.compute.catalogue import CatalogueConnections
from waybill.apps.compute.settings import read as read_settings
from waybill.apps.compute.storage import Storage
from waybill.step import StepContext

if TYPE_CHECKING:
    from waybill.environment import Environment


class ComputeResources:
    def __init__(self, environment: Environment) -> None:
        self.environment = environment
        self.settings = read_settings(environment.config.app.get("compute", {}))
        self.connections = CatalogueConnections(environment.open_index)

    @cached_property
    def storage(self) -> Storage:
        return Storage(self.environment.objects, self.connections)

    def close(self) -> None:
        self.connections.close()


def resources_of(ctx: StepContext) -> ComputeResources:
    return cast(ComputeResources, ctx.resources)
