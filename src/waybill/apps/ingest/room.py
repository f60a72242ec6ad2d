"""Room: the ledger of the working disk, in which every job of a host enters what it will need before it fetches
anything.

    admit     a job asks for so many bytes: granted, and entered; or refused with a sentence, and entered as waiting
    update    it tells how much of that lies on the disk by now, which the disk counts itself; what goes beyond is granted bit by bit
    withdraw  it found the disk full: what was granted is free again, and it waits
    leave     it has all it needs, or gave up

What is free for a newcomer: the disk's free bytes, without those that nobody may use (`keep_free`), and without what
admitted jobs still need. Who has waited longer than `patience` comes first: nobody who came later is admitted unless
enough for the older one is left. That does not hold for one that came to more than was said of it: nobody knows where
it ends.

The ledger is a file of JSON lines below the working root, which all workers of the host append to under a lock
(journal.py); an entry costs the same however many there are. From time to time it is written anew without what no
longer holds. After a crash of the machine jobs ask again, as they do when their entry was swept.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, NamedTuple

import msgspec

from waybill.apps.ingest.journal import Journal
from waybill.apps.ingest.settings import Room

FOLDER = ".room"
FULL = {errno.ENOSPC, errno.EDQUOT}
DISK_IS_FULL = "It waits for room: the working disk is full."
_LINES = 64  # and four for each entry: more are written anew
_MEBIBYTE = 2**20
_NEVER = float("-inf")

Bytes = Annotated[int, msgspec.Meta(ge=0)]


class Disk(NamedTuple):
    total: int
    free: int


class Entry(msgspec.Struct, frozen=True, omit_defaults=True, tag="job"):
    id: str
    need: Bytes = 0  # granted
    have: Bytes = 0  # of that, on the disk by now
    wants: Bytes = 0  # not granted yet
    since: float = 0.0  # when it was first refused
    gone: bool = False
    outgrown: bool = False  # more came than was granted: it waits, and nobody is made to wait for it

    @property
    def owed(self) -> int:
        return max(0, self.need - self.have)


class Times(msgspec.Struct, frozen=True, omit_defaults=True, tag="times"):
    """When something was last done, by whichever worker."""

    swept: float | None = None
    hooked: float | None = None


_encode = msgspec.json.Encoder().encode
_read_line = msgspec.json.Decoder(Entry | Times).decode


class Answer(NamedTuple):
    granted: bool
    since: float = 0.0  # it waits
    missing: int = 0  # bytes
    never: bool = False  # not even on an empty disk
    reason: str = ""


def disk_of(root: Path) -> Disk:
    found = os.statvfs(root)
    return Disk(found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize)


@contextmanager
def unless_full() -> Iterator[None]:
    """A full disk is no error here: what could not be written is left undone."""
    try:
        yield
    except OSError as error:
        if error.errno not in FULL:
            raise


class Ledger:
    """Of one working root; for all threads of a process."""

    # after which a job tells how much has come, and by which it may grow beyond what was granted
    portion = 64 * _MEBIBYTE

    _swept: float
    _hooked: float

    def __init__(self, root: Path, settings: Room, disk: Callable[[Path], Disk] = disk_of) -> None:
        self._root, self._settings, self._disk = root, settings, disk
        self._hooked_here = _NEVER  # when this process could not note it
        self._journal = Journal(root / FOLDER / "ledger", self._forget, self._take)

    # --- what jobs do

    def admit(self, id: str, need: int | None, now: float, *, have: int = 0) -> Answer:
        """Ask for so many bytes in all, of which `have` lie on the disk; None: nobody knows how many.

        Safe to repeat.
        """
        with unless_full():
            return self._admit(id, need, now, have)
        return Answer(False, now, need or self._settings.unknown, reason=DISK_IS_FULL)

    def _admit(self, id: str, need: int | None, now: float, have: int) -> Answer:
        with self._journal.locked():
            mine = self._entries.get(id, Entry(id))
            amount = self._settings.unknown if need is None else need
            if id in self._entries and mine.need >= amount and (mine.need or not mine.wants):
                self._enter(Entry(id, need=mine.need, have=mine.have))
                return Answer(True)
            have = max(have, mine.have)
            since = mine.since if mine.wants else now
            disk = self._disk(self._root)
            usable = (
                disk.free - self._settings.keep_free - (self._owed - mine.owed) - self._promised(id, since, now, disk)
            )
            missing = max(0, amount - have) - usable
            if missing <= 0:
                self._enter(Entry(id, need=amount, have=have))
                return Answer(True)
            self._enter(Entry(id, need=mine.need, have=have, wants=max(1, amount), since=since, outgrown=mine.outgrown))
            never = need is not None and need > disk.total - self._settings.keep_free
            return Answer(False, since, missing, never, self._sentence(need, amount, usable, disk, never))

    def update(self, id: str, have: int, now: float) -> int | None:
        """So much of it has come; up to how much it may go on before it tells again. None: nothing is left."""
        with unless_full(), self._journal.locked():
            mine = self._entries.get(id, Entry(id))
            disk = self._disk(self._root)
            own, spare = mine.need - have, self._spare(disk)
            if own < 0:  # what was granted to it is its own; of what goes beyond, nothing that is for others
                own, spare = self.portion, spare - (self._owed - mine.owed) - self._promised(id, now, now, disk)
            more = max(0, min(own, spare, self.portion))
            self._enter(msgspec.structs.replace(mine, have=have, need=max(mine.need, have + more)))
            return have + more if spare > 0 else None
        return None

    def withdraw(self, id: str, wants: int | None, now: float, *, outgrown: bool = False) -> None:
        """What was granted is free again, and it waits for so many bytes in all. Safe to repeat."""
        with unless_full(), self._journal.locked():
            mine = self._entries.get(id, Entry(id))
            amount = self._settings.unknown if wants is None else wants
            self._enter(Entry(id, wants=max(1, amount), since=mine.since if mine.wants else now, outgrown=outgrown))

    def give_back(self, id: str) -> None:
        """What was granted, and taken, is free again; it goes on waiting for all of it."""
        with unless_full(), self._journal.locked():
            if id in self._entries:
                self._enter(msgspec.structs.replace(self._entries[id], need=0, have=0))

    def leave(self, id: str) -> None:
        """What it had not used is free for others. If the disk is too full to say so, a sweep will find it out."""
        with unless_full(), self._journal.locked():
            if id in self._entries:
                self._enter(Entry(id, gone=True))

    def full(self) -> bool:
        """Whether nobody may write now."""
        return self._spare(self._disk(self._root)) <= 0

    def most(self) -> int:
        """What the disk has for a job that is alone on it."""
        return self._disk(self._root).total - self._settings.keep_free

    # --- what is done for all

    def entries(self) -> list[Entry]:
        with self._journal.locked():
            return list(self._entries.values())

    def sweep(self, still: Callable[[Sequence[str]], Collection[str]], now: float) -> int:
        """Remove the entries of jobs that need no room any more; how many. `still` answers which of some do.

        At most once in the time between two looks, by whichever worker; what was entered while `still` looked stays. On
        a disk that is too full to note it, none.
        """
        with unless_full():
            with self._journal.locked():
                if not self._due(self._swept, self._settings.every, now):
                    return 0
                self._swept = now
                self._append(Times(swept=now))
                before = list(self._entries.values())
            alive = set(still([entry.id for entry in before]))
            with self._journal.locked():
                gone = [entry for entry in before if entry.id not in alive and self._entries.get(entry.id) == entry]
                for entry in gone:
                    self._enter(Entry(entry.id, gone=True))
            return len(gone)
        return 0

    def hook_is_due(self, now: float) -> bool:
        """Whether more room is to be asked for now; then nobody else is told so for a while, or nobody of this process,
        if the disk is too full to note it.
        """
        if not self._settings.hook or not self._due(self._hooked_here, self._settings.hook_every, now):
            return False
        with unless_full(), self._journal.locked():
            if not self._due(self._hooked, self._settings.hook_every, now):
                return False
            self._hooked, self._hooked_here = now, _NEVER
            self._append(Times(hooked=now))
            return True
        self._hooked_here = now
        return True

    # --- the reckoning

    def _spare(self, disk: Disk) -> int:
        """What may be written yet, without what may be on its way while we reckon."""
        return disk.free - self._settings.keep_free - min(_MEBIBYTE, disk.total // 64)

    def _promised(self, id: str, since: float, now: float, disk: Disk) -> int:
        """What those need who have waited too long, and longer than this one; not who would wait for ever."""
        late, most = now - self._settings.patience, disk.total - self._settings.keep_free
        return sum(
            max(0, entry.wants - entry.have - entry.owed)
            for entry in self._waiting.values()
            if entry.id != id and entry.since < min(since, late) and entry.wants <= most and not entry.outgrown
        )

    def _due(self, last: float, every: float, now: float) -> bool:
        return not last <= now < last + every  # a clock that was set back does not silence it

    def _sentence(self, need: int | None, amount: int, usable: int, disk: Disk, never: bool) -> str:
        usable = max(0, usable)
        if need is None:
            return (
                f"It waits for room: its size is not known, and {amount:,} bytes must be free for it; {usable:,} are."
            )
        if never:
            most = disk.total - self._settings.keep_free
            return f"It can never fit: it needs {need:,} bytes, and the working disk has {most:,} at most. Give it a larger disk."
        return f"It waits for room: it needs {need:,} bytes, and {usable:,} are free for it."

    # --- what is in the file

    def _forget(self) -> None:
        self._entries: dict[str, Entry] = {}
        self._waiting: dict[str, Entry] = {}
        self._owed = 0
        self._swept = self._hooked = _NEVER

    def _take(self, line: bytes) -> None:
        with suppress(msgspec.DecodeError):  # a torn line: what it was to say is asked again
            said = _read_line(line)
            if isinstance(said, Entry):
                self._hold(said)
            else:
                self._swept = self._swept if said.swept is None else said.swept
                self._hooked = self._hooked if said.hooked is None else said.hooked

    def _hold(self, entry: Entry) -> None:
        before = self._entries.pop(entry.id, None)
        self._waiting.pop(entry.id, None)
        self._owed -= before.owed if before else 0
        if not entry.gone:
            self._owed += entry.owed
            self._entries[entry.id] = entry
            if entry.wants:
                self._waiting[entry.id] = entry

    def _enter(self, entry: Entry) -> None:
        if self._entries.get(entry.id) != entry:
            self._hold(entry)
            self._append(entry)

    def _append(self, line: Entry | Times) -> None:
        """A line that was taken into account already."""
        if self._journal.lines <= _LINES + 4 * len(self._entries):
            self._journal.append(_encode(line))
            return
        times = Times(None if self._swept == _NEVER else self._swept, None if self._hooked == _NEVER else self._hooked)
        self._journal.write_anew(_encode(each) for each in (times, *self._entries.values()))
