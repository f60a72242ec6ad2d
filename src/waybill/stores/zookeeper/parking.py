"""Parked records: why they cannot be claimed now, and how they come free again. The notes are in /waybill/parked and
/waybill/waiting.

    wait      until its time has come: wake
    children  until a child calls (commit.py), or nobody is left who could: idle_parents
    key NAME  until the key is free: the commit that drops it unparks the first waiter (offer), a duty looks after those forgotten
    mark NAME until the mark is off: whoever clears it unparks all of them

Parking and unparking write the side node alone: they move no version.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

import msgspec
from msgspec.structs import replace

from waybill.record import Due, Ref, Unknown
from waybill.stores.zookeeper import notes, places, wire
from waybill.stores.zookeeper.layout import layout_of
from waybill.stores.zookeeper.names import key_path, plain
from waybill.stores.zookeeper.plan import Plan
from waybill.stores.zookeeper.seen import Seen, caught_up, look
from waybill.stores.zookeeper.side import Side
from waybill.stores.zookeeper.side import encode as encode_side
from waybill.stores.zookeeper.tree import Tree
from waybill.stores.zookeeper.wire import Failure, Op, data, names

_TOGETHER = 25  # in one transaction
_TRIES = 20


class Shelf:
    """The notes on parked records, folder by folder, read again only where something changed."""

    def __init__(self, tree: Tree) -> None:
        self._link = tree.link
        self._known: dict[tuple[str, str], tuple[int, list[str]]] = {}

    def entries(self) -> Iterator[tuple[str, str, str]]:
        """(kind, state, note) of every parked record, sorted within each folder."""
        link = self._link
        kinds = link.names(places.PARKED)
        states = link.read([names(f"{places.PARKED}/{kind}") for kind in kinds]) if kinds else []
        folders = [
            (plain(kind), plain(state)) for kind, listed in zip(kinds, states, strict=True) for state in listed or ()
        ]
        nodes = link.nodes([places.parked_folder(*folder) for folder in folders]) if folders else []
        changed = [
            f for f, node in zip(folders, nodes, strict=True) if node and self._known.get(f, (-1, []))[0] != node.pzxid
        ]
        listed = link.read([names(places.parked_folder(*folder)) for folder in changed]) if changed else []
        numbers = dict(zip(folders, nodes, strict=True))
        for folder, found in zip(changed, listed, strict=True):
            node = numbers[folder]
            self._known[folder] = (node.pzxid if node else -1, sorted(found or ()))
        self._known = {folder: known for folder, known in self._known.items() if folder in numbers}
        for (kind, state), (_, found) in sorted(self._known.items()):
            for note in found:
                yield kind, state, note


class Parking:
    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._link = tree.link
        self._shelf = Shelf(tree)
        self._cursor: tuple[str, str, str] | None = None

    @staticmethod
    def awake(side: Side) -> Side:
        return replace(side, parked=None, wake_at=0.0, spot="")

    # --- unparking

    def unpark(self, refs: Iterable[Ref], applies: Callable[[Seen], bool]) -> int:
        """Unpark those to whom the reason still applies; how many."""
        waiting, done = list(dict.fromkeys(refs)), 0
        for _ in range(_TRIES):
            found = [seen for seen in look(self._link, waiting) if seen is not None and seen.holder is None]
            # A move from outside makes every reason void.
            parked = [
                seen
                for seen in found
                if seen.side is not None and seen.side.parked is not None and (seen.foreign or applies(seen))
            ]
            if not parked:
                break
            written = [
                (part, self._link.post([op for seen in part for op in self._free(seen)])) for part in _portions(parked)
            ]
            again: list[Seen] = []
            for part, pending in written:
                outcome = pending.get()
                if isinstance(outcome, (Failure, Unknown)):
                    again += part
                elif isinstance(outcome, list):
                    done += len(part)
                else:
                    raise outcome
            waiting = [seen.ref for seen in again]
            if len(again) == len(parked) and len(again) > 1:  # one that cannot be unparked must not keep the others
                return done + sum(self.unpark([ref], applies) for ref in waiting)
        return done

    def _free(self, seen: Seen) -> list[Op]:
        side = seen.side
        assert side is not None
        plan = Plan(self._tree.folders)
        awake = caught_up(seen) if seen.foreign else self.awake(side)
        notes.park(plan, seen.ref, side, awake)
        return [wire.put(seen.layout.side(seen.ref.id), encode_side(awake), "side", seen.side_version), *plan.ops]

    def rouse(self, refs: Sequence[Ref]) -> int:
        """Wake those that were called."""
        return self.unpark(refs, lambda seen: seen.parked in ("wait", "children")) if refs else 0

    def wake(self, limit: int) -> Due:
        now = self._tree.now()
        waits: list[tuple[float, Ref]] = []
        for kind, _, note in self._shelf.entries():
            if note.startswith("w"):
                parked = places.parse_parked(note)
                waits.append((parked.until, Ref(kind, parked.id)))
        waits.sort()
        due = [ref for until, ref in waits if until <= now + 0.001][:limit]
        woken = self.unpark(
            due, lambda seen: seen.parked == "wait" and seen.side is not None and seen.side.wake_at <= now
        )
        if woken:
            self._tree.rings()
        if woken < len(due):  # notes that are wrong must not be looked at for ever
            self._mend_notes(set(due))
        later = waits[len(due) :]
        return Due(woken, max(0.0, later[0][0] - now) if later else None)

    def offer(self, keys: Iterable[str]) -> int:
        """Let the first waiter of each of these keys try, where nobody holds the key."""
        wanted = list(dict.fromkeys(keys))
        found = self._link.read(
            [ask for key in wanted for ask in (data(key_path(key)), names(places.waiting_folder(key)))]
        )
        unparked = 0
        for key, holder, waiters in zip(wanted, found[::2], found[1::2], strict=True):
            if holder is not None or not waiters:
                continue
            for name in sorted(waiters):
                if self._offer_to(key, places.ref_of(name)):
                    unparked += 1
                    break
                if name in self.stale_waiters(key, [name]):
                    self._link.write([wire.delete(f"{places.waiting_folder(key)}/{name}", "note")])
        return unparked

    def _offer_to(self, key: str, ref: Ref) -> bool:
        return bool(self.unpark([ref], lambda seen: seen.parked == f"key {key}"))

    def stale_waiters(self, key: str, waiters: Sequence[str]) -> list[str]:
        """Those of these places in line that no record stands in."""
        seen = look(self._link, [places.ref_of(name) for name in waiters])
        paths = [notes.waiting_path(each.side) if each is not None and each.side is not None else None for each in seen]
        return [
            name for name, path in zip(waiters, paths, strict=True) if path != f"{places.waiting_folder(key)}/{name}"
        ]

    def clear_mark(self, mark: str) -> int:
        """The mark is off: everything that it stopped is free, in portions."""
        return self._unmark({places.hash_of(f"mark {mark}")}, lambda reason: reason == f"mark {mark}", None)

    def _unmark(self, hashes: Collection[str], applies: Callable[[str], bool], limit: int | None) -> int:
        stopped = [
            Ref(kind, places.parse_parked(note).id)
            for kind, _, note in self._shelf.entries()
            if note.partition("~")[0] in hashes
        ]
        done = 0
        for start in range(0, len(stopped[:limit]), 1000):
            part = stopped[start : start + 1000] if limit is None else stopped[start : min(start + 1000, limit)]
            done += self.unpark(part, lambda seen: applies(seen.parked or ""))
        if done:
            self._tree.rings()
        return done

    # --- looking after

    def children(self, after: str, limit: int) -> tuple[list[Ref], str | None]:
        """Records that wait for children to call: those behind `after`, and where they end if there are more."""
        last = tuple(msgspec.json.decode(after, type=list[str])) if after else ()
        waiting = [entry for entry in self._shelf.entries() if entry[2].startswith("c~") and entry > last]
        part = waiting[:limit]
        end = msgspec.json.encode(part[-1]).decode() if len(waiting) > limit else None
        return [Ref(kind, places.parse_parked(note).id) for kind, _, note in part], end

    def sweep_marks(self, in_force: Collection[str], limit: int) -> int:
        """Unpark what is parked on marks that are off."""
        valid = {places.hash_of(f"mark {mark}") for mark in in_force}
        stale = {
            head
            for _, _, note in self._shelf.entries()
            if note.startswith("m") and (head := note.partition("~")[0]) not in valid
        }
        return (
            self._unmark(stale, lambda reason: reason.startswith("mark ") and reason[5:] not in in_force, limit)
            if stale
            else 0
        )

    def sweep_keys(self, limit: int) -> int:
        """Offer free keys that have waiters; a folder without waiters goes."""
        folders = self._link.names(places.WAITING)
        keys = [plain(folder) for folder in folders]
        found = (
            self._link.read([ask for key in keys for ask in (data(key_path(key)), data(places.waiting_folder(key)))])
            if keys
            else []
        )
        free = []
        for key, holder, folder in zip(keys, found[::2], found[1::2], strict=True):
            path = places.waiting_folder(key)
            if folder is not None and not folder.children:
                self._tree.folders.discard(path)
                self._link.write([wire.delete(path, "folder")])  # refused if somebody waits there now
            elif folder is not None and holder is None:
                free.append(key)
        return self.offer(free[:limit]) if free else 0

    def sweep_notes(self, limit: int) -> int:
        """Take away notes that no longer say what the side node says: a portion with each call."""
        notes_here = [(kind, state, note) for kind, state, note in self._shelf.entries()]
        start = next((i for i, entry in enumerate(notes_here) if self._cursor is not None and entry > self._cursor), 0)
        part = notes_here[start : start + limit]
        self._cursor = part[-1] if part and start + limit < len(notes_here) else None
        return sum(self.mend_note(*entry) for entry in self.stale_notes(part))

    def _mend_notes(self, refs: Collection[Ref]) -> None:
        about = [entry for entry in self._shelf.entries() if Ref(entry[0], places.parse_parked(entry[2]).id) in refs]
        for entry in self.stale_notes(about):
            self.mend_note(*entry)

    def stale_notes(self, entries: Sequence[tuple[str, str, str]]) -> list[tuple[str, str, str]]:
        refs = [Ref(kind, places.parse_parked(note).id) for kind, _, note in entries]
        stale = []
        for entry, ref, seen in zip(entries, refs, look(self._link, refs), strict=True):
            kind, state, note = entry
            right = notes.parked_path(ref, seen.side) if seen is not None and seen.side is not None else None
            if right != f"{places.parked_folder(kind, state)}/{note}":
                stale.append(entry)
        return stale

    def mend_note(self, kind: str, state: str, note: str) -> bool:
        """Take away one note that is wrong."""
        if not self.stale_notes([(kind, state, note)]):
            return False
        ref = Ref(kind, places.parse_parked(note).id)
        layout = layout_of(kind)
        side = self._link.node(layout.side(ref.id))
        guard = [wire.check(layout.side(ref.id), "side", side.version)] if side is not None else []
        path = f"{places.parked_folder(kind, state)}/{note}"
        return not isinstance(self._link.write([*guard, wire.delete(path, "note")]), Failure)

    def notes(self) -> list[tuple[str, str, str]]:
        return list(self._shelf.entries())


def _portions(seen: Sequence[Seen]) -> Iterator[Sequence[Seen]]:
    for start in range(0, len(seen), _TOGETHER):
        yield seen[start : start + _TOGETHER]
