"""A record as it was seen in the tree: its nodes, read together, and the Record they make.

`look` reads many at once. The version of a record is made of three numbers: its seq, the version of the status node,
and the lift, by which it is ahead of them. Two things that move a record write nothing at that moment, and whoever
reads it afterwards can tell:

- a worker died (the lock went with its session): nobody holds it, and yet it was written by a holder or claimed after the last commit;
- a service that is not Waybill wrote the status: its checksum is not the one that the side node remembers.

Either lifts the version by one; the next writer notes it in the side node. A move from outside also makes void what the
record asked for in its old state (keys, marks, waits), and may say less than is known: a resume by Merritt's Java
library notes "Failed" as the last state done. The side node remembers the last that was one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from waybill.record import Docs, Line, Record, Ref
from waybill.stores.zookeeper.layout import Layout, layout_of
from waybill.stores.zookeeper.link import Link
from waybill.stores.zookeeper.names import checksum, quote
from waybill.stores.zookeeper.side import LINES, OUTSIDE, Side
from waybill.stores.zookeeper.side import decode as decode_side
from waybill.stores.zookeeper.status import Status
from waybill.stores.zookeeper.status import decode as decode_status
from waybill.stores.zookeeper.wire import Ask, Node, data, names

NO_WORK = ("Failed", "Deleted", "Held")  # states of Merritt's in which nothing is done
STRANGER = "unknown"  # who holds a record whose lock is no ephemeral node
_PORTION = 100  # records read with their documents in one request


@dataclass(slots=True)
class Seen:
    ref: Ref
    layout: Layout
    made: float  # when its home was made, by the server's clock
    nudges: int
    status: bytes
    body: Status
    version: int  # of the status node
    touched: float  # when the status node was last written, by the server's clock
    holder: str | None  # the session that holds the lock
    side: Side | None
    side_version: int
    priority: int
    parent: Ref | None
    nodes: frozenset[str]  # the children of its home
    docs: dict[str, bytes] | None  # None: not read
    entry: str | None = None  # the name of its entry in the queue, where it was listed
    misnumbered: bool = False  # its priority is written as something that is none, or that no entry has room for
    stamp: int = field(init=False)  # the checksum of its status: asked for many times with each commit

    def __post_init__(self) -> None:
        self.stamp = checksum(self.status)

    @property
    def seq(self) -> int:
        if self.layout.prefix:
            return self.layout.number(self.ref.id)
        return self.side.seq if self.side else 0

    @property
    def turn(self) -> int:
        return self.seq if self.layout.native or self.side is None else self.side.turn

    @property
    def state(self) -> str:
        return self.body.status

    @property
    def foreign(self) -> bool:
        """Whether somebody else wrote the status since Waybill did."""
        return self.side is not None and self.side.seen != self.stamp

    @property
    def moved(self) -> bool:
        """Whether somebody else led it into another state: what it asked for in the old one is void."""
        return self.foreign and self.side is not None and self.side.state != self.state

    @property
    def unfitted(self) -> bool:
        """Whether nobody has reckoned yet which keys and marks it needs in the state into which others led it."""
        return self.side is None or self.side.unfitted or self.moved

    @property
    def forfeits(self) -> tuple[str, ...]:
        """The keys that it held in its old state: nobody needs them any more, and perhaps somebody has taken them
        away.
        """
        return self.side.holds if self.side is not None and self.moved else ()

    @property
    def last_done(self) -> str | None:
        """The last state whose work was done, as far as anybody has noted."""
        known = self.side.last_done if self.side is not None else None
        if self.layout.brief:
            return known
        said = self.body.last_successful_status or None
        return known if said in NO_WORK else said

    @property
    def bereft(self) -> bool:
        """Whether a worker died that held it."""
        side = self.side
        return side is not None and self.holder is None and (side.session is not None or self.version != side.at)

    @property
    def lift(self) -> int:
        if self.side is None:
            return 0
        return self.side.lift + (self.foreign or self.bereft)

    @property
    def record_version(self) -> int:
        return self.seq + self.version + self.lift

    @property
    def parked(self) -> str | None:
        """Why it cannot be claimed now, as far as Waybill has noted; a move from outside makes that void."""
        return self.side.parked if self.side is not None and not self.foreign else None

    @property
    def open(self) -> bool:
        if self.layout.settled:
            return self.state not in self.layout.settled
        if self.side is None or self.foreign:
            return self.state not in ("Completed", "Deleted")
        return self.side.open

    @property
    def entry_name(self) -> str:
        """The name of its entry, as listed or as it should be."""
        return self.entry or self.layout.entry(self.priority, self.turn, self.seq, self.ref.id)

    def lines(self) -> list[Line]:
        """Its history, with a last line that is not written yet when it moved outside."""
        side = self.side
        if side is None:
            return [Line(self.record_version, self.updated, "", OUTSIDE, None, self.state, "made by another service")]
        if self.foreign:
            why = "moved by another service" if side.state != self.state else "written by another service"
            return [*side.lines, Line(self.record_version, self.updated, "", OUTSIDE, side.state, self.state, why)]
        return side.lines

    @property
    def updated(self) -> float:
        if self.side is not None and not self.foreign:
            return self.side.updated
        return self.body.modified or self.touched

    def record(self) -> Record:
        side = self.side or Side(created=self.made)
        known = self.side is not None and not self.foreign
        return Record(
            self.ref.kind,
            self.ref.id,
            self.state,
            parent=self.parent,
            owner=side.owner,
            priority=self.priority,
            last_done=self.last_done,
            retries=side.retries if self.layout.brief else self.body.retry_count,
            tries=side.tries if known else 0,
            message=self.body.message,
            session=self.holder,
            keys=() if self.moved else side.keys,
            gates=() if self.moved else side.gates,
            parked=self.parked if self.holder is None else None,
            open=self.open,
            host=side.host,
            request=side.request,
            turn=self.turn,
            seq=self.seq,
            version=self.record_version,
            nudges=self.nudges,
            wake_at=side.wake_at if known and self.holder is None else 0.0,
            created=side.created or self.made,
            updated=self.updated,
            docs=Docs(self.docs),
        )


def caught_up(seen: Seen) -> Side:
    """The side node of a record that others made or moved, or whose worker died, up to date with its status; its
    version stays.
    """
    base = seen.side or Side(seq=seen.seq, turn=seen.seq, created=seen.made)
    if seen.moved:
        base = replace(base, keys=(), holds=(), gates=())
    return replace(
        base,
        lift=seen.lift,
        at=seen.version,
        seen=seen.stamp,
        state=seen.state,
        session=None,
        parked=None,
        wake_at=0.0,
        unfitted=seen.unfitted,
        last_done=seen.last_done,
        spot="",
        tries=0 if seen.foreign else base.tries,
        open=seen.open,
        priority=seen.priority,
        updated=seen.updated,
        lines=seen.lines()[-LINES:],
    )


def asks_of(layout: Layout, ref: Ref, docs: bool) -> list[Ask]:
    """What is read of one record, in the order in which `seen_of` takes it."""
    home = layout.home(ref.id)
    asks = [data(home), data(f"{home}/status"), data(f"{home}/lock"), data(layout.side(ref.id))]
    if layout.native:
        asks += (data(f"{home}/priority"), data(f"{home}/bid"))
    if docs:
        asks += [data(f"{home}/{name}") for name in layout.own]
    if not docs or not layout.native:
        asks.append(names(home))
    return asks


def seen_of(layout: Layout, ref: Ref, found: Sequence[Any], docs: bool) -> Seen | None:
    home, status, lock, side_node, *rest = found
    if home is None or status is None:
        return None
    body = decode_status(status.data)
    side = decode_side(side_node.data) if side_node is not None else None
    if body is None or (side is None and not layout.prefix):
        return None
    priority, parent = (side.priority if side else 5), (Ref(*side.parent) if side and side.parent else None)
    if layout.native:
        priority_node, bid_node, *rest = rest
        priority = min(99, max(0, _decimal(priority_node, priority)))
        parent = Ref(layout.parent, bid_node.data.decode()) if bid_node is not None and bid_node.data else None
    if not docs or not layout.native:
        children = rest.pop() or ()
    else:  # of a job nothing else matters than which of its documents are there
        children = [name for name, node in zip(layout.own, rest, strict=True) if node is not None]
    return Seen(
        ref=ref,
        layout=layout,
        made=home.ctime / 1000,
        nudges=home.version,
        status=status.data,
        body=body,
        version=status.version,
        touched=status.mtime / 1000,
        holder=None if lock is None else session_name(lock.owner) if lock.owner else STRANGER,
        side=side,
        side_version=side_node.version if side_node is not None else -1,
        priority=priority,
        parent=parent,
        nodes=frozenset(children),
        docs=_documents(layout, side, rest) if docs else None,
        misnumbered=layout.native and priority_node is not None and priority_node.data != b"%d" % priority,
    )


def session_name(number: int) -> str:
    """A session of ZooKeeper by its number, as Waybill and ZooKeeper's own tools write it."""
    return f"{number & 0xFFFFFFFFFFFFFFFF:x}"


