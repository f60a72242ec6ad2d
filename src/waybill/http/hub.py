"""Live changes: one thread looks at the store for all who listen.

A store has no feed of changes, so what is sent are snapshots: a *topic* is one thing that can be read (how many
shipments are in each state, one record, who works now), and listeners are told when what is read differs from what was
read before. Every listener begins with the present snapshot of its topics; to resume is to listen again.

    nobody listens          the thread sleeps and holds no connection
    somebody listens        it reads each topic that somebody wants once: after a hint of the store (`watch`), after a change made by this
                            process (`hint`), else every few seconds; never more often than GAP
    a listener is slow      its queue is bounded; when it is full the listener is dropped, told so, and may come again
    the store is away       listeners are told, and told again when it is back

So the reads depend on what is shown and on how often it changes, not on how many look.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any, Literal, NamedTuple

import msgspec

from waybill.record import Ref, Store, StoreError

log = logging.getLogger("waybill.http")

GAP = 0.25  # seconds between two looks, at least
# seconds between two looks when nothing hints at a change: hints are lossy, and tell of claimable records only
LOOK = 2.0
RECHECK = 30.0  # seconds after which a stream whose token was revoked ends, at the latest
AWAY = 2.0  # seconds between two tries to reach a store that is away
QUEUE = 64  # events that wait for a slow listener
MAX_LISTENERS = 1000

Change = tuple[str, bytes]  # an event's name and its JSON
END: None = None


What = Literal["tally", "record", "sessions", "marks"]


class Topic(NamedTuple):
    what: What
    kind: str = ""
    id: str = ""
    parent: Ref | None = None


Read = Callable[[Store, Iterable[Topic]], dict[Topic, Any]]


class Full(Exception):
    """Too many listen already."""


class Listener:
    """Somebody who listens. Only the event loop touches its queue."""

    def __init__(self, topics: Iterable[Topic], token: str | None) -> None:
        self.topics = frozenset(topics)
        self.token = token
        self.loop = asyncio.get_running_loop()
        self.queue: asyncio.Queue[Change | str | None] = asyncio.Queue()  # a text is a comment; None: the end
        self.ended = False

    def offer(self, change: Change) -> None:
        if self.queue.qsize() >= QUEUE:
            self.end("dropped: this reader is too slow; listen again to go on from the present")
        elif not self.ended:
            self.queue.put_nowait(change)

    def end(self, comment: str) -> None:
        if self.ended:
            return
        self.ended = True
        while not self.queue.empty():
            self.queue.get_nowait()
        self.queue.put_nowait(comment)
        self.queue.put_nowait(END)


class Hub:
    """`read` answers a topic's snapshot from the store; `valid` whether a token still lets its holder listen."""

    def __init__(
        self,
        open_store: Callable[[], Store],
        read: Read,
        valid: Callable[[Store, str], bool],
        *,
        gap: float = GAP,
        look: float = LOOK,
        recheck: float = RECHECK,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._open_store = open_store
        self._read = read
        self._valid = valid
        self._gap, self._look, self._recheck, self._clock = gap, look, recheck, clock
        self.watching = threading.Event()  # set while the thread waits for the store to hint
        self._changed = threading.Condition()  # guards all below
        self._listeners: set[Listener] = set()
        self._last: dict[Topic, bytes] = {}
        self._available = True
        self._hinted = False
        self._stopping = False
        self._store: Store | None = None
        self._thread: threading.Thread | None = None

    @property
    def listeners(self) -> int:
        return len(self._listeners)

    # --- called on the event loop

    def join(self, topics: Iterable[Topic], token: str | None) -> Listener:
        listener = Listener(topics, token)
        with self._changed:
            if self._stopping or len(self._listeners) >= MAX_LISTENERS:
                raise Full
            self._listeners.add(listener)
            if not self._available:
                listener.offer(_availability(False))
            for topic in sorted(listener.topics, key=str):
                if topic in self._last:
                    listener.offer((topic.what, self._last[topic]))
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="waybill-events", daemon=True)
                thread.start()
                self._thread = thread
        self.hint()
        return listener

    def leave(self, listener: Listener) -> None:
        with self._changed:
            self._listeners.discard(listener)
            self._changed.notify_all()
            idle = self._store if not self._listeners else None
            if idle is not None:
                idle.interrupt()

    # --- called from any thread

    def hint(self) -> None:
        """Something was changed by this process: look now."""
        with self._changed:
            if not self._listeners:
                return
            self._hinted = True
            self._changed.notify_all()
            if self._store is not None:
                self._store.interrupt()

    def stop(self) -> None:
        """End all streams, at once; nobody is let in any more."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
            if self._store is not None:
                self._store.interrupt()
            for listener in self._listeners:
                listener.loop.call_soon_threadsafe(listener.end, "the server is stopping")

    def close(self) -> None:
        """Stop, and wait for the thread."""
        self.stop()
        if self._thread is not None:
            self._thread.join()

    # --- the thread

    def _run(self) -> None:
        while self._wait_for_listeners():
            try:
                self._serve()
            except StoreError as error:
                log.warning("live changes without the store: %s", error)
                self._wait_for_store()
            except Exception:
                # A mistake in what is shown must not end live changes for good, and with them every page.
                log.exception("live changes stumbled")
                self._wait_for_store()

    def _wait_for_store(self) -> None:
        self._tell(available=False)
        with self._changed:
            self._changed.wait_for(lambda: self._stopping, AWAY)

    def _wait_for_listeners(self) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: self._stopping or bool(self._listeners))
            return not self._stopping

    def _serve(self) -> None:
        """On one connection, as long as it holds and somebody listens."""
        store = self._open_store()
        try:
            with self._changed:
                self._store = store
            checked = self._clock()
            while topics := self._wanted():
                self._look_at(store, topics)
                self._tell(available=True)
                if self._clock() - checked >= self._recheck:
                    checked = self._clock()
                    self._dismiss(store)
                self._pause(store)
        finally:
            with self._changed:
                self._store = None
            store.close()

    def _wanted(self) -> set[Topic]:
        """What somebody listens to now; the rest is forgotten, so that whoever comes later begins with a fresh
        reading.
        """
        with self._changed:
            topics = set() if self._stopping else {topic for listener in self._listeners for topic in listener.topics}
            self._last = {topic: body for topic, body in self._last.items() if topic in topics}
            self._hinted = False
        return topics

    def _look_at(self, store: Store, topics: set[Topic]) -> None:
        found = {topic: msgspec.json.encode(view) for topic, view in self._read(store, sorted(topics, key=str)).items()}
        with self._changed:
            changed = {topic: body for topic, body in found.items() if self._last.get(topic) != body}
            self._last.update(changed)
            self._send(
                {
                    listener: [(t.what, b) for t, b in changed.items() if t in listener.topics]
                    for listener in self._listeners
                }
            )

    def _tell(self, available: bool) -> None:
        with self._changed:
            if self._available != available:
                self._available = available
                self._send({listener: [_availability(available)] for listener in self._listeners})

    def _send(self, changes: dict[Listener, list[Change]]) -> None:
        """One call into each event loop, whoever listens there."""
        for loop in {listener.loop for listener, some in changes.items() if some}:
            loop.call_soon_threadsafe(
                _deliver, [(listener, some) for listener, some in changes.items() if listener.loop is loop]
            )

    def _dismiss(self, store: Store) -> None:
        """Streams whose token was revoked since they began."""
        with self._changed:
            tokens = {listener.token for listener in self._listeners}
        gone = {token for token in tokens if token is not None and not self._valid(store, token)}
        with self._changed:
            for listener in self._listeners:
                if listener.token in gone:
                    listener.loop.call_soon_threadsafe(listener.end, "the token is not valid any more")

    def _pause(self, store: Store) -> None:
        """Until there may be something new to see."""
        with self._changed:
            self._changed.wait_for(lambda: self._stopping, self._gap)
            if self._stopping or self._hinted or not self._listeners:
                return
        self.watching.set()
        store.watch(self._look)
        self.watching.clear()


def _availability(available: bool) -> Change:
    return "store", msgspec.json.encode({"available": available})


def _deliver(changes: list[tuple[Listener, list[Change]]]) -> None:
    for listener, some in changes:
        for change in some:
            listener.offer(change)
