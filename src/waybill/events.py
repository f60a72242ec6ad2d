"""Events: what a commit tells others.

    EventType("bakery.loaf.baked", "...")         declared by an application, in `Application.events`
    Event(LOAF_BAKED, loaf.id, {"grams": 500})    written in the commit that it tells of: `Done(events=(...,))`

An event that nobody subscribes to is dropped when the commit is built, and costs nothing. Any other is a record of the kind
`event`, created in that commit: `waybill.subscriptions` tells how it reaches its subscribers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec

from waybill.record import DocumentStruct

EVENT_KIND = "event"
SUBSCRIPTION_KIND = "subscription"
MAX_SUBJECT = 500  # characters


class EventType(NamedTuple):
    """A type of event that others can subscribe to."""

    name: str  # APPLICATION.THING.WHAT, as in bakery.loaf.baked
    description: str  # when it is sent


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened, told in the commit in which it happens."""

    type: EventType | str
    subject: str = ""  # what it is about; each subscriber gets the events about one subject in their order
    data: Mapping[str, Any] = field(default_factory=dict)  # small JSON: names and numbers, no bulk

    @property
    def type_name(self) -> str:
        return self.type.name if isinstance(self.type, EventType) else self.type


class EventBody(DocumentStruct, frozen=True):
    """The document of a record of the kind `event`."""

    type: str
    subject: str = ""
    data: dict[str, Any] = msgspec.field(default_factory=dict)
