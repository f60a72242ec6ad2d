"""What people and programs do to records from outside: submit, act, set priority, move, remove, nudge. The rules are
in waybill.rules.

Every verb reads, decides by the rules, and commits what it decided fenced by the version it read; where the record
moved meanwhile it reads and decides again. A record that a worker holds is never changed behind its back: the action is
refused with a sentence, or left with the worker (`Store.ask`), as the machine says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from waybill import rules
from waybill.machine import Machine
from waybill.record import (
    MAX_PAGE,
    Answer,
    Ask,
    Change,
    Committed,
    Conflict,
    Exists,
    Group,
    NotFound,
    Record,
    Ref,
    Store,
    StoreError,
    Unavailable,
    Unknown,
    encode,
)
from waybill.rules import PRIORITY, Held, Machines, Refused, calls
from waybill.step import New

READS = 8  # how often a verb reads again when the record keeps moving
PORTION = 200  # records removed in one commit


class Acted(NamedTuple):
    """What came of an action. `pending`: a worker holds the record, was asked, and will apply it."""

    record: Record
    pending: bool = False


class Engine:
    """The verbs over one store and a set of machines."""

    def __init__(self, store: Store, machines: Machines) -> None:
        self.store = store
        self.machines = machines

    def submit(self, new: New, *, who: str = "", why: str = "") -> Record:
        """Make a record. With `new.request` it is safe to repeat: asked twice, made once."""
        return self.submit_all([new], who=who, why=why)[0]

    def submit_all(self, news: Sequence[New], *, who: str = "", why: str = "") -> list[Record]:
        """Make several, all or nothing. Of those that carry a `request` either all have been made before, or none."""
        group = Group(tuple(rules.create(self.machines, new, who=who, why=why) for new in news))
        made = [r for r in self._commit(group).records if r is not None]
        if len(made) < len(news):
            raise Exists(
                f"{made[0].ref} was made by the request {made[0].request} before, and the others were not; nothing was made now."
            )
        return made

    def submit_each(self, news: Sequence[New], *, who: str = "", why: str = "") -> list[Record | StoreError | Refused]:
        """Make several, each for itself, in one round trip; one answer each, in order.

        Safe to repeat where they carry a `request`.
        """
        drafts: list[Change | Refused] = []
        for new in news:
            try:
                drafts.append(rules.create(self.machines, new, who=who, why=why))
            except Refused as refusal:
                drafts.append(refusal)
        written = iter(self.store.commit([Group((draft,)) for draft in drafts if isinstance(draft, Change)]))
        answers: list[Record | StoreError | Refused] = []
        for draft in drafts:
            answer = next(written) if isinstance(draft, Change) else draft
            answers.append(_first(answer) if isinstance(answer, Committed) else answer)
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
    ) -> Acted:
        """Take an action on a record, or Refused with the guard's sentence."""
        machine = self.machines[ref.kind]

        def decide(record: Record) -> Change:
            return rules.act(machine, record, name, store=self.store, who=who, why=why, args=args, confirmed=confirmed)

        def waits(record: Record) -> bool:
            return rules.find_action(machine, record, name).claimed == "wait"

        return self._change(ref, decide, Ask(ref, name, who, why, encode(args or {})), waits)

    def priority(self, ref: Ref, priority: int, *, who: str = "", why: str = "") -> Acted:
        """Give a record in any state another priority; its queue place moves in the same commit."""
        ask = Ask(ref, PRIORITY, who, why, encode({PRIORITY: priority}))
        rules.check_priority(priority)
        return self._change(
            ref, lambda record: rules.reprioritise(record, priority, who, why), ask, lambda record: True
        )

    def move(self, ref: Ref, to: str, *, who: str = "", why: str = "") -> Acted:
        """Lead a record by hand out of a state that is no longer declared."""
        machine = self.machines[ref.kind]
        nothing = Ask(ref, "", who, why)
        return self._change(
            ref, lambda record: rules.move(machine, record, to, who=who, why=why), nothing, lambda record: False
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
    ) -> Iterator[tuple[Ref, Acted | Refused]]:
        """The same action on every record that fits, page by page; each is answered, none stops the others."""
        after: int | None = None
        while True:
            page = self.store.find(kind, state=state, parent=parent, owner=owner, after=after, limit=PORTION, docs=True)
            for record in page.records:
                if where(record):
                    try:
                        yield record.ref, self.act(record.ref, name, who=who, why=why, confirmed=confirmed)
                    except Refused as refusal:
                        yield record.ref, refusal
            if page.after is None:
                return
            after = page.after

    def remove(self, ref: Ref, *, who: str = "", why: str = "") -> int:
        """Remove a record that has settled, with all below it, in portions; how many. Safe to repeat: the record
        itself goes last.

        Held while a worker has it, or one below it: without its parent that one would never be called home. Conflict
        when it moved meanwhile: somebody has taken it up again.
        """
        record = self.store.get(*ref)
        state = self.machines[ref.kind].state(record.state)
        if record.open if state is None else state.open:
            raise Refused(f"{ref} is {record.state} and still at work; only what has settled can be removed.")
        if record.session is not None:
            raise Held(f"A worker holds {ref} now; try again when it has let go.")
        removed, held = self._remove_below(ref, who, why)
        if held:
            raise Held(f"Workers hold {held} of the records below {ref} now; try again when they have let go.")
        self._commit(Group((Change(record, None, "remove", who, why),)))  # as it was read: not if it was taken up again
        return removed + 1

    def _remove_below(self, ref: Ref, who: str, why: str) -> tuple[int, int]:
        counts = [self.remove_children(ref, child, who=who, why=why) for child in self.machines.children_of(ref.kind)]
        return sum(removed for removed, _ in counts), sum(held for _, held in counts)

    def remove_children(self, parent: Ref, machine: Machine, *, who: str = "", why: str = "") -> tuple[int, int]:
        """Remove the children of one kind; how many went, and how many are left because a worker holds them."""
        removed, held, after = 0, 0, None
        while True:
            page = self.store.find(machine.name, parent=parent, after=after, limit=PORTION)
            free = []
            for record in page.records:
                gone, left = self._remove_below(record.ref, who, why) if record.session is None else (0, 1)
                removed, held = removed + gone, held + left
                if not left:
                    free.append(record)
            answers = self.store.commit([Group((Change(r, None, "remove", who, why),)) for r in free]) if free else []
            removed += sum(isinstance(a, Committed) for a in answers)
            held += sum(isinstance(a, Conflict) for a in answers)
            for answer in answers:
                if not isinstance(answer, (Committed, Conflict)):
                    raise answer
            if page.after is None:
                return removed, held
            after = page.after

    def nudge(self, refs: Iterable[Ref]) -> None:
        """Call parents: never a conflict, never lost."""
        if names := tuple(dict.fromkeys(refs)):
            self._commit(Group((), names))

    def hold(self, mark: str, *, who: str = "", why: str = "") -> None:
        """Set a mark, or Refused: not every text is a name of one, and not every name that of a queue."""
        rules.check_mark(mark)
        rules.check_queue(mark, self.machines)
        self.store.mark(mark, True, who, why)

    def release(self, mark: str, *, who: str = "", why: str = "") -> None:
        self.store.mark(mark, False, who, why)

    def pending(self, limit: int = 100) -> int:
        """Apply requests whose worker went before it could; how many.

        Those of kinds that are not known here are left to others.
        """
        applied = 0
        for _ in range(READS):
            now, moved = self._apply(limit)
            applied += now
            if not moved:
                break
        return applied

    def _apply(self, limit: int) -> tuple[int, int]:
        """How many were applied, and how many of their records moved before they could be."""
        found: dict[Ask, Record] = {}
        for ask in self.store.asks(limit):
            if ask.ref.kind not in self.machines:
                continue
            try:
                record = self.store.get(*ask.ref)
            except NotFound:
                continue  # removed meanwhile, and the request with it
            if record.session is None:
                found[ask] = record
        applied = moved = 0
        # Seen again after their records were read: whoever applies a request moves its record, and a commit of the
        # version read is refused.
        for ask in self.store.asks(limit) if found else ():
            if ask in found:
                change = rules.answer(self.machines[ask.ref.kind], found[ask], ask, store=self.store)
                answer = self.store.commit([Group((change,), self._called(change))])[0]
                if isinstance(answer, Committed):
                    applied += 1
                    self._after(answer)
                elif isinstance(answer, Conflict):
                    moved += 1
                elif not isinstance(answer, (Unavailable, Unknown)):
                    # What the action would write cannot be stored: left as it is, the request would stand in the way of
                    # every other.
                    refusal = self.store.commit([Group((rules.refuse(found[ask], ask, str(answer)),))])[0]
                    applied += isinstance(refusal, Committed)
        return applied, moved

    def _change(self, ref: Ref, decide: Callable[[Record], Change], ask: Ask, waits: Callable[[Record], bool]) -> Acted:
        refusal: StoreError | None = None
        for _ in range(READS):
            record = self.store.get(*ref)
            change = decide(record)
            if record.session is not None:
                if not waits(record):
                    raise Held(f"A worker holds {ref} in {record.state} now; try again when it has let go.")
                if self.store.ask(ask):
                    return Acted(record, pending=True)
                continue
            answer = self.store.commit([Group((change,), self._called(change))])[0]
            if isinstance(answer, Committed):
                self._after(answer)
                return Acted(_first(answer))
            if not isinstance(answer, Conflict):
                raise answer
            refusal = answer
        raise refusal or Conflict(f"{ref} is claimed and let go again faster than it can be asked; try again.")

    def _called(self, change: Change) -> tuple[Ref, ...]:
        """The duties that have something to do now: to clear working folders, on whichever host they lie, and to
        remove what is not kept.

        Called in the same commit, so that no crash comes between; a second call is one more round, which finds nothing.
        """
        before, after = change.before, change.after
        if before is None or after is None or before.state == after.state or calls.DUTY not in self.machines:
            return ()
        state = self.machines[after.kind].state(after.state)
        wanted = calls.called_by(state) if state is not None else ()
        there = self.store.find(calls.DUTY, limit=MAX_PAGE).records if wanted else ()
        return tuple(record.ref for record in there if calls.name_of(record) in wanted)

    def _commit(self, group: Group) -> Committed:
        answer: Answer = self.store.commit([group])[0]
        if not isinstance(answer, Committed):
            raise answer
        self._after(answer)
        return answer

    def _after(self, answer: Committed) -> None:
        """A closed child was its parent's last: call the parent.

        What was asked for is written whatever comes of the call; one that is lost, or a crash before it, is mended by
        the duty that looks for idle parents.
        """
        if answer.idle:
            try:
                nudged = self.store.commit([Group((), answer.idle)])[0]
            except (Unavailable, Unknown):
                return
            if isinstance(nudged, StoreError) and not isinstance(nudged, (Unavailable, Unknown)):
                raise nudged


def _first(answer: Committed) -> Record:
    record = answer.records[0]
    if record is None:
        raise Conflict("The record was removed.")
    return record
