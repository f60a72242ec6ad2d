"""The store in ZooKeeper: one connection of ours, its verbs, and who does each of them.

    commit -> commit.py    claim, take -> claims.py    get, find, tally -> finding.py    wake, sweep, idle_parents -> parking.py, foreign.py
    sessions -> sessions.py    asks -> asks.py    marks -> marks.py    watch -> bell.py    check, mend -> check.py

URL: zookeeper://host:port,host:port/chroot. The chroot is made when it is missing. Options, also as ?name=value in the
URL:

    timeout    seconds after which this connection is given up by the server; a worker's session has its own (its ttl)
    patience   seconds that a call waits for a connection that is being made again before it is Unavailable
    listing    seconds that a listing of a queue serves claims
    max_names  records of a kind: what clients of ZooKeeper can still list in one answer
    grace      seconds in which another service has written all nodes of a record that it makes
    lock_age   seconds after which `check` reports another service's lock
    old        seconds after which a fault that `check` found is no longer a warning
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from waybill.record import (
    MAX_PAGE,
    Answer,
    Ask,
    BadStore,
    Change,
    Claimed,
    Due,
    Finding,
    Group,
    HeldKey,
    Idle,
    Line,
    NotFound,
    Page,
    Record,
    Ref,
    Renewed,
    Role,
    SessionInfo,
)
from waybill.stores.zookeeper import places, wire
from waybill.stores.zookeeper.asks import Asks
from waybill.stores.zookeeper.bell import Bell
from waybill.stores.zookeeper.check import Checker
from waybill.stores.zookeeper.claims import Claims
from waybill.stores.zookeeper.commit import Committer
from waybill.stores.zookeeper.faults import Ages
from waybill.stores.zookeeper.finding import Finder
from waybill.stores.zookeeper.foreign import Foreign
from waybill.stores.zookeeper.kin import Kin
from waybill.stores.zookeeper.layout import JOB, MERRITT_FOLDERS, WAYBILL_FOLDERS
from waybill.stores.zookeeper.link import Link
from waybill.stores.zookeeper.locks import Locks
from waybill.stores.zookeeper.marks import Marks
from waybill.stores.zookeeper.names import quote
from waybill.stores.zookeeper.parking import Parking
from waybill.stores.zookeeper.queues import Queues
from waybill.stores.zookeeper.seen import look, look_one
from waybill.stores.zookeeper.sessions import Sessions
from waybill.stores.zookeeper.tree import Tree
from waybill.stores.zookeeper.wire import NODE_EXISTS, Failure

LAYOUT = b"1"  # of the nodes below /waybill, in the node /waybill/layout
OPTIONS = {
    "timeout": 10.0,
    "patience": 2.0,
    "listing": 2.0,
    "max_names": 50_000.0,
    "grace": 10.0,
    "lock_age": 120.0,
    "old": 3600.0,
}


class ZookeeperStore:
    def __init__(
        self, url: str, clock: Callable[[], float] | None = None, migrate: bool = True, **options: Any
    ) -> None:
        self.url = url
        hosts, root, settings = _parse(url, options)
        self._patience = settings["patience"]
        self._hosts, self._root = hosts, root
        self._link = self._connect(settings["timeout"])
        try:
            _set_up(self._link, root, migrate)
        except BaseException:
            self._link.stop()
            raise
        self._tree = Tree(self._link, clock or time.time, int(settings["max_names"]))
        self._bell = Bell(self._link)
        self._tree.rings = self._bell.ring
        self._kin = Kin(self._link)
        self._marks = Marks(self._link)
        self._asks = Asks(self._link)
        self._parking = Parking(self._tree)
        self._locks = Locks(self._link, self._parking)
        self._foreign = Foreign(self._tree, settings["grace"])
        self._foreign.clear_away = self._clear_away
        self._finder = Finder(self._link, self._kin)
        self._sessions = Sessions(self._tree, self._connect, self._asks)
        self._committer = Committer(self._tree, self._kin, self._marks, self._parking, self._asks)
        self._claims = Claims(
            self._tree, Queues(self._tree, settings["listing"]), self._marks, self._parking, self._asks, self._foreign
        )

        self._checker = Checker(self._tree, Ages(settings["lock_age"], settings["old"]))

    def _connect(self, timeout: float) -> Link:
        return Link(self._hosts, self._root, timeout, self._patience)

    def now(self) -> float:
        return self._tree.now()

    def commit(self, groups: Sequence[Group]) -> list[Answer]:
        return self._committer.commit(groups)

    # --- reading

    def get(self, kind: str, id: str) -> Record:
        return self._finder.see(Ref(kind, id), docs=True).record()

    def requested(self, kind: str, request: str) -> Record:
        return self._finder.requested(kind, request).record()

    def find(
        self,
        kind: str,
        *,
        state: str | None = None,
        parent: Ref | None = None,
        owner: str | None = None,
        after: int | None = None,
        newest: bool = False,
        limit: int = 100,
        docs: bool = False,
    ) -> Page:
        filters = {
            name: value for name, value in (("state", state), ("parent", parent), ("owner", owner)) if value is not None
        }
        if len(filters) > 1:
            raise ValueError(f"find by one of {', '.join(filters)}, not by several")
        return self._finder.find(kind, state, parent, owner, after, newest, limit, docs)

    def tally(self, kind: str, *, parent: Ref | None = None) -> dict[str, int]:
        return self._finder.tally(kind) if parent is None else dict(self._kin.tally(kind, parent))

    def open_parents(self, refs: Sequence[Ref]) -> set[Ref]:
        return self._kin.open_parents(refs)

    def history(self, kind: str, id: str) -> list[Line]:
        seen = look_one(self._link, Ref(kind, id))
        return list(seen.lines()) if seen is not None else []

    # --- sessions and claims

    def open_session(self, *, host: str, ttl: float, about: Mapping[str, Any]) -> str:
        return self._sessions.open(host, ttl, about)

    def renew(self, session: str, progress: Mapping[str, Any] | None = None) -> Renewed:
        return self._sessions.renew(session, progress)

    def close_session(self, session: str) -> None:
        self._sessions.close(session)

    def sessions(self) -> list[SessionInfo]:
        return self._sessions.all()

    def claim(self, roles: Sequence[Role], session: str, limit: int) -> list[Claimed]:
        return self._claims.claim(roles, self._sessions.living(session), limit)

    def take(self, kind: str, id: str, session: str) -> Claimed:
        return self._claims.take(Ref(kind, id), self._sessions.living(session))

    def ask(self, ask: Ask) -> bool:
        return self._asks.leave(ask)

    def asks(self, limit: int = 100) -> list[Ask]:
        return self._asks.unheld(limit)

    # --- marks, waits, upkeep

    def mark(self, name: str, on: bool, who: str = "", why: str = "") -> None:
        if on:
            self._marks.set(name, who, why)
            return
        self._marks.clear(name)
        self._parking.clear_mark(name)

    def marks(self) -> dict[str, str]:
        return self._marks.all()

    def held_keys(self, *, after: str = "", limit: int = MAX_PAGE) -> list[HeldKey]:
        return self._locks.page(after, max(1, min(limit, MAX_PAGE)))

    def free_key(self, name: str) -> bool:
        return self._locks.free(name)

    def watch(self, timeout: float) -> bool:
        return self._bell.watch(timeout)

    def interrupt(self) -> None:
        self._bell.interrupt()

    def wake(self, limit: int = MAX_PAGE) -> Due:
        return self._parking.wake(limit)

    def reap(self) -> list[str]:
        return self._sessions.reap()

    def sweep(self, limit: int = MAX_PAGE) -> int:
        mended = self._parking.sweep_keys(limit)
        mended += self._parking.sweep_marks(self._marks.in_force(), limit)
        mended += self._parking.sweep_notes(limit)
        return mended + self._foreign.walk(limit)

    def _clear_away(self, batch: str) -> None:
        """Jobs of a batch that another service took away: those that have settled and that nobody holds."""
        self._kin.members.refresh()
        found = look(self._link, [Ref(JOB.kind, id) for id in self._kin.members.of(batch)[:MAX_PAGE]])
        left = [seen.record() for seen in found if seen is not None and seen.holder is None and not seen.open]
        if left:
            self._committer.commit(
                [Group((Change(record, None, "remove", why="its batch was taken away"),)) for record in left]
            )

    def idle_parents(self, *, after: str = "", limit: int = MAX_PAGE) -> Idle:
        waiting, end = self._parking.children(after, limit)
        busy = self._kin.open_parents(waiting) if waiting else set()
        return Idle([ref for ref in waiting if ref not in busy], end)

    def remember(self, name: str, value: str) -> str:
        path = f"/waybill/memory/{quote(name)}"
        outcome = self._link.write([wire.create(path, value.encode())])
        if not isinstance(outcome, Failure):
            return value
        node = self._link.node(path)
        if node is None:
            raise NotFound(f"What was remembered as {name} was taken away just now. Try again.")
        return node.data.decode()

    def check(self) -> Iterator[Finding]:
        return self._checker.check()

    def mend(self, finding: Finding) -> bool:
        return self._checker.mend(finding)

    def close(self) -> None:
        self._bell.stop()
        self._sessions.leave()
        self._link.stop()


def _parse(url: str, options: Mapping[str, Any]) -> tuple[str, str, dict[str, float]]:
    parts = urlsplit(url)
    if not parts.netloc:
        raise BadStore(f"{url} names no server; a store in ZooKeeper is zookeeper://host:port,host:port/chroot.")
    for server in parts.netloc.split(","):
        # of an IPv6 address without a port
        _, colon, port = server.rpartition(":") if not server.endswith("]") else (server, "", "")
        if colon and not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
            raise BadStore(
                f"{server} is no server: {port or 'nothing'} is not a port; a store in ZooKeeper is zookeeper://host:port/chroot."
            )
    root = parts.path.rstrip("/")
    names = root.split("/")[1:]
    if "" in names:
        raise BadStore(f"{parts.path} is no chroot: it has an empty name in it.")
    if "." in names or ".." in names or names[:1] == ["zookeeper"]:
        raise BadStore(
            f"{parts.path} is no chroot: ZooKeeper has no nodes named . or .., and keeps /zookeeper for itself."
        )
    given = {**dict(parse_qsl(parts.query)), **options}
    if unknown := given.keys() - OPTIONS.keys():
        raise BadStore(
            f"{', '.join(sorted(unknown))}: a store in ZooKeeper has no such option; it has {', '.join(OPTIONS)}."
        )
    try:
        return parts.netloc, root, {**OPTIONS, **{name: float(value) for name, value in given.items()}}
    except ValueError as error:
        raise BadStore(f"The options of a store in ZooKeeper are numbers: {error}.") from error


def _set_up(link: Link, root: str, migrate: bool) -> None:
    """Make the chroot and the folders that all records share; refuse a tree that this release does not know."""
    wanted = [(path, b"") for path in (*MERRITT_FOLDERS, *WAYBILL_FOLDERS)]
    wanted += [(places.SEQ, b"0"), (places.BELL, b""), (places.LAYOUT, LAYOUT)]
    for _ in range(10):
        found = link.nodes([path for path, _ in wanted])
        layout = found[-1]
        if layout is not None and layout.data != LAYOUT:
            said = layout.data.decode(errors="replace")
            raise BadStore(
                f"The tree below {root or '/'} has layout {said} and this release knows {LAYOUT.decode()}. Upgrade Waybill."
            )
        missing = [wire.create(path, body) for (path, body), node in zip(wanted, found, strict=True) if node is None]
        if not missing:
            return
        if layout is None and not migrate:
            raise BadStore(f"There is no store below {root or '/'} yet; `waybill up` or `waybill migrate` makes one.")
        link.make_root()
        outcome = link.write(missing)
        if isinstance(outcome, Failure) and outcome.code != NODE_EXISTS:  # somebody else sets it up at the same time
            path = missing[outcome.place].path
            raise BadStore(
                f"ZooKeeper does not let {root}{path} be made (error {outcome.code}); its nodes must be open to all."
            )
    raise BadStore(f"The tree below {root or '/'} could not be set up: others keep changing it.")
