"""The change feed: one thread reads the store for all listeners.

A store has no feed of changes, so snapshots are sent: a *topic* is one readable view (how many shipments are in each
state, one record, the sessions), and its listeners get a message when the view differs from the one sent before. Every
listener starts with the present snapshot of its topics; to resume is to listen again.

    no listeners               the thread sleeps and holds no connection
    listeners                  each topic is read once for all of them: when the store signals a change (`Store.watch`), after a change made
                               by this process (`notify_changed`), else every few seconds; never more often than MIN_INTERVAL
    a slow listener            its queue is bounded; when the queue is full the stream ends with a comment, and the client may listen again
    the store is unavailable   listeners get a message, and another when it is back

So the number of reads depends on what is shown and how often it changes, not on the number of listeners.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any, Literal, NamedTuple

import msgspec

from waybill.http.errors import HttpProblem
from waybill.record import Ref, Store, StoreError, Visibility

log = logging.getLogger("waybill.http")

MIN_INTERVAL = 0.25  # seconds between two reads, at least
# seconds between two reads without a signal: signals can be lost, and the store signals claimable records only
POLL_INTERVAL = 0.75
TOKEN_CHECK_INTERVAL = 30.0  # seconds after which a stream whose token was revoked ends, at the latest
RETRY_INTERVAL = 2.0  # seconds between two attempts to reach a store that is unavailable
MAX_QUEUED = 64  # messages that wait for a slow listener
MAX_LISTENERS = 1000

FeedMessage = tuple[str, bytes]  # an event's name and its JSON
END_OF_FEED: None = None


TopicType = Literal["counts", "record", "sessions", "holds", "events"]


class FeedTopic(NamedTuple):
    type: TopicType
    kind: str = ""
    id: str = ""
    parent: Ref | None = None
    # of counts and records: what its listeners may see, so that those who see the same share it; None: all
    visibility: Visibility | None = None


TopicReader = Callable[[Store, Iterable[FeedTopic]], dict[FeedTopic, Any]]


class FeedListener:
    """One stream. Only the event loop uses its queue."""

    def __init__(self, topics: Iterable[FeedTopic], token: str | None) -> None:
        self.topics = frozenset(topics)
        self.token = token
        self.loop = asyncio.get_running_loop()
        self.queue: asyncio.Queue[FeedMessage | str | None] = (
            asyncio.Queue()
        )  # a str is a comment; None ends the stream
        self.has_ended = False

    def enqueue(self, message: FeedMessage) -> None:
        if self.queue.qsize() >= MAX_QUEUED:
            self.end("dropped: this reader is too slow; listen again to continue from the present")
        elif not self.has_ended:
            self.queue.put_nowait(message)

    def end(self, comment: str) -> None:
        if self.has_ended:
            return
        self.has_ended = True
        while not self.queue.empty():
            self.queue.get_nowait()
        self.queue.put_nowait(comment)
        self.queue.put_nowait(END_OF_FEED)


class ChangeFeed:
    """`read` reads the snapshots of topics; `is_token_valid` says whether a token still allows to listen."""

    def __init__(
        self,
        open_store: Callable[[], Store],
        read: TopicReader,
        is_token_valid: Callable[[Store, str], bool],
        *,
        min_interval: float = MIN_INTERVAL,
        poll_interval: float = POLL_INTERVAL,
        token_check_interval: float = TOKEN_CHECK_INTERVAL,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._open_store = open_store
        self._read = read
        self._is_token_valid = is_token_valid
        self._min_interval, self._poll_interval, self._token_check_interval, self._clock = (
            min_interval,
            poll_interval,
            token_check_interval,
            clock,
        )
        self.is_watching = threading.Event()  # set while the thread waits for a signal of the store
        self._changed = threading.Condition()  # guards all below
        self._listeners: set[FeedListener] = set()
        self._last_sent: dict[FeedTopic, bytes] = {}
        self._is_available = True
        self._has_hint = False
        self._is_stopping = False
        self._store: Store | None = None
        self._thread: threading.Thread | None = None

    @property
    def listener_count(self) -> int:
        return len(self._listeners)

    # --- called on the event loop

    def add_listener(self, topics: Iterable[FeedTopic], token: str | None) -> FeedListener:
        listener = FeedListener(topics, token)
        with self._changed:
            if self._is_stopping or len(self._listeners) >= MAX_LISTENERS:
                raise HttpProblem(
                    "busy", "There are too many streams of live changes already, or the server is stopping."
                )
            self._listeners.add(listener)
            if not self._is_available:
                listener.enqueue(_availability_message_of(False))
            for topic in sorted(listener.topics, key=str):
                if topic in self._last_sent:
                    listener.enqueue((topic.type, self._last_sent[topic]))
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="waybill-changes", daemon=True)
                thread.start()
                self._thread = thread
        self.notify_changed()
        return listener

    def remove_listener(self, listener: FeedListener) -> None:
        with self._changed:
            self._listeners.discard(listener)
            self._changed.notify_all()
            idle = self._store if not self._listeners else None
            if idle is not None:
                idle.interrupt_watch()

    # --- called from any thread

    def notify_changed(self) -> None:
        """This process has changed something: read now."""
        with self._changed:
            if not self._listeners:
                return
            self._has_hint = True
            self._changed.notify_all()
            if self._store is not None:
                self._store.interrupt_watch()

    def stop(self) -> None:
        """End all streams at once, and accept no more."""
        with self._changed:
            self._is_stopping = True
            self._changed.notify_all()
            if self._store is not None:
                self._store.interrupt_watch()
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
                log.warning("the change feed cannot read the store: %s", error)
                self._wait_for_store()
            except Exception:
                # A bug in a view must not end the feed for good, and with it every page.
                log.exception("the change feed failed")
                self._wait_for_store()

    def _wait_for_store(self) -> None:
        self._publish_availability(available=False)
        with self._changed:
            self._changed.wait_for(lambda: self._is_stopping, RETRY_INTERVAL)

    def _wait_for_listeners(self) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: self._is_stopping or bool(self._listeners))
            return not self._is_stopping

    def _serve(self) -> None:
        """Read and publish on one connection, as long as it works and there are listeners."""
        store = self._open_store()
        try:
            with self._changed:
                self._store = store
            tokens_checked_at = self._clock()
            while topics := self._collect_topics():
                self._publish_changes(store, topics)
                self._publish_availability(available=True)
                if self._clock() - tokens_checked_at >= self._token_check_interval:
                    tokens_checked_at = self._clock()
                    self._end_revoked_listeners(store)
                self._wait_for_change(store)
        finally:
            with self._changed:
                self._store = None
            store.close()

    def _collect_topics(self) -> set[FeedTopic]:
        """The topics that have listeners now. Snapshots of the others are forgotten, so that a later listener starts with
        a fresh one.
        """
        with self._changed:
            topics = (
                set() if self._is_stopping else {topic for listener in self._listeners for topic in listener.topics}
            )
            self._last_sent = {topic: body for topic, body in self._last_sent.items() if topic in topics}
            self._has_hint = False
        return topics

    def _publish_changes(self, store: Store, topics: set[FeedTopic]) -> None:
        bodies = {
            topic: msgspec.json.encode(view) for topic, view in self._read(store, sorted(topics, key=str)).items()
        }
        with self._changed:
            changed = {topic: body for topic, body in bodies.items() if self._last_sent.get(topic) != body}
            self._last_sent.update(changed)
            self._send(
                {
                    listener: [(topic.type, body) for topic, body in changed.items() if topic in listener.topics]
                    for listener in self._listeners
                }
            )

    def _publish_availability(self, available: bool) -> None:
        with self._changed:
            if self._is_available != available:
                self._is_available = available
                self._send({listener: [_availability_message_of(available)] for listener in self._listeners})

    def _send(self, deliveries: dict[FeedListener, list[FeedMessage]]) -> None:
        """One call into each event loop, for all its listeners."""
        for loop in {listener.loop for listener, messages in deliveries.items() if messages}:
            loop.call_soon_threadsafe(
                _deliver_messages,
                [(listener, messages) for listener, messages in deliveries.items() if listener.loop is loop],
            )

    def _end_revoked_listeners(self, store: Store) -> None:
        """End the streams whose token was revoked since they started."""
        with self._changed:
            tokens = {listener.token for listener in self._listeners}
        revoked = {token for token in tokens if token is not None and not self._is_token_valid(store, token)}
        with self._changed:
            for listener in self._listeners:
                if listener.token in revoked:
                    listener.loop.call_soon_threadsafe(
                        listener.end, "the token is not valid any more, or allows something else: listen again"
                    )

    def _wait_for_change(self, store: Store) -> None:
        """Wait until there may be a change."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_stopping, self._min_interval)
            if self._is_stopping or self._has_hint or not self._listeners:
                return
        self.is_watching.set()
        store.watch(self._poll_interval)
        self.is_watching.clear()


def _availability_message_of(available: bool) -> FeedMessage:
    return "store", msgspec.json.encode({"available": available})


def _deliver_messages(deliveries: list[tuple[FeedListener, list[FeedMessage]]]) -> None:
    for listener, messages in deliveries:
        for message in messages:
            listener.enqueue(message)
