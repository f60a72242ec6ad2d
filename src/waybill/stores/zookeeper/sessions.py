"""Sessions: a worker's session is a session of ZooKeeper, on a link of its own, and dies with it.

    open -> the ephemeral node /waybill/sessions/NAME, checked first in every transaction that claims or commits under a claim
    renew -> publish progress, hear what is asked        (the heartbeat itself is kazoo's)
    close, or death -> ZooKeeper takes away the node and the locks of all claims at once
    not renewed for its whole ttl -> ended here: its worker has given it up, and ZooKeeper would keep it as long as this process lives

kazoo opens a new session by itself when the old one expired. It has another number, so another name: it inherits no
claim.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from waybill.record import Renewed, SessionInfo, SessionLost, Unavailable, Unknown
from waybill.stores.zookeeper import places, wire
from waybill.stores.zookeeper.asks import Asks
from waybill.stores.zookeeper.link import Link
from waybill.stores.zookeeper.plan import chain, parent_of
from waybill.stores.zookeeper.seen import Seen, session_name
from waybill.stores.zookeeper.tree import Tree
from waybill.stores.zookeeper.wire import BAD_VERSION, NO_NODE, Failure

STOPPING = 2.0  # seconds for a link that is given up
# seconds without a sign of life; kazoo waits as long for a server that does not answer, and most servers allow less
LONGEST = 120.0


class About(msgspec.Struct):
    """What the node of a session says."""

    host: str
    since: float
    ttl: float
    about: dict[str, Any] = {}
    progress: dict[str, Any] = {}


@dataclass(slots=True)
class Session:
    name: str
    link: Link
    about: About
    renewed: float  # by the clock of this machine
    told: dict[str, int] = field(default_factory=dict)  # the turns that were told


class Sessions:
    def __init__(self, tree: Tree, connect: Callable[[float], Link], asks: Asks) -> None:
        self._tree = tree
        self._connect = connect
        self._asks = asks
        self._clock = time.monotonic
        self._open: dict[str, Session] = {}

    def open(self, host: str, ttl: float, about: Mapping[str, Any]) -> str:
        began = self._clock()
        link = self._connect(min(ttl, LONGEST))
        said = About(host, self._tree.now(), link.timeout, dict(about))
        name = session_name(link.number)
        body = msgspec.json.encode(said)
        try:
            outcome = link.write(
                [
                    wire.create(places.session(name), body, ephemeral=True),
                    wire.create(places.worker(name), host.encode()),
                ]
            )
        except BaseException:
            link.stop()
            raise
        if isinstance(outcome, Failure):
            link.stop()
            raise Unavailable(f"The session {name} could not be begun (error {outcome.code} of ZooKeeper). Try again.")
        self._open[name] = Session(name, link, said, began)
        self._end_overdue(name)
        return name

    def living(self, name: str) -> Session:
        session = self._open.get(name)
        if session is None or session.link.lost:
            self._forget(name)
            raise SessionLost(
                f"The session {name} has ended. Open a new one; the claims of the old one are free or with others."
            )
        return session

    def renew(self, name: str, progress: Mapping[str, Any] | None) -> Renewed:
        session = self._open.get(name)
        if session is None:
            there = self._tree.link.node(places.session(name))
            return Renewed(there is not None, self._asks.held_by(name) if there is not None else ())
        if session.link.lost:
            self._forget(name)
            return Renewed(False)
        about, began = session.about, self._clock()
        if progress is not None:
            about.progress = dict(progress)
        beat = [wire.put(places.session(name), msgspec.json.encode(about))]
        try:
            outcome = session.link.write(beat)
        except Unknown:
            outcome = session.link.write(beat)  # written twice is as good as written once
        if isinstance(outcome, Failure):
            self._forget(name)
            return Renewed(False)
        session.renewed = began
        self._end_overdue(name)
        self._tell_turns(session)
        return Renewed(True, self._asks.held_by(name))

    def _end_overdue(self, living: str) -> None:
        """A worker that did not reach the store for a whole ttl opens another session, and never comes back to the old
        one. kazoo does: it finds its way to the server again, and one that was away itself has not counted the time.
        """
        now = self._clock()
        for session in [
            each for each in self._open.values() if each.name != living and now - each.renewed > each.about.ttl
        ]:
            self._forget(session.name)

    def _tell_turns(self, session: Session) -> None:
        """How far the turn of each kind has come, so that the children of new parents begin there and not at the end
        of the line.
        """
        link = self._tree.link
        for kind, turn in self._tree.turns.items():
            if session.told.get(kind, 0) >= turn:
                continue
            path = places.turn(kind)
            while True:
                node = link.node(path)
                if node is not None and int(node.data or b"0") >= turn:
                    break
                op = wire.create(path, b"%d" % turn) if node is None else wire.put(path, b"%d" % turn, "", node.version)
                outcome = link.write([op])
                if not isinstance(outcome, Failure):
                    break
                if outcome.code == NO_NODE and node is None:
                    link.write([wire.create(folder) for folder in chain(parent_of(path))])
                elif outcome.code not in (NO_NODE, BAD_VERSION, wire.NODE_EXISTS):
                    break
            session.told[kind] = turn

    def close(self, name: str) -> None:
        session = self._open.pop(name, None)
        if session is None:
            return
        session.link.stop()
        held = self._release(name)
        link = self._tree.link
        link.sync()  # whoever reads after this sees the claims free
        if link.node(places.session(name)) is not None:
            # The server could not be told: what we know of is freed by hand, the rest when its ttl is over.
            link.write([wire.delete(places.session(name))])
            for seen in held:
                link.write([wire.delete(f"{seen.layout.home(seen.ref.id)}/lock")])
        link.write([wire.delete(places.worker(name))])
        self._tree.rings()

    def all(self) -> list[SessionInfo]:
        link = self._tree.link
        names = sorted(link.names(places.SESSIONS))
        found = []
        for name, node in zip(names, link.nodes([places.session(name) for name in names]), strict=True):
            if node is not None:
                said = msgspec.json.decode(node.data, type=About)
                found.append(
                    SessionInfo(name, said.host, said.since, self._tree.now() + said.ttl, said.about, said.progress)
                )
        return found

    def reap(self) -> list[str]:
        """ZooKeeper ends sessions itself; here their names are told, once, and what they left is taken away."""
        link = self._tree.link
        workers, living = link.read([wire.names(places.WORKERS), wire.names(places.SESSIONS)])
        gone = sorted(set(workers or ()) - set(living or ()))
        dead = [name for name in gone if not isinstance(link.write([wire.delete(places.worker(name))]), Failure)]
        if dead:
            self._tree.rings()
        return dead

    def leave(self) -> None:
        """The connection goes. Sessions that were not closed live on until their ttl is over: a step may still run
        under them.
        """
        for session in self._open.values():
            session.link.abandon()
        self._open.clear()
        self._tree.held.clear()

    def _forget(self, name: str) -> None:
        session = self._open.pop(name, None)
        if session is not None:
            # Beside us: a link that is trying a server which swallows everything waits for it, perhaps longer than our
            # next session lives.
            stopping = threading.Thread(target=session.link.stop, name="ends a lost session", daemon=True)
            stopping.start()
            stopping.join(STOPPING)
        self._release(name)

    def _release(self, name: str) -> list[Seen]:
        """Forget what it held."""
        mine = [seen for seen in self._tree.held.values() if seen.holder == name]
        for seen in mine:
            del self._tree.held[seen.ref]
        return mine
