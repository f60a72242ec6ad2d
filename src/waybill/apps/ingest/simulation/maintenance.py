"""Ingest's maintenance routines in the simulator: with intervals that fit simulated time, and again long after the end.

Ages are longer than a simulation: an object may be removed as old only when no late process can need it. Those removals
happen in `run_long_after`; removals without an age, such as uploads of completed batches, happen during the simulation.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Iterator
from random import Random
from typing import TYPE_CHECKING

from waybill.apps.ingest.maintenance import (
    AssemblyExpiryRoutine,
    ContentAuditRoutine,
    ListRemovalRoutine,
    StagingRemovalRoutine,
    StorageRecoveryRoutine,
    UploadRemovalRoutine,
)
from waybill.apps.ingest.maintenance.audit import iter_known_damage
from waybill.apps.ingest.storage.protocol import STAGED_PREFIX
from waybill.maintenance import (
    MaintenanceContext,
    MaintenanceRoutine,
    RetentionRoutine,
    TemporaryFileRoutine,
    WorkingFolderRoutine,
    run_round,
)
from waybill.worker import iterate_folders

if TYPE_CHECKING:
    from waybill.apps.ingest.simulation.services import SimulatedServices
    from waybill.record import Change, Store

REMOVAL_AGE = 1500.0  # seconds; longer than any simulation
LONG_AFTER = 40 * 86400.0
MAX_ROUNDS = 20  # rounds after which a routine must have nothing left to do

AUDIT, EXPIRY = ContentAuditRoutine(poll_interval=30.0), AssemblyExpiryRoutine(age=REMOVAL_AGE, poll_interval=20.0)
STORAGE_ROUTINES: tuple[MaintenanceRoutine, ...] = (
    AUDIT,
    StorageRecoveryRoutine(older_than=REMOVAL_AGE, poll_interval=30.0),
)
REMOVAL_ROUTINES: tuple[MaintenanceRoutine, ...] = (
    UploadRemovalRoutine(age=REMOVAL_AGE, poll_interval=20.0),
    ListRemovalRoutine(age=REMOVAL_AGE, poll_interval=40.0),
    StagingRemovalRoutine(age=REMOVAL_AGE, poll_interval=60.0),
)
FINAL_ROUTINES = (RetentionRoutine(clock=None), *REMOVAL_ROUTINES)
LEFTOVER_ROUTINE, STAGING_ROUTINE = TemporaryFileRoutine(min_age=REMOVAL_AGE), StagingRemovalRoutine(age=REMOVAL_AGE)
ABANDONED_FILE = "ingest/staged/somebody/a.txt"  # staged by a client that gave up


def choose_routines(rng: Random, routines: Iterable[MaintenanceRoutine]) -> tuple[MaintenanceRoutine, ...]:
    """Choose the routines that run during the simulation; each costs time."""
    return tuple(routine for routine in routines if rng.random() < 0.4)


def run_long_after(services: SimulatedServices, store: Store, *routines: MaintenanceRoutine) -> Iterator[str]:
    """Move the clock far ahead and run each routine until nothing is left to do."""
    services.world.simulation.scheduler.now += LONG_AFTER
    storage_context = dataclasses.replace(context_of(services, store), objects=services.storage_objects, memory={})
    runs = [
        *((routine, context_of(services, store)) for routine in (*routines, LEFTOVER_ROUTINE)),
        (STAGING_ROUTINE, storage_context),
        (LEFTOVER_ROUTINE, storage_context),
    ]
    for routine, context in runs:
        for _ in range(MAX_ROUNDS):
            if not run_round(routine, context) and not context.memory.get("cursor"):
                break
        else:
            yield f"{routine.name} does not come to an end"


def context_of(services: SimulatedServices, store: Store, host: str = "") -> MaintenanceContext:
    simulation = services.world.simulation
    return MaintenanceContext(
        store,
        simulation.machines,
        host,
        simulation.root_of(host),
        services.objects,
        resources_of=lambda kind: services.get_resources(),
    )


def find_staged_leftovers(services: SimulatedServices) -> Iterator[str]:
    """Yield unfinished uploads and staged files of a simulation without crashes: no routine should have to remove them."""
    profile = services.world.simulation.profile
    if profile.fault_mix != "none":
        return
    yield from (
        f"{name} is an unfinished upload, and no process has died" for name in sorted(services.list_unfinished())
    )
    if not profile.has_operator and services.storage_service is not None:
        yield from (
            f"{info.name} is still staged, and nothing went wrong"
            for info in services.storage_objects.list(STAGED_PREFIX)
        )


def find_unfinished_uploads(services: SimulatedServices) -> Iterator[str]:
    """Yield uploads in parts that are unfinished long after the end."""
    yield from (f"parts of {name} are left, and nobody finishes them" for name in sorted(services.list_unfinished()))


def compare_audit(services: SimulatedServices, store: Store, damaged: Collection[tuple[str, str]]) -> Iterator[str]:
    """Check that an audit of everything finds exactly what is damaged."""
    found = set(audit_everything(services, store))
    for ark, place in sorted(found.symmetric_difference(damaged)):
        problem = "intact, and an audit says otherwise" if (ark, place) in found else "damaged, and no audit says so"
        yield f"{place} of {ark} is {problem}"


def audit_everything(services: SimulatedServices, store: Store) -> Iterator[tuple[str, str]]:
    """Audit everything; yield object and place of damaged content."""
    context = context_of(services, store)
    for _ in range(MAX_ROUNDS):
        before = context.memory.get("files", 0)
        list(AUDIT.check(context))
        if context.memory.get("files", 0) == before:
            break
    for each in iter_known_damage(services.get_resources()):
        yield each.ark, each.place


def check_folders(services: SimulatedServices, store: Store) -> Iterator[str]:
    """Yield unneeded working folders on live hosts after a round of their routine."""
    simulation = services.world.simulation
    for host in simulation.cluster.hosts:
        context = context_of(services, store, host)
        run_round(WorkingFolderRoutine(min_age=0.0), context)
        for folder, ref in iterate_folders(context.root, context.machines):
            entry = simulation.checker.records.get(ref)
            if entry is None or entry.declared_state.clears_files:
                state = entry.state if entry is not None else "removed"
                yield f"the working folder {folder.name} on {host} is left, and {ref} is {state}"


def explain_lost_folder(change: Change) -> str | None:
    """Return a problem if a job is set back because its folder is missing: a lost host never returns under its name, so
    the folder was removed.
    """
    if (
        change.who == f"maintenance {WorkingFolderRoutine.name}"
        and change.before is not None
        and change.ref.kind == "job"
    ):
        return (
            f"{change.ref} is set back from {change.before.state}: its working folder is missing, and its host is alive"
        )
    return None
