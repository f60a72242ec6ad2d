"""Ingest's own duties in the simulator: at a pace that fits virtual time, and once more when everything is long over.

Ages are longer than a simulation: whatever is removed as "old" may be removed only when nobody can be late with it any
more. So those removals come in `long_after`; what needs no age, such as uploads of completed batches, goes while
everything else goes wrong.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Iterator
from random import Random
from typing import TYPE_CHECKING

from waybill.apps.ingest.duties import Audit, Expiry, Papers, Payloads, Recovery, Staged
from waybill.apps.ingest.duties.audit import known_damage
from waybill.apps.ingest.storage.wire import STAGED
from waybill.duties import Duty, Hand, a_round
from waybill.duties.folders import Folders
from waybill.duties.leftovers import Leftovers
from waybill.duties.retention import Retention
from waybill.rules import calls
from waybill.worker.folders import all_folders

if TYPE_CHECKING:
    from waybill.apps.ingest.simulation.around import Surroundings
    from waybill.record import Change, Store

AGE = 1500.0  # seconds: longer than any simulation
LONG = 40 * 86400.0
MOST = 20  # rounds in which a duty must have done all that there is to do

AUDIT, EXPIRY = Audit(every=30.0), Expiry(age=AGE, every=20.0)
STORAGE: tuple[Duty, ...] = (AUDIT, Recovery(older_than=AGE, every=30.0))
PLACES: tuple[Duty, ...] = (Payloads(age=AGE, every=20.0), Papers(age=AGE, every=40.0), Staged(age=AGE, every=60.0))
KEPT = (Retention(), *PLACES)
PARTS, SENT = Leftovers(age=AGE), Staged(age=AGE)
LEFT = "ingest/staged/somebody/a.txt"  # bytes of a client that broke off


def some(rng: Random, duties: Iterable[Duty]) -> tuple[Duty, ...]:
    """Those that a seed has while everything goes wrong; each costs time."""
    return tuple(duty for duty in duties if rng.random() < 0.4)


def long_after(around: Surroundings, store: Store, *duties: Duty) -> Iterator[str]:
    """Everything is long over: each duty does its rounds until nothing is left to do."""
    around.world.simulation.hub.now += LONG
    ours = hand_of(around, store)
    theirs = dataclasses.replace(ours, objects=around.kept, memory={})
    each = [*((duty, hand_of(around, store)) for duty in (*duties, PARTS)), (SENT, theirs), (PARTS, theirs)]
    for duty, hand in each:
        for _ in range(MOST):
            if not a_round(duty, hand) and not hand.memory.get("cursor"):
                break
        else:
            yield f"{duty.name} does not come to an end"


def hand_of(around: Surroundings, store: Store, host: str = "") -> Hand:
    simulation = around.world.simulation
    return Hand(
        store, simulation.machines, host, simulation.root_of(host), around.objects, outfit=lambda kind: around.outfit()
    )


def staged_in_peace(around: Surroundings) -> Iterator[str]:
    """What is on its way though all is quiet, and nobody died over it or gave it up: not even a duty should have to
    remove it.
    """
    profile = around.world.simulation.profile
    if profile.weather != "calm":
        return
    yield from (f"{name} is not finished, part by part, and nobody has died" for name in sorted(around.unfinished()))
    if not profile.lively and around.elsewhere is not None:
        yield from (f"{info.name} is staged still, and nothing went wrong" for info in around.kept.list(STAGED))


def left_of_uploads(around: Surroundings) -> Iterator[str]:
    """Parts that stay when everything is long over."""
    yield from (f"parts of {name} stay, and nobody finishes them" for name in sorted(around.unfinished()))


def compared(around: Surroundings, store: Store, damaged: Collection[tuple[str, str]]) -> Iterator[str]:
    """An audit of everything finds what is damaged, and nothing else."""
    found = set(damage(around, store))
    for ark, place in sorted(found.symmetric_difference(damaged)):
        told = "sound, and an audit says otherwise" if (ark, place) in found else "damaged, and no audit says so"
        yield f"{place} of {ark} is {told}"


def damage(around: Surroundings, store: Store) -> Iterator[tuple[str, str]]:
    """What an audit of everything finds: which content of which object."""
    hand = hand_of(around, store)
    for _ in range(MOST):
        before = hand.memory.get("files", 0)
        list(AUDIT.check(hand))
        if hand.memory.get("files", 0) == before:
            break
    for each in known_damage(around.outfit()):
        yield each.ark, each.place


def folders(around: Surroundings, store: Store) -> Iterator[str]:
    """Working folders that nobody needs, on hosts that are still there, once their duty has done a round."""
    simulation = around.world.simulation
    for host in simulation.stage.hosts:
        hand = hand_of(around, store, host)
        a_round(Folders(age=0.0), hand)
        for folder, ref in all_folders(hand.root, hand.machines):
            entry = simulation.ledger.entries.get(ref)
            if entry is None or entry.declared.clears_files:
                state = entry.state if entry is not None else "gone"
                yield f"the working folder {folder.name} on {host} stays, and {ref} is {state}"


def gone_astray(change: Change) -> str | None:
    """A job that is led back since its folder is gone: a host that is gone takes its name with it, so somebody has
    removed the folder.
    """
    if change.who == f"duty {calls.FOLDERS}" and change.before is not None and change.ref.kind == "job":
        return f"{change.ref} is led back from {change.before.state}: its working folder is gone, and its host is not"
    return None