def look(link: Link, refs: Iterable[Ref], docs: bool = False) -> list[Seen | None]:
    """The records as they are now, None for those that are not there (or too damaged to be one: `check` says so)."""
    wanted = list(refs)
    seen: list[Seen | None] = []
    portion = _PORTION if docs else len(wanted) or 1
    for start in range(0, len(wanted), portion):
        part = [(layout_of(ref.kind), ref) for ref in wanted[start : start + portion]]
        asks = [asks_of(layout, ref, docs) for layout, ref in part]
        found = link.read([ask for each in asks for ask in each])
        place = 0
        for (layout, ref), each in zip(part, asks, strict=True):
            seen.append(seen_of(layout, ref, found[place : place + len(each)], docs))
            place += len(each)
    if docs:
        _add_far_documents(link, [each for each in seen if each is not None])
    return seen


def look_one(link: Link, ref: Ref, docs: bool = False) -> Seen | None:
    return look(link, [ref], docs)[0]


def _documents(layout: Layout, side: Side | None, found: Sequence[Node | None]) -> dict[str, bytes]:
    docs: dict[str, bytes] = {}
    fill = side.fill if side else ()
    for name, node in zip(layout.own, found, strict=True):
        if node is None or (name in fill and node.version == 0):
            continue
        docs[name] = node.data or layout.fillers.get(name, b"{}")
    if side:
        docs.update((name, body.encode()) for name, body in side.docs.items())
    return docs


def _add_far_documents(link: Link, seen: Sequence[Seen]) -> None:
    wanted = [(each, name) for each in seen if each.side for name in each.side.far]
    if not wanted:
        return
    found = link.nodes([f"{each.layout.side(each.ref.id)}/{quote(name)}" for each, name in wanted])
    for (each, name), node in zip(wanted, found, strict=True):
        if node is not None and each.docs is not None:
            each.docs[name] = node.data


def _decimal(node: Node | None, default: int) -> int:
    try:
        return int(node.data) if node is not None else default
    except ValueError:
        return default
