"""Turns: in which order claimable records of several kinds are claimed.

    priority -> applications take turns -> the kinds of an application take turns -> queue position -> age

The store gives queue positions so that the children of different parents, and records without a parent, take turns
within a kind. Positions of different kinds cannot be compared: a kind whose queue was paused for a day would then be
served alone until it has caught up. So the first record of each kind comes before the second of any.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Protocol, TypeVar

Candidate = TypeVar("Candidate")


class Queued(Protocol):
    """What decides the order: a record, or the entry of a queue."""

    @property
    def kind(self) -> str: ...
    @property
    def priority(self) -> int: ...
    @property
    def queue_position(self) -> int | None: ...
    @property
    def seq(self) -> int: ...


def application_of(kind: str) -> str:
    """The application to which a kind belongs: the part before the dot of `bakery.loaf`, "" for a kind without one."""
    return kind.rpartition(".")[0]


def take_turns(
    candidates: Iterable[Candidate], queued_of: Callable[[Candidate], Queued], first_turn: int
) -> list[Candidate]:
    """Return the candidates in the order in which they are claimed.

    `first_turn` is a number that grows from call to call, such as the number of records claimed so far: with it the
    kinds take turns also when every call claims a single record.
    """
    ordered = sorted(candidates, key=lambda each: _urgency_of(queued_of(each)))
    kind_turns, application_turns = assign_turns((queued_of(each).kind for each in ordered), first_turn)
    if len(kind_turns) < 2:
        return ordered
    # the number of a record among those of its priority and kind, then among those of its priority and application
    places: Counter[tuple[int, str]] = Counter()
    in_kind: list[tuple[int, int, int, Candidate]] = []
    for each in ordered:
        queued = queued_of(each)
        place = places[queued.priority, queued.kind] = places[queued.priority, queued.kind] + 1
        in_kind.append((queued.priority, place, kind_turns[queued.kind], each))
    in_kind.sort(key=lambda row: row[:3])
    places.clear()
    in_application: list[tuple[int, int, int, Candidate]] = []
    for priority, _, _, each in in_kind:
        application = application_of(queued_of(each).kind)
        place = places[priority, application] = places[priority, application] + 1
        in_application.append((priority, place, application_turns[application], each))
    in_application.sort(key=lambda row: row[:3])
    return [row[3] for row in in_application]


def assign_turns(kinds: Iterable[str], first_turn: int) -> tuple[dict[str, int], dict[str, int]]:
    """Return the turn of each kind and of each application, counted from 0."""
    names = sorted(set(kinds))
    return _rotate(names, first_turn), _rotate(sorted(set(map(application_of, names))), first_turn)


def _urgency_of(queued: Queued) -> tuple[int, int, int]:
    return (queued.priority, queued.queue_position or 0, queued.seq)


def _rotate(names: list[str], first_turn: int) -> dict[str, int]:
    return {name: (index - first_turn) % len(names) for index, name in enumerate(names)}
