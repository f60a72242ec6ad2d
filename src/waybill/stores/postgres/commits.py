"""commit: groups of changes, sent together, each answered for itself.

    validate -> sets of groups that do not depend on each other -> one call of commit_groups() each -> answers ->
    parents that are left without an open child

A set of independent groups is written by one call of commit_groups(). If the call fails because others wrote the same
rows at the same time, it is sent again; if it fails for another reason, the groups are sent one by one, so that a group
which cannot be written never fails the others.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence

from msgspec.structs import replace

from waybill.record import (
    ActionRequest,
    Change,
    ClaimLost,
    CommitAnswer,
    CommitGroup,
    CommitOutcomeUnknown,
    CommitResult,
    Conflict,
    LockUnavailable,
    ParentClosed,
    Record,
    RecordBusy,
    RecordExists,
    RecordNotFound,
    Ref,
    StoreError,
    StoreUnavailable,
    lock_names_of,
)
from waybill.stores.group_validation import validate_groups
from waybill.stores.postgres.connection import MAX_TRIES, PostgresConnection, Row
from waybill.stores.postgres.errors import ConcurrentWriteError
from waybill.stores.postgres.independent_groups import IndependentGroups, find_touched_names

RefusalReason = tuple[int, str, str]  # index of the change in its group, the refusal, and what it names

OF_GROUP = -1  # the index of a refusal that belongs to none of the changes
# Why a group is refused for a record that it does not change: named only where its own changes could be written.
REFUSALS_OF_OTHERS = {"unclaimed": 1, "request-pending": 1, "parent-closed": 1, "open": 2}


class PostgresCommits:
    """commit over one connection."""

    def __init__(
        self,
        connection: PostgresConnection,
        statements: Mapping[str, str],
        get: Callable[[str, str], Record],
        queue_positions: Mapping[str, int],
    ) -> None:
        self._connection = connection
        self._statements = statements
        self._get = get
        self._queue_positions = queue_positions  # the highest claimed by this process, by kind
        self.has_claimable = False  # whether the last commit wrote something that may be claimable

    def commit(self, groups: Sequence[CommitGroup]) -> list[CommitAnswer]:
        answers: list[CommitAnswer | None] = list(validate_groups(groups))
        self.has_claimable = False
        independent = IndependentGroups()
        for index, (group, touched) in enumerate(zip(groups, find_touched_names(groups), strict=True)):
            if answers[index] is not None:
                continue
            if not independent.admit(touched):
                self._send(independent, groups, answers)
                independent = IndependentGroups()
                independent.admit(touched)
            try:
                independent.add(index, group)
            except (UnicodeEncodeError, struct.error) as error:
                answers[index] = StoreError(f"PostgreSQL cannot store a value of this group: {error}.")
        self._send(independent, groups, answers)
        assert None not in answers
        return self._add_idle_parents(groups, [answer for answer in answers if answer is not None])

    def _send(
        self, independent: IndependentGroups, groups: Sequence[CommitGroup], answers: list[CommitAnswer | None]
    ) -> None:
        if not independent.group_indexes:
            return
        try:
            self._write(independent, groups, answers)
        except (CommitOutcomeUnknown, StoreUnavailable) as error:
            if isinstance(error, StoreUnavailable) and not any(
                isinstance(answer, (CommitResult, CommitOutcomeUnknown)) for answer in answers
            ):
                raise
            for index in independent.group_indexes:
                answers[index] = error
        except StoreError as error:
            if len(independent.group_indexes) == 1:
                answers[independent.group_indexes[0]] = (
                    error if not isinstance(error, ConcurrentWriteError) else StoreUnavailable(str(error))
                )
                return
            for index in independent.group_indexes:
                single = IndependentGroups()
                single.add(index, groups[index])
                self._send(single, groups, answers)

    def _write(
        self, independent: IndependentGroups, groups: Sequence[CommitGroup], answers: list[CommitAnswer | None]
    ) -> None:
        for tries in range(MAX_TRIES):
            try:
                rows = self._connection.run(
                    self._statements["commit_groups"], independent.to_args(self._queue_positions), max_tries=1
                )
                self._read_answers(independent, rows, groups, answers)
                return
            except ConcurrentWriteError:
                if tries == MAX_TRIES - 1:
                    raise

    def _read_answers(
        self,
        independent: IndependentGroups,
        rows: list[Row],
        groups: Sequence[CommitGroup],
        answers: list[CommitAnswer | None],
    ) -> None:
        refusals: dict[int, list[RefusalReason]] = {}
        written: dict[int, list[Record | None]] = {
            index: [None] * len(groups[index].changes) for index in independent.group_indexes
        }
        requests: dict[int, list[ActionRequest]] = {}
        for (
            n,
            group_number,
            refusal,
            reason,
            seq,
            position,
            session,
            blocked_by,
            wake_count,
            wake_at,
            commit_time,
            action,
            *more,
        ) in rows:
            index, i = independent.change_positions.get(n, (group_number, OF_GROUP))
            if refusal is not None:
                refusals.setdefault(index, []).append((i, refusal, reason))
                continue
            change = groups[index].changes[i]
            if change.after is not None:
                written[index][i] = _written_record_of(
                    change, change.after, seq, position, session, blocked_by, wake_count, wake_at, commit_time
                )
                if action is not None:
                    requests.setdefault(index, []).append(ActionRequest(change.ref, action, *more))
        if rows:
            self._connection.presence.touch(rows[0][10])
        for index in independent.group_indexes:
            if index in refusals:
                answers[index] = self._answer_known(groups[index], refusals[index]) or _refusal_of(
                    groups[index], refusals[index]
                )
            else:
                answers[index] = CommitResult(tuple(written[index]), (), tuple(requests.get(index, ())))
                self.has_claimable = (
                    self.has_claimable
                    or bool(groups[index].wake)
                    or any(r is None or _is_claimable(r) for r in written[index])
                )

    def _answer_known(self, group: CommitGroup, reasons: list[RefusalReason]) -> CommitAnswer | None:
        """If a creation's idempotency key is known, the group is answered with the record it created, whatever else would
        refuse the group.
        """
        known = {i: id for i, refusal, id in reasons if refusal == "known"}
        if not known:
            return None
        try:
            return CommitResult(
                tuple(
                    self._get(change.ref.kind, known[i]) if i in known else None
                    for i, change in enumerate(group.changes)
                )
            )
        except RecordNotFound:
            return Conflict("The record of this idempotency key was removed at the same time. Try again.")

    def _add_idle_parents(self, groups: Sequence[CommitGroup], answers: list[CommitAnswer]) -> list[CommitAnswer]:
        if not any(
            change.before is not None and change.before.parent is not None
            for group in groups
            for change in group.changes
        ):
            return answers
        closed = {
            index: parents
            for index, (group, answer) in enumerate(zip(groups, answers, strict=True))
            if isinstance(answer, CommitResult) and (parents := _closed_parents_of(group, answer))
        }
        if not closed:
            return answers
        refs = sorted({parent for parents in closed.values() for parent in parents})
        try:
            rows = self._connection.run(self._statements["select_idle_parents"], to_columns(refs), writes=False)
        except StoreUnavailable:
            return answers  # the commit is written; parents that nobody wakes now are found by find_idle_parents()
        idle = {Ref(*row) for row in rows}
        for index, parents in closed.items():
            answer = answers[index]
            assert isinstance(answer, CommitResult)
            answers[index] = replace(
                answer, idle_parents=tuple(parent for parent in dict.fromkeys(parents) if parent in idle)
            )
        return answers


def _refusal_of(group: CommitGroup, reasons: list[RefusalReason]) -> StoreError:
    """Why the group was not written: by the first of its changes that was refused."""
    i, refusal, reason = min(reasons, key=lambda each: (REFUSALS_OF_OTHERS.get(each[1], 0), each[0]))
    if refusal == "unclaimed":
        return Conflict(f"{reason} is gone or no longer claimed. Read it again, then decide again.")
    if refusal == "request-pending":
        return RecordBusy(f"{reason} and is not answered yet.")
    change = group.changes[i]
    if refusal == "parent-closed" and change.after is not None:
        return ParentClosed(f"{change.after.parent} is {reason}, and takes no more children.")
    if refusal == "lock-unavailable" and change.after is not None:
        unavailable = {name for at, _, name in reasons if at == i}
        reason = next(name for name in lock_names_of(change.after.locks) if name in unavailable)
        return LockUnavailable(f"The lock {reason} is owned, or waited for, by another record.", lock=reason)
    if refusal == "exists":
        return RecordExists(f"There is a {change.ref} already.")
    if refusal == "open":
        return Conflict(f"{change.ref} has a child that is open.")
    version = change.before.version if change.before is not None else 0
    return (ClaimLost if refusal == "claim-lost" else Conflict)(
        f"{change.ref} is no longer as it was at version {version}."
    )


def to_columns(refs: Iterable[Ref]) -> list[list[str]]:
    """Refs as two arrays, for unnest."""
    listed = list(refs)
    return [[ref.kind for ref in listed], [ref.id for ref in listed]]


def _closed_parents_of(group: CommitGroup, answer: CommitResult) -> list[Ref]:
    """The parents of records that this group closed or removed; none for a group that was answered with known records."""
    parents = []
    for change, record in zip(group.changes, answer.records, strict=True):
        before = change.before
        if before is not None and before.parent is not None and before.open:
            closed = change.after is None if record is None else not record.open
            if closed:
                parents.append(before.parent)
    return parents


def _is_claimable(record: Record) -> bool:
    return record.session is None and record.blocked_by is None


def _written_record_of(
    change: Change,
    after: Record,
    seq: int | None,
    queue_position: int,
    session: str | None,
    blocked_by: str | None,
    wake_count: int,
    wake_at: float,
    commit_time: float,
) -> Record:
    """The record as it was written."""
    before = change.before
    documents = after.documents.with_changes(change.documents)
    if before is None:
        assert seq is not None
        id = f"{after.id[:-1]}{seq:010d}" if after.id.endswith("*") else after.id
        return replace(
            after,
            id=id,
            queue_position=queue_position,
            session=None,
            blocked_by=blocked_by,
            seq=seq,
            version=seq,
            wake_count=0,
            wake_at=wake_at,
            created=commit_time,
            updated=commit_time,
            documents=documents,
        )
    return replace(
        after,
        queue_position=queue_position,
        session=session,
        blocked_by=blocked_by,
        seq=before.seq,
        version=before.version + 1,
        # a wake during the claim takes effect when the claim ends
        wake_count=wake_count if session is None else before.wake_count,
        wake_at=wake_at,
        created=before.created,
        updated=commit_time,
        documents=documents,
    )
