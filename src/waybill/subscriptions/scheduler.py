"""The step of the subscriptions of a process, and their records.

    Listening: a page of the log after the cursor -> the handler, event by event -> the cursor is saved -> the next page
               the end of the log  -> Wait; a commit with an event wakes it
               a handler raises    -> what it has handled is saved; the event is tried again, then it is parked

What a handler returns is committed together with the cursor; events whose handler returns nothing share one save.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

import msgspec

from waybill.engine import Engine
from waybill.events import EVENT_KIND, SUBSCRIPTION_KIND
from waybill.machine import MachineError
from waybill.record import CommitOutcomeUnknown, Record, RecordExists
from waybill.rules import Machines, describe_error
from waybill.step import Done, Fail, New, Outcome, StepContext, Wait
from waybill.subscriptions.machines import LISTENING, SubscriptionCursor, position_of
from waybill.subscriptions.subscriber import ReceivedEvent, Subscriber, SubscriberContext

PAGE_SIZE = 200
MAX_PAGES = 50  # in one run of the step; then others have their turn
POLL_SECONDS = 5.0  # a wake may be lost


@dataclass(frozen=True)
class SubscriptionScheduler:
    subscribers: Mapping[str, Subscriber]
    machines: Machines
    poll_interval: float = POLL_SECONDS

    def register_step(self) -> None:
        """Give the machine its step, which serves these subscribers, in this environment only."""
        machine = self.machines[SUBSCRIPTION_KIND]
        self.machines[SUBSCRIPTION_KIND] = replace(machine, steps={LISTENING: self.run_step})

    def ensure_records(self, engine: Engine) -> None:
        """Create the subscriptions that do not exist yet. Safe to repeat and to race: an id exists once."""
        for subscriber in self.subscribers.values():
            new = New(SUBSCRIPTION_KIND, id=subscriber.id)
            why = f"subscribes to {', '.join(subscriber.handlers)}"
            try:
                engine.submit(new, who="setup", why=why)
            except RecordExists:
                continue
            except CommitOutcomeUnknown:
                with suppress(RecordExists):  # the first commit was written after all
                    engine.submit(new, who="setup", why=why)

    def run_step(self, record: Record, ctx: StepContext) -> Outcome:
        """Safe to repeat: what is written moves the cursor in the same commit; handlers know the event by its id."""
        subscriber = self.subscribers.get(record.id)
        if subscriber is None:
            return Wait(3600, "Nobody subscribes here under this name; the action `end` forgets it.")
        return _Reading(subscriber, record, ctx, self.poll_interval).run()


class _Reading:
    """One run of the step."""

    def __init__(self, subscriber: Subscriber, record: Record, ctx: StepContext, poll_interval: float) -> None:
        self.subscriber, self.record, self.ctx, self.poll_interval = subscriber, record, ctx, poll_interval
        self.context = SubscriberContext(ctx, subscriber.resources())
        saved = record.find_document(SubscriptionCursor)
        self.first = saved
        self.cursor = saved if saved is not None else SubscriptionCursor(position_of(record))
        self.has_progress = False  # an event was handled or passed over in this run

    def run(self) -> Outcome:
        for _ in range(MAX_PAGES):
            page = self.ctx.find(EVENT_KIND, after=self.cursor.seq, limit=PAGE_SIZE, documents=True)
            for event in page.records:
                if self.ctx.stop:
                    return self._wait(0)
                try:
                    self._handle(event)
                # a handler of an application may raise anything; StepStopped passes
                except Exception as error:  # noqa: BLE001
                    return self._note_failure(event, error)
                self.has_progress = True
            if page.after is None:
                return self._wait(self.poll_interval)
        return self._wait(0)

    def _handle(self, record: Record) -> None:
        event = ReceivedEvent.from_record(record)
        handler = self.subscriber.find_handler(event.type)
        cursor = msgspec.structs.replace(
            self.cursor, seq=record.seq, handled=self.cursor.handled + (handler is not None), failing="", failing_seq=0
        )
        outcome = handler(event, self.context) if handler is not None else None
        if outcome is not None:
            if not isinstance(outcome, Done) or outcome.documents or outcome.remove or outcome.to:
                raise MachineError(
                    f"The handler of {event.type} returned {outcome!r}; a handler returns None, or a Done with nothing but "
                    "spawn, acts, wakes and events."
                )
            if outcome.spawn or outcome.acts or outcome.wakes or outcome.events:
                spawn = tuple(new if new.priority is not None else replace(new, priority=5) for new in outcome.spawn)
                # One commit: a crash before it repeats the handler, a crash after it does not.
                self.ctx.save((cursor,), acts=outcome.acts, wakes=outcome.wakes, spawn=spawn, events=outcome.events)
                self.first = cursor
        self.cursor = cursor

    def _wait(self, seconds: float, message: str = "") -> Wait:
        return Wait(seconds, message, (self.cursor,) if self.cursor != self.first else ())

    def _note_failure(self, record: Record, error: Exception) -> Outcome:
        if self.has_progress:  # a new run begins with this event, and counts its tries
            return self._wait(0)
        if self.cursor.failing != record.id:
            self.ctx.save((msgspec.structs.replace(self.cursor, failing=record.id, failing_seq=record.seq),))
        if isinstance(error, (Fail, MachineError)) or self.record.error_count + 1 >= self.subscriber.max_tries:
            raise Fail(
                f"{record.id} cannot be handled: {describe_error(error)} Repair that and resume it, or give the event up: "
                f"`waybill act subscription {self.record.id} skip --arg event={record.id}`."
            ) from error
        raise error
