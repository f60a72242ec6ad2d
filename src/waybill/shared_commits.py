"""Shared commits: changes of some records, and acts on others, written together or not at all.

    SharedCommit -> the targets of its acts are read -> the acts are decided (rules.decide_acts) -> one CommitGroup ->
    written, or a target has changed since: read and decided again, MAX_DECISIONS times at most

Several are written in as few calls of the store as possible. A record appears in one group of a call only, so commits
that touch the same record go in calls one after the other, in their order; each sees what the one before has written.
Safe to repeat after a crash: nothing is written before the one commit, which is fenced by every version that was read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple
from weakref import WeakKeyDictionary

import msgspec

from waybill import rules
from waybill.record import (
    MAX_PAGE,
    Change,
    ClaimLost,
    CommitAnswer,
    CommitGroup,
    CommitOutcomeUnknown,
    CommitResult,
    Conflict,
    Record,
    RecordBusy,
    Ref,
    Store,
    StoreError,
    StoreUnavailable,
)
from waybill.rules import Machines, triggered_maintenance
from waybill.step import Act

MAX_LIST_USES = 200
MAX_DECISIONS = 8  # how often the acts of one commit are decided again because their targets keep changing


class SharedCommit(msgspec.Struct, frozen=True, gc=False):
    """A group, and acts to be written with it. `maker`: the record whose step acts."""

    group: CommitGroup
    acts: tuple[Act, ...] = ()
    who: str = ""
    maker: Ref | None = None
    is_confirmed: bool = True  # False: a person has not confirmed the first act

    def list_refs(self) -> set[Ref]:
        """Return the records that are known to be touched before anything is decided; not those that are only woken."""
        refs = {change.ref for change in self.group.changes if not change.ref.id.endswith("*")}
        return refs.union(each.ref for each in self.acts)


class SharedAnswer(NamedTuple):
    """The store's answer, or why the acts are not possible. `records` of a result has the group's changes first."""

    answer: CommitAnswer | Exception
    group: CommitGroup  # as it was sent, with what its acts change and request
    read: Mapping[Ref, Record] = {}  # the records that the acts were decided on


@dataclass
class _PendingCommit:
    place: int
    shared: SharedCommit
    group: CommitGroup
    read: dict[Ref, Record] = field(default_factory=dict)
    decisions: int = 0


def commit_shared(
    store: Store, machines: Machines, commits: Sequence[SharedCommit], known: Mapping[Ref, Record] | None = None
) -> list[SharedAnswer]:
    """Write these commits, each whole or not at all; return one answer for each, in order. `known`: records that were
    read already.
    """
    answers: dict[int, SharedAnswer] = {}
    current: dict[Ref, Record] = dict(known or {})
    waiting = [_PendingCommit(place, shared, shared.group) for place, shared in enumerate(commits)]
    while waiting:
        call, waiting = _take_distinct(waiting)
        try:
            sent, postponed = _decide(store, machines, call, current, answers)
            waiting = postponed + waiting
            written = store.commit([each.group for each in sent]) if sent else []
            again = []
            for each, answer in zip(sent, written, strict=True):
                if each.shared.acts and _is_about_target(answer) and _has_changed(store, each, current):
                    again.append(each)
                    continue
                _note_written(each, answer, current)
                answers[each.place] = SharedAnswer(answer, each.group, each.read)
            waiting = again + waiting
        except StoreError as error:
            for each in (*call, *waiting):
                answers.setdefault(each.place, SharedAnswer(error, each.group))
            break
    return [answers[place] for place in range(len(commits))]


def _take_distinct(waiting: Sequence[_PendingCommit]) -> tuple[list[_PendingCommit], list[_PendingCommit]]:
    """Divide the commits into those that one call can take, and those that touch a record of an earlier one."""
    call: list[_PendingCommit] = []
    rest: list[_PendingCommit] = []
    seen: set[Ref] = set()
    for each in waiting:
        refs = each.shared.list_refs()
        (call if seen.isdisjoint(refs) else rest).append(each)
        seen |= refs  # those that wait too: a third one must not overtake them
    return call, rest


def _decide(
    store: Store,
    machines: Machines,
    call: Sequence[_PendingCommit],
    current: dict[Ref, Record],
    answers: dict[int, SharedAnswer],
) -> tuple[list[_PendingCommit], list[_PendingCommit]]:
    """Decide the acts of these commits. Returns those that can be sent now, and those that must wait for one of them."""
    targets = dict.fromkeys(a.ref for each in call for a in each.shared.acts if a.ref not in current)
    if targets:
        current.update(store.get_many(tuple(targets)))
    sent: list[_PendingCommit] = []
    postponed: list[_PendingCommit] = []
    seen = set().union(*(each.shared.list_refs() for each in call if not each.shared.acts))
    for each in call:
        shared = each.shared
        if not shared.acts:
            each.group = shared.group
            sent.append(each)
            continue
        each.decisions += 1
        if each.decisions > MAX_DECISIONS:
            answers[each.place] = SharedAnswer(RecordBusy(_describe_busy(shared), is_contended=True), each.group)
            continue
        try:
            decided = rules.decide_acts(
                machines,
                shared.acts,
                current,
                store=store,
                who=shared.who,
                maker=shared.maker,
                is_confirmed=shared.is_confirmed,
            )
        except (StoreUnavailable, CommitOutcomeUnknown):
            raise
        except StoreError as error:
            answers[each.place] = SharedAnswer(error, each.group)
            continue
        # also whatever a guard or a document writer raises: the other commits go on
        except Exception as refusal:  # noqa: BLE001
            answers[each.place] = SharedAnswer(refusal, each.group)
            continue
        wakes = (*shared.group.wake, *find_triggered_maintenance(store, machines, decided.changes))
        each.group = CommitGroup(
            (*shared.group.changes, *decided.changes),
            tuple(dict.fromkeys(wakes)),
            (*shared.group.requests, *decided.requests),
        )
        touched = {change.ref for change in each.group.changes} | {request.ref for request in each.group.requests}
        each.read = {ref: current[ref] for ref in touched if ref in current}
        if seen.isdisjoint(touched):
            seen |= touched
            sent.append(each)
        else:  # an action brings along an act on a record of another commit in this call
            each.decisions -= 1
            postponed.append(each)
    return sent, postponed


def _describe_busy(shared: SharedCommit) -> str:
    names = ", ".join(dict.fromkeys(str(each.ref) for each in shared.acts))
    return f"Others keep changing {rules.clip(names)}; nothing was written. Try again."


def _is_about_target(answer: CommitAnswer) -> bool:
    """Whether the refusal may be that a target has changed. Only a group's own record is claimed by its session."""
    return isinstance(answer, Conflict) and not isinstance(answer, (ClaimLost, RecordBusy))


