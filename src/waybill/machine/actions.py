"""What a person, or another machine, may ask of a record: from which states, where to, and on which terms."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from waybill.record import Record, Store

RESUME = "<resume>"  # the state after the last one that was done
STAY = "<stay>"  # an action that changes documents but not the state

Guard = Callable[[Record, Store], str | None]  # says why not, or None
# from an action's arguments to the documents it writes
Rewrite = Callable[[Record, Mapping[str, Any]], Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Action:
    """A transition that a person, or another machine, asks for."""

    name: str
    sources: tuple[str, ...]
    target: str
    doc: str
    guard: Guard | None = None
    confirm: str | None = None  # what the asker must be told and agree to first
    # while a worker holds the record: refuse, or ask the worker to stop and apply it then
    claimed: Literal["refuse", "wait"] = "refuse"
    role: Literal["submitter", "operator", "admin"] = "operator"
    writes: Rewrite | None = None
    unless: Callable[[Record, Store], bool] | None = None  # when it needs no confirmation after all

    def question(self, record: Record, store: Store) -> str | None:
        """What the asker must agree to first, for this record now; None: nothing."""
        return (
            None if self.confirm is None or (self.unless is not None and self.unless(record, store)) else self.confirm
        )


def action(
    name: str,
    sources: str,
    target: str,
    doc: str,
    *,
    guard: Guard | None = None,
    confirm: str | None = None,
    claimed: Literal["refuse", "wait"] = "refuse",
    role: Literal["submitter", "operator", "admin"] = "operator",
    writes: Rewrite | None = None,
    unless: Callable[[Record, Store], bool] | None = None,
) -> Action:
    """`sources` is a list of states, parted by spaces."""
    return Action(name, tuple(sources.split()), target, doc, guard, confirm, claimed, role, writes, unless)
