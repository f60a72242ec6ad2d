"""Acts: what a commit does to records beside its own. Each is an action of the other record's machine, decided by the
same rule as the action of an operator.

    Act -> its target is read -> the action, its guard and its documents -> a Change, or an ActionRequest where a worker
    has claimed the target -> the acts that the action itself brings along -> ...

All of them are written in the one commit, fenced by the versions that were read here; where a target has changed since,
the commit is refused and everything is read and decided again (Engine, StoreCommands). Acts on the same record are decided
in their order, each on what the one before leaves, and are one change of it: at most one of them moves it to another
state.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from msgspec.structs import replace

from waybill.errors import ActionRefused
from waybill.machine import Machine, MachineError
from waybill.record import MAX_CHANGES, ActionRequest, Change, Record, RecordNotFound, Ref, Store, encode_document
from waybill.rules.actions import act, find_action, list_further_acts
from waybill.rules.errors import ClaimedByWorker, clip
from waybill.rules.machines import Machines
from waybill.step import Act


class DecidedActs(NamedTuple):
    """What acts write: changes of unclaimed records, and requests to the workers that have claimed the others."""

    changes: tuple[Change, ...] = ()
    requests: tuple[ActionRequest, ...] = ()


def decide_acts(
    machines: Machines,
    acts: Iterable[Act],
    known: dict[Ref, Record],
    *,
    store: Store,
    who: str,
    maker: Ref | None = None,
    is_confirmed: bool = True,
) -> DecidedActs:
    """Decide acts on records as they are now. `known` are those that have been read; those that are read here are added.

    Raises ActionRefused with the sentence of the first act that is not possible, RecordNotFound where its target is gone,
    NotFound for a kind that is not loaded. `maker`: the record whose step acts. `is_confirmed`: False when a person has
    not confirmed the first act.
    """
    pending = deque(acts)
    _read_missing(pending, known, store)
    changes: dict[Ref, Change] = {}
    requests: dict[Ref, ActionRequest] = {}
    decided = 0
    while pending:
        each = pending.popleft()
        decided += 1
        if decided > MAX_CHANGES:
            raise MachineError(f"One commit would act {decided} times or more; the actions bring each other along.")
        machine = _get_machine(machines, each)
        record = _get_target(each, known, store)
        if each.ref == maker:
            raise MachineError(f"The step of {maker} acts on its own record; it returns an outcome instead.")
        earlier = changes.get(each.ref)
        action = find_action(machine, earlier.after if earlier is not None and earlier.after else record, each.action)
        if record.session is not None:
            act(machine, record, each.action, store=store, args=each.args, confirmed=is_confirmed or decided > 1)
            if action.when_claimed == "refuse":
                raise ClaimedByWorker(
                    f"A worker has claimed {each.ref} in {record.state}; try again when the claim has ended."
                )
            if each.ref in requests:
                raise ActionRefused(f"A worker has claimed {each.ref}; one action at a time can be requested of it.")
            requests[each.ref] = ActionRequest(each.ref, each.action, who, each.why, encode_document(each.args))
            continue
        change = act(
            machine,
            record if earlier is None else _record_after(earlier, record),
            each.action,
            store=store,
            args=each.args,
            confirmed=is_confirmed or decided > 1,
            who=who,
            why=each.why,
        )
        changes[each.ref] = change if earlier is None else _compose(earlier, change)
        further = list_further_acts(action, record, each.args)
        _read_missing(further, known, store)
        pending.extendleft(reversed(further))
    return DecidedActs(tuple(changes.values()), tuple(requests.values()))


def _read_missing(acts: Iterable[Act], known: dict[Ref, Record], store: Store) -> None:
    missing = dict.fromkeys(each.ref for each in acts if each.ref not in known)
    if missing:
        known.update(store.get_many(tuple(missing)))


def _get_machine(machines: Machines, each: Act) -> Machine:
    if each.ref.kind not in machines:
        raise MachineError(
            f"{each.action} of {each.ref} is not possible here: no application that is loaded has the kind {each.ref.kind}; "
            f"there are {', '.join(sorted(machines)) or 'none'}.",
            code="unknown-kind",
        )
    return machines[each.ref.kind]


def _get_target(each: Act, known: Mapping[Ref, Record], store: Store) -> Record:
    if each.ref not in known:
        raise RecordNotFound(f"There is no {each.ref}; {each.action} of it is not possible.")
    return known[each.ref]


def _record_after(change: Change, record: Record) -> Record:
    """Return the record as an act leaves it, for the next act in the same commit."""
    assert change.after is not None
    return replace(change.after, documents=record.documents.with_changes(change.documents))


def _compose(first: Change, second: Change) -> Change:
    """Return both acts on a record as one change of it."""
    assert first.before is not None
    assert first.after is not None
    assert second.after is not None
    is_moved = first.before.state != first.after.state
    if is_moved and first.after.state != second.after.state:
        raise ActionRefused(
            f"{first.cause} and {second.cause} would both move {first.before.ref} in one commit; one of them can."
        )
    main, other = (first, second) if is_moved else (second, first)
    also = f"and {other.cause}" + (f": {other.why}" if other.why else "")
    return replace(
        second,
        before=first.before,
        after=replace(second.after, documents=first.before.documents),
        cause=main.cause,
        why=clip(f"{main.why} ({also})" if main.why else also),
        documents={**first.documents, **second.documents},
    )
