"""Who subscribes: each application with handlers, and each webhook, has one subscription, in which all its events come in
their order.

    Application.subscribes, [webhooks.NAME] -> Subscriber -> EventRouting, by which commits know what is wanted
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from waybill.application import Application
from waybill.errors import InputError
from waybill.events import EventBody, EventType
from waybill.record import Page, Record, Ref, Store
from waybill.rules import EventRouting, matches_type
from waybill.step import Done, StepContext

if TYPE_CHECKING:
    from waybill.objects import Objects

T = TypeVar("T")
MAX_TRIES = 12  # of one event, over about an hour


class ReceivedEvent(NamedTuple):
    """An event as its subscribers get it. `id` is the same each time that it is delivered."""

    id: str
    type: str
    subject: str
    data: Mapping[str, Any]
    at: float  # when it happened, in seconds since 1970
    seq: int  # its place in the log

    @classmethod
    def from_record(cls, record: Record) -> ReceivedEvent:
        body = record.document(EventBody)
        return cls(record.id, body.type, body.subject, body.data, record.created, record.seq)


class SubscriberContext:
    """What a handler may use: the resources of its application, and reading."""

    def __init__(self, step_context: StepContext, resources: Any) -> None:
        self._step_context = step_context
        self.resources = resources

    @property
    def objects(self) -> Objects:
        return self._step_context.objects

    @property
    def log(self) -> logging.LoggerAdapter[logging.Logger]:
        return self._step_context.log

    @property
    def stop(self) -> bool:
        return self._step_context.stop

    def check(self) -> None:
        self._step_context.check()

    def now(self) -> float:
        return self._step_context.now()

    def get(self, kind: str, id: str) -> Record:
        return self._step_context.get(kind, id)

    def find(
        self,
        kind: str,
        *,
        state: str | None = None,
        parent: Ref | None = None,
        after: int | None = None,
        limit: int = 100,
        documents: bool = False,
    ) -> Page:
        return self._step_context.find(kind, state=state, parent=parent, after=after, limit=limit, documents=documents)

    def run_on_store(self, query: Callable[[Store], T]) -> T:
        return self._step_context.run_on_store(query)


# Returns what it creates, acts on, wakes and tells (a Done without documents), or None. Raises Fail for an event that no
# retry can help; any other exception is tried again.
EventHandler = Callable[[ReceivedEvent, SubscriberContext], Done | None]


@dataclass(frozen=True)
class Subscriber:
    """One reader of the log."""

    id: str
    handlers: Mapping[str, EventHandler]  # by type, * for any part of a name; the first that matches gets the event
    resources: Callable[[], Any] = lambda: None
    max_tries: int = MAX_TRIES
    _found: dict[str, EventHandler | None] = field(default_factory=dict, repr=False, compare=False)

    def find_handler(self, type: str) -> EventHandler | None:
        if type not in self._found:
            self._found[type] = next((h for p, h in self.handlers.items() if matches_type(type, (p,))), None)
        return self._found[type]


def list_subscribers(
    applications: Iterable[Application], resources_of: Callable[[str], Any], webhooks: Iterable[Subscriber] = ()
) -> dict[str, Subscriber]:
    """Return all subscribers of a process, by the ids of their subscriptions. Raises InputError for two of one name."""

    def make_resources(name: str) -> Callable[[], Any]:
        return lambda: resources_of(name)

    subscribers: dict[str, Subscriber] = {}
    for each in (
        *(Subscriber(a.name, a.subscribes, make_resources(a.name)) for a in applications if a.subscribes),
        *webhooks,
    ):
        if each.id in subscribers:
            raise InputError(
                f"Two subscribers are called {each.id}; give the webhook or the application another name.",
                code="bad-application",
            )
        subscribers[each.id] = each
    return subscribers


def build_routing(
    declared: Iterable[EventType], subscribers: Mapping[str, Subscriber], logged: tuple[str, ...] = ()
) -> EventRouting:
    return EventRouting(
        frozenset(event.name for event in declared),
        {name: tuple(each.handlers) for name, each in subscribers.items()},
        logged,
    )
