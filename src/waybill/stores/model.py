"""The model store: what a store is, in plain dicts, for tests and the simulator. It keeps nothing when the process
ends.

Each `ModelStore` is one connection to a `World`, which they share. Every call is atomic and nothing depends on wall
time, threads or the order of sets, so the same calls give the same answers: a simulator interleaves connections between
calls, and takes a snapshot of the world's shelf or puts one back. (`watch` with a timeout is the one verb that waits,
by a real clock; a simulator asks it with 0.)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from waybill.record import (
    MAX_PAGE,
    NO_DOCS,
    Answer,
    Ask,
    Claimed,
    Conflict,
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
    SessionLost,
)
from waybill.stores.groups import vet
from waybill.stores.presence import Presence
from waybill.stores.world import Shelf, World, urgency

__all__ = ["ModelStore", "Shelf", "World"]

replace = msgspec.structs.replace
WAITERS = "waiters wait for what is held"
STOPPED = "marks stop while they are in force"


class ModelStore:
    """One connection to a world."""

    def __init__(self, world: World) -> None:
        self.url = "model:"
        self.world = world
        self._presence = Presence(world.clock())
        self._heard = world.shelf.rung
        self._interrupted = False
        self._handed = 0

    @property
    def _shelf(self) -> Shelf:
        return self.world.shelf

    def now(self) -> float:
        now = self.world.clock()
        self._presence.touch(now)
        return now

    def commit(self, groups: Sequence[Group]) -> list[Answer]:
        self.now()
        return [refusal or self.world.apply(group) for group, refusal in zip(groups, vet(groups), strict=True)]

    # --- reading

    def get(self, kind: str, id: str) -> Record:
        try:
            return self._shelf.records[Ref(kind, id)]
        except KeyError:
            raise NotFound(f"There is no {kind} {id}.") from None

    def requested(self, kind: str, request: str) -> Record:
        found = next((r for r in self._shelf.records.values() if r.kind == kind and r.request == request), None)
        if found is None:
            raise NotFound(f"No {kind} was made by the request {request}.")
        return found

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
        wanted = {
            name: value for name, value in (("state", state), ("parent", parent), ("owner", owner)) if value is not None
        }
        if len(wanted) > 1:
            raise ValueError(f"find by one of {', '.join(wanted)}, not by several")
        found = [
            r
            for r in self._shelf.records.values()
            if r.kind == kind and all(getattr(r, n) == v for n, v in wanted.items())
        ]
        if newest:
            found.reverse()
        if after is not None:
            found = [r for r in found if (r.seq < after if newest else r.seq > after)]
        limit = min(limit, MAX_PAGE)
        page = [r if docs else replace(r, docs=NO_DOCS) for r in found[:limit]]
        return Page(page, page[-1].seq if len(found) > limit else None)

    def tally(self, kind: str, *, parent: Ref | None = None) -> dict[str, int]:
        counts: dict[str, int] = {}
        for record in self._shelf.records.values():
            if record.kind == kind and parent in (None, record.parent):
                counts[record.state] = counts.get(record.state, 0) + 1
        return counts

    def open_parents(self, refs: Sequence[Ref]) -> set[Ref]:
        return {ref for ref in refs if self.world.has_open_child(ref)}

    def history(self, kind: str, id: str) -> list[Line]:
        return list(self._shelf.lines.get(Ref(kind, id), ()))

    # --- sessions and claims

    def open_session(self, *, host: str, ttl: float, about: Mapping[str, Any]) -> str:
        now = self.now()
        self._shelf.opened += 1
        name = f"session-{self._shelf.opened}"
        self._shelf.sessions[name] = (SessionInfo(name, host, now, now + ttl, dict(about)), ttl)
        return name

    def renew(self, session: str, progress: Mapping[str, Any] | None = None) -> Renewed:
        now = self.now()
        if session not in self._shelf.sessions:
            return Renewed(False)
        info, ttl = self._shelf.sessions[session]
        info = replace(info, expires=now + ttl, progress=info.progress if progress is None else dict(progress))
        self._shelf.sessions[session] = (info, ttl)
        return Renewed(
            True, tuple(ask for ref, ask in self._shelf.asks.items() if self._shelf.records[ref].session == session)
        )

    def close_session(self, session: str) -> None:
        self.now()
        self.world.end_session(session)

    def sessions(self) -> list[SessionInfo]:
        return [info for info, _ in self._shelf.sessions.values()]

    def claim(self, roles: Sequence[Role], session: str, limit: int) -> list[Claimed]:
        host = self._host(session)
        holds = {(role.kind, role.state): role.holds for role in roles}
        claimed: list[Claimed] = []
        while len(claimed) < limit:
            able = [
                r
                for r in self._shelf.records.values()
                if (r.kind, r.state) in holds and r.session is None and r.parked is None
            ]
            able = [r for r in able if r.host in ("", host)]
            if not able:
                break
            by_age = self._handed % 10 == 9  # every tenth, so that no stream of urgent work shuts out the rest
            record = able[0] if by_age else min(able, key=urgency)
            answer = self.world.hand_out(record.ref, session, holds[record.kind, record.state])
            if isinstance(answer, str):
                self.world.park(record.ref, answer)
            else:
                claimed.append(answer)
                self._handed += 1
        return claimed

    def take(self, kind: str, id: str, session: str) -> Claimed:
        host = self._host(session)
        record = self.get(kind, id)
        waits = record.wake_at - self.now() if record.parked == "wait" else 0.0
        if record.session is not None:
            raise Conflict(f"{kind} {id} is held by {record.session}.")
        if record.host not in ("", host):
            raise Conflict(f"{kind} {id} can only be worked on at {record.host}, where its files are.")
        if waits > 0 or record.parked == "children":
            raise Conflict(f"{kind} {id} waits for {f'another {waits:.0f} s' if waits > 0 else 'its children'}.")
        answer = self.world.hand_out(record.ref, session, False)
        if isinstance(answer, str):
            raise Conflict(f"{kind} {id} is stopped by {answer}.")
        return answer

    def _host(self, session: str) -> str:
        self.now()
        if session not in self._shelf.sessions:
            raise SessionLost()
        return self._shelf.sessions[session][0].host

    def ask(self, ask: Ask) -> bool:
        if self.get(*ask.ref).session is None:
            return False
        if ask.ref in self._shelf.asks:
            raise Conflict(f"{ask.ref} was asked to {self._shelf.asks[ask.ref].action} and has not answered yet.")
        self._shelf.asks[ask.ref] = ask
        return True

    def asks(self, limit: int = 100) -> list[Ask]:
        return [ask for ref, ask in self._shelf.asks.items() if self._shelf.records[ref].session is None][:limit]

    # --- marks, waits, upkeep

    def mark(self, name: str, on: bool, who: str = "", why: str = "") -> None:
        if on:
            self._shelf.marks[name] = f"{who}: {why}" if why else who
        elif self._shelf.marks.pop(name, None) is not None:
            self.world.unpark(lambda reason: reason == f"mark {name}", len(self._shelf.records))
            self.world.ring()

    def marks(self) -> dict[str, str]:
        return dict(sorted(self._shelf.marks.items()))

    def held_keys(self, *, after: str = "", limit: int = MAX_PAGE) -> list[HeldKey]:
        return [HeldKey(name, ref) for name, ref in sorted(self._shelf.keys.items()) if name > after][
            : max(1, min(limit, MAX_PAGE))
        ]

    def free_key(self, name: str) -> bool:
        if name in self._shelf.keys:
            raise Conflict(
                f"{name} is held by {self._shelf.keys[name]}, which drops it when it moves on; it is not taken from it."
            )
        return False

    def watch(self, timeout: float) -> bool:
        with self.world.bell:
            self.world.bell.wait_for(lambda: self._interrupted or self._heard != self._shelf.rung, timeout)
        heard, self._heard = self._heard != self._shelf.rung, self._shelf.rung
        self._interrupted = False
        return heard

    def interrupt(self) -> None:
        with self.world.bell:
            self._interrupted = True
            self.world.bell.notify_all()

    def wake(self, limit: int = MAX_PAGE) -> Due:
        now = self.now()
        waits = sorted(
            (r for r in self._shelf.records.values() if r.parked == "wait"), key=lambda r: (r.wake_at, r.seq)
        )
        due = [r for r in waits if r.wake_at <= now][:limit]
        for record in due:
            self._shelf.records[record.ref] = replace(record, parked=None, wake_at=0.0)
        if due:
            self.world.ring()
        return Due(len(due), max(0.0, waits[len(due)].wake_at - now) if len(waits) > len(due) else None)

    def reap(self) -> list[str]:
        now = self.now()
        dead = self._presence.dead(
            [(n, ttl) for n, (info, ttl) in self._shelf.sessions.items() if info.expires <= now], now
        )
        for name in dead:
            self.world.end_session(name)
        return dead

    def sweep(self, limit: int = MAX_PAGE) -> int:
        waited = dict.fromkeys(
            r.parked[4:] for r in self._shelf.records.values() if r.parked and r.parked.startswith("key ")
        )
        mended = self.world.pass_turn([key for key in waited if key not in self._shelf.keys][:limit])
        return mended + self.world.unpark(
            lambda reason: reason.startswith("mark ") and reason[5:] not in self._shelf.marks, limit
        )

    def idle_parents(self, *, after: str = "", limit: int = MAX_PAGE) -> Idle:
        waiting = sorted(
            (r.seq, ref) for ref, r in self._shelf.records.items() if r.parked == "children" and r.seq > int(after or 0)
        )
        idle = [ref for _, ref in waiting[:limit] if not self.world.has_open_child(ref)]
        return Idle(idle, str(waiting[limit - 1][0]) if len(waiting) > limit else None)

    def remember(self, name: str, value: str) -> str:
        return self._shelf.kept.setdefault(name, value)

    def check(self) -> Iterator[Finding]:
        for ref, record in self._shelf.records.items():
            if record.session is not None and record.session not in self._shelf.sessions:
                yield Finding(
                    "held by the living", str(ref), f"held by {record.session}, which has ended", "free it", ref=ref
                )
            for key in record.keys if record.session is not None else ():
                if self._shelf.keys.get(key) != ref:
                    yield Finding(
                        "what is worked on has its keys",
                        str(ref),
                        f"worked on without the key {key}",
                        "free it",
                        ref=ref,
                    )
            reason, _, name = (record.parked or "").partition(" ")
            if reason == "key" and name not in self._shelf.keys and not self._is_wanted(name):
                yield Finding(
                    WAITERS,
                    str(ref),
                    f"waits for the key {name}, which nobody holds or is about to take",
                    "free it",
                    ref=ref,
                )
            if reason == "mark" and name not in self._shelf.marks:
                yield Finding(STOPPED, str(ref), f"stopped by the mark {name}, which is off", "free it", ref=ref)
        for key, ref in self._shelf.keys.items():
            if ref not in self._shelf.records or key not in self._shelf.records[ref].keys:
                yield Finding(
                    "keys have holders", key, f"held by {ref}, which does not have it", "let go of it", ref=ref
                )

    def _is_wanted(self, key: str) -> bool:
        """Whether a record is on its way to it: free, not parked, and asking for it."""
        return any(key in r.keys and r.session is None and r.parked is None for r in self._shelf.records.values())

    def mend(self, finding: Finding) -> bool:
        if finding not in list(self.check()):
            return False
        record = self._shelf.records.get(finding.ref) if finding.ref else None
        if finding.rule == "keys have holders":
            del self._shelf.keys[finding.where]
        elif record is not None and finding.rule in (WAITERS, STOPPED):
            self._shelf.records[record.ref] = replace(record, parked=None)
        elif record is not None:
            self._shelf.records[record.ref] = replace(record, session=None, version=record.version + 1)
        return True

    def close(self) -> None:
        """Nothing to let go of."""
