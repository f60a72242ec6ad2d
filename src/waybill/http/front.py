"""What every endpoint is handed: the depot, the connections, the guard, the page tokens and the live changes of one
application.
"""

from __future__ import annotations

import threading
from typing import Annotated

from fastapi import APIRouter, Request
from pydantic import Field

from waybill.depot import Depot
from waybill.http.connections import Connections
from waybill.http.errors import Problem, responses
from waybill.http.guard import DESCRIBED, Guard
from waybill.http.hub import Hub
from waybill.http.wire import check_parameters, json_route
from waybill.machine import Machine
from waybill.record import NotFound, Ref, Store
from waybill.rules import bad_id
from waybill.tokens import TOKEN
from waybill.views import PageTokens

PREFIX = "/api/v1"

Kind = Annotated[str, Field(max_length=200)]
Id = Annotated[str, Field(max_length=600)]
Parent = Annotated[str, Field(max_length=800)]


class Front:
    def __init__(self, depot: Depot, connections: Connections, guard: Guard, hub: Hub) -> None:
        self.depot = depot
        self.connections = connections
        self.guard = guard
        self.hub = hub
        self._pages: PageTokens | None = None
        self._lock = threading.Lock()

    def router(self, tag: str) -> APIRouter:
        """Routes of the API, which know who asks, and with which parameters, before they read the body."""

        async def check(request: Request) -> None:
            await self.guard.check(request)
            check_parameters(request)

        return APIRouter(
            prefix=PREFIX, tags=[tag], route_class=json_route(check), dependencies=[DESCRIBED], responses=responses(400)
        )

    def pages(self, store: Store) -> PageTokens:
        """The store's page tokens; its secret is read once."""
        with self._lock:
            if self._pages is None:
                self._pages = PageTokens.of(store)
            return self._pages

    def shown_kind(self, kind: str) -> Machine:
        """The machine of a kind, or a refusal.

        Tokens have routes of their own, which show no hash and let nobody make one by hand.
        """
        machine = self.depot.machines[kind]
        if machine.name == TOKEN.name:
            raise Problem(403, "forbidden", "Tokens are not records for everybody.", f"Use {PREFIX}/tokens.")
        return machine

    def ref(self, kind: str, id: str) -> Ref:
        """The name of a record that may exist."""
        self.shown_kind(kind)
        if problem := bad_id(id):
            raise NotFound(f"There is no {kind} of this id: {problem}")
        return Ref(kind, id)

    def parse_ref(self, text: str) -> Ref:
        """KIND:ID, as filters name a record."""
        kind, colon, id = text.partition(":")
        if not colon or not id:
            raise Problem(400, "bad-query", f"{text!r} names no record.", "A record is named as KIND:ID.")
        return self.ref(kind, id)
