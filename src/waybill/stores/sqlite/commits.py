"""commit: one transaction for all groups of a call.

A group that cannot be written is undone by itself. Most groups are one change whose only possible refusal is that its
UPDATE finds no row: those need no savepoint. Should anything unforeseen stop such a group half way, the whole call is
undone and done again with a savepoint around every group, and the unforeseen is that group's own answer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import apsw
import msgspec

from waybill.record import Answer, Ask, Change, Committed, Conflict, Exists, Group, Record, Ref, StoreError, Taken
from waybill.stores.groups import vet
from waybill.stores.sqlite import counts, keys
from waybill.stores.sqlite.counts import Move
from waybill.stores.sqlite.database import Database, Execute
from waybill.stores.sqlite.reading import load, why_lost
from waybill.stores.sqlite.rows import SQL, made_row, moved_row, parked_of, record_of

KEEP, LET_GO, NUDGES, NOTE = SQL["keep"], SQL["let_go"], SQL["nudges"], SQL["note"]
POISON = (
    apsw.ConstraintError,
    apsw.MismatchError,
    apsw.TooBigError,
    UnicodeError,
    OverflowError,
    TypeError,
    ValueError,
)
replace = msgspec.structs.replace


def commit(database: Database, groups: Sequence[Group], now: float) -> list[Answer]:
    refusals = vet(groups)
    if all(refusals):
        return [refusal for refusal in refusals if refusal is not None]
    try:
        call = _write(database, groups, refusals, now, careful=False)
    except POISON:
        call = _write(database, groups, refusals, now, careful=True)
    with database.sentences():
        call.look_after(database.execute)
    return call.answers


def _write(
    database: Database, groups: Sequence[Group], refusals: Sequence[StoreError | None], now: float, *, careful: bool
) -> Call:
    with database.write() as execute:
        call = Call(database, execute, now, careful)
        for group, refusal in zip(groups, refusals, strict=True):
            call.answers.append(refusal or call.group(group))
        call.finish()
    return call


class Call:
    """One call of commit, within its transaction."""

    def __init__(self, database: Database, execute: Execute, now: float, careful: bool) -> None:
        self.execute = execute
        self.changes = database.db.changes
        self.now = now
        self.careful = careful
        self.answers: list[Answer] = []
        self.moves: Counter[Move] = Counter()
        self.closed: list[tuple[int, list[Ref]]] = []  # by place of the answer: parents whose child the group closed
        self.has_asks = bool(execute(SQL["any_asks"]).fetchall())
        self.marks = {name for name, _, _ in execute(SQL["marks"])}
        self._moves: list[Move] = []
        self._parents: list[Ref] = []
        self._asked: list[Ask] = []
        self._turns: dict[tuple[str, Ref], int] = {}
        self._seqs: Iterator[int] = iter(())

    def group(self, group: Group) -> Answer:
        self._moves, self._parents, self._asked = [], [], []
        changes = group.changes
        if len(changes) == 1 and not group.nudges and not self.careful and (pair := _plain(changes[0])) is not None:
            try:
                records: list[Record | None] = [self._update(changes[0], *pair)]
            except StoreError as refusal:
                return refusal
        else:
            known = [self._requested(change) for change in changes]
            if any(known):
                return Committed(tuple(known))
            self._turns = {}
            self.execute("savepoint one")
            self._seqs = self._number(sum(change.before is None for change in changes))
            try:
                records = [self._change(change) for change in changes]
                self._after(group)
                if self.careful:
                    self._count_now()
            except StoreError as refusal:
                self._undo()
                return refusal
            except POISON as error:
                if not self.careful:
                    raise
                self._undo()
                return StoreError(f"This cannot be stored: {error}.")
            self.execute("release one")
        for move in self._moves:
            self.moves[move] += 1
        if self._parents:
            self.closed.append((len(self.answers), self._parents))
        return Committed(tuple(records), (), tuple(self._asked))

    def _undo(self) -> None:
        self.execute("rollback to one")
        self.execute("release one")

    def _count_now(self) -> None:
        """Inside the group: then a count that cannot be is its own mistake, and not the call's."""
        counts.write(self.execute, Counter(self._moves))
        self._moves = []

    def finish(self) -> None:
        """What is written once for the whole call."""
        counts.write(self.execute, self.moves)
        self.execute(SQL["wrote"], (self.now,))

    def look_after(self, execute: Execute) -> None:
        """Which parents have no open child left, seen after the commit: of the last two children the later one sees
        both closed.
        """
        for place, parents in self.closed:
            idle = tuple(ref for ref in dict.fromkeys(parents) if execute(SQL["is_idle"], ref).fetchall())
            answer = self.answers[place]
            if idle and isinstance(answer, Committed):
                self.answers[place] = replace(answer, idle=idle)

    # --- one change

    def _requested(self, change: Change) -> Record | None:
        after = change.after
        if change.before is not None or after is None or after.request is None:
            return None
        rows = self.execute(SQL["requested"], (after.kind, after.request)).fetchall()
        if not rows:
            return None
        return load(self.execute, [record_of(rows[0])])[0]

    def _change(self, change: Change) -> Record | None:
        if change.before is None:
            assert change.after is not None
            return self._create(change, change.after)
        if change.after is None:
            self._remove(change.before)
            return None
        return self._update(change, change.before, change.after)

    def _after(self, group: Group) -> None:
        """What is looked at when all changes of the group are made."""
        for change in group.changes:
            if change.closes and self.execute(SQL["has_open_child"], change.ref).fetchall():
                raise Conflict(f"{change.ref} has a child that is still open. Close that first, then decide again.")
        for ref in group.nudges:
            self.execute(SQL["nudge"], ref)

    def _create(self, change: Change, after: Record) -> Record:
        execute, now = self.execute, self.now
        parked = parked_of(after)
        wake_at = now + change.delay if parked == "wait" else 0.0
        while True:
            seq = next(self._seqs, None) or next(self._number(1))
            minted = after.id.endswith("*")
            id = f"{after.id[:-1]}{seq:010d}" if minted else after.id
            turn = self._turn(after, seq)
            execute(SQL["create"], made_row(after, seq, id, turn, parked, wake_at, now))
            if self.changes() == 1:
                break
            if not minted:
                raise Exists(f"There is a {after.kind} {after.id} already.")
        self._moves.append((after.kind, after.parent, None, after.state))
        self._documents(seq, change)
        if change.event:
            execute(NOTE, (seq, seq, now, change.who, change.event, None, after.state, change.why))
        return replace(
            after,
            id=id,
            turn=turn,
            seq=seq,
            version=seq,
            parked=parked,
            wake_at=wake_at,
            nudges=0,
            created=now,
            updated=now,
            docs=after.docs.with_changes(change.docs),
        )

    def _number(self, n: int) -> Iterator[int]:
        """The next `n` creation numbers, counted at once."""
        if n == 0:
            return iter(())
        ((last,),) = self.execute(SQL["count_up"], (n, 0)).fetchall()
        return iter(range(last - n + 1, last + 1))

    def _turn(self, after: Record, seq: int) -> int:
        """The turn of a new record: children take turns with those of other parents, from where the store has come
        to.
        """
        if after.turn is not None:
            return after.turn
        if after.parent is None:
            return seq
        family = (after.kind, after.parent)
        if family in self._turns:
            turn = self._turns[family] + 1
        else:
            last = self.execute(SQL["last_turn"], (after.kind, *after.parent)).fetchall()
            come = self.execute(SQL["current_turn"], (after.kind,)).fetchall()
            turn = max(come[0][0] if come else 0, last[0][0] + 1 if last else 0)
        self._turns[family] = turn
        return turn

    def _remove(self, before: Record) -> None:
        self.execute(SQL["remove"], (before.seq, before.version, before.session, before.state))
        if self.changes() != 1:
            raise why_lost(self.execute, before)
        self.execute(SQL["count_up"], (0, before.version)).fetchall()
        keys.pass_turn(self.execute, before.keys)
        self._moves.append((before.kind, before.parent, before.state, None))
        if before.open and before.parent is not None:
            self._parents.append(before.parent)

    def _update(self, change: Change, before: Record, after: Record) -> Record:
        execute, now, session = self.execute, self.now, after.session
        turn = before.turn if after.turn is None else after.turn
        taken = keys.taken(execute, after.keys, before.seq) if session is not None and after.keys else None
        if session is not None and change.event and (taken or (after.gates and not self.marks.isdisjoint(after.gates))):
            session = None  # it goes on without the claim
        nudges, parked, wake_at = before.nudges, None, 0.0
        if session is not None:
            execute(KEEP, moved_row(before, after, turn, now))
            if self.changes() != 1:
                raise why_lost(self.execute, before)
            if taken:
                raise Taken(
                    f"{taken} is held by {' '.join(execute(SQL['holder_name'], (taken,)).fetchall()[0])}.", key=taken
                )
            if after.keys:
                keys.take(execute, after.keys, before.seq)
        else:
            parked = parked_of(after)
            for (nudges,) in execute(NUDGES, (before.seq,)):
                if nudges != before.nudges:
                    parked = None  # it was nudged since it was read, and a wait would lose that
            wake_at = now + change.delay if parked == "wait" else 0.0
            execute(LET_GO, (*moved_row(before, after, turn, now), parked, wake_at))
            if self.changes() != 1:
                raise why_lost(self.execute, before)
        if before.keys:
            keys.drop(execute, before, after.keys)
        version = before.version + 1
        if change.event:
            execute(NOTE, (before.seq, version, now, change.who, change.event, before.state, after.state, change.why))
        if change.docs:
            self._documents(before.seq, change)
        if change.answers:
            execute(SQL["answer"], (before.seq,))
        elif self.has_asks and session is None and before.session is not None:
            self._asked += [Ask(before.ref, *row) for row in execute(SQL["asked"], (before.seq,))]
        if before.state != after.state:
            self._moves.append((before.kind, before.parent, before.state, after.state))
        if before.open and not after.open and before.parent is not None:
            self._parents.append(before.parent)
        return replace(
            after,
            session=session,
            turn=turn,
            seq=before.seq,
            version=version,
            parked=parked,
            wake_at=wake_at,
            nudges=nudges,
            created=before.created,
            updated=now,
            docs=after.docs.with_changes(change.docs) if change.docs else after.docs,
        )

    def _documents(self, seq: int, change: Change) -> None:
        for name, body in change.docs.items():
            if body is None:
                self.execute(SQL["remove_document"], (seq, name))
            else:
                self.execute(SQL["write_document"], (seq, name, body))


def _plain(change: Change) -> tuple[Record, Record] | None:
    """Both sides of a change of which one UPDATE decides whether it is refused, with nothing written before it; or
    None.
    """
    before, after = change.before, change.after
    if before is None or after is None or before.keys or after.keys or change.closes:
        return None
    return before, after
