"""Events of a commit: which of them are wanted, and the changes that log those.

Event -> is its type declared? -> does anybody subscribe to it, or is it logged? no: nothing
                                                                          yes: a new record of the kind `event`
"""

from __future__ import annotations

from collections.abc import Iterable

from waybill.events import EVENT_KIND, MAX_SUBJECT, Event, EventBody
from waybill.machine import MachineError
from waybill.record import Change, Record
from waybill.rules.machines import Machines
from waybill.rules.transitions import create
from waybill.step import New


def create_events(
    machines: Machines, events: Iterable[Event], *, maker: Record | None = None, who: str = ""
) -> tuple[Change, ...]:
    """Return the changes that log those of the events that somebody wants. Raises MachineError for an event that cannot be
    sent at all, whether or not anybody wants it: it must not be found only when somebody subscribes.
    """
    routing, changes = machines.event_routing, []
    for event in events:
        name = event.type_name
        if routing.declared is not None and name not in routing.declared:
            raise MachineError(
                f"No application here declares the event {name}; declare it in Application.events. Declared are: "
                f"{', '.join(sorted(routing.declared)) or 'none'}.",
                code="unknown-event",
            )
        if len(event.subject) > MAX_SUBJECT:
            raise MachineError(
                f"The subject of the event {name} has {len(event.subject)} characters; at most {MAX_SUBJECT}.",
                code="unknown-event",
            )
        if routing.is_wanted(name):
            body = EventBody(name, event.subject, dict(event.data))
            new = New(EVENT_KIND, (body,), owner=maker.owner if maker is not None else "", is_child=False)
            changes.append(create(machines, new, maker=maker, who=who))
    return tuple(changes)
