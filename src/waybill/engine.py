"""What people and programs do to records from outside: submit, act, set a priority, move, remove, wake, hold. The rules
are in waybill.rules.

Every verb reads, decides by the rules, and commits the decision fenced by the version that it read; when the record has
changed meanwhile, it reads and decides again. A record that a worker has claimed is never changed behind its back: the
action is refused with a sentence, or requested of the worker (`Store.request_action`), as the machine says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from waybill import rules
from waybill.events import Event
from waybill.machine import Machine
from waybill.record import (
    ActionRequest,
    Change,
    CommitGroup,
    CommitOutcomeUnknown,
    CommitResult,
    Conflict,
    Record,
    RecordExists,
    RecordNotFound,
    Ref,
    Store,
    StoreError,
    StoreUnavailable,
    encode_document,
)
from waybill.rules import PRIORITY, ActionRefused, ClaimedByWorker, Machines
from waybill.shared_commits import SharedCommit, commit_shared, find_triggered_maintenance
from waybill.step import Act, New

MAX_READS = 8  # how often a verb reads again when the record keeps changing
PAGE_SIZE = 200  # records removed in one commit


class ActionResult(NamedTuple):
    """The result of an action. `pending`: a worker has claimed the record and will apply the action."""

    record: Record
    pending: bool = False


class Engine:
    """The verbs over one store and a set of machines."""

    def __init__(self, store: Store, machines: Machines) -> None:
        self.store = store
        self.machines = machines

    def submit(self, new: New, *, who: str = "", why: str = "") -> Record:
        """Create a record. With an idempotency key it is safe to repeat: the second call returns the same record."""
        return self.submit_all([new], who=who, why=why)[0]

    def submit_all(
        self,
        new_records: Sequence[New],
        *,
        acts: Sequence[Act] = (),
        wakes: Sequence[Ref] = (),
        events: Sequence[Event] = (),
        who: str = "",
        why: str = "",
    ) -> list[Record]:
        """Create several records, act on others, wake others and tell of events: all or nothing. Return the new ones.

        Of those with an idempotency key either all exist already, and then nothing is done again, or none. Raises
        ActionRefused when an act is not possible, ParentClosed when a parent that must be open is not.
        """
        changes = tuple(rules.create(self.machines, new, who=who, why=why) for new in new_records)
        group = CommitGroup((*changes, *rules.create_events(self.machines, events, who=who)), tuple(wakes))
        try:
            answer = self._commit(SharedCommit(group, tuple(acts), who), events).answer
        except (ActionRefused, RecordNotFound):
            if repeated := self._find_repeated(new_records):
                return repeated  # what was done then may be why it is refused now
            raise
        created = [r for r in answer.records[: len(new_records)] if r is not None]
        if len(created) < len(new_records):
            raise RecordExists(
                f"{created[0].ref} was created before, with the idempotency key {created[0].idempotency_key}, and the others were not; "
                f"nothing was created now."
            )
        return created

    def _find_repeated(self, new_records: Sequence[New]) -> list[Record]:
        """Return the records that were created with these idempotency keys; none unless all were."""
        found = []
        for new in new_records:
            if new.idempotency_key is None:
                return []
            try:
                found.append(self.store.get_by_idempotency_key(new.kind, new.idempotency_key))
            except RecordNotFound:
                return []
        return found

    def submit_each(
        self, new_records: Sequence[New], *, who: str = "", why: str = ""
    ) -> list[Record | StoreError | ActionRefused]:
        """Create several, each for itself, in one round trip; return one answer for each, in order.

        Safe to repeat for those with an idempotency key.
        """
        changes: list[Change | ActionRefused] = []
        for new in new_records:
            try:
                changes.append(rules.create(self.machines, new, who=who, why=why))
            except ActionRefused as refusal:
                changes.append(refusal)
        written = iter(self.store.commit([CommitGroup((change,)) for change in changes if isinstance(change, Change)]))
        answers: list[Record | StoreError | ActionRefused] = []
        for change in changes:
            answer = next(written) if isinstance(change, Change) else change
            answers.append(_get_first_record(answer) if isinstance(answer, CommitResult) else answer)
        return answers

    def act(
        self,
        ref: Ref,
        name: str,
        *,
        who: str = "",
        why: str = "",
        args: Mapping[str, Any] | None = None,
        confirmed: bool = False,
        acts: Sequence[Act] = (),
        wakes: Sequence[Ref] = (),
        events: Sequence[Event] = (),
    ) -> ActionResult:
        """Take an action on a record, and `acts` on others in the same commit, which tells of `events`. Raises
        ActionRefused with the reason of the first that is not possible.
        """
        _ = self.machines[ref.kind]  # raises NotFound
        first = Act(ref, name, args or {}, why)
        group = CommitGroup(rules.create_events(self.machines, events, who=who), tuple(wakes))
        written = self._commit(SharedCommit(group, (first, *acts), who, is_confirmed=confirmed), events)
        return _action_result_of(ref, written)

    def set_priority(self, ref: Ref, priority: int, *, who: str = "", why: str = "") -> ActionResult:
        """Give a record in any state another priority; its queue position changes in the same commit."""
        rules.check_priority(priority)
        request = ActionRequest(ref, PRIORITY, who, why, encode_document({PRIORITY: priority}))
        return self._commit_change(
            ref, lambda record: rules.reprioritise(record, priority, who, why), request, lambda record: True
        )

    def move(self, ref: Ref, to: str, *, who: str = "", why: str = "") -> ActionResult:
        """Move a record out of a state that is no longer declared."""
        machine = self.machines[ref.kind]
        no_request = ActionRequest(ref, "", who, why)  # never sent: a claimed record is refused
        return self._commit_change(
            ref, lambda record: rules.move(machine, record, to, who=who, why=why), no_request, lambda record: False
        )

    def act_all(
        self,
        kind: str,
        name: str,
        *,
        state: str | None = None,
        parent: Ref | None = None,
        owner: str | None = None,
        where: Callable[[Record], bool] = lambda record: True,
        who: str = "",
        why: str = "",
        confirmed: bool = False,
    ) -> Iterator[tuple[Ref, ActionResult | ActionRefused]]:
        """Take the same action on every matching record, page by page; yield a result for each. None stops the others."""
        for record in self.store.each(
            kind, state=state, parent=parent, owner=owner, documents=True, page_size=PAGE_SIZE
        ):
            if where(record):
                try:
                    yield record.ref, self.act(record.ref, name, who=who, why=why, confirmed=confirmed)
                except ActionRefused as refusal:
                    yield record.ref, refusal

    def remove(self, ref: Ref, *, who: str = "", why: str = "") -> int:
        """Remove a settled record and its descendants, page by page; return how many were removed. Safe to repeat: the
        record itself is removed last.

        Raises ClaimedByWorker while a worker has claimed it or a descendant: without its parent a descendant would
        never be woken again. Raises Conflict when it has changed meanwhile: somebody resumed it.
        """
        record = self.store.get(*ref)
        state = self.machines[ref.kind].find_state(record.state)
        if record.open if state is None else state.open:
            raise ActionRefused(f"{ref} is {record.state} and still at work; only settled records can be removed.")
        if record.session is not None:
            raise ClaimedByWorker(f"A worker has claimed {ref}; try again when the claim has ended.")
        removed, claimed = self._remove_descendants(ref, who, why)
        if claimed:
            raise ClaimedByWorker(
                f"Workers have claimed {claimed} of the records below {ref}; try again when the claims have ended."
            )
        # fenced by the version read: not when somebody resumed it meanwhile
        self._commit(SharedCommit(CommitGroup((Change(record, None, "remove", who, why),))))
        return removed + 1

    def _remove_descendants(self, ref: Ref, who: str, why: str) -> tuple[int, int]:
        counts = [self.remove_children(ref, child, who=who, why=why) for child in self.machines.children_of(ref.kind)]
        return sum(removed for removed, _ in counts), sum(claimed for _, claimed in counts)

    def remove_children(self, parent: Ref, machine: Machine, *, who: str = "", why: str = "") -> tuple[int, int]:
        """Remove the children of one kind; return how many were removed, and how many remain because a worker has
        claimed them.
        """
        removed, claimed, after = 0, 0, None
        while True:
            page = self.store.find(machine.name, parent=parent, after=after, limit=PAGE_SIZE)
            unclaimed = []
            for record in page.records:
                removed_below, claimed_below = (
                    self._remove_descendants(record.ref, who, why) if record.session is None else (0, 1)
                )
                removed, claimed = removed + removed_below, claimed + claimed_below
                if not claimed_below:
                    unclaimed.append(record)
            groups = [CommitGroup((Change(r, None, "remove", who, why),)) for r in unclaimed]
            answers = self.store.commit(groups) if groups else []
            removed += sum(isinstance(a, CommitResult) for a in answers)
            claimed += sum(isinstance(a, Conflict) for a in answers)
            for answer in answers:
                if not isinstance(answer, (CommitResult, Conflict)):
                    raise answer
            if page.after is None:
                return removed, claimed
            after = page.after

    def wake(self, refs: Iterable[Ref]) -> None:
        """Wake records that wait: never a conflict, never lost."""
        if distinct := tuple(dict.fromkeys(refs)):
            self._commit(SharedCommit(CommitGroup((), distinct)))

    def set_hold(self, name: str, *, who: str = "", why: str = "") -> None:
        """Set a hold. Raises InputError for a text that cannot name one, NotFound for one that no record heeds."""
        rules.check_hold_name(name)
        rules.check_queue(name, self.machines)
        rules.check_hold_is_heeded(name, self.machines)
        self.store.set_hold(name, who, why)

    def clear_hold(self, name: str) -> None:
        self.store.clear_hold(name)

    def apply_action_requests(self, limit: int = 100) -> int:
        """Apply action requests whose worker ended before it could; return how many.

        Requests of kinds that are not known here are left to other processes.
        """
        applied = 0
        for _ in range(MAX_READS):
            newly_applied, conflicts = self._apply_once(limit)
            applied += newly_applied
            if not conflicts:
                break
        return applied

    def _apply_once(self, limit: int) -> tuple[int, int]:
        """Return how many were applied, and how many of their records changed before they could be."""
        found: dict[ActionRequest, Record] = {}
        for request in self.store.list_action_requests(limit):
            if request.ref.kind not in self.machines:
                continue
            try:
                record = self.store.get(*request.ref)
            except RecordNotFound:
                continue  # removed meanwhile, and the request with it
            if record.session is None:
                found[request] = record
        applied = conflicts = 0
        # Listed again after their records were read: whoever applies a request changes its record, and a commit of the
        # version read is refused.
        for request in self.store.list_action_requests(limit) if found else ():
            if request in found:
                outcome = self._answer_request(found[request], request)
                applied, conflicts = applied + (outcome is True), conflicts + (outcome is False)
        return applied, conflicts

    def _answer_request(self, record: Record, request: ActionRequest) -> bool | None:
        """Answer a request. True: done, or refused for good; False: the record has changed; None: not now."""
        machine = self.machines[record.kind]
        change = rules.answer_action_request(machine, record, request, store=self.store)
        wakes = find_triggered_maintenance(self.store, self.machines, (change,))
        acts = rules.further_acts_of_request(machine, record, request, change)
        (answered,) = commit_shared(
            self.store, self.machines, [SharedCommit(CommitGroup((change,), wakes), acts, request.who, record.ref)]
        )
        answer = answered.answer
        if isinstance(answer, CommitResult):
            self._wake_after(answer)
            return True
        if isinstance(answer, Conflict):
            return False
        if isinstance(answer, (StoreUnavailable, CommitOutcomeUnknown)):
            return None
        # What the action would write cannot be stored, or what it brings along is refused: left pending, the request
        # would block every other.
        refusal = self.store.commit(
            [CommitGroup((rules.refuse_action_request(record, request, rules.describe_error(answer)),))]
        )[0]
        return True if isinstance(refusal, CommitResult) else False if isinstance(refusal, Conflict) else None

    def _commit_change(
        self, ref: Ref, decide: Callable[[Record], Change], request: ActionRequest, can_wait: Callable[[Record], bool]
    ) -> ActionResult:
        conflict: StoreError | None = None
        for _ in range(MAX_READS):
            record = self.store.get(*ref)
            change = decide(record)
            if record.session is not None:
                if not can_wait(record):
                    raise ClaimedByWorker(
                        f"A worker has claimed {ref} in {record.state}; try again when the claim has ended."
                    )
                if self.store.request_action(request):
                    return ActionResult(record, pending=True)
                continue
            answer = self.store.commit(
                [CommitGroup((change,), find_triggered_maintenance(self.store, self.machines, (change,)))]
            )[0]
            if isinstance(answer, CommitResult):
                self._wake_after(answer)
                return ActionResult(_get_first_record(answer))
            if not isinstance(answer, Conflict):
                raise answer
            conflict = answer
        raise conflict or Conflict(
            f"{ref} is claimed and unclaimed again faster than the action can be requested; try again."
        )

    def _commit(self, shared: SharedCommit, events: Sequence[Event] = ()) -> WrittenCommit:
        """Write it, and wake the parents that it leaves without an open child, and the subscriptions to its events."""
        (answered,) = commit_shared(self.store, self.machines, [shared])
        if not isinstance(answered.answer, CommitResult):
            raise answered.answer
        self._wake_after(answered.answer, self.machines.event_routing.list_readers(events) if events else ())
        return WrittenCommit(answered.answer, answered.group, answered.read)

    def _wake_after(self, answer: CommitResult, readers: tuple[Ref, ...] = ()) -> None:
        """Wake the parents whose last open child was closed, and the subscriptions that have events to read.

        The commit itself is written whatever becomes of the wake. A wake that is lost, or a crash before it, is
        repaired by the maintenance routine that looks for idle parents, and by the subscriptions, which look by themselves.
        """
        if answer.idle_parents or readers:
            try:
                woken = self.store.commit([CommitGroup((), (*answer.idle_parents, *readers))])[0]
            except (StoreUnavailable, CommitOutcomeUnknown):
                return
            if isinstance(woken, StoreError) and not isinstance(woken, (StoreUnavailable, CommitOutcomeUnknown)):
                raise woken


class WrittenCommit(NamedTuple):
    answer: CommitResult
    group: CommitGroup  # with what its acts changed and requested
    read: Mapping[Ref, Record]  # the records that the acts were decided on


def _action_result_of(ref: Ref, written: WrittenCommit) -> ActionResult:
    for change, record in zip(written.group.changes, written.answer.records, strict=True):
        if change.ref == ref and record is not None:
            return ActionResult(record)
    return ActionResult(written.read[ref], pending=True)


def _get_first_record(answer: CommitResult) -> Record:
    record = answer.records[0]
    if record is None:
        raise Conflict("The record was removed.")
    return record
