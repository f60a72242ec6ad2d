"""claim and take: the ephemeral lock, and the status written again with the same bytes, in one transaction under the
session.

    list      the queues of the roles (queues.py)
    look      at a portion of candidates with their documents, in one reading
    decide    claim | park on a mark or a key | pass over (held, bound to another host, moved)
    send      25 claims in a transaction; the first refused operation names a candidate that somebody else was faster with
    park      what may not be taken, if the reason still holds in the same transaction
"""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence

from msgspec.structs import replace

from waybill.record import Claimed, Conflict, NotFound, Ref, Role, SessionLost, StoreError, Unavailable
from waybill.stores.zookeeper import notes, places, wire
from waybill.stores.zookeeper.asks import Asks
from waybill.stores.zookeeper.candidates import Candidate, parking_ops
from waybill.stores.zookeeper.foreign import Foreign
from waybill.stores.zookeeper.layout import Entry
from waybill.stores.zookeeper.link import Pending
from waybill.stores.zookeeper.marks import Marks
from waybill.stores.zookeeper.names import key_path
from waybill.stores.zookeeper.parking import Parking
from waybill.stores.zookeeper.plan import Plan
from waybill.stores.zookeeper.queues import Queue, Queues
from waybill.stores.zookeeper.seen import Seen, caught_up, look, look_one
from waybill.stores.zookeeper.sessions import Session
from waybill.stores.zookeeper.side import encode as encode_side
from waybill.stores.zookeeper.tree import Tree
from waybill.stores.zookeeper.wire import Failure, Op

TOGETHER = 25  # claims in one transaction
LOOKS = 1000  # candidates that a call may look at in vain
BY_AGE = 10  # one in so many is taken by age, not by priority


