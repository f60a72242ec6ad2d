"""Reservations of space on the working disk: whoever writes files there reserves what they will need before it begins.

    reserve        asks for a number of bytes: they are granted; or refused with a reason, and the reservation is noted as waiting
    report_usage   says how much of that is on the disk by now, which the free bytes of the disk reflect already; what goes beyond
                   the grant is granted in small chunks
    withdraw       the disk was found full: what was granted is free again, and the reservation waits
    remove         all files are written, or were given up

A reservation has an id; all of a host are beside each other, whatever they are for. Free for a new one are: the free
bytes of the disk, minus `keep_free`, minus what those with a grant have still to write. One that has waited longer than
`patience` comes first: none that came later gets a grant unless enough for the older one is left. That does not apply
to one that exceeded its estimate: its final size is unknown.

Reservations are JSON lines in a file below the working root, to which all workers of the host append under a lock
(locked_log.py); a change costs the same however many there are. From time to time the file is rewritten without lines
that no longer count. After a crash of the machine everything is reserved again, as it is when a reservation was removed
as stale.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, NamedTuple

import msgspec

from waybill.disk_space.locked_log import LockedLog

FOLDER = ".disk_space"
DISK_FULL_MESSAGE = "It waits for disk space: the working disk is full."
_MIN_LOG_LINES = 64  # and four for each reservation: a longer file is rewritten
_MEBIBYTE = 2**20
_NEVER = float("-inf")

_GIBIBYTE = 2**30

ByteCount = Annotated[int, msgspec.Meta(ge=0)]
Seconds = Annotated[float, msgspec.Meta(ge=0)]


class DiskSpaceSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """When a record gets space on the working disk; part of the settings of an application."""

    keep_free: ByteCount = _GIBIBYTE  # bytes that always stay free
    unknown_size_bytes: ByteCount = 10 * _GIBIBYTE  # bytes that must be free for a record of unknown size
    poll_interval: Seconds = 30.0  # seconds between two checks of the disk
    patience: Seconds = 3600.0  # seconds; a record that has waited longer gets the next free space, before smaller ones
    alert_after: Seconds = 86400.0  # seconds; a record that has waited longer is reported to the admins by mail
    hook: tuple[str, ...] = ()  # a command that may free space; environment variables tell it how much is needed
    hook_interval: Seconds = 600.0  # seconds between two runs of the hook


class DiskUsage(NamedTuple):
    total: int
    free: int


class SpaceReservation(msgspec.Struct, frozen=True, omit_defaults=True, tag="reservation"):
    id: str
    granted: ByteCount = 0
    on_disk: ByteCount = 0  # of these, written by now
    requested: ByteCount = 0  # if it waits; 0: it does not
    waiting_since: float = 0.0  # when it was first refused
    is_removed: bool = False
    exceeds_estimate: bool = False  # more arrived than was granted: it waits, and no other waits for it

    @property
    def outstanding(self) -> int:
        return max(0, self.granted - self.on_disk)


class MaintenanceTimes(msgspec.Struct, frozen=True, omit_defaults=True, tag="times"):
    """When maintenance was last done, by any worker of the host."""

    stale_removed_at: float | None = None
    hook_run_at: float | None = None


_encode = msgspec.json.Encoder().encode
_read_line = msgspec.json.Decoder(SpaceReservation | MaintenanceTimes).decode


class SpaceDecision(NamedTuple):
    granted: bool
    waiting_since: float = 0.0
    missing_bytes: int = 0
    never_fits: bool = False  # not even on an empty disk
    reason: str = ""


def measure_disk(root: Path) -> DiskUsage:
    found = os.statvfs(root)
    return DiskUsage(found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize)


def is_disk_full(error: OSError) -> bool:
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


@contextmanager
def ignore_full_disk() -> Iterator[None]:
    """Suppress the error of a full disk: what could not be written is left undone."""
    try:
        yield
    except OSError as error:
        if not is_disk_full(error):
            raise


class SpaceReservations:
    """The reservations of one working root; may be used from all threads of a process."""

    # bytes after which usage is reported, and by which a reservation may grow beyond its grant
    growth_chunk = 64 * _MEBIBYTE

    _stale_removed_at: float
    _hook_run_at: float

    def __init__(
        self, root: Path, settings: DiskSpaceSettings, measure_disk: Callable[[Path], DiskUsage] = measure_disk
    ) -> None:
        self._root, self._settings, self._measure_disk = root, settings, measure_disk
        self._hook_run_here_at = _NEVER  # when the disk was too full to write it to the log
        self._log = LockedLog(root / FOLDER / "reservations", self._reset, self._apply_line)

    # --- one reservation

    def reserve(self, id: str, need: int | None, now: float, *, have: int = 0) -> SpaceDecision:
        """Ask for `need` bytes in all (None: unknown), of which `have` are on the disk. Safe to repeat."""
        with ignore_full_disk():
            return self._reserve_unguarded(id, need, now, have)
        return SpaceDecision(False, now, need or self._settings.unknown_size_bytes, reason=DISK_FULL_MESSAGE)

    def _reserve_unguarded(self, id: str, need: int | None, now: float, have: int) -> SpaceDecision:
        with self._log.acquire():
            mine = self._reservations.get(id, SpaceReservation(id))
            amount = self._settings.unknown_size_bytes if need is None else need
            if id in self._reservations and mine.granted >= amount and (mine.granted or not mine.requested):
                self._write_reservation(SpaceReservation(id, granted=mine.granted, on_disk=mine.on_disk))
                return SpaceDecision(True)
            have = max(have, mine.on_disk)
            since = mine.waiting_since if mine.requested else now
            disk = self._measure_disk(self._root)
            usable = (
                disk.free
                - self._settings.keep_free
                - (self._outstanding - mine.outstanding)
                - self._compute_promised(id, since, now, disk)
            )
            missing = max(0, amount - have) - usable
            if missing <= 0:
                self._write_reservation(SpaceReservation(id, granted=amount, on_disk=have))
                return SpaceDecision(True)
            self._write_reservation(
                SpaceReservation(
                    id,
                    granted=mine.granted,
                    on_disk=have,
                    requested=max(1, amount),
                    waiting_since=since,
                    exceeds_estimate=mine.exceeds_estimate,
                )
            )
            never = need is not None and need > disk.total - self._settings.keep_free
            return SpaceDecision(False, since, missing, never, self._explain_refusal(need, amount, usable, disk, never))

    def report_usage(self, id: str, have: int, now: float) -> int | None:
        """Report how much is on the disk; returns up to how much it may write before it reports again. None: no space is left."""
        with ignore_full_disk(), self._log.acquire():
            mine = self._reservations.get(id, SpaceReservation(id))
            disk = self._measure_disk(self._root)
            own, spare = mine.granted - have, self._compute_spare(disk)
            if own < 0:  # beyond its grant it gets nothing that is reserved for others
                own, spare = (
                    self.growth_chunk,
                    spare - (self._outstanding - mine.outstanding) - self._compute_promised(id, now, now, disk),
                )
            more = max(0, min(own, spare, self.growth_chunk))
            self._write_reservation(msgspec.structs.replace(mine, on_disk=have, granted=max(mine.granted, have + more)))
            return have + more if spare > 0 else None
        return None

    def withdraw(self, id: str, requested: int | None, now: float, *, exceeds_estimate: bool = False) -> None:
        """Give back the grant, and wait for `requested` bytes in all. Safe to repeat."""
        with ignore_full_disk(), self._log.acquire():
            mine = self._reservations.get(id, SpaceReservation(id))
            amount = self._settings.unknown_size_bytes if requested is None else requested
            self._write_reservation(
                SpaceReservation(
                    id,
                    requested=max(1, amount),
                    waiting_since=mine.waiting_since if mine.requested else now,
                    exceeds_estimate=exceeds_estimate,
                )
            )

    def release_granted(self, id: str) -> None:
        """Give back the grant, also what was written of it; the reservation goes on waiting for all of it."""
        with ignore_full_disk(), self._log.acquire():
            if id in self._reservations:
                self._write_reservation(msgspec.structs.replace(self._reservations[id], granted=0, on_disk=0))

    def remove(self, id: str) -> None:
        """Remove a reservation: the rest is free for others. If the disk is too full to write that, remove_stale does it later."""
        with ignore_full_disk(), self._log.acquire():
            if id in self._reservations:
                self._write_reservation(SpaceReservation(id, is_removed=True))

    def is_full(self) -> bool:
        """Whether nothing may be written now."""
        return self._compute_spare(self._measure_disk(self._root)) <= 0

    def measure(self) -> DiskUsage:
        return self._measure_disk(self._root)

    def get_capacity(self) -> int:
        """The bytes for a reservation that has the disk to itself."""
        return self._measure_disk(self._root).total - self._settings.keep_free

    # --- all reservations

    def list_reservations(self) -> list[SpaceReservation]:
        with self._log.acquire():
            return list(self._reservations.values())

    def remove_stale(self, find_active: Callable[[Sequence[str]], Collection[str]], now: float) -> int:
        """Remove the reservations that are no longer needed; returns how many. `find_active` returns those of a list
        that are.

        Runs at most once in `poll_interval` on the host, whichever worker calls. A reservation that changes while
        `find_active` runs stays. On a disk that is too full to write the log, nothing is removed.
        """
        with ignore_full_disk():
            with self._log.acquire():
                if not self._is_due(self._stale_removed_at, self._settings.poll_interval, now):
                    return 0
                self._stale_removed_at = now
                self._append_line(MaintenanceTimes(stale_removed_at=now))
                before = list(self._reservations.values())
            active = set(find_active([entry.id for entry in before]))
            with self._log.acquire():
                stale = [
                    entry for entry in before if entry.id not in active and self._reservations.get(entry.id) == entry
                ]
                for entry in stale:
                    self._write_reservation(SpaceReservation(entry.id, is_removed=True))
            return len(stale)
        return 0

    def claim_hook_run(self, now: float) -> bool:
        """Whether the caller is to run the space hook now. Then no other worker of the host is told so for
        `hook_interval`; or none of this process, if the disk is too full to write the log.
        """
        if not self._settings.hook or not self._is_due(self._hook_run_here_at, self._settings.hook_interval, now):
            return False
        with ignore_full_disk(), self._log.acquire():
            if not self._is_due(self._hook_run_at, self._settings.hook_interval, now):
                return False
            self._hook_run_at, self._hook_run_here_at = now, _NEVER
            self._append_line(MaintenanceTimes(hook_run_at=now))
            return True
        self._hook_run_here_at = now
        return True

    # --- computing free space

    def _compute_spare(self, disk: DiskUsage) -> int:
        """The bytes that may still be written, minus a margin for what is being written meanwhile."""
        return disk.free - self._settings.keep_free - min(_MEBIBYTE, disk.total // 64)

    def _compute_promised(self, id: str, since: float, now: float, disk: DiskUsage) -> int:
        """The bytes for those that have waited too long, and longer than this one; without those that can never fit."""
        patience_start, capacity = now - self._settings.patience, disk.total - self._settings.keep_free
        return sum(
            max(0, entry.requested - entry.on_disk - entry.outstanding)
            for entry in self._waiting.values()
            if entry.id != id
            and entry.waiting_since < min(since, patience_start)
            and entry.requested <= capacity
            and not entry.exceeds_estimate
        )

    def _is_due(self, last: float, interval: float, now: float) -> bool:
        return not last <= now < last + interval  # due also after the clock was set back

    def _explain_refusal(self, need: int | None, amount: int, usable: int, disk: DiskUsage, never: bool) -> str:
        usable = max(0, usable)
        if need is None:
            return f"It waits for disk space: its size is not known, and {amount:,} bytes must be free for it; {usable:,} are."
        if never:
            capacity = disk.total - self._settings.keep_free
            return f"It can never fit: it needs {need:,} bytes, and the working disk has {capacity:,} at most. Give it a larger disk."
        return f"It waits for disk space: it needs {need:,} bytes, and {usable:,} are free for it."

    # --- the log

    def _reset(self) -> None:
        self._reservations: dict[str, SpaceReservation] = {}
        self._waiting: dict[str, SpaceReservation] = {}
        self._outstanding = 0
        self._stale_removed_at = self._hook_run_at = _NEVER

    def _apply_line(self, line: bytes) -> None:
        with suppress(msgspec.DecodeError):  # a torn line: its writer reserves again
            entry = _read_line(line)
            if isinstance(entry, SpaceReservation):
                self._apply_reservation(entry)
            else:
                self._stale_removed_at = (
                    self._stale_removed_at if entry.stale_removed_at is None else entry.stale_removed_at
                )
                self._hook_run_at = self._hook_run_at if entry.hook_run_at is None else entry.hook_run_at

    def _apply_reservation(self, entry: SpaceReservation) -> None:
        before = self._reservations.pop(entry.id, None)
        self._waiting.pop(entry.id, None)
        self._outstanding -= before.outstanding if before else 0
        if not entry.is_removed:
            self._outstanding += entry.outstanding
            self._reservations[entry.id] = entry
            if entry.requested:
                self._waiting[entry.id] = entry

    def _write_reservation(self, entry: SpaceReservation) -> None:
        if self._reservations.get(entry.id) != entry:
            self._apply_reservation(entry)
            self._append_line(entry)

    def _append_line(self, line: SpaceReservation | MaintenanceTimes) -> None:
        """Append a line that is already applied in memory; rewrite the file if it has become long."""
        if self._log.lines <= _MIN_LOG_LINES + 4 * len(self._reservations):
            self._log.append(_encode(line))
            return
        times = MaintenanceTimes(
            None if self._stale_removed_at == _NEVER else self._stale_removed_at,
            None if self._hook_run_at == _NEVER else self._hook_run_at,
        )
        self._log.rewrite(_encode(each) for each in (times, *self._reservations.values()))
