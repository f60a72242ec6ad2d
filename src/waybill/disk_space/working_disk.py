"""The working disk of a host, as the steps of an application use it, from the estimate to the last file.

    reserve              reserves what the record needs. If there is not enough, stale reservations are removed, the space hook is
                         run if its time has come, and the reservation is tried once more; then the record waits
    start_meter          a `SpaceMeter` adds up what is announced before it is written, and what has been written
    wait_if_short        what a step does that could not write everything:
                             others fill the disk: its files stay, and it waits for what is missing
                             more was announced than was reserved: nothing of that is written; it waits for that much
                             more came than was announced: it gives back all it has, so that others can continue, and waits for
                             twice as much
    wait_for_full_disk   the disk itself refused a write
    release              everything is written, or was given up

A record that needs more than the disk has waits for a larger disk, or fails once it has begun (`NeverFits`): the
administrators get mail once. They also get mail about a record that has waited very long: it would fit, but what fills
the disk may stay. A record that has waited longer than `patience` keeps nothing reserved.

A reservation is stale when its record is gone, is on another host, or is in a state that does not declare
`reserves_space`. Reservations of kinds that are not loaded here are left alone.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import NoReturn

import msgspec

from waybill.disk_space.reservations import (
    DISK_FULL_MESSAGE,
    DiskSpaceSettings,
    DiskUsage,
    SpaceDecision,
    SpaceReservations,
    measure_disk,
)
from waybill.disk_space.space_hook import run_space_hook
from waybill.files.folders import measure_folder, remove_attempt, remove_earlier_attempts
from waybill.machine import Document
from waybill.notify import make_mail
from waybill.record import DocumentStruct, RecordNotFound, Store
from waybill.rules import Machines
from waybill.step import Fail, New, StepContext, Wait

_RECORDS_PER_READ = 100
StructTuple = tuple[msgspec.Struct, ...]


class SpaceWait(DocumentStruct, frozen=True):
    """The document of a record that waits for disk space."""

    since: float
    message: str
    never_fits: bool = False  # not even on an empty disk
    late: bool = False  # the administrators know that it has waited very long


SPACE_DOCUMENT = Document("disk_space", SpaceWait, "step", "Since when it waits for disk space, and why.")


class NeverFits(Fail):
    """What has come, or was announced, is more than the disk has. `reason`: the sentence without the advice."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"{reason} Give it a larger disk, then resume.")
        self.reason = reason


class SpaceMeter:
    """What one run of a step writes, beside what is reserved for it; used from several threads.

    `must_stop`: nothing more may be written.
    """

    def __init__(self, ctx: StepContext, reservations: SpaceReservations, need: int | None, granted: int) -> None:
        self._ctx, self._reservations, self._need = ctx, reservations, need
        self._id = str(ctx.record.ref)
        self._sizes: dict[str, int] = {}
        self._lock = threading.Lock()
        self._limit = min(granted, reservations.growth_chunk)  # a small record never reports its usage
        self.granted_bytes = granted
        self.announced_bytes = 0
        self.written_bytes = 0
        self.is_refused = False  # more was announced than could be reserved
        self.is_disk_full = False

    @property
    def must_stop(self) -> bool:
        return self.is_disk_full or self.is_refused

    def accept_size(self, name: str, size: int) -> bool:
        """Whether a file of this size may be written; called again for another try of the same file."""
        with self._lock:
            self.announced_bytes += size - self._sizes.get(name, 0)
            self._sizes[name] = size
            if self.announced_bytes > self.granted_bytes and not self.is_refused:
                self.is_refused = not self._reservations.reserve(
                    self._id, self.announced_bytes, self._ctx.now(), have=self.written_bytes
                ).granted
                self.granted_bytes = self.granted_bytes if self.is_refused else self.announced_bytes
            return not self.is_refused

    def report_bytes(self, count: int) -> None:
        """So many bytes are written by now; called by one thread at a time."""
        self._ctx.report_progress(count, self._need, "bytes")
        self.written_bytes = count
        if count > self._limit and not self.is_disk_full:
            allowed = self._reservations.report_usage(self._id, count, self._ctx.now())
            self._limit, self.is_disk_full = allowed or self._limit, allowed is None


