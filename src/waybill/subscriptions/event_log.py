"""The log of events: reading it, and removing what everybody has read.

An event is kept for some days for those who look later (`waybill events`, server-sent events), and for as long as a
subscription has not read it; but of more than MAX_EVENTS the oldest are removed in any case, so that a subscription that is
parked for ever does not fill the store. The log of the worker says when that happens.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from waybill.config import DAY
from waybill.events import EVENT_KIND, SUBSCRIPTION_KIND
from waybill.maintenance import MaintenanceContext
from waybill.record import MAX_PAGE, Change, CommitGroup, CommitResult, Finding, Record, Store
from waybill.rules import matches_type
from waybill.subscriptions.machines import ENDED, LISTENING, PARKED, position_of
from waybill.subscriptions.subscriber import ReceivedEvent

log = logging.getLogger("waybill")

MAX_EVENTS = 40_000  # less than a folder of ZooKeeper should hold
PAGE_SIZE = 500
FAILING_TRIES = 3  # from so many failures in a row on doctor names a subscription
PARKED_RULE, GONE_RULE, EXPIRED_RULE = "subscription parked", "nobody subscribes", "events expired"


def read_events(
    store: Store, after: int, *, types: Iterable[str] = ("*",), limit: int = 100
) -> tuple[list[ReceivedEvent], int]:
    """Return the events of these types after this place in the log, and the place up to which was read. At most one page
    of the log is read: fewer than `limit` events do not mean that there are no more.
    """
    patterns = tuple(types)
    page = store.find(EVENT_KIND, after=after, limit=min(limit, MAX_PAGE), documents=True)
    events = [ReceivedEvent.from_record(record) for record in page.records]
    return [e for e in events if matches_type(e.type, patterns)], events[-1].seq if events else after


def find_log_end(store: Store) -> int:
    """Return the place of the last event in the log; 0 for an empty one."""
    newest = store.find(EVENT_KIND, newest=True, limit=1).records
    return newest[0].seq if newest else 0


def find_place_before(store: Store, count: int) -> int:
    """Return the place in the log after which there are the last `count` events."""
    newest = store.find(EVENT_KIND, newest=True, limit=count + 1).records
    return newest[count].seq if len(newest) > count else 0


@dataclass(frozen=True)
class EventLogRoutine:
    keep_days: float = 7.0
    max_events: int = MAX_EVENTS
    name: str = "event-log"
    description: str = "Removes events that everybody has read, after the days that the setting events.keep says."
    poll_interval: float = 30.0
    per_host: bool = False
    has_routine_findings: bool = True

    def check(self, context: MaintenanceContext) -> Iterator[Finding]:
        """One finding for each page of events: `where` is the place of its last one."""
        store = context.store
        excess = sum(store.count_by_state(EVENT_KIND).values()) - self.max_events
        oldest_unread = min(map(position_of, _list_readers(context)), default=None)
        horizon = store.now() - self.keep_days * DAY
        after: int | None = None
        while not context.stop():
            page = store.find(EVENT_KIND, after=after, limit=PAGE_SIZE)
            due = [
                each
                for n, each in enumerate(page.records)
                if n < excess or (each.created < horizon and (oldest_unread is None or each.seq <= oldest_unread))
            ]
            excess -= len(page.records)
            if due:
                problem = f"{len(due)} events up to {due[-1].ref} are over."
                yield Finding(EXPIRED_RULE, f"{due[0].seq}-{due[-1].seq}", problem, "remove them")
            if len(due) < len(page.records) or page.after is None:
                return
            after = page.after

    def repair(self, context: MaintenanceContext, finding: Finding) -> bool:
        """Safe to repeat: those that are gone are not found again."""
        first, last = map(int, finding.where.split("-"))
        unread = [e.id for e in _list_readers(context) if position_of(e) < last]
        if unread:
            log.warning("the log of events is full; those up to %d go, unread by %s", last, ", ".join(unread))
        records = context.store.find(EVENT_KIND, after=first - 1, limit=PAGE_SIZE).records
        groups = [
            CommitGroup((Change(record, None, "remove", context.who, EXPIRED_RULE),))
            for record in records
            if record.seq <= last
        ]
        return any(isinstance(answer, CommitResult) for answer in context.store.commit(groups)) if groups else False


def _list_readers(context: MaintenanceContext) -> list[Record]:
    return [each for each in context.store.each(SUBSCRIPTION_KIND, documents=True) if each.state != ENDED]


@dataclass(frozen=True)
class SubscriptionRoutine:
    """Names subscriptions that do not move. Nothing is repaired without an operator: he knows what went wrong."""

    subscriber_ids: frozenset[str] = frozenset()
    name: str = "subscriptions"
    description: str = "Names subscriptions that are parked, and those under whose name nobody subscribes any more."
    poll_interval: float = 3600.0
    per_host: bool = False
    has_routine_findings: bool = False

    def check(self, context: MaintenanceContext) -> Iterator[Finding]:
        for record in context.store.each(SUBSCRIPTION_KIND):
            if record.state == PARKED:
                yield _make_finding(PARKED_RULE, record, record.message, "repair that and resume it, or skip the event")
            elif record.state == LISTENING and record.error_count >= FAILING_TRIES:
                problem = f"It has failed {record.error_count} times: {record.message}"
                yield _make_finding(PARKED_RULE, record, problem, "repair that; it is tried again by itself")
            elif record.state == LISTENING and record.id not in self.subscriber_ids:
                problem = (
                    "No application and no webhook of this process subscribes under this name; its events are kept."
                )
                yield _make_finding(
                    GONE_RULE, record, problem, "load or name it again, or take the action `end` on the subscription"
                )

    def repair(self, context: MaintenanceContext, finding: Finding) -> bool:
        return False


def _make_finding(rule: str, record: Record, problem: str, remedy: str) -> Finding:
    return Finding(rule, str(record.ref), problem, remedy, repairable=False, ref=record.ref)
