"""Doctor: finds what is wrong in the store, the disks and the queues, explains it, and repairs what can be repaired.

`waybill doctor` calls `examine`. It runs its checks in this order, each to its end:

    disks        a disk that Waybill writes to is nearly full, before a step fails for it
    machines     records in states that this release does not declare
    store        the store's own consistency check
    workers      sessions that have expired
    queues       records that are due in a state that no live worker serves
    maintenance  the check of every maintenance routine, those of applications too

A check that cannot read something yields that as a finding, and the next check runs. Only a store, or an object store,
that is unavailable ends the examination: nothing else could be checked either.

Unserved work: a worker announces its queues with its session. A worker that was started for other queues, or without
the application that declares the kind, is healthy and idle, and nothing else would say why the records do not move.
Left out is what only looks like it: records that became due a moment ago, queues that are paused, records on hold.
Where no worker is alive there is one remark (`describe_waiting_work`) and no finding. At most MAX_RECORDS_READ records
of a state are read, and none of a state that is served, unless its records are bound to hosts.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import closing
from datetime import UTC, datetime
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from msgspec.structs import replace

from waybill import config, rules
from waybill.config import Config
from waybill.environment import Environment
from waybill.machine import Machine
from waybill.maintenance import MAINTENANCE, LostHostRoutine, MaintenanceScheduler, memory_of
from waybill.objects.protocol import ObjectsError
from waybill.record import (
    MAX_PAGE,
    BadStore,
    CommitOutcomeUnknown,
    Finding,
    Record,
    RecordNotFound,
    SessionInfo,
    Store,
    StoreError,
    StoreUnavailable,
)
from waybill.rules import Machines
from waybill.sandbox import describe_support, find_support
from waybill.text_format import format_age, format_local_time, to_sentence

MAX_RECHECKED = 10_000  # findings that are checked a second time after the others are repaired
MIN_FREE_BYTES = 100_000_000  # of a small disk, one hundredth of it
MIN_FREE_FILES = 1_000
UNSERVED_RULE = "unserved work"
DUE_GRACE = 60.0  # seconds that a record may be due before it counts as waiting: workers are restarted now and then
MAX_RECORDS_READ = 10_000  # records of a state
MAX_QUEUES_NAMED = 3  # queues named in the remark that no worker is alive
UNAVAILABLE_ERRORS = (StoreUnavailable, CommitOutcomeUnknown, ObjectsError)  # nothing else can be checked either

log = logging.getLogger("waybill")


class HealthCheck(NamedTuple):
    """`find` may be called more than once; `repair` repairs one finding, and returns whether it did."""

    name: str
    find: Callable[[], Iterable[Finding]]
    repair: Callable[[Finding], bool]


def examine(
    environment: Environment, store: Store, *, who: str, fix: bool, on_check: Callable[[str], None] = lambda name: None
) -> Iterator[tuple[Finding, bool]]:
    """Run all checks; yields each finding, and whether it is repaired. `on_check` is called with the name of each check
    before it runs.
    """
    for check in _list_checks(environment, store, who):
        on_check(check.name)
        yield from _run_check(check, fix)


def repair_one(environment: Environment, store: Store, rule: str, where: str, *, who: str) -> bool | None:
    """Repair the finding of this rule and place, if it is still there; return whether it is repaired, None when it is not found."""
    for check in _list_checks(environment, store, who):
        for finding in _find_problems(check):
            if (finding.rule, finding.where) == (rule, where):
                return finding.repairable and _repair_finding(check, finding)[1]
    return None


def _list_checks(environment: Environment, store: Store, who: str) -> Iterator[HealthCheck]:
    def check_store() -> Iterator[Finding]:
        # Over a connection of its own: repairs on the other connection must not disturb the reading.
        with closing(environment.open_store(migrate=False)) as reader:
            yield from reader.check()

    machines = environment.machines
    yield HealthCheck("the disks", lambda: _find_low_disk_space(environment.config), store.repair)
    yield HealthCheck("the machines", lambda: _find_undeclared_states(store, machines), store.repair)
    yield HealthCheck("the store", check_store, store.repair)
    yield HealthCheck(
        "the workers", lambda: _find_expired_sessions(store), lambda finding: finding.where in store.reap_sessions()
    )
    yield HealthCheck("the queues", lambda: _find_unserved_work(store, machines), store.repair)
    scheduler = MaintenanceScheduler.from_environment(environment)
    for routine in scheduler.routines.values():
        if routine.has_routine_findings:
            continue  # its findings are ordinary work; this leaves out the store's check too, which ran above
        memory = _load_missing_hosts(store) if routine.name == LostHostRoutine.name else {}
        context = scheduler.make_context(store, memory, who, thorough=True)
        yield HealthCheck(routine.name, partial(routine.check, context), partial(routine.repair, context))


def _load_missing_hosts(store: Store) -> dict[str, Any]:
    """The memory of the routine for lost hosts, which doctor only reads: how long a host has been missing is known to
    the routine alone, which has looked before.
    """
    try:
        return memory_of(store.get(MAINTENANCE.name, LostHostRoutine.name))
    except RecordNotFound:
        return {}


def _run_check(check: HealthCheck, fix: bool) -> Iterator[tuple[Finding, bool]]:
    """One repair may repair other findings with it: a finding that a second run of the check does not yield again
    counts as repaired.
    """
    unrepaired: list[Finding] = []
    for finding in _find_problems(check):
        if not fix or not finding.repairable:
            yield finding, False
            continue
        finding, is_repaired = _repair_finding(check, finding)
        if is_repaired:
            yield finding, True
        elif len(unrepaired) < MAX_RECHECKED:
            unrepaired.append(finding)
        else:
            yield finding, False
    rechecked = {(finding.rule, finding.where) for finding in unrepaired}
    still_found: set[tuple[str, str]] = set()
    if unrepaired:
        still_found = {(finding.rule, finding.where) for finding in _find_problems(check)} & rechecked
    yield from ((finding, (finding.rule, finding.where) not in still_found) for finding in unrepaired)


def _find_problems(check: HealthCheck) -> Iterator[Finding]:
    """The findings of a check, until something cannot be read: that is the last finding."""
    try:
        yield from check.find()
    except BadStore as error:
        yield Finding("unreadable", check.name, str(error), "repair that first, then check again", repairable=False)
    except UNAVAILABLE_ERRORS:
        raise
    except Exception as error:  # files that cannot be read, or a bug in a routine of an application
        log.info("checking %s", check.name, exc_info=error)
        problem = f"It was not checked to the end: {_explain_error(error)}"
        yield Finding("check failed", check.name, problem, "repair that first, then check again", repairable=False)


def _repair_finding(check: HealthCheck, finding: Finding) -> tuple[Finding, bool]:
    """Whether it is repaired. When the repair fails, the finding says why, and the others are still repaired."""
    try:
        return finding, check.repair(finding)
    except UNAVAILABLE_ERRORS:
        raise
    except Exception as error:  # as in _find_problems
        log.info("repairing %s, %s", finding.rule, finding.where, exc_info=error)
        return replace(finding, problem=f"{finding.problem} The repair failed: {_explain_error(error)}"), False


def _explain_error(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return to_sentence(f"{error.filename}: {error.strerror}" if error.filename else error.strerror)
    if isinstance(error, StoreError):
        return to_sentence(str(error))
    return to_sentence(f"{type(error).__name__}: {rules.describe_error(error)}")


def describe_sandbox(environment: Environment) -> list[str]:
    """What this machine offers for the commands of users: which limits the kernel enforces, which are watched, and which
    applications run commands.
    """
    needing = [f"for {each.name}" for each in environment.applications if each.runs_commands]
    return [*describe_support(find_support(environment.config.sandbox)), *needing]


# --- disks


def _find_low_disk_space(settings: Config) -> Iterator[Finding]:
    """One finding for each disk, which names all that lies on it."""
    disks: dict[int, tuple[Path, list[str]]] = {}
    for purpose, path in _list_written_folders(settings).items():
        folder = next(parent for parent in (path.absolute(), *path.absolute().parents) if parent.is_dir())
        disks.setdefault(os.stat(folder).st_dev, (folder, []))[1].append(purpose)
    for folder, purposes in disks.values():
        disk = os.statvfs(folder)
        free, total = disk.f_bavail * disk.f_frsize, disk.f_blocks * disk.f_frsize
        if free < min(MIN_FREE_BYTES, total // 100):
            shortage = f"{free / 1e6:,.0f} MB of {total / 1e9:,.1f} GB are free"
        elif disk.f_files and disk.f_favail < MIN_FREE_FILES:
            shortage = f"only {disk.f_favail} more files can be made"
        else:
            continue
        problem = f"{shortage} on the disk of {' and '.join(purposes)}; what cannot be written is tried again later."
        remedy = "free some space on that disk, or move the folder to a larger one"
        yield Finding("disk space", str(folder), problem, remedy, repairable=False)


def _list_written_folders(settings: Config) -> dict[str, Path]:
    """The folders that this process writes to, by what for."""
    folders = {"the working folders": settings.work.root}
    for purpose, url in (("the store", settings.store), ("the index", settings.index)):
        if (path := config.sqlite_path(url)) is not None:
            folders[purpose] = path.parent
    if "://" not in settings.objects:
        folders["the objects"] = Path(settings.objects)
    return folders


# --- machines and workers


def _find_undeclared_states(store: Store, machines: Machines) -> Iterator[Finding]:
    """Records in states that this release does not declare: no worker claims them."""
    for kind, machine in sorted(machines.items()):
        for state, count in rules.find_undeclared_states(machine, store.count_by_state(kind)).items():
            problem = f"{count} {machine.plural} are in {state}, which this release does not declare."
            remedy = f"waybill act {kind} ID --to STATE"
            yield Finding("undeclared state", f"{kind}.{state}", problem, remedy, repairable=False)


def _find_expired_sessions(store: Store) -> Iterator[Finding]:
    """Sessions of workers that are gone. Only a process that has been connected for as long as a session may be silent
    may end it, so doctor often cannot.
    """
    now = store.now()
    for session in store.list_sessions():
        if session.expires <= now:
            problem = (
                f"It expired {now - session.expires:.0f} s ago: its worker on {session.host} is gone, "
                "and the records that it claimed are not free."
            )
            yield Finding("expired session", session.name, problem, "start a worker: it frees what this one claimed")


# --- queues


class InspectedQueue(NamedTuple):
    machine: Machine
    state: str

    @property
    def name(self) -> str:
        return f"{self.machine.name}.{self.state}"


class WaitingWork(NamedTuple):
    """Due records of one queue."""

    record_count: int
    is_complete: bool  # all records of the state were read; otherwise there may be more
    since: float  # when the first of them became due

    def describe(self, queue: InspectedQueue, now: float) -> str:
        since = datetime.fromtimestamp(self.since, UTC).isoformat()
        records = f"1 {queue.machine.name} has" if self.record_count == 1 else None
        records = records or f"{self.record_count} {queue.machine.plural} have"
        least = "" if self.is_complete else "at least "
        return f"{least}{records} waited in {queue.state} since {format_local_time(since)} ({format_age(since, now)})"


def describe_waiting_work(store: Store, machines: Machines) -> str | None:
    """The remark that work waits and no worker is alive. Maintenance does not count: it is always due when no worker
    has run for a while. None also when a record cannot be read, which is a finding of the store's check.
    """
    try:
        return _describe_waiting_work(store, machines)
    except BadStore:
        return None


def _describe_waiting_work(store: Store, machines: Machines) -> str | None:
    now = store.now()
    if any(session.expires > now for session in store.list_sessions()):
        return None
    queues = (queue for queue in _list_queues(store, machines) if queue.machine.name != MAINTENANCE.name)
    waiting_queues = ((queue, waiting) for queue in queues if (waiting := _find_waiting_work(store, queue, now)))
    described = list(islice((waiting.describe(queue, now) for queue, waiting in waiting_queues), MAX_QUEUES_NAMED + 1))
    if not described:
        return None
    more = ", and so do others" if len(described) > MAX_QUEUES_NAMED else ""
    return f"No worker is alive: {'; '.join(described[:MAX_QUEUES_NAMED])}{more}. `waybill work` starts one."


def _find_unserved_work(store: Store, machines: Machines) -> Iterator[Finding]:
    """One finding for each queue that no live worker serves, and one for each host whose workers do not serve records
    that only they may claim.
    """
    now = store.now()
    live_sessions = [session for session in store.list_sessions() if session.expires > now]
    if not live_sessions or any("queues" not in session.about for session in live_sessions):
        return  # no worker is there, or one does not say which queues it serves
    for queue in _list_queues(store, machines):
        serving_hosts = {session.host for session in live_sessions if queue.name in session.about["queues"]}
        if not serving_hosts:
            if waiting := _find_waiting_work(store, queue, now):
                yield _unserved_finding_of(queue, waiting, live_sessions, now)
        elif queue.machine.can_bind_to_host():
            other_hosts = {session.host for session in live_sessions} - serving_hosts
            yield from _find_host_bound_work(store, queue, other_hosts, now)


def _unserved_finding_of(
    queue: InspectedQueue, waiting: WaitingWork, sessions: list[SessionInfo], now: float
) -> Finding:
    workers = f"{len(sessions)} workers are" if len(sessions) != 1 else "1 worker is"
    if any(queue.machine.name in session.about.get("machines", ()) for session in sessions):
        reason, remedy = f"{workers} alive, for other queues", "start one that does"
    else:
        reason = f"{workers} alive, without the application that declares {queue.machine.plural}"
        remedy = "install that application beside a worker and start it again, or start one where it is"
    problem = f"{waiting.describe(queue, now)}, and no live worker serves {queue.name}: {reason}."
    return Finding(UNSERVED_RULE, queue.name, problem, f"{remedy}: waybill work --queue {queue.name}", repairable=False)


def _find_host_bound_work(store: Store, queue: InspectedQueue, hosts: set[str], now: float) -> Iterator[Finding]:
    """Records that are bound to one of these hosts, which have workers, but none for this queue.

    What is bound to a host without any worker is found by the maintenance routine for lost hosts.
    """
    for host in sorted(hosts):

        def is_bound(record: Record, host: str = host) -> bool:
            return record.host == host

        if waiting := _find_waiting_work(store, queue, now, is_bound):
            problem = (
                f"{waiting.describe(queue, now)} with their working files on {host}, "
                f"whose workers do not serve {queue.name}."
            )
            remedy = f"start one there: waybill work --queue {queue.name}"
            yield Finding(UNSERVED_RULE, f"{queue.name} on {host}", problem, remedy, repairable=False)


def _list_queues(store: Store, machines: Machines) -> Iterator[InspectedQueue]:
    """The queues that hold records, are not paused, and are Waybill's to serve: a state without a step is left to
    another service.
    """
    holds = store.list_holds()
    for kind, machine in sorted(machines.items()):
        # The step of maintenance is registered by workers only.
        without_step = () if kind == MAINTENANCE.name else machine.list_states_without_step()
        served = [state for state in machine.list_work_states() if state.name not in without_step]
        counts = store.count_by_state(kind) if served else {}
        for state in served:
            if counts.get(state.name) and not rules.list_pause_holds(machine, state.name) & holds.keys():
                yield InspectedQueue(machine, state.name)


def _find_waiting_work(
    store: Store, queue: InspectedQueue, now: float, predicate: Callable[[Record], bool] = lambda record: True
) -> WaitingWork | None:
    """Records that have been due for longer than DUE_GRACE, among the oldest of the queue."""
    holds = store.list_holds()
    records = store.each(queue.machine.name, state=queue.state, page_size=MAX_PAGE)
    count, first = 0, now
    for record in islice(records, MAX_RECORDS_READ):
        since = _due_time_of(record, holds)
        if since is not None and now - since >= DUE_GRACE and predicate(record):
            count, first = count + 1, min(first, since)
    return WaitingWork(count, next(records, None) is None, first) if count else None


def _due_time_of(record: Record, holds: Collection[str]) -> float | None:
    """None: it is claimed, on hold, or blocked by something that no worker can do."""
    if record.session is not None or any(name in holds for name in record.hold_names):
        return None
    if record.blocked_by is None:
        return record.updated
    return record.wake_at if record.blocked_by == "wait" else None