class WorkingDisk:
    """May be used from all threads of a process. `admins`: the mail addresses that get alerts."""

    def __init__(
        self,
        root: Path,
        host: str,
        machines: Machines,
        settings: DiskSpaceSettings,
        *,
        admins: Sequence[str] = (),
        measure_disk: Callable[[Path], DiskUsage] = measure_disk,
    ) -> None:
        self._root, self._host, self._machines, self._settings = root, host, machines, settings
        self._admins = admins
        self.reservations = SpaceReservations(root, settings, measure_disk)

    def reserve(self, ctx: StepContext, need: int | None, *, have: int = 0, documents: StructTuple = ()) -> Wait | None:
        """Reserve `need` bytes (None: unknown), of which `have` are on the disk already. Returns None if they are
        granted, otherwise the Wait to return, which writes `documents`.

        Safe to repeat: a record has one reservation, and reserving the same twice is reserving it once.
        """
        id = str(ctx.record.ref)
        decision = self.reservations.reserve(id, need, ctx.now(), have=have)
        if not decision.granted and self._free_more_space(ctx, decision):
            decision = self.reservations.reserve(id, need, ctx.now(), have=have)
        if decision.granted:
            return None
        wait = SpaceWait(decision.waiting_since, decision.reason, decision.never_fits)
        if decision.never_fits:
            self._alert_never_fits(ctx, wait)
        elif ctx.now() - decision.waiting_since > self._settings.alert_after:
            wait = msgspec.structs.replace(wait, late=True)
            self._alert_late(ctx, wait)
        return self._wait(ctx, wait, documents)

    def release(self, ctx: StepContext) -> None:
        """Give back what is reserved. Safe to repeat; a reservation that a crash leaves is removed as stale."""
        self.reservations.remove(str(ctx.record.ref))

    def release_after_patience(self, ctx: StepContext) -> None:
        """Give back what a record has that waited too long, also the files of its earlier attempts."""
        if ctx.now() - self._waits_since(ctx) > self._settings.patience:
            remove_earlier_attempts(ctx)
            self.reservations.release_granted(str(ctx.record.ref))

    def start_meter(self, ctx: StepContext, need: int | None) -> SpaceMeter:
        """Measure what this run writes; `need` as it was reserved."""
        return SpaceMeter(ctx, self.reservations, need, self._settings.unknown_size_bytes if need is None else need)

    def wait_for_full_disk(self, ctx: StepContext, need: int | None) -> Wait:
        """Something else fills the disk: written files stay, and the step goes on when there is space for the rest."""
        return self._withdraw(ctx, need, DISK_FULL_MESSAGE)

    def wait_if_short(
        self,
        ctx: StepContext,
        meter: SpaceMeter,
        need: int | None,
        sizes: Iterable[int | None],
        documents_of: Callable[[int], StructTuple] = lambda need: (),
    ) -> Wait | None:
        """The Wait to return if the step could not write everything for want of space; None if that was not the cause.

        `need`: as it was reserved. `sizes`: of all files, as far as they are known. `documents_of` returns the
        documents to write for another need than that. Raises NeverFits.
        """
        if meter.is_refused:
            return self._wait_for_announced(ctx, meter.announced_bytes, documents_of)
        if not meter.is_disk_full and not self.reservations.is_full():
            return None
        written = measure_folder(ctx.workdir)
        if written <= meter.granted_bytes:
            return self.wait_for_full_disk(ctx, need)
        return self._wait_for_outgrown(ctx, written, list(sizes), documents_of)

    def _wait_for_announced(self, ctx: StepContext, need: int, documents_of: Callable[[int], StructTuple]) -> Wait:
        """More is announced than was estimated, and there is no space for it: nothing of that was written. What was
        stays.
        """
        capacity = self.reservations.get_capacity()
        if need > capacity:
            reason = (
                f"It can never fit: the servers offer {need:,} bytes, and the working disk has {capacity:,} at most."
            )
            self._refuse_oversized(ctx, reason, documents_of(need))
        message = (
            f"It waits for disk space: the servers offer {need:,} bytes, more than was estimated, "
            "and there is not enough space now."
        )
        return self._withdraw(ctx, need, message, documents_of(need))

    def _wait_for_outgrown(
        self, ctx: StepContext, written: int, sizes: Sequence[int | None], documents_of: Callable[[int], StructTuple]
    ) -> Wait:
        """More arrived than was announced, and there is no space for the rest. If the final size is unknown, the record
        waits for twice as much.
        """
        promised = sum(size or 0 for size in sizes)
        need = promised if promised > written and None not in sizes else max(promised, 2 * written)
        # Safe to repeat: a second run starts with nothing, and ends in the same way or better.
        remove_earlier_attempts(ctx)
        remove_attempt(ctx, ctx.workdir)
        capacity = self.reservations.get_capacity()
        if need > capacity:
            reason = (
                f"It can never fit: {written:,} bytes were fetched, more are to come, "
                f"and the working disk has {capacity:,} at most."
            )
            self._refuse_oversized(ctx, reason, documents_of(need))
        self.reservations.withdraw(str(ctx.record.ref), need, ctx.now(), exceeds_estimate=True)
        message = (
            f"It needs more space than reserved: {written:,} bytes were fetched, and the working disk is full. "
            f"It waits for {need:,} to be free."
        )
        return self._wait(ctx, SpaceWait(ctx.now(), message), documents_of(need))

    # --- waiting

    def _withdraw(self, ctx: StepContext, need: int | None, message: str, documents: StructTuple = ()) -> Wait:
        self.reservations.withdraw(str(ctx.record.ref), need, ctx.now())
        self.release_after_patience(ctx)
        return self._wait(ctx, SpaceWait(self._waits_since(ctx), message), documents)

    def _wait(self, ctx: StepContext, wait: SpaceWait, documents: StructTuple) -> Wait:
        changed = () if ctx.record.find_document(SpaceWait) == wait else (wait,)
        return Wait(self._settings.poll_interval, wait.message, (*documents, *changed))

    def _waits_since(self, ctx: StepContext) -> float:
        wait = ctx.record.find_document(SpaceWait)
        return ctx.now() if wait is None else wait.since

    def _refuse_oversized(self, ctx: StepContext, reason: str, documents: StructTuple) -> NoReturn:
        self._alert_never_fits(ctx, SpaceWait(ctx.now(), reason, never_fits=True), documents)
        raise NeverFits(reason)

    # --- alerts

    def _alert_never_fits(self, ctx: StepContext, wait: SpaceWait, documents: StructTuple = ()) -> None:
        """Mail the administrators once: in one commit with the document that says so."""
        before = ctx.record.find_document(SpaceWait)
        if before is None or not before.never_fits:
            subject = f"can never fit on the working disk of {self._host}"
            mail = self._build_alert_mail(ctx, subject, wait.message, "disk space")
            ctx.spawn(mail, (*documents, wait))

    def _alert_late(self, ctx: StepContext, wait: SpaceWait) -> None:
        """Mail them about a record that would fit and still gets no space: it may never get it, and nobody would notice."""
        before = ctx.record.find_document(SpaceWait)
        if before is None or not before.late:
            waited = (ctx.now() - wait.since) / 3600
            subject = f"has waited {waited:,.0f} hours for space on the working disk of {self._host}"
            mail = self._build_alert_mail(ctx, subject, wait.message, "disk space late")
            ctx.spawn(mail, (wait,))

    def _build_alert_mail(self, ctx: StepContext, subject: str, reason: str, key: str) -> Sequence[New]:
        """Mail to the administrators, if there are any."""
        if not self._admins:
            return ()
        record = ctx.record
        name = f"{record.kind.capitalize()} {record.id}"
        text, key = f"{name}: {reason}", f"{record.ref} {key}"
        return (make_mail(to=self._admins, subject=f"{name} {subject}", text=text, key=key, at=ctx.now()),)

    # --- freeing space

    def _free_more_space(self, ctx: StepContext, decision: SpaceDecision) -> bool:
        """Remove stale reservations and run the hook; whether that may have freed space."""
        removed = self.reservations.remove_stale(lambda ids: self._find_active(ctx, ids), ctx.now())
        hook_is_due = self.reservations.claim_hook_run(ctx.now())
        if hook_is_due:
            run_space_hook(ctx, self._settings.hook, self._root, decision.missing_bytes)
        return bool(removed) or hook_is_due

    def _find_active(self, ctx: StepContext, ids: Sequence[str]) -> set[str]:
        """The reservations among these whose records are in a state that reserves space, on this host."""
        active: set[str] = set()
        for start in range(0, len(ids), _RECORDS_PER_READ):
            active |= ctx.run_on_store(partial(self._find_active_page, ids[start : start + _RECORDS_PER_READ]))
        return active

    def _find_active_page(self, ids: Sequence[str], store: Store) -> set[str]:
        return {id for id in ids if self._is_active(store, *id.split(" ", 1))}

    def _is_active(self, store: Store, kind: str, id: str) -> bool:
        machine = self._machines.get(kind)
        if machine is None:
            return True  # of an application that is not loaded here
        try:
            record = store.get(kind, id)
        except RecordNotFound:
            return False
        state = machine.find_state(record.state)
        return state is not None and state.reserves_space and record.host in ("", self._host)
