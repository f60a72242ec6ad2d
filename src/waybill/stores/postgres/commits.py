"""commit: groups of changes, sent together, each answered for itself.

    vet -> waves of groups that have nothing to do with each other -> one call each -> answers -> the parents left
    without an open child

A wave is written by one call of commit_groups(). Where that fails because others wrote the same rows in that moment it
is sent again, and where it fails for another reason its groups are sent one by one, so that a group which cannot be
written never fails its neighbours.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence

from msgspec.structs import replace

from waybill.record import (
    Answer,
    Ask,
    Change,
    ClaimLost,
    Committed,
    Conflict,
    Exists,
    Group,
    NotFound,
    Record,
    Ref,
    StoreError,
    Taken,
    Unavailable,
    Unknown,
)
from waybill.stores.groups import vet
from waybill.stores.postgres.connection import TRIES, Connection, Row
from waybill.stores.postgres.troubles import Again
from waybill.stores.postgres.waves import Wave, touched_by

Reason = tuple[int, str, str]  # which change of the group, what is in the way, and its name


class Commits:
    """The verb, over one connection."""

    def __init__(
        self,
        connection: Connection,
        statements: Mapping[str, str],
        get: Callable[[str, str], Record],
        turns: Mapping[str, int],
    ) -> None:
        self._connection = connection
        self._statements = statements
        self._get = get
        self._turns = turns  # the highest handed out by this process, kind by kind
        self.rang = False  # whether the last commit made something that can perhaps be claimed

    def commit(self, groups: Sequence[Group]) -> list[Answer]:
        answers: list[Answer | None] = list(vet(groups))
        self.rang = False
        wave = Wave()
        for place, (group, touched) in enumerate(zip(groups, touched_by(groups), strict=True)):
            if answers[place] is not None:
                continue
            if not wave.admits(touched):
                self._send(wave, groups, answers)
                wave = Wave()
                wave.admits(touched)
            try:
                wave.add(place, group)
            except (UnicodeEncodeError, struct.error) as error:
                answers[place] = StoreError(f"PostgreSQL cannot keep a value of this group: {error}.")
        self._send(wave, groups, answers)
        assert None not in answers
        return self._look_idle(groups, [answer for answer in answers if answer is not None])

    def _send(self, wave: Wave, groups: Sequence[Group], answers: list[Answer | None]) -> None:
        if not wave.groups:
            return
        try:
            self._write(wave, groups, answers)
        except (Unknown, Unavailable) as error:
            if isinstance(error, Unavailable) and not any(
                isinstance(answer, (Committed, Unknown)) for answer in answers
            ):
                raise
            for place in wave.groups:
                answers[place] = error
        except StoreError as error:
            if len(wave.groups) == 1:
                answers[wave.groups[0]] = error if not isinstance(error, Again) else Unavailable(str(error))
                return
            for place in wave.groups:
                single = Wave()
                single.add(place, groups[place])
                self._send(single, groups, answers)

    def _write(self, wave: Wave, groups: Sequence[Group], answers: list[Answer | None]) -> None:
        for tries in range(TRIES):
            try:
                rows = self._connection.run(self._statements["commit"], wave.args(self._turns), tries=1)
                self._read(wave, rows, groups, answers)
                return
            except Again:
                if tries == TRIES - 1:
                    raise

    def _read(self, wave: Wave, rows: list[Row], groups: Sequence[Group], answers: list[Answer | None]) -> None:
        refused: dict[int, list[Reason]] = {}
        written: dict[int, list[Record | None]] = {place: [None] * len(groups[place].changes) for place in wave.groups}
        asked: dict[int, list[Ask]] = {}
        for n, _, refusal, reason, seq, turn, session, parked, nudges, wake_at, moment, action, *more in rows:
            place, i = wave.places[n]
            change = groups[place].changes[i]
            if refusal is not None:
                refused.setdefault(place, []).append((i, refusal, reason))
            elif change.after is not None:
                written[place][i] = _answered(change, change.after, seq, turn, session, parked, nudges, wake_at, moment)
                if action is not None:
                    asked.setdefault(place, []).append(Ask(change.ref, action, *more))
        if rows:
            self._connection.presence.touch(rows[0][10])
        for place in wave.groups:
            if place in refused:
                answers[place] = self._known(groups[place], refused[place]) or _refusal(groups[place], refused[place])
            else:
                answers[place] = Committed(tuple(written[place]), (), tuple(asked.get(place, ())))
                self.rang = (
                    self.rang or bool(groups[place].nudges) or any(r is None or _claimable(r) for r in written[place])
                )

    def _known(self, group: Group, reasons: list[Reason]) -> Answer | None:
        """A request that was made before is answered with what it made, whatever else is in the way of the group."""
        known = {i: id for i, refusal, id in reasons if refusal == "known"}
        if not known:
            return None
        try:
            return Committed(
                tuple(
                    self._get(change.ref.kind, known[i]) if i in known else None
                    for i, change in enumerate(group.changes)
                )
            )
        except NotFound:
            return Conflict("The record that this request had made was removed in that moment. Try again.")

    def _look_idle(self, groups: Sequence[Group], answers: list[Answer]) -> list[Answer]:
        if not any(
            change.before is not None and change.before.parent is not None
            for group in groups
            for change in group.changes
        ):
            return answers
        closed = {
            place: parents
            for place, (group, answer) in enumerate(zip(groups, answers, strict=True))
            if isinstance(answer, Committed) and (parents := _closed_under(group, answer))
        }
        if not closed:
            return answers
        refs = sorted({parent for parents in closed.values() for parent in parents})
        try:
            rows = self._connection.run(self._statements["look_idle"], columns(refs), writes=False)
        except Unavailable:
            return answers  # written all the same; whom nobody calls now is found by idle_parents()
        idle = {Ref(*row) for row in rows}
        for place, parents in closed.items():
            answer = answers[place]
            assert isinstance(answer, Committed)
            answers[place] = replace(answer, idle=tuple(parent for parent in dict.fromkeys(parents) if parent in idle))
        return answers


def _refusal(group: Group, reasons: list[Reason]) -> StoreError:
    """Why the group was not written, by the first of its changes that could not be."""
    i, refusal, reason = min(reasons, key=lambda each: (each[1] == "open", each[0]))
    change = group.changes[i]
    if refusal == "taken" and change.after is not None:
        names = {name for at, _, name in reasons if at == i}
        reason = next(name for name in change.after.keys if name in names)
        return Taken(f"The key {reason} is held by another record.", key=reason)
    if refusal == "exists":
        return Exists(f"There is a {change.ref} already.")
    if refusal == "open":
        return Conflict(f"{change.ref} has a child that is open.")
    version = change.before.version if change.before is not None else 0
    return (ClaimLost if refusal == "claim-lost" else Conflict)(
        f"{change.ref} is no longer as it was at version {version}."
    )


def columns(refs: Iterable[Ref]) -> list[list[str]]:
    """Names of records as two arrays, for unnest."""
    rows = list(refs)
    return [[ref.kind for ref in rows], [ref.id for ref in rows]]


def _closed_under(group: Group, answer: Committed) -> list[Ref]:
    """The parents of records that this group closed or removed; none for a group that was only answered with what is
    known.
    """
    parents = []
    for change, record in zip(group.changes, answer.records, strict=True):
        before = change.before
        if before is not None and before.parent is not None and before.open:
            closed = change.after is None if record is None else not record.open
            if closed:
                parents.append(before.parent)
    return parents


def _claimable(record: Record) -> bool:
    return record.session is None and record.parked is None


def _answered(
    change: Change,
    after: Record,
    seq: int | None,
    turn: int,
    session: str | None,
    parked: str | None,
    nudges: int,
    wake_at: float,
    moment: float,
) -> Record:
    """The record as it was written."""
    before = change.before
    docs = after.docs.with_changes(change.docs)
    if before is None:
        assert seq is not None
        id = f"{after.id[:-1]}{seq:010d}" if after.id.endswith("*") else after.id
        return replace(
            after,
            id=id,
            turn=turn,
            session=None,
            parked=parked,
            seq=seq,
            version=seq,
            nudges=0,
            wake_at=wake_at,
            created=moment,
            updated=moment,
            docs=docs,
        )
    return replace(
        after,
        turn=turn,
        session=session,
        parked=parked,
        seq=before.seq,
        version=before.version + 1,
        # a nudge that came during the claim is answered when the claim ends
        nudges=nudges if session is None else before.nudges,
        wake_at=wake_at,
        created=before.created,
        updated=moment,
        docs=docs,
    )
