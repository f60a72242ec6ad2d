"""Parents that wait for nothing: their call was lost, or a child is noted as open that the table in force calls
settled.

A worker may die between its child's commit and the call to the parent. And a release may change its mind about which
states are settled, while records keep what was true when they were written.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from waybill import rules
from waybill.duties.duty import Hand, ref_of
from waybill.machine import Machine, State
from waybill.record import MAX_PAGE, Committed, Finding, Group, NotFound

LOST, OTHERWISE = "lost nudge", "open by the table"
Looked = tuple[bool | None, float]  # whether the state was open then, and when
Begun = tuple[bool, int | None]  # the same, and after which record the next page begins


@dataclass(frozen=True)
class Joins:
    name: str = "joins"
    doc: str = "Calls parents that wait for children of which none is open any more."
    every: float = 30.0
    per_host: bool = False
    routine: bool = False
    # seconds before the records of a state are looked through again: an older release may still have been at work
    again: float = 3600.0
    # records looked at in one round: a million take half an hour, at a hundredth of a core or less
    portion: int = 20_000

    def check(self, hand: Hand) -> Iterator[Finding]:
        yield from self._not_called(hand)
        yield from self._noted_otherwise(hand)

    def _not_called(self, hand: Hand) -> Iterator[Finding]:
        """Page by page of those that wait, a portion in each round; the next round goes on at the page where this
        one ended.
        """
        after: str | None = hand.memory.get("waiting", "")
        left = self.portion
        while after is not None and (left > 0 or hand.thorough) and not hand.stop():
            hand.memory["waiting"] = after  # of the page that is looked at: a round may end in the middle of it
            page = hand.store.idle_parents(after=after)
            for ref in page.refs:
                yield Finding(LOST, str(ref), f"{ref} waits for children, and none is open.", "call it", ref=ref)
            left, after = left - MAX_PAGE, page.after
        hand.memory["waiting"] = after or ""

    def _noted_otherwise(self, hand: Hand) -> Iterator[Finding]:
        """State by state and page by page, a portion in each round; the next round goes on at the page where this
        one ended.
        """
        now = hand.store.now()
        looked: dict[str, Looked] = hand.memory.setdefault("looked", {})
        begun: dict[str, Begun] = hand.memory.setdefault("begun", {})
        left = self.portion
        for machine, state in self._due(hand, looked, now):
            name = f"{machine.name}.{state.name}"
            was_open, after = begun.get(name, (state.open, None))
            if was_open != state.open:  # by another table
                after = None
            while True:
                begun[name] = (state.open, after)  # of the page that is looked at: a round may end in the middle of it
                if left <= 0 and not hand.thorough:
                    return
                page = hand.store.find(machine.name, state=state.name, after=after, limit=MAX_PAGE)
                left -= max(1, len(page.records))
                for record in page.records:
                    if record.open != state.open and record.session is None:
                        as_noted, as_said = ("open", "settled") if record.open else ("settled", "open")
                        problem = f"{record.ref} is noted as {as_noted}, and by the table {state.name} is {as_said}."
                        yield Finding(OTHERWISE, str(record.ref), problem, f"note it as {as_said}", ref=record.ref)
                if page.after is None:
                    break
                if hand.stop():
                    return
                after = page.after
            del begun[name]
            looked[name] = (state.open, now)  # not before all of it was looked at

    def _due(self, hand: Hand, looked: Mapping[str, Looked], now: float) -> list[tuple[Machine, State]]:
        """What is to be looked through: first where the table has changed, then what was not looked at for longest."""
        found: list[tuple[bool, float, Machine, State]] = []
        for machine in hand.machines.values():
            for state in machine.states if machine.parent is not None else ():
                was_open, at = looked.get(f"{machine.name}.{state.name}", (None, 0.0))
                if hand.thorough or was_open != state.open or now - at >= self.again:
                    found.append((was_open in (None, state.open), at, machine, state))
        return [(machine, state) for _, _, machine, state in sorted(found, key=lambda each: each[:2])]

    def mend(self, hand: Hand, finding: Finding) -> bool:
        ref = ref_of(finding)
        if finding.rule == LOST:
            hand.engine.nudge([ref])  # safe to repeat: a nudge only makes the join look again
            return True
        try:
            record = hand.store.get(*ref)
        except NotFound:
            return False
        change = rules.reckon(hand.machines[ref.kind], record, hand.who)
        if change is None or record.session is not None:
            return False
        # Safe to repeat: fenced by the version just read. A parent whose last open child this was is called, now or by
        # the next round.
        answer = hand.store.commit([Group((change,))])[0]
        if isinstance(answer, Committed):
            hand.engine.nudge(answer.idle)
        return isinstance(answer, Committed)
