"""What comes, ends and fails, per minute, kind and scope: counted where records are written, and kept for eight days.

    a commit is written -> ActivityRecorder notes it in memory -> every few seconds it is added to the record of its hour -> pages draw it

The records are of the built-in kind `activity`, one for each hour that had any, with the document `minutes`:

    {"04:31": {"parcel": {"": [arrived, ended, failed]}}}      by minute, kind and scope

Every long-lived process (`waybill up`, `serve`, `work`) has a recorder, and all add to the same record; so a restart loses nothing. A
process that is killed loses what it counted in its last FLUSH_INTERVAL seconds. Records that a single command writes are not counted as
arrived; what becomes of them is. Nobody decides by these numbers: they are for charts.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime
from typing import Any, NamedTuple, cast

from waybill.engine import Engine
from waybill.machine import FAILED, Document, Machine, action, end, rest
from waybill.record import (
    Change,
    CommitAnswer,
    CommitGroup,
    CommitResult,
    Conflict,
    DocumentStruct,
    Record,
    RecordExists,
    RecordNotFound,
    Ref,
    Store,
    StoreError,
    encode_document,
)
from waybill.rules import Machines
from waybill.step import New

DAY, HOUR, MINUTE = 86400.0, 3600.0, 60.0
KEEP = 8 * DAY
FLUSH_INTERVAL = 5.0  # seconds
MAX_ATTEMPTS = 10  # to add to a record that other processes keep adding to
MAX_SCOPES = 100  # of a kind in a minute; what is beyond counts without a scope
log = logging.getLogger("waybill")


class ActivityMinutes(DocumentStruct, frozen=True):
    """What happened in an hour: by minute, kind and scope how many arrived, ended and failed."""

    minutes: dict[str, dict[str, dict[str, tuple[int, int, int]]]]


ACTIVITY = Machine(
    name="activity",
    plural="hours of activity",
    description="What arrived, ended and failed in an hour.",
    made_by="every process that writes records",
    states=(
        rest("Kept", description="For charts; it is removed after eight days.", settled=True, keep=KEEP),
        end("Forgotten", description="No chart shows it any more.", keep=DAY),
    ),
    actions=(action("forget", "Kept", "Forgotten", "Show it in no chart any more.", role="admin"),),
    documents=(Document("minutes", ActivityMinutes, "service", "By minute, kind and scope: arrived, ended, failed."),),
)  # fmt: skip


class ActivityKey(NamedTuple):
    minute: int  # since 1970
    kind: str
    scope: str
    event: int  # 0 arrived, 1 ended, 2 failed


class ActivityRecorder:
    """Counts what the stores of a process write, and adds it to the records. Thread-safe."""

    def __init__(self, open_store: Callable[[], Store], machines: Machines, left_out: Iterable[str] = ()) -> None:
        self._open_store = open_store
        self._machines = machines
        self._left_out = frozenset((ACTIVITY.name, *left_out))
        self._lock = threading.Lock()
        self._pending: Counter[ActivityKey] = Counter()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="activity", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Write what is left, and end."""
        self._stopping.set()
        self._thread.join()

    def watch(self, store: Store) -> Store:
        """The same store, whose commits are counted."""
        return cast(Store, WatchedStore(store, self))

    def note(self, groups: Sequence[CommitGroup], answers: Sequence[CommitAnswer], now: float) -> None:
        minute = int(now // MINUTE)
        found = Counter(
            ActivityKey(minute, change.ref.kind, change.after.scope, event)
            for group, answer in zip(groups, answers, strict=True)
            if isinstance(answer, CommitResult)
            for change in group.changes
            if change.after is not None and (event := self._find_event(change)) is not None
        )
        if found:
            with self._lock:
                self._pending.update(found)

    def _find_event(self, change: Change) -> int | None:
        before, after = change.before, change.after
        assert after is not None
        if after.kind in self._left_out or after.kind not in self._machines:
            return None
        if before is None:
            return 0
        if before.state == after.state or not before.open or after.open:
            return None
        machine = self._machines[after.kind]
        is_failed = after.state == FAILED or any(state.on_fail == after.state for state in machine.states)
        return 2 if is_failed else 1

    def _run(self) -> None:
        while not self._stopping.wait(FLUSH_INTERVAL):
            self._flush()
        self._flush()

    def _flush(self) -> None:
        with self._lock:
            pending, self._pending = self._pending, Counter()
        if not pending:
            return
        try:
            with closing(self._open_store()) as store:
                add_activity(store, self._machines, pending)
        except StoreError as error:  # the store is away: they are added when it is back
            log.debug("activity is kept until the store is back: %s", error)
            with self._lock:
                self._pending.update(pending)


class WatchedStore:
    """A store whose commits are counted."""

    def __init__(self, store: Store, recorder: ActivityRecorder) -> None:
        self._store, self._recorder = store, recorder

    def commit(self, groups: Sequence[CommitGroup]) -> list[CommitAnswer]:
        answers = self._store.commit(groups)
        self._recorder.note(groups, answers, self._store.now())
        return answers

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


def add_activity(store: Store, machines: Machines, counts: Mapping[ActivityKey, int]) -> None:
    """Add counts to the records of their hours."""
    hours: dict[str, list[tuple[ActivityKey, int]]] = {}
    for key, n in counts.items():
        hours.setdefault(_hour_id_of(key.minute * MINUTE), []).append((key, n))
    for id, found in hours.items():
        for _ in range(MAX_ATTEMPTS):
            try:
                _add_to_hour(store, machines, id, found)
                break
            except (Conflict, RecordExists):
                continue  # another process has added meanwhile: read it again
        else:
            log.warning("the activity of %s cannot be written: others keep writing it", id)


def _add_to_hour(store: Store, machines: Machines, id: str, found: Iterable[tuple[ActivityKey, int]]) -> None:
    try:
        record: Record | None = store.get(ACTIVITY.name, id)
    except RecordNotFound:
        record = None
    written = record.find_document(ActivityMinutes) if record is not None else None
    minutes = {m: {k: dict(s) for k, s in kinds.items()} for m, kinds in (written.minutes if written else {}).items()}
    for key, n in found:
        at = datetime.fromtimestamp(key.minute * MINUTE, UTC)
        scopes = minutes.setdefault(f"{at:%H:%M}", {}).setdefault(key.kind, {})
        scope = key.scope if key.scope in scopes or len(scopes) < MAX_SCOPES else ""
        before = list(scopes.get(scope, (0, 0, 0)))
        before[key.event] += n
        scopes[scope] = (before[0], before[1], before[2])
    document = ActivityMinutes(minutes)
    if record is None:
        Engine(store, machines).submit(New(ACTIVITY.name, (document,), id=id))
        return
    declared = ACTIVITY.find_document("minutes")
    assert declared is not None
    body = encode_document({"v": declared.v, "minutes": minutes})
    # No history: nobody asks who counted. A second run after a lost answer counts twice, in a chart.
    (answer,) = store.commit([CommitGroup((Change(record, record, documents={"minutes": body}),))])
    if isinstance(answer, StoreError):
        raise answer


class ActivitySeries(NamedTuple):
    """Of one kind, the oldest first; the last of each is the present."""

    ended_by_hour: list[int]
    ended_by_minute: list[int]
    arrived: int  # in all these hours
    ended: int
    failed: int


def read_activity(store: Store, *, hours: int = 24, scopes: Sequence[str] | None = None) -> dict[str, ActivitySeries]:
    """What happened in the last hours, by kind. `scopes`: only what happened in these; None: everything."""
    now = store.now()
    ids = [_hour_id_of(now - n * HOUR) for n in reversed(range(hours))]
    records = store.get_many([Ref(ACTIVITY.name, id) for id in ids])
    by_minute: dict[str, Counter[tuple[int, int]]] = {}  # by kind: minutes ago, event
    by_hour: dict[str, Counter[tuple[int, int]]] = {}  # by kind: place of the hour, event
    this_minute = int(now // MINUTE)
    for place, id in enumerate(ids):
        record = records.get(Ref(ACTIVITY.name, id))
        is_kept = record is not None and record.state == ACTIVITY.initial_state
        document = record.find_document(ActivityMinutes) if record is not None and is_kept else None
        for text, kinds in (document.minutes if document is not None else {}).items():
            began = datetime.strptime(f"{id[:10]} {text}", "%Y-%m-%d %H:%M").replace(tzinfo=UTC).timestamp()
            ago = this_minute - int(began // MINUTE)
            for kind, of_scopes in kinds.items():
                for scope, numbers in of_scopes.items():
                    if scopes is not None and scope not in scopes:
                        continue
                    for event, n in enumerate(numbers):
                        by_hour.setdefault(kind, Counter())[place, event] += n
                        by_minute.setdefault(kind, Counter())[ago, event] += n
    return {
        kind: ActivitySeries(
            [counts[place, 1] for place in range(hours)],
            [by_minute[kind][ago, 1] for ago in reversed(range(60))],
            *(sum(counts[place, event] for place in range(hours)) for event in range(3)),
        )
        for kind, counts in by_hour.items()
    }


def _hour_id_of(at: float) -> str:
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%dT%H}"
