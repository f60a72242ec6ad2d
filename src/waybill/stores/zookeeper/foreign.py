"""What other services made or moved: records without a side node, entries in the wrong place or in none.

Merritt's services write node after node, without transactions; a kill between two writes leaves a record whose status
says one thing and whose entries say another. Nobody but the record's holder is in the middle of such a move, so what
nobody holds, and what was not written within the last moments (a service that creates a record need not lock it), is
mended here:

    adopt_new   batches and assemblies that others made get a side node and an entry in our queue
    refile      a record that was listed under a state which it is not in
    walk        a portion of all records with each call: whatever is not where its status says
    bury        what we kept beside records that others took away
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence

from waybill.record import Ref
from waybill.stores.zookeeper import notes, places, wire
from waybill.stores.zookeeper.layout import BUCKETS, JOB, MERRITT, Layout, layout_of
from waybill.stores.zookeeper.names import key_path, quote
from waybill.stores.zookeeper.plan import Plan, chain, parent_of
from waybill.stores.zookeeper.seen import Seen, caught_up, look
from waybill.stores.zookeeper.side import Side
from waybill.stores.zookeeper.side import decode as decode_side
from waybill.stores.zookeeper.side import encode as encode_side
from waybill.stores.zookeeper.tree import Tree
from waybill.stores.zookeeper.wire import Op, data, names


class Foreign:
    def __init__(self, tree: Tree, grace: float) -> None:
        self._tree = tree
        self._grace = grace  # seconds in which whoever writes a record without a lock has written all of it
        self._as_of: dict[str, int] = {}  # kind -> the transaction that last changed the names of its homes
        self._cursor: tuple[str, str] = ("", "")
        # jobs that were left behind by those who took their batch away
        self.clear_away: Callable[[str], None] = lambda batch: None

    def adopt_new(self, kinds: Collection[str]) -> int:
        """Records of these kinds that have no side node yet and whose entries are ours alone to make."""
        layouts = [layout for kind in sorted(kinds) if not (layout := layout_of(kind)).native and layout.prefix]
        nodes = self._tree.link.nodes([layout.homes for layout in layouts]) if layouts else []
        adopted = 0
        for layout, node in zip(layouts, nodes, strict=True):
            if node is None or self._as_of.get(layout.kind) == node.pzxid:
                continue
            homes, sides = self._tree.link.read([names(layout.homes), names(layout.sides)])
            new = sorted(set(homes or ()) - set(sides or ()))
            seen = look(self._tree.link, [Ref(layout.kind, name) for name in new if layout.id_of(name)])
            ready = [each for each in seen if each is not None and self._settled(each)]
            adopted += sum(self._adopt(each) for each in ready)
            if len(ready) == len(new):
                self._as_of[layout.kind] = node.pzxid
        return adopted

    def _adopt(self, seen: Seen) -> bool:
        plan = Plan(self._tree.folders)
        entry = f"{seen.layout.folder(seen.state)}/{seen.entry_name}"
        plan.folder(*chain(parent_of(entry)))
        plan.make(entry, "entry")
        home = seen.layout.home(seen.ref.id)
        side = wire.create(seen.layout.side(seen.ref.id), encode_side(caught_up(seen)), "side")
        return self._tree.write([wire.check(f"{home}/status", "status", seen.version), side, *plan.ops]) is None

    def refile(self, misfiled: Sequence[tuple[Seen, str]]) -> int:
        """Each was listed by an entry that is not its own: unless somebody is just moving it, the entry is put
        right.
        """
        quiet = [(seen, wrong) for seen, wrong in misfiled if self._settled(seen)]
        if not quiet:
            return 0
        rights = [f"{seen.layout.folder(seen.state)}/{_right_entry(seen)}" for seen, _ in quiet]
        found = self._tree.link.nodes(
            [path for (_, wrong), right in zip(quiet, rights, strict=True) for path in (wrong, right)]
        )
        mended = 0
        for (seen, wrong), right, here, there in zip(quiet, rights, found[::2], found[1::2], strict=True):
            if here is None or wrong == right:
                continue  # it has moved on meanwhile
            ops = [wire.delete(wrong, "entry"), *renumber(seen)]
            if there is None:
                ops += self._place(seen.layout, right)
            mended += self._write_free(seen, ops)
        return mended

    def walk(self, limit: int) -> int:
        """Put right what is not where it belongs, in a portion of all records that others write too; the next call
        goes on behind it.
        """
        mended, left = 0, limit
        for kind in sorted(MERRITT):
            if left <= 0 or (kind, "~") < self._cursor:
                continue
            layout = layout_of(kind)
            last = self._cursor[1] if self._cursor[0] == kind else ""
            homes = [name for name in self._tree.link.names(layout.homes) if layout.id_of(name)]
            ids = sorted(name for name in homes if name > last)[:left]
            left -= len(ids)
            self._cursor = (kind, ids[-1] if ids else last)
            found = [seen for seen in look(self._tree.link, [Ref(kind, id) for id in ids]) if seen is not None]
            # Whoever died while he moved a job may have left an entry in any queue; so may one who read a job just
            # before we moved it. A batch that others removed may have stood in a queue of ours of which its notes no
            # longer told.
            strange = layout.native and any(seen.side is None or seen.foreign for seen in found)
            queued = self._queued(layout) if strange or self._too_many(layout, len(homes)) else {}
            mended += sum(self.mend(seen, queued.get(seen.ref.id, ()) if layout.native else ()) for seen in found)
            mended += self._drop_orphans(layout, {id: queued[id] for id in queued.keys() - set(homes)})
            if left > 0:
                mended += self.bury(layout)
        if left > 0:
            self._cursor = ("", "")
        return mended

    def bury(self, layout: Layout, limit: int = 100) -> int:
        """Records that another service took away: what Waybill kept beside them goes too. Ids are never given again.

        Merritt's services take away a deleted batch and leave its failed jobs, which nobody would ever find: they go
        with it.
        """
        # before the homes: a record that is made meanwhile is in neither or in both
        sides = self._tree.link.names(layout.sides)
        gone = sorted(set(sides) - set(self._tree.link.names(layout.homes)))[:limit] if sides else []
        nodes = self._tree.link.nodes([f"{layout.sides}/{id}" for id in gone]) if gone else []
        if layout.kind == JOB.parent:
            for id in gone:
                self.clear_away(id)
        sides_of = [
            (Ref(layout.kind, id), node, decode_side(node.data))
            for id, node in zip(gone, nodes, strict=True)
            if node is not None
        ]
        return sum(self._bury(layout, ref, side, node.version) for ref, node, side in sides_of if side is not None)

    def _bury(self, layout: Layout, ref: Ref, side: Side, version: int) -> bool:
        plan = Plan(self._tree.folders)
        aside = layout.side(ref.id)
        for name in side.far:
            plan.drop(f"{aside}/{quote(name)}", "document")
        notes.park(plan, ref, side, None)
        notes.own(plan, ref, side, None)
        notes.descend(plan, layout, ref, side, None)
        plan.drop(f"{layout.folder(side.state)}/{layout.entry(side.priority, side.turn, side.seq, ref.id)}", "entry")
        plan.drop(places.ask(ref), "note")
        if side.request is not None:
            plan.drop(places.request(ref.kind, side.request), "note")
        for folder in ("open", "shut", ""):
            plan.drop(f"{places.kin(ref)}/{folder}".rstrip("/"), "note")
        keys = list(dict.fromkeys(map(key_path, side.holds)))
        paths = [*plan.touched, *keys]
        there = dict(zip(paths, self._tree.link.nodes(paths), strict=True))
        mine = [
            wire.delete(path, "key")
            for path in keys
            if (node := there[path]) is not None and node.data == str(ref).encode()
        ]
        ops = [op for op in plan.ops if there[op.path] is not None]
        return self._tree.write([*ops, *mine, wire.delete(aside, "side", version)]) is None

    def _too_many(self, layout: Layout, homes: int) -> bool:
        """Whether there are more entries than records: Merritt's library makes an entry for a job that it loads,
        where it saw none.
        """
        folders = self._tree.link.nodes([layout.folder(state) for state in layout.states])
        return sum(node.children for node in folders if node is not None) > homes

    def _drop_orphans(self, layout: Layout, queued: Mapping[str, Sequence[str]]) -> int:
        """Entries of records that are gone. A record is there before its entry, and no id is given twice: there is
        nothing to guard.
        """
        ids = sorted(queued)
        homes = self._tree.link.nodes([layout.home(id) for id in ids]) if ids else []
        gone = [path for id, home in zip(ids, homes, strict=True) if home is None for path in queued[id]]
        return sum(self._tree.write([wire.delete(path, "entry")]) is None for path in gone)

    def _queued(self, layout: Layout) -> dict[str, list[str]]:
        """Every entry in any of the queues, by the record that it stands for."""
        folders = [layout.folder(state) for state in layout.states]
        entries: dict[str, list[str]] = defaultdict(list)
        for folder, listed in zip(folders, self._tree.link.read([names(folder) for folder in folders]), strict=True):
            for name in listed or ():
                if entry := layout.parse(name):
                    entries[entry.id].append(f"{folder}/{name}")
        return entries

    def mend(self, seen: Seen, queued: Sequence[str] = ()) -> bool:
        """Its entry and its place among its batch's jobs, if they are not there, and no other entry of those `queued`.
        True when something was written.
        """
        if not self._settled(seen):
            return False
        if not seen.layout.native and seen.side is None:
            return self._adopt(seen)
        ops = self.lacking(seen)
        right = f"{seen.layout.folder(seen.state)}/{_right_entry(seen)}"
        ops += [wire.delete(path, "entry") for path in queued if path != right]
        if seen.side is None:  # what it has done is remembered from now on
            ops.append(wire.create(seen.layout.side(seen.ref.id), encode_side(caught_up(seen)), "side"))
        elif seen.foreign:
            ops += self._note_move(seen)
        return bool(ops) and self._write_free(seen, ops)

    def _note_move(self, seen: Seen) -> list[Op]:
        """What was noted of it in its old state is void, and its history says that it moved outside."""
        old, new = seen.side, caught_up(seen)
        assert old is not None
        plan = Plan(self._tree.folders)
        notes.park(plan, seen.ref, old, new)
        entry = f"{seen.layout.folder(old.state)}/{seen.layout.entry(old.priority, old.turn, old.seq, seen.ref.id)}"
        if not seen.layout.native and entry != f"{seen.layout.folder(seen.state)}/{_right_entry(seen)}":
            plan.drop(entry, "entry")
        paths = [*plan.touched, *map(key_path, seen.forfeits)]
        there = dict(zip(paths, self._tree.link.nodes(paths), strict=True)) if paths else {}
        ops = [op for op in plan.ops if there.get(op.path) is not None]
        for path in dict.fromkeys(map(key_path, seen.forfeits)):
            held = there[path]
            if held is not None and held.data == str(seen.ref).encode():
                ops.append(wire.delete(path, "key"))  # its waiters are called by the sweep of keys
        return [*ops, wire.put(seen.layout.side(seen.ref.id), encode_side(new), "side", seen.side_version)]

    def lacking(self, seen: Seen) -> list[Op]:
        """The operations that put it where it belongs; none when it is there."""
        layout, id = seen.layout, seen.ref.id
        right = f"{layout.folder(seen.state)}/{_right_entry(seen)}"
        folders = (
            [f"/batches/{seen.parent.id}/states/{bucket}" for bucket in BUCKETS]
            if layout.parent and seen.parent
            else []
        )
        asks = [data(right), *(data(f"{folder}/{id}") for folder in folders)]
        asks.append(data(f"/batches/{seen.parent.id}") if layout.parent and seen.parent else data(layout.homes))
        entry, *places, batch = self._tree.link.read(asks)
        ops = [*([] if entry is not None else self._place(layout, right)), *renumber(seen)]
        if batch is None:
            return ops
        for folder, node in zip(folders, places, strict=True):
            belongs = folder.endswith(f"/{layout.bucket(seen.state)}")
            if node is not None and not belongs:
                ops.append(wire.delete(f"{folder}/{id}", "entry"))
            elif node is None and belongs:
                self._tree.folders.difference_update((parent_of(folder), folder))  # whether they are there is not known
                ops += [wire.create(path, b"", "folder") for path in (parent_of(folder), folder)]
                ops.append(wire.create(f"{folder}/{id}", b"", "entry"))
        return ops

    def _place(self, layout: Layout, entry: str) -> list[Op]:
        plan = Plan(self._tree.folders)
        if not layout.native:
            plan.folder(*chain(parent_of(entry)))
        plan.make(entry, "entry")
        return plan.ops

    def _write_free(self, seen: Seen, ops: Sequence[Op]) -> bool:
        home = seen.layout.home(seen.ref.id)
        guards = [*wire.absent(f"{home}/lock", "free"), wire.check(f"{home}/status", "status", seen.version)]
        return self._tree.write([*guards, *ops]) is None

    def _settled(self, seen: Seen) -> bool:
        return seen.holder is None and time.time() - seen.touched >= self._grace


def renumber(seen: Seen) -> list[Op]:
    """Its priority as it is read: its entry is named by it, and other services reckon the name from the node."""
    return (
        [wire.put(f"{seen.layout.home(seen.ref.id)}/priority", b"%d" % seen.priority, "priority")]
        if seen.misnumbered
        else []
    )


def _right_entry(seen: Seen) -> str:
    return seen.layout.entry(seen.priority, seen.turn, seen.seq, seen.ref.id)
