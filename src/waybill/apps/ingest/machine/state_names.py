"""The names of a machine's states, read from its table.

A state's name is written in the table of its machine and nowhere else in ingest. Code that must tell states apart asks
for them by what they mean:

    if job.state == JOB.failed: ...
    for state in BATCH.unfinished: ...
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from waybill.machine import State, add_failed_state


@dataclass(frozen=True, slots=True)
class StateNames:
    """The states of one machine by what they mean; a name is empty where the machine has no such state."""

    initial: str  # where records are created
    live: tuple[str, ...]  # where a step works, ours or another service's, in the order of the table
    unfinished: tuple[str, ...]  # all that can still be left
    ended: tuple[str, ...]  # all that cannot
    held: str  # where a hold sends records
    failed: str  # where a step that cannot complete sends records
    completed: str  # where the last step leads
    deleted: str  # an end to which no step leads

    @classmethod
    def from_states(cls, states: Iterable[State]) -> StateNames:
        table = add_failed_state(states)
        targets = {target for state in table for target in (state.to, *state.or_to)}
        ended = tuple(state.name for state in table if state.type == "end")
        return cls(
            initial=table[0].name,
            live=tuple(state.name for state in table if state.to),
            unfinished=tuple(state.name for state in table if state.type != "end"),
            ended=ended,
            held=next((state.on_hold for state in table if state.on_hold), ""),
            failed=next((name for state in table for name in (state.on_fail, *state.or_to) if name), ""),
            completed=next((state.to for state in reversed(table) if state.to), ""),
            deleted=next((name for name in ended if name not in targets), ""),
        )