class Claims:
    def __init__(
        self, tree: Tree, queues: Queues, marks: Marks, parking: Parking, asks: Asks, foreign: Foreign
    ) -> None:
        self._tree = tree
        self._queues = queues
        self._marks = marks
        self._parking = parking
        self._asks = asks
        self._foreign = foreign
        self._handed = 0
        self._crowded = False  # somebody else took what we wanted: look elsewhere in the queue
        self._random = random.Random()

    def claim(self, roles: Sequence[Role], session: Session, limit: int) -> list[Claimed]:
        holds = {(role.kind, role.state): role.holds for role in roles}
        self._foreign.adopt_new({role.kind for role in roles})
        queues, marks = self._queues.open(roles)
        taken: list[Candidate] = []
        looks = 0
        while len(taken) < limit and looks < LOOKS:
            try:
                picked = self._pick(queues, limit - len(taken))
                candidates = self._look(picked, session, holds, marks)
                got = self._send(candidates, session)
                taken += got
                self._handed += len(got)
                looks += len(picked) - len(got)
                if self._let_others_try(candidates, got, session):
                    queues, marks = self._queues.open(roles, again=True)
                elif not picked:
                    break
            except Unavailable:
                if not taken:
                    raise
                break  # what is ours must be handed out, or nobody would work on it while the session lives
        return self._hand_out(taken)

    def _let_others_try(self, candidates: Sequence[Candidate], got: Sequence[Candidate], session: Session) -> int:
        """Park what may not be taken; how many records may try for a key that these pass on to them."""
        offered = self._park([each for each in candidates if each.parks_on is not None], session)
        yielded = [key for each in got if each.mark is not None and each.seen.side for key in each.seen.side.keys]
        yielded += [key for each in got for key in each.drops]
        return offered + (self._parking.offer(yielded) if yielded else 0)

    def take(self, ref: Ref, session: Session) -> Claimed:
        marks = self._marks.in_force()
        for _ in range(10):
            seen = look_one(self._tree.link, ref, docs=True)
            if seen is None:
                raise NotFound(f"There is no {ref}.")
            if problem := self._cannot_take(seen, session):
                raise Conflict(f"{ref} {problem}.")
            candidate = Candidate(seen)
            self._decide(candidate, False, marks, self._holders([candidate]), set())
            if candidate.parks_on is not None:
                raise Conflict(f"{ref} is stopped by {candidate.parks_on}.")
            if self._send([candidate], session):
                return self._hand_out([candidate])[0]
        raise Conflict(f"{ref} is moved by others all the time.")

    def _cannot_take(self, seen: Seen, session: Session) -> str | None:
        side = seen.side
        if seen.holder is not None:
            return f"is held by {seen.holder}"
        if side is not None and side.host not in ("", session.about.host):
            return f"can only be worked on at {side.host}, where its files are"
        if seen.parked == "children":
            return "waits for its children"
        if seen.parked == "wait" and side is not None and side.wake_at > self._tree.now():
            return f"waits for another {side.wake_at - self._tree.now():.0f} s"
        return None

    # --- choosing

    def _pick(self, queues: Sequence[Queue], want: int) -> list[tuple[Queue, Entry]]:
        oldest = (self._handed + want) // BY_AGE - self._handed // BY_AGE
        if not self._crowded:
            return self._queues.pick(queues, want - oldest, oldest)
        self._crowded = False
        picked = self._queues.pick(queues, 4 * want - oldest, oldest)
        start = self._random.randrange(max(1, len(picked) - want + 1))
        return picked[start : start + want]

    def _look(
        self,
        picked: Sequence[tuple[Queue, Entry]],
        session: Session,
        holds: dict[tuple[str, str], bool],
        marks: Collection[str],
    ) -> list[Candidate]:
        refs = [Ref(queue.kind, entry.id) for queue, entry in picked]
        candidates: list[Candidate] = []
        misfiled: list[tuple[Seen, str]] = []
        for (queue, entry), seen in zip(picked, look(self._tree.link, refs, docs=True) if refs else (), strict=True):
            queue.spend(entry)
            if seen is None:
                continue
            if seen.state != queue.state:
                misfiled.append((seen, f"{seen.layout.folder(queue.state)}/{entry.name}"))
                continue
            side = seen.side
            if seen.holder is None and seen.parked is None and (side is None or side.host in ("", session.about.host)):
                seen.entry = entry.name
                candidates.append(Candidate(seen, queue, entry))
        self._foreign.refile(misfiled)
        holders = self._holders(candidates)
        reserved: set[str] = set()
        for each in candidates:
            self._decide(each, holds[each.seen.ref.kind, each.seen.state], marks, holders, reserved)
        return candidates

    def _holders(self, candidates: Sequence[Candidate]) -> dict[str, bytes]:
        """Who holds the keys that these ask for and do not hold, or held before another service moved them."""
        sides = [each.seen.side for each in candidates if each.seen.side is not None]
        paths = {key_path(key): None for side in sides for key in side.keys if key not in side.holds}
        paths |= {key_path(key): None for each in candidates for key in each.seen.forfeits}
        nodes = self._tree.link.nodes(list(paths)) if paths else []
        return {path: node.data for path, node in zip(paths, nodes, strict=True) if node is not None}

    def _decide(
        self, each: Candidate, holds: bool, marks: Collection[str], holders: dict[str, bytes], reserved: set[str]
    ) -> None:
        """Marks first: a record that yields to one takes no key. Then all its keys, or none."""
        side = each.seen.side
        # whoever works by the table finds out what it needs in the state that it is in
        if side is None or each.seen.moved:
            mine = str(each.seen.ref).encode()
            each.drops = [key for key in each.seen.forfeits if holders.get(key_path(key)) == mine]
            return
        mark = next((gate for gate in side.gates if gate in marks), None)
        if mark is not None:
            if holds:
                each.mark = mark
            else:
                each.parks_on = f"mark {mark}"
            return
        mine = str(each.seen.ref).encode()
        for key in side.keys:
            if key in side.holds:
                continue
            path = key_path(key)
            if path in reserved or holders.get(path, mine) != mine:
                each.parks_on = f"key {key}"
                each.keys = []
                return
            each.keys.append(key)
        reserved.update(key_path(key) for key in each.keys)
        each.keys = [key for key in each.keys if key_path(key) not in holders]

    # --- claiming

    def _send(self, candidates: Sequence[Candidate], session: Session) -> list[Candidate]:
        waiting = [each for each in candidates if each.parks_on is None]
        got: list[Candidate] = []
        rounds = 0
        while waiting:
            rounds += 1
            together = TOGETHER if rounds <= 3 else 1
            flights: list[tuple[list[Candidate], list[Op], list[Candidate | None], Pending]] = []
            for start in range(0, len(waiting), together):
                part = waiting[start : start + together]
                ops: list[Op] = [wire.check(places.session(session.name), "session")]
                whose: list[Candidate | None] = [None]
                for each in part:
                    more = self._ops(each)
                    ops += more
                    whose += [each] * len(more)
                flights.append((part, ops, whose, session.link.post(ops)))
            waiting = []
            lost: StoreError | None = None
            for part, ops, whose, pending in flights:
                outcome = pending.get()
                if isinstance(outcome, StoreError):
                    lost = outcome
                elif not isinstance(outcome, Failure):
                    got += part
                    for each in part:
                        self._hold(each, session)
                elif ops[outcome.place].means == "session":
                    lost = SessionLost(f"The session {session.name} has ended. Open a new one.")
                else:
                    guilty = whose[outcome.place]
                    self._crowded = True
                    self._missed(guilty, ops[outcome.place])
                    waiting += [each for each in part if each is not guilty]
            if lost is not None and (not got or not isinstance(lost, Unavailable)):
                raise lost
            if lost is not None:
                break
        order = {id(each): place for place, each in enumerate(candidates)}
        return sorted(got, key=lambda each: order[id(each)])

    def _ops(self, each: Candidate) -> list[Op]:
        seen, ref = each.seen, each.seen.ref
        home, aside, old = seen.layout.home(ref.id), seen.layout.side(ref.id), seen.side
        ops = [
            wire.create(f"{home}/lock", b"", "lock", ephemeral=True),
            wire.put(f"{home}/status", seen.status, "status", seen.version),
        ]
        each.side = None
        if old is None or seen.foreign or seen.bereft or each.keys or old.parked is not None:
            plan = Plan(self._tree.folders)
            side = caught_up(seen)
            each.side = side = replace(side, holds=(*side.holds, *each.keys))
            notes.park(plan, ref, old, each.side)
            ops += plan.ops
            body = encode_side(each.side)
            ops.append(
                wire.create(aside, body, "side") if old is None else wire.put(aside, body, "side", seen.side_version)
            )
            ops += [wire.create(path, str(ref).encode(), "key") for path in dict.fromkeys(map(key_path, each.keys))]
            ops += [wire.delete(path, "key") for path in dict.fromkeys(map(key_path, each.drops))]
        else:
            ops.append(wire.check(aside, "side", seen.side_version))
        return ops

    def _hold(self, each: Candidate, session: Session) -> None:
        """It is ours: what its nodes are now."""
        seen = each.seen
        lift = seen.lift
        seen.holder = session.name
        seen.version += 1
        if each.side is not None:
            seen.side, seen.side_version = each.side, seen.side_version + 1
        assert seen.lift == lift
        self._tree.held[seen.ref] = seen

    def _missed(self, each: Candidate | None, op: Op) -> None:
        """Somebody was faster: look at it again with the next listing, or in this call if it was not the record
        itself.
        """
        if (
            each is not None
            and each.queue is not None
            and each.entry is not None
            and op.means in ("key", "side", "note")
        ):
            each.queue.spare(each.entry)

    def _hand_out(self, taken: Sequence[Candidate]) -> list[Claimed]:
        if not taken:
            return []
        try:
            asked = {ask.ref: ask for ask in self._asks.of(each.seen.ref for each in taken)}
        except Unavailable:
            asked = {}  # it is heard with the next heartbeat
        claimed = []
        for each in taken:
            seen = each.seen
            if not seen.layout.native:
                kind = seen.ref.kind
                self._tree.turns[kind] = max(self._tree.turns.get(kind, 0), seen.turn)
            claimed.append(Claimed(seen.record(), each.mark, asked.get(seen.ref), seen.unfitted))
            seen.docs = None  # the step has them; what is held is remembered without
        return claimed

    # --- parking

    def _park(self, candidates: Sequence[Candidate], session: Session) -> int:
        """Park them, if the reason still holds; how many others may try for a key because of it."""
        if not candidates:
            return 0
        for start in range(0, len(candidates), TOGETHER):
            part = candidates[start : start + TOGETHER]
            if self._parked(part, session):
                continue
            # one by one: most are parked then, and the one that is not has moved, or its reason has gone
            for each in part:
                if not self._parked([each], session) and each.queue is not None and each.entry is not None:
                    each.queue.spare(each.entry)
        asked = [
            key
            for each in candidates
            if each.seen.side
            for key in each.seen.side.keys
            if key not in each.seen.side.holds
        ]
        return self._parking.offer(asked) if asked else 0

    def _parked(self, candidates: Sequence[Candidate], session: Session) -> bool:
        return self._tree.write(parking_ops(candidates, session.name, self._tree.folders)) is None
