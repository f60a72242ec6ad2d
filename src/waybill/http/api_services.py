"""What every route receives: the environment, the connection pool, the authenticator, the page tokens and the change
feed of one server.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

from fastapi import APIRouter
from pydantic import Field

from waybill.accounts import Identity, RecordAccess
from waybill.environment import Environment
from waybill.http.authentication import TOKEN_SECURITY, TokenAuthenticator
from waybill.http.change_feed import ChangeFeed
from waybill.http.connections import StoreConnectionPool
from waybill.http.errors import HttpProblem
from waybill.http.request_context import make_router
from waybill.machine import Machine
from waybill.record import RecordNotFound, Ref, Store
from waybill.rules import find_id_problem
from waybill.sign_in import PRIVATE_KINDS
from waybill.views import PageTokens

API_PREFIX = "/api/v1"

KindText = Annotated[str, Field(max_length=200)]
IdText = Annotated[str, Field(max_length=600)]
ParentText = Annotated[str, Field(max_length=800)]


class ApiServices:
    def __init__(
        self,
        environment: Environment,
        connections: StoreConnectionPool,
        authenticator: TokenAuthenticator,
        change_feed: ChangeFeed,
    ) -> None:
        self.environment = environment
        self.connections = connections
        self.authenticator = authenticator
        self.change_feed = change_feed
        self._page_tokens: PageTokens | None = None
        self._lock = threading.Lock()

    def build_router(self, tag: str) -> APIRouter:
        """A router whose routes check the token and the query parameters before they read the body."""
        return make_router(API_PREFIX, tag, [TOKEN_SECURITY])

    def get_access(self, identity: Identity) -> RecordAccess:
        """What somebody may see and do."""
        return RecordAccess(identity, self.environment.machines, self._get_application)

    @contextmanager
    def open_store(self, identity: Identity) -> Iterator[Store]:
        """A connection to the store as somebody sees it."""
        with self.connections.open_store() as store:
            yield self.get_access(identity).view(store)

    def _get_application(self, kind: str) -> str:
        application = self.environment.application_of_kind(kind)
        return application.name if application is not None else ""

    def get_page_tokens(self, store: Store) -> PageTokens:
        """The store's page tokens; its secret is read once."""
        with self._lock:
            if self._page_tokens is None:
                self._page_tokens = PageTokens.from_store(store)
            return self._page_tokens

    def get_visible_machine(self, kind: str) -> Machine:
        """The machine of a kind. Raises for tokens, sign-ins and accounts, which have routes and pages of their own: those
        show no hash, and none is made by hand.
        """
        machine = self.environment.machines[kind]
        if machine.name in PRIVATE_KINDS:
            raise HttpProblem(
                "forbidden",
                f"{machine.plural.capitalize()} cannot be read as records.",
                f"Use {API_PREFIX}/tokens, {API_PREFIX}/users, {API_PREFIX}/groups, or the page /admin.",
            )
        return machine

    def make_ref(self, kind: str, id: str) -> Ref:
        """The reference of a record that may exist."""
        self.get_visible_machine(kind)
        if problem := find_id_problem(id):
            raise RecordNotFound(f"There is no {kind} of this id: {problem}")
        return Ref(kind, id)

    def parse_ref(self, text: str) -> Ref:
        """The record that a filter names as KIND:ID."""
        kind, colon, id = text.partition(":")
        if not colon or not id:
            raise HttpProblem("bad-query", f"{text!r} names no record.", "A record is named as KIND:ID.")
        return self.make_ref(kind, id)
