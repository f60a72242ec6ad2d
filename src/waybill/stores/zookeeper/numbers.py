"""Numbers foretold: the next id, the next seq and the next turn, which a transaction must know before it is sent.

ZooKeeper counts the children that were ever made in a node, and a sequential name is that count: (cversion + children)
/ 2 of its stat. Waybill reads it and makes the node by name, in the same transaction as all that lies in it. If
somebody was faster, the name exists and the transaction is refused: read again (after a sync, for a follower may lag)
and try again. A name beyond the count must never be made, or a service that lets ZooKeeper choose would come upon it:
so transactions that create follow one another, and a refused group gives its numbers back.

    Merritt's kinds   the id is foretold from the folder of the homes, and the seq is the id's number
    all others        seq is one counter for the whole store, the node /waybill/seq; a minted id is made of it
"""

from __future__ import annotations

from collections.abc import Iterable
from copy import deepcopy
from dataclasses import dataclass, field

import msgspec

from waybill.record import Change, Ref, StoreError, TooLarge
from waybill.stores.zookeeper import places, wire
from waybill.stores.zookeeper.layout import Layout, layout_of
from waybill.stores.zookeeper.link import Link
from waybill.stores.zookeeper.names import plain
from waybill.stores.zookeeper.plan import Plan, chain
from waybill.stores.zookeeper.wire import Op


@dataclass
class Turns:
    """The last turns that a parent gave to its children, kind by kind, in its node below /waybill/kin."""

    last: dict[str, int]
    version: int
    changed: bool = False


@dataclass
class Counts:
    seq: int = 0
    seq_version: int = -1
    seq_changed: bool = False
    made: dict[str, int] = field(default_factory=dict)  # folder of homes -> the number of the next one
    here: dict[str, int] = field(default_factory=dict)  # folder of homes -> how many are in it
    turns: dict[Ref, Turns] = field(default_factory=dict)


class Numbers:
    """The numbers for the next transactions of one commit."""

    def __init__(self, link: Link, max_names: int, current: dict[str, int]) -> None:
        self._link = link
        self._max_names = max_names
        self._current = current  # kind -> the turn that is being served now, as far as this process knows
        self._counts = Counts()
        self._read: set[str] = set()
        self._late = False

    def forget(self) -> None:
        """Somebody was faster: everything is read again, behind what the leader has committed."""
        self._read.clear()
        self._counts = Counts()
        self._late = True

    def prepare(self, changes: Iterable[Change]) -> None:
        """Read what these creations and removals need to know, in one go."""
        wanted: dict[str, None] = {}
        for change in changes:
            kind = change.ref.kind
            layout = layout_of(kind)
            if not layout.prefix:
                wanted[places.SEQ] = None
            if change.before is None:
                wanted[layout.homes] = None
                parent = change.after.parent if change.after else None
                if parent is not None and not layout.native and change.after is not None and change.after.turn is None:
                    wanted[places.kin(parent)] = wanted[places.turn(kind)] = None
        paths = [path for path in wanted if path not in self._read]
        if not paths:
            return
        if self._late:
            self._link.sync()
            self._late = False
        counts = self._counts
        for path, node in zip(paths, self._link.nodes(paths), strict=True):
            self._read.add(path)
            if path == places.SEQ:
                counts.seq, counts.seq_version = (int(node.data), node.version) if node is not None else (0, -1)
            elif path.startswith(f"{places.KIN}/"):
                parent = Ref(*map(plain, path.split("/")[3:5]))
                last = msgspec.json.decode(node.data, type=dict[str, int]) if node is not None and node.data else {}
                counts.turns[parent] = Turns(last, node.version if node is not None else 0)
            elif path.endswith("/turn"):
                kind = plain(path.split("/")[3])
                self._current[kind] = max(
                    self._current.get(kind, 0), int(node.data) if node is not None and node.data else 0
                )
            else:
                counts.made[path] = (node.cversion + node.children) // 2 if node is not None else 0
                counts.here[path] = node.children if node is not None else 0

    def save(self) -> Counts:
        return deepcopy(self._counts)

    def restore(self, counts: Counts) -> None:
        """A group was refused after it had taken numbers: nobody may be given those behind a hole."""
        self._counts = counts

    def take(self, change: Change) -> tuple[Ref, int, int] | StoreError:
        """The name, the seq and the turn of a new record."""
        record, counts = change.after, self._counts
        assert record is not None
        layout = layout_of(record.kind)
        if refusal := self._too_many(layout):
            return refusal
        counts.here[layout.homes] = counts.here.get(layout.homes, 0) + 1
        if layout.prefix:
            if not record.id.endswith("*"):
                return StoreError(
                    f"The ids of {record.kind} are minted; ask for {layout.prefix}* instead of {record.id}."
                )
            if record.id != f"{layout.prefix}*":
                return StoreError(
                    f"The ids of {record.kind} begin with {layout.prefix} in Merritt's tree, not with {record.id[:-1]}."
                )
            number = counts.made[layout.homes]
            counts.made[layout.homes] = number + 1
            ref = Ref(record.kind, f"{layout.prefix}{number:010d}")
            seq = layout.number(ref.id)
        else:
            counts.seq += 1
            counts.seq_changed = True
            seq = counts.seq
            ref = Ref(record.kind, f"{record.id[:-1]}{seq:010d}" if record.id.endswith("*") else record.id)
        return ref, seq, self._turn(layout, change, seq)

    def _turn(self, layout: Layout, change: Change, seq: int) -> int:
        record = change.after
        assert record is not None
        if layout.native:
            return seq
        if record.turn is not None:
            return record.turn
        if record.parent is None:
            return seq
        turns = self._counts.turns[record.parent]
        turn = max(self._current.get(record.kind, 0), turns.last.get(record.kind, 0) + 1)
        turns.last[record.kind] = turn
        turns.changed = True
        return turn

    def leave_behind(self, version: int) -> None:
        """A record of this version is removed: no later one of its name may come to a version of its life."""
        if self._counts.seq < version:
            self._counts.seq, self._counts.seq_changed = version, True

    def note_turns(self, plan: Plan) -> None:
        """Behind the group that took them: each parent remembers the last turn it gave."""
        for parent, turns in self._counts.turns.items():
            if turns.changed:
                path = places.kin(parent)
                plan.folder(*chain(f"{path}/open"))
                plan.ops.append(wire.put(path, msgspec.json.encode(turns.last), "turns", turns.version))
                turns.version += 1
                turns.changed = False

    def note_seq(self) -> list[Op]:
        """Once for each transaction that takes numbers: the counter moves on, or was moved by another, and the
        transaction is refused.
        """
        counts = self._counts
        if not counts.seq_changed:
            return []
        op = wire.put(places.SEQ, b"%d" % counts.seq, "count", counts.seq_version)
        counts.seq_version += 1
        counts.seq_changed = False
        return [op]

    def _too_many(self, layout: Layout) -> StoreError | None:
        if self._counts.here.get(layout.homes, 0) < self._max_names:
            return None
        return TooLarge(
            f"{layout.homes} holds {self._max_names} records, the most that clients of ZooKeeper can list. "
            "Remove what has settled (retention does it), or keep this kind in PostgreSQL."
        )