def _has_changed(store: Store, each: _PendingCommit, current: dict[Ref, Record]) -> bool:
    """Read the targets again. If none has changed, the refusal is about the group's own changes."""
    own = {change.ref for change in each.shared.group.changes}
    targets = [ref for ref in each.read if ref not in own]
    fresh = store.get_many(targets)
    has_changed = False
    for ref in targets:
        read, found = each.read[ref], fresh.get(ref)
        has_changed = has_changed or found is None or (found.version, found.session) != (read.version, read.session)
        current.pop(ref, None)
    current.update(fresh)
    return has_changed


def _note_written(each: _PendingCommit, answer: CommitAnswer, current: dict[Ref, Record]) -> None:
    """Later commits of this call are decided on what this one left; after a refusal they read again."""
    own = len(each.shared.group.changes)
    for n, change in enumerate(each.group.changes):
        current.pop(change.ref, None)
        if n >= own and isinstance(answer, CommitResult) and (record := answer.records[n]) is not None:
            current[change.ref] = record
    for request in each.group.requests:
        current.pop(request.ref, None)


def find_triggered_maintenance(store: Store, machines: Machines, changes: Sequence[Change]) -> tuple[Ref, ...]:
    """Return the maintenance records that have something to do after these actions: clear working folders, on whichever
    host they are, or remove records that are not kept.

    They are woken in the same commit, so no crash can come between; a second wake is one more round, which finds nothing.
    """
    names: dict[str, None] = {}
    for change in changes:
        before, after = change.before, change.after
        if before is not None and after is not None and before.state != after.state:
            state = machines[after.kind].find_state(after.state)
            names.update(dict.fromkeys(triggered_maintenance.list_triggered(state) if state is not None else ()))
    if not names or triggered_maintenance.MAINTENANCE_KIND not in machines:
        return ()
    return tuple(ref for ref, name in _list_maintenance(store) if name in names)


@dataclass
class _MaintenanceList:
    uses: int = 0
    entries: tuple[tuple[Ref, str], ...] = ()  # with the names of their routines


_maintenance_lists: WeakKeyDictionary[Store, _MaintenanceList] = WeakKeyDictionary()


def _list_maintenance(store: Store) -> tuple[tuple[Ref, str], ...]:
    """Return the maintenance records, read once in MAX_LIST_USES uses: they are few, and change when a host is added. A
    host that is missed meanwhile finds what it has to do in its next round.
    """
    listed = _maintenance_lists.setdefault(store, _MaintenanceList())
    if not listed.entries or listed.uses >= MAX_LIST_USES:
        records = store.find(triggered_maintenance.MAINTENANCE_KIND, limit=MAX_PAGE).records
        listed.entries = tuple((record.ref, triggered_maintenance.routine_name_of(record)) for record in records)
        listed.uses = 0
    listed.uses += 1
    return listed.entries
