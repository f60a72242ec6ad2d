"""Queues: the names in a state's folder, listed at most every two seconds, and handed to claims until they are used up.

The names sort as they are handed out: priority, then turn. What is parked is left out by the notes in /waybill/parked,
so that many records that cannot be claimed cost their names and nothing more.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Iterator, Sequence

from waybill.record import Role
from waybill.stores.zookeeper import places
from waybill.stores.zookeeper.layout import Entry, layout_of
from waybill.stores.zookeeper.marks import Marks
from waybill.stores.zookeeper.names import quote
from waybill.stores.zookeeper.tree import Tree
from waybill.stores.zookeeper.wire import names


class Queue:
    """One folder as it was listed."""

    def __init__(self, role: Role, listed: Sequence[str], parked: Sequence[str]) -> None:
        self.kind, self.state = role.kind, role.state
        self._layout = layout_of(role.kind)
        self._names = sorted(listed)
        self._by_age: list[str] | None = None
        self._parked = {note.partition("~")[2] for note in parked}
        self._spent: set[str] = set()
        self._next = [0, 0]  # how far the two orders are used up
        self._at = time.monotonic()

    @property
    def age(self) -> float:
        return time.monotonic() - self._at

    def spend(self, entry: Entry) -> None:
        """It was handed out, or cannot be: nobody need look at it again."""
        self._spent.add(entry.name)

    def spare(self, entry: Entry) -> None:
        """It may be worth another look."""
        self._spent.discard(entry.name)
        self._next = [0, 0]

    @property
    def empty(self) -> bool:
        return next(self.entries(False), None) is None

    def entries(self, by_age: bool) -> Iterator[Entry]:
        """What is left, most urgent or oldest first."""
        if by_age and self._by_age is None:
            self._by_age = sorted(self._names, key=lambda name: name[3:])
        order = self._by_age if by_age and self._by_age is not None else self._names
        for place in range(self._next[by_age], len(order)):
            name = order[place]
            if name in self._spent:
                if place == self._next[by_age]:
                    self._next[by_age] = place + 1
                continue
            entry = self._layout.parse(name)
            if entry is None or quote(entry.id) in self._parked:
                self._spent.add(name)
                continue
            yield entry


class Queues:
    def __init__(self, tree: Tree, listing: float) -> None:
        self._tree = tree
        self._listing = listing  # seconds that a listing serves
        self._queues: dict[tuple[str, str], Queue] = {}

    def open(self, roles: Sequence[Role], again: bool = False) -> tuple[list[Queue], set[str]]:
        """The queues of these roles, listed again where they are used up or too old, and the marks in force."""
        wanted = []
        for role in roles:
            queue = self._queues.get((role.kind, role.state))
            if queue is None or again or queue.age >= self._listing or queue.empty:
                wanted.append(role)
        asks = [
            ask
            for role in wanted
            for ask in (
                names(layout_of(role.kind).folder(role.state)),
                names(places.parked_folder(role.kind, role.state)),
            )
        ]
        found = self._tree.link.read([*asks, *Marks.asks()])
        for place, role in enumerate(wanted):
            self._queues[role.kind, role.state] = Queue(role, found[2 * place] or (), found[2 * place + 1] or ())
        return [self._queues[role.kind, role.state] for role in roles], Marks.named(found[len(asks) :])

    @staticmethod
    def pick(queues: Sequence[Queue], urgent: int, oldest: int) -> list[tuple[Queue, Entry]]:
        """So many of the most urgent of all queues, and so many of the oldest."""
        picked: dict[tuple[str, str], tuple[Queue, Entry]] = {}
        for by_age, most in ((True, oldest), (False, urgent + oldest)):
            if most <= 0:
                continue
            heap = []
            for place, queue in enumerate(queues):
                entries = queue.entries(by_age)
                first = next(entries, None)
                if first is not None:
                    heap.append((_rank(first, by_age), place, first, entries))
            heapq.heapify(heap)
            while heap and len(picked) < most:
                _, place, entry, entries = heapq.heappop(heap)
                queue = queues[place]
                picked.setdefault((queue.kind, entry.name), (queue, entry))
                following = next(entries, None)
                if following is not None:
                    heapq.heappush(heap, (_rank(following, by_age), place, following, entries))
        return sorted(picked.values(), key=lambda each: (each[1].priority, each[1].turn, each[1].seq))


def _rank(entry: Entry, by_age: bool) -> tuple[int, int, int]:
    return (0, entry.seq, 0) if by_age else (entry.priority, entry.turn, entry.seq)
